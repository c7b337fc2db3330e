package nodehealthcheck

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// skip is a reason why a node that should be remediated is not.
type skip struct {
	explain.Blocker
	kind string // of the event: Normal or Warning
	// quiet says that no event is about it: the check says it once for all nodes, or it is over in a moment.
	quiet bool
	// again is how soon the node is looked at again because of it; zero if something wakes us when it is over.
	again time.Duration
}

// warning is a skip that a user is warned of.
func warning(text string, args ...any) *skip {
	return &skip{Blocker: explain.Blocker{Reason: nhcv1.EventRemediationSkipped, Text: fmt.Sprintf(text, args...)}, kind: corev1.EventTypeWarning}
}

// quietly is a skip that no event is about.
func quietly(h explain.Blocker) *skip { return &skip{Blocker: h, quiet: true} }

// by is s with what a person has to do to end it.
func (s *skip) by(person string, args ...any) *skip {
	s.Person = fmt.Sprintf(person, args...)
	return s
}

// until is s, which lasts until the clause is true.
func (s *skip) until(ends string, args ...any) *skip {
	s.Ends = fmt.Sprintf(ends, args...)
	return s
}

// retried is s, looked at again so soon.
func (s *skip) retried(d time.Duration) *skip {
	s.again = d
	return s
}

// beginning is the question whether a rung may be begun for a target.
type beginning struct {
	*observed
	sum  plan
	t    *target
	rung int
}

// bar answers why a rung is not begun; with nothing if it may be, as far as this bar is concerned.
type bar func(beginning) []*skip

// What is asked before a rung is begun, in this order. The first answer is the one that the controller goes by, and tells.
var (
	// whatever is asked before any rung: what the user, or somebody else who holds the node, wants.
	whatever = []bar{beginning.excluded, beginning.leftAlone, beginning.leaseTaken}
	// anew is asked besides when there is no request yet: it is no reason to stop halfway.
	anew = []bar{beginning.watched, beginning.updating}
	// obstacles are what makes the rung itself impossible.
	obstacles = []bar{beginning.homeless, beginning.leftovers, beginning.rivalled, beginning.nameTaken}
	// everybody is asked when there is no request yet, since it would add one to the nodes that are being remediated.
	everybody = []bar{beginning.heldForAll}
	// ofMembers is asked besides of the control plane's nodes, of which one is disrupted at a time.
	ofMembers = []bar{beginning.unsearched, beginning.majority, beginning.turn, beginning.etcdLacks}
	// further is asked when there are requests already: what is paused is not escalated.
	further = []bar{beginning.pausedForAll}
	// lastly is asked before any request is made.
	lastly = []bar{beginning.remadeTooSoon, beginning.templateless}
)

// toRemediate is what is asked about a target in particular, before the first request for it, or before a further one.
func (b beginning) toRemediate() []bar {
	if b.t.begun() {
		return whatever
	}
	return slices.Concat(whatever, anew, obstacles)
}

// toBegin is what is asked before the first request for a target.
func (b beginning) toBegin() []bar {
	asked := slices.Concat([]bar{beginning.unselected}, b.toRemediate(), everybody)
	if controlPlane(b.t.node) {
		asked = append(asked, ofMembers...)
	}
	return asked
}

// toStart is what is asked before a request on the rung is made, whose turn it is.
func (b beginning) toStart() []bar { return slices.Concat(obstacles, further, lastly) }

// firstOf is the first answer; nil if there is none.
func (b beginning) firstOf(bars []bar) *skip {
	for _, ask := range bars {
		if why := ask(b); len(why) > 0 {
			return why[0]
		}
	}
	return nil
}

// allOf are all the answers.
func (b beginning) allOf(bars []bar) []*skip {
	why := make([]*skip, 0, len(bars))
	for _, ask := range bars {
		why = append(why, ask(b)...)
	}
	return why
}

// skips says why t in particular is not remediated; nil if it may be.
func (w *observed) skips(t *target) *skip {
	b := beginning{observed: w, t: t}
	return b.firstOf(b.toRemediate())
}

// mayBegin says why the first request for t is not made; nil if it is.
func (w *observed) mayBegin(s plan, t *target) *skip {
	b := beginning{observed: w, sum: s, t: t}
	return b.firstOf(b.toBegin())
}

// mayStart says why no request for t is made on the rung whose turn it is; nil if one is.
func (w *observed) mayStart(s plan, t *target, rung int) *skip {
	b := beginning{observed: w, sum: s, t: t}
	if why := b.firstOf(b.toRemediate()); why != nil {
		return why
	}
	b.rung = rung
	return b.firstOf(b.toStart())
}
