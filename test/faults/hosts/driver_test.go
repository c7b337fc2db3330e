package hosts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/must"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

const (
	// manySteps is more than the actors ever need at one moment; manyMoments is more moments than any remediation here has.
	manySteps   = 200
	manyMoments = 2000
)

// cue is an event from outside with its time.
type cue struct {
	when func(*environment) bool
	do   func(*environment)
}

// in reports whether the remediation is in a state of one of its attempts.
func in(state string, attempt int) func(*environment) bool {
	return func(e *environment) bool {
		m := memoryOf(e.remediation())
		return string(m.State) == state && m.Attempt == attempt
	}
}

// run lets all actors act until the remediation has ended and nothing is left to do. The cues of the script happen in their order, each
// while no actor has anything to do.
func (e *environment) run(over func(*environment) bool) {
	e.t.Helper()
	for range manyMoments {
		e.settle()
		if len(e.script) > 0 && !e.writes.Crashed() && e.script[0].when(e) {
			if e.first < 0 {
				done, _ := e.writes.Done()
				e.first = len(done)
			}
			now := e.script[0]
			e.script = e.script[1:]
			now.do(e)
			continue
		}
		if len(e.script) == 0 && !e.writes.Crashed() && e.last == nil && !e.box.busy() && over(e) {
			e.lasts()
			return
		}
		if !e.advance() {
			break
		}
	}
	e.t.Fatalf("it does not end (%d cues left)\n%s", len(e.script), e.story())
}

// settle lets all actors act until none of them has anything left to do at this moment.
func (e *environment) settle() {
	e.t.Helper()
	for range manySteps {
		if !e.step() {
			e.blocksMove()
			return
		}
	}
	e.t.Fatalf("it does not come to rest\n%s", e.story())
}

func (e *environment) step() bool {
	now := e.clock.Now()
	changed := e.box.step(now)
	changed = e.pods.step(now) || changed
	return e.reconcile(now) || changed
}

// reconcile runs the controller if an event has enqueued it or a requeue is due, and reports whether it has written.
func (e *environment) reconcile(now time.Time) bool {
	if e.writes.Crashed() {
		if now.Before(e.down) {
			return false
		}
		e.restart()
	}
	heard := e.management.enqueues
	if !e.unreachable() {
		heard += e.work.enqueues
	}
	if heard == e.seen && (e.due.IsZero() || now.Before(e.due)) {
		return false
	}
	e.seen = heard
	before := e.management.all + e.work.all
	result, err := e.controller.Reconcile(e.t.Context(), ctrl.Request{NamespacedName: e.at})
	e.last = err
	switch {
	case e.writes.Crashed():
		e.down = now.Add(e.as.downtime)
	case err != nil:
		e.tries++
		e.due = now.Add(min(time.Second<<e.tries, time.Minute))
	default:
		e.tries, e.due = 0, time.Time{}
		if result.RequeueAfter > 0 {
			e.due = now.Add(result.RequeueAfter).Add(time.Second - 1).Truncate(time.Second)
		}
	}
	return e.management.all+e.work.all != before || e.writes.Crashed()
}

// restart starts the controllers again after a crash or a kill.
func (e *environment) restart() {
	e.writes.Restart()
	e.restarts++
	e.start()
}

// advance moves the clock to the next moment at which something is due, and returns false if nothing is.
func (e *environment) advance() bool {
	now := e.clock.Now()
	moments := []time.Time{e.due, e.box.next(), e.pods.next(), e.alarm}
	if e.writes.Crashed() {
		moments[0] = e.down
	}
	next := earliest(slices.DeleteFunc(moments, func(at time.Time) bool { return !at.After(now) })...)
	if next.IsZero() {
		return false
	}
	e.clock.SetTime(next)
	return true
}

// lasts checks that an ended remediation stays ended: the controllers write nothing more and the host is not powered off again.
func (e *environment) lasts() {
	e.t.Helper()
	before, _ := e.writes.Done()
	cycles := e.cycles()
	e.until(time.Hour)
	if after, _ := e.writes.Done(); len(after) != len(before) || e.cycles() != cycles && e.host().Spec.Online {
		e.t.Errorf("%d writes were made after the end\n%s", len(after)-len(before), e.story())
	}
}

// story returns everything that may explain a failure.
func (e *environment) story() string {
	var text strings.Builder
	done, struck := e.writes.Done()
	fmt.Fprintf(&text, "%s: %s at %q (%s), fault struck %t, %d restarts, last error: %v\n%q\n",
		e.label, e.Kind.Kind, e.memory(), e.clock.Now().Sub(noon), struck, e.restarts, e.last, e.unsafe)
	if rem := e.remediation(); rem != nil {
		fmt.Fprintf(&text, "remediation %v %v\n%+v\n", rem.GetFinalizers(), rem.GetAnnotations(), builders.ReportOf(rem))
	}
	if h := e.host(); h != nil {
		fmt.Fprintf(&text, "host %v on %t %+v, really %t %v\n", h.Annotations, h.Status.PoweredOn, h.Status.ErrorMessage, e.box.model.Powered(), e.box.history)
	}
	if n := e.node(); n != nil {
		fmt.Fprintf(&text, "node %v %v %v\n", n.Annotations, n.Spec.Taints, ready(n))
	}
	for i, w := range done {
		fmt.Fprintf(&text, "write %d: %s\n", i+1, w)
	}
	return text.String()
}

// until lets all actors act for a time.
func (e *environment) until(d time.Duration) {
	e.t.Helper()
	e.alarm = e.clock.Now().Add(d)
	for e.settle(); e.clock.Now().Before(e.alarm) && e.advance(); {
		e.settle()
	}
	e.alarm = time.Time{}
}

// theTaint is the taint that moves the workload away from a node.
var theTaint = corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// bothKinds runs a test with remediations of both kinds.
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

// sight is something whose first occurrence is recorded.
type sight struct {
	what string
	is   func() bool
}

// after reports whether then is true, at or after a moment at which first was true.
func after(first, then func() bool) func() bool {
	was := false
	return func() bool {
		was = was || first()
		return was && then()
	}
}

// sees returns what happens from now on, in the order in which it happens, such as "5s: the host is off".
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

// went fails the test unless exactly this has happened, in this order.
func (e *environment) went(order []string, want ...string) {
	e.t.Helper()
	if !slices.Equal(order, want) {
		e.t.Errorf("it went\n%s\nwant\n%s\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"), e.story())
	}
}

// comesTo lets all actors act until is returns true.
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

// stands lets all actors act until the remediation is in a state of its first attempt.
func (e *environment) stands(state string) {
	e.t.Helper()
	e.comesTo(in(state, 1))
}

// ends lets all actors act until the remediation has ended in a state, and checks that nothing is left and nothing more happens.
func (e *environment) ends(state string) {
	e.t.Helper()
	e.run(func(e *environment) bool { return e.memory() == state && !e.kept() })
	if left := e.orphans(); len(left) > 0 {
		e.t.Errorf("orphans are left: %q\n%s", left, e.story())
	}
}

// says returns what the remediation reports.
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

// tells fails the test unless the message of the remediation contains part.
func (e *environment) tells(part string) {
	e.t.Helper()
	if got := e.says().Message; !strings.Contains(got, part) {
		e.t.Errorf("it says %q, want %q in it\n%s", got, part, e.story())
	}
}

// power fails the test unless exactly these power changes have happened.
func (e *environment) power(want ...bmo.Power) {
	e.t.Helper()
	if !slices.Equal(e.box.history, want) {
		e.t.Errorf("the power of the host went %q, want %q\n%s", e.box.history, want, e.story())
	}
}

func equal[T comparable](t reporter, what string, got, want T) {
	t.Helper()
	must.Is(t, want, got, "%s is", what)
}

// goneOnceDeleted deletes the remediation and checks that no finalizer keeps it.
func (e *environment) goneOnceDeleted() {
	e.t.Helper()
	if deleted(e); e.remediation() != nil {
		e.t.Errorf("the remediation stays\n%s", e.story())
	}
}

// evict deletes the pod on the node, detach deletes the attachment of its volume.
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

// now returns how much time has passed since the beginning.
func (e *environment) now() time.Duration { return e.clock.Now().Sub(noon) }

// editHost changes the BareMetalHost.
func (e *environment) editHost(change func(*bmov1alpha1.BareMetalHost)) {
	e.t.Helper()
	edit(e, e.management, e.host(), false, change)
}

// edit changes an object and writes it.
func edit[T client.Object](e *environment, s *server, was T, status bool, change func(T)) {
	e.t.Helper()
	is := was.DeepCopyObject().(T)
	if is.GetAnnotations() == nil {
		is.SetAnnotations(map[string]string{})
	}
	change(is)
	if status {
		e.do(s.Status().Update(e.t.Context(), is))
		return
	}
	e.do(s.Update(e.t.Context(), is))
}

// vanish deletes an object in spite of its finalizers.
func (e *environment) vanish(s *server, o client.Object) {
	e.t.Helper()
	if len(o.GetFinalizers()) > 0 {
		edit(e, s, o, false, func(o client.Object) { o.SetFinalizers(nil) })
	}
	e.do(client.IgnoreNotFound(s.Delete(e.t.Context(), o)))
}

// pause sets or clears spec.paused of the Cluster.
func (e *environment) pause(paused bool) {
	e.t.Helper()
	c := e.management.At(clusterv1.GroupVersion.WithKind("Cluster"), clusterKey).(*clusterv1.Cluster)
	edit(e, e.management, c, false, func(c *clusterv1.Cluster) { c.Spec.Paused = &paused })
}

// move replaces the remediation by a new object with the same content and without a status, as `clusterctl move` does.
func (e *environment) move() {
	e.t.Helper()
	was := e.remediation()
	is := e.make(metav1.ObjectMeta{
		Namespace: was.GetNamespace(), Name: was.GetName(), Labels: was.GetLabels(), OwnerReferences: was.GetOwnerReferences(),
		Annotations: maps.Clone(was.GetAnnotations()), Finalizers: slices.Clone(was.GetFinalizers()),
	}, *strategyOf(was))
	e.safety.moving = true
	e.vanish(e.management, was)
	e.do(e.management.Create(e.t.Context(), e.named(is)))
	e.safety.moving = false
}
