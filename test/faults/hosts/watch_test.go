package hosts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// theTaint moves the workload away from a node.
var theTaint = corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// bothKinds plays a test with remediations of both kinds.
func bothKinds(t *testing.T, as settings, play func(*testing.T, *environment)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.Kind.Kind, func(t *testing.T) {
			t.Parallel()
			e := newEnvironment(t, k, as)
			e.label = t.Name()
			play(t, e)
			if len(e.unsafe) > 0 {
				t.Errorf("it was unsafe\n%s", e.story())
			}
		})
	}
}

// sight is something that is seen to be so for the first time at some moment.
type sight struct {
	what string
	is   func() bool
}

// after is then, but not before first was so.
func after(first, then func() bool) func() bool {
	was := false
	return func() bool {
		was = was || first()
		return was && then()
	}
}

// sees returns what is seen from now on, in the order in which it becomes so, like "5s: the host is off".
func (e *environment) sees(sights ...sight) *[]string {
	all := &[]string{}
	look := func(at place) {
		e.check(at)
		sights = slices.DeleteFunc(sights, func(s sight) bool {
			is := s.is()
			if is {
				*all = append(*all, fmt.Sprintf("%s: %s", e.now(), s.what))
			}
			return is
		})
	}
	e.management.after, e.work.after = look, look
	return all
}

// went fails the test unless exactly this was seen, in this order.
func (e *environment) went(order []string, want ...string) {
	e.t.Helper()
	if !slices.Equal(order, want) {
		e.t.Errorf("it went\n%s\nwant\n%s\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"), e.story())
	}
}

// comesTo lets all actors act until something is so.
func (e *environment) comesTo(is func(*environment) bool) {
	e.t.Helper()
	for range manyMoments {
		if e.settle(); is(e) {
			return
		}
		if !e.advance() {
			break
		}
	}
	e.t.Fatalf("it never comes to that\n%s", e.story())
}

// stands lets all actors act until the remediation has come to rest in a state of its first attempt.
func (e *environment) stands(state string) {
	e.t.Helper()
	e.comesTo(in(state, 1))
}

// ends lets all actors act until the remediation has ended in a state, checks that nothing of it is left, for good, and returns after how
// long it has ended.
func (e *environment) ends(state string) time.Duration {
	e.t.Helper()
	var after time.Duration
	e.run(func(e *environment) bool {
		after = e.now()
		return e.memory() == state && !e.kept()
	})
	if left := e.orphans(); len(left) > 0 {
		e.t.Errorf("orphans are left: %q\n%s", left, e.story())
	}
	return after
}

// says is what the remediation reports.
func (e *environment) says() builders.RemediationReport { return builders.ReportOf(e.remediation()) }

// reports fails the test unless the remediation has these conditions.
func (e *environment) reports(conditions map[string]string) {
	e.t.Helper()
	is := e.says()
	for kind, want := range conditions {
		if got := is.Conditions[kind]; got != want {
			e.t.Errorf("condition %s is %s, want %s (%s)\n%s", kind, got, want, is.Message, e.story())
		}
	}
}

// tells fails the test unless the remediation says this, among more.
func (e *environment) tells(part string) {
	e.t.Helper()
	if got := e.says().Message; !strings.Contains(got, part) {
		e.t.Errorf("it says %q, want %q in it\n%s", got, part, e.story())
	}
}

// power fails the test unless exactly this has happened to the power of the host.
func (e *environment) power(want ...bmo.Power) {
	e.t.Helper()
	if !slices.Equal(e.box.history, want) {
		e.t.Errorf("the power of the host went %q, want %q\n%s", e.box.history, want, e.story())
	}
}

// equal fails the test unless got is want.
func equal[T comparable](t reporter, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// goneOnceDeleted deletes the remediation, which nothing keeps.
func (e *environment) goneOnceDeleted() {
	e.t.Helper()
	if deleted(e); e.remediation() != nil {
		e.t.Errorf("the remediation stays\n%s", e.story())
	}
}

// evict deletes the pod on the node, detach the attachment of its volume.
func (e *environment) evict() {
	e.t.Helper()
	pods, _ := e.pods.left()
	e.do(e.work.Delete(e.t.Context(), pods[0]))
}

func (e *environment) detach() {
	e.t.Helper()
	_, volumes := e.pods.left()
	e.do(e.work.Delete(e.t.Context(), volumes[0]))
}

// now is how long the environment has been there.
func (e *environment) now() time.Duration { return e.clock.Now().Sub(noon) }

// isReady reports whether the node is Ready.
func (e *environment) isReady() bool {
	return e.node() != nil && ready(e.node()) == corev1.ConditionTrue
}
