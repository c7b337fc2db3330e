// Package report counts how remediations went, by their records: how long they took, which hosts and machines need them again and again, which
// checks were short-circuited, and what kubemend would have done where it only observes.
//
// It is pure: records and a question go in, numbers and pages come out. Nothing in it knows where the records are from.
package report

import (
	"cmp"
	"slices"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Remediation is what reports need of a record. A moment that is not known is zero.
type Remediation struct {
	Record explain.Ref
	Mode   mendv1.RecordMode
	// Target is the Machine, or else the Node, or else the host.
	Target explain.Ref
	// Cluster, Check and Host are empty if there is none.
	Cluster, Check, Host            explain.Ref
	Cause, HostModel, FailureDomain string
	// ByHand says that a user asked for it, Evident that there was a finding when it was decided.
	ByHand, Evident bool

	UnhealthySince, Due, Decided, Begun, CapacityBack, Ended time.Time

	Outcome            mendv1.RecordOutcome
	BegunBy, BlockedBy string
}

// Dimension is what remediations can be divided by.
type Dimension string

// The dimensions, as the flag --by spells them.
const (
	ByCluster       Dimension = "cluster"
	ByCheck         Dimension = "check"
	ByCause         Dimension = "cause"
	ByHostModel     Dimension = "host-model"
	ByFailureDomain Dimension = "failure-domain"
)

// Dimensions are all of them.
var Dimensions = []string{string(ByCluster), string(ByCheck), string(ByCause), string(ByHostModel), string(ByFailureDomain)}

// Question is what is asked for.
type Question struct {
	// Now is when, Since from when on remediations count by when they were decided; zero for all.
	Now, Since time.Time
	// Cluster is the name of the one whose remediations count; empty for all.
	Cluster string
	By      []Dimension
	// AtLeast remediations within Within make a host, a machine or a node one that is repeatedly remediated.
	AtLeast int
	Within  time.Duration
}

// asks reports whether a remediation counts for q.
func (q Question) asks(r *Remediation) bool {
	return !r.Decided.Before(q.Since) && (q.Cluster == "" || r.Cluster.Name == q.Cluster)
}

// Report is the answer.
type Report struct {
	Question

	Total    Group
	Groups   []Group
	Repeated []Repeated
	// ShortCircuits are filled in by the caller: records know nothing of remediations that were not decided.
	ShortCircuits []ShortCircuit
	// Observed is how many records with mode Observed were left out.
	Observed int
	// ReadErrors are what could not be read.
	ReadErrors []string
}

// Key is what the remediations of a group share. What the report is not divided by is empty.
type Key struct {
	Cluster, Check                  explain.Ref
	Cause, HostModel, FailureDomain string
}

// Group are remediations with the same key.
type Group struct {
	Key

	// Remediations are how many there were, and Open how many of them have not ended. The others have ended by outcome.
	Remediations, Open int
	Outcomes           map[mendv1.RecordOutcome]int
	// NotBegun are those that were decided and never begun. They count nowhere else.
	NotBegun int
	// Detect is from when a target stopped being healthy until it counted as unhealthy, and Begin from then until its remediation began.
	Detect, Begin Summary
	// Repair is from when the remediation began until capacity was back, and Back from when the target stopped being healthy until then.
	Repair, Back Summary
}

// Of counts the remediations that q asks for. Those that were not begun are in no time, those whose capacity is not back in no time that ends with that.
func Of(all []Remediation, q Question) *Report {
	report := &Report{Question: q}
	total, groups := &tally{}, map[Key]*tally{}
	begun := make([]*Remediation, 0, len(all))
	for i := range all {
		r := &all[i]
		switch {
		case !q.asks(r):
			continue
		case r.Mode == mendv1.RecordObserved:
			report.Observed++
			continue
		case r.happened():
			begun = append(begun, r)
		}
		key := keyOf(r, q.By)
		if groups[key] == nil {
			groups[key] = &tally{}
		}
		total.add(r)
		groups[key].add(r)
	}
	report.Total = total.group(Key{})
	if len(q.By) > 0 {
		report.Groups = make([]Group, 0, len(groups))
		for key, is := range groups {
			report.Groups = append(report.Groups, is.group(key))
		}
		slices.SortFunc(report.Groups, compareGroups)
	}
	report.Repeated = repeatedly(begun, q)
	return report
}

func compareGroups(a, b Group) int {
	return cmp.Or(cmp.Compare(b.Remediations, a.Remediations), compareRefs(a.Cluster, b.Cluster), compareRefs(a.Check, b.Check),
		cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.HostModel, b.HostModel), cmp.Compare(a.FailureDomain, b.FailureDomain))
}

func compareRefs(a, b explain.Ref) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}

// keyOf is the key of the group that r belongs to.
func keyOf(r *Remediation, by []Dimension) Key {
	var key Key
	for _, d := range by {
		switch d {
		case ByCluster:
			key.Cluster = r.Cluster
		case ByCheck:
			key.Check = r.Check
		case ByCause:
			key.Cause = r.Cause
		case ByHostModel:
			key.HostModel = r.HostModel
		case ByFailureDomain:
			key.FailureDomain = r.FailureDomain
		}
	}
	return key
}

// tally counts the remediations of a group.
type tally struct {
	begun, open, notBegun       int
	outcomes                    map[mendv1.RecordOutcome]int
	detect, begin, repair, back []time.Duration
}

func (t *tally) add(r *Remediation) {
	if !r.happened() {
		t.notBegun++
		return
	}
	t.begun++
	if r.Ended.IsZero() {
		t.open++
	} else {
		if t.outcomes == nil {
			t.outcomes = map[mendv1.RecordOutcome]int{}
		}
		t.outcomes[r.Outcome]++
	}
	counted := r.counted()
	between(&t.detect, r.UnhealthySince, counted)
	between(&t.begin, counted, r.Begun)
	between(&t.repair, r.Begun, r.CapacityBack)
	between(&t.back, r.UnhealthySince, r.CapacityBack)
}

// happened reports whether there was a remediation: one that was begun, or one that has ended otherwise than by being cancelled. When a machine went while no
// manager ran it is not known when its remediation began.
func (r *Remediation) happened() bool {
	return !r.Begun.IsZero() || !r.Ended.IsZero() && r.Outcome != mendv1.RecordCancelled
}

// since is when the remediation began, or else when it was decided.
func (r *Remediation) since() time.Time {
	if r.Begun.IsZero() {
		return r.Decided
	}
	return r.Begun
}

// counted is when the target counted as unhealthy: when its timeout expired, or, where none had expired, when the remediation was decided all the same.
func (r *Remediation) counted() time.Time {
	if r.Due.IsZero() || r.Due.After(r.Decided) {
		return r.Decided
	}
	return r.Due
}

// between adds the time between two moments, if both are known. Clocks of several machines may be behind one another: no time is negative.
func between(to *[]time.Duration, from, until time.Time) {
	if !from.IsZero() && !until.IsZero() {
		*to = append(*to, max(until.Sub(from), 0))
	}
}

func (t *tally) group(key Key) Group {
	return Group{
		Key: key, Remediations: t.begun, Open: t.open, Outcomes: t.outcomes, NotBegun: t.notBegun,
		Detect: Summarize(t.detect), Begin: Summarize(t.begin), Repair: Summarize(t.repair), Back: Summarize(t.back),
	}
}
