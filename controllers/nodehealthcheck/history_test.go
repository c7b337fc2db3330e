package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// history is a random one: nodes turn good and bad, leave the selection or the cluster and come back, remediators answer or do not, writes
// fail, the manager is restarted, time passes. What must never happen is looked for after each reconcile.
type history struct {
	*fixture
	*rapid.T
	checks []string
	limit  map[string]int // how many of its nodes may be bad for a check to begin
	steps  []corev1.ObjectReference
	// climbed is the highest step that was requested for a node since it was last healthy and had no request, by check and node: a check that takes over from a
	// check whose ladder came to nothing begins at the foot of its own.
	climbed map[string]int
	// forgotten are the requests that keep no other node of the control plane waiting any more.
	forgotten map[types.UID]bool
	// asked is when a request was made last, by check and node.
	asked map[string]time.Time
	// broken is the rule that was broken by a write. Writes are carried out by goroutines of their own, which must not end the test.
	mu     sync.Mutex
	broken string
}

func TestWhateverHappensNoRuleIsBroken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := begin(rt)
		for range rapid.IntRange(10, 30).Draw(rt, "events") {
			h.happens()
			h.look()
		}
		h.endsWell()
	})
}

// names are the nodes: five of the control plane, and three others.
var names = []string{"m0", "m1", "m2", "m3", "m4", "w0", "w1", "w2"}

// pool is the label by which nodes are selected.
const pool = "pool"

func watched(name string) *corev1.Node {
	n := node(name, nil)
	if name[0] == 'm' {
		n = member(name)
	}
	n.Labels[pool] = "watched"
	return n
}

func begin(rt *rapid.T) *history {
	objects := []client.Object{template("Reboot", "reboot", true), template("Reboot", "other", true), template("Replace", "replace", false)}
	for _, name := range names {
		objects = append(objects, watched(name))
	}
	h := &history{T: rt, limit: map[string]int{}, climbed: map[string]int{}, forgotten: map[types.UID]bool{}, asked: map[string]time.Time{}}
	h.steps = []corev1.ObjectReference{refTo("Reboot", "reboot"), refTo("Reboot", "other"), refTo("Replace", "replace")}[:rapid.IntRange(1, 3).Draw(rt, "steps")]
	for _, name := range []string{"one", "two"}[:rapid.IntRange(1, 2).Draw(rt, "checks")] {
		bad := rapid.IntRange(0, 6).Draw(rt, "maxUnhealthy")
		objects = append(objects, check(name, ladder(h.steps...), func(s *nhcv1.NodeHealthCheckSpec) {
			s.MaxUnhealthy = ptr.To(intstr.FromInt32(int32(bad)))
			s.Selector.MatchLabels = map[string]string{pool: "watched"}
		}))
		h.checks, h.limit[name] = append(h.checks, name), bad
	}
	h.fixture = newFixture(rt, objects...)
	h.watch = h.isMade
	return h
}

// happens lets one thing happen, and then a reconcile of each check.
func (h *history) happens() {
	h.occurs()
	if rapid.IntRange(0, 4).Draw(h.T, "fails") == 0 {
		left := rapid.IntRange(0, 3).Draw(h.T, "writes before")
		h.fails = func(string, client.Object) error {
			left--
			if left == -1 {
				return apierrors.NewInternalError(errors.New("the API server is out of order"))
			}
			return nil
		}
	}
	for _, c := range h.checks {
		h.settle(c)
	}
	h.fails = nil
	for _, c := range h.checks {
		h.settle(c)
	}
}

// occurs lets one thing happen.
func (h *history) occurs() {
	name := rapid.SampledFrom(names).Draw(h.T, "node")
	switch what := rapid.SampledFrom(happenings).Draw(h.T, "what"); what {
	case "bad", "good", "flip", "leave", "exclude", "vanish":
		h.befall(what, name)
	case "time":
		h.after(time.Duration(rapid.IntRange(1, 200).Draw(h.T, "seconds")) * time.Second)
	case "long":
		h.after(301 * time.Second)
	case "restart":
		h.restart()
	case "pause":
		c := h.check(h.checks[0])
		if len(c.Spec.PauseRequests) == 0 {
			c.Spec.PauseRequests = []string{"me"}
		} else {
			c.Spec.PauseRequests = nil
		}
		h.update(c)
	default:
		h.remediator(what)
	}
}

// happenings are what can happen; what is listed twice happens more often.
var happenings = []string{
	"bad", "bad", "good", "good", "flip", "time", "time", "long", "answer", "answer", "stuck", "restart", "pause", "delete", "strip", "leave", "exclude", "vanish",
}

// node is the one called name; nil if there is none.
func (h *history) node(name string) *corev1.Node {
	n := &corev1.Node{}
	err := h.client.Get(context.Background(), client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		panic(err) // also called by goroutines that must not end the test
	}
	return n
}

// befall lets something happen to the node called name. One that has vanished comes back as another one, and does no more.
func (h *history) befall(what, name string) {
	n := h.node(name)
	switch {
	case n == nil:
		n = watched(name)
		n.UID += types.UID(h.clock.Now().String())
		if err := h.client.Create(h.fixture.t.Context(), n); err != nil {
			h.Fatal(err)
		}
	case what == "vanish":
		if err := h.client.Delete(h.fixture.t.Context(), n); err != nil {
			h.Fatal(err)
		}
	case what == "leave":
		h.toggle(n, pool, "watched")
	case what == "exclude":
		h.toggle(n, nhcv1.ExcludeLabel, nhcv1.ExcludeValue)
	default:
		h.turn(name, map[string]corev1.ConditionStatus{"bad": corev1.ConditionUnknown, "good": corev1.ConditionTrue, "flip": corev1.ConditionFalse}[what])
	}
}

func (h *history) toggle(n *corev1.Node, label, value string) {
	if n.Labels[label] == value {
		value = "-"
	}
	h.label(n.Name, map[string]string{label: value})
}

// remediator lets one remediator do something.
func (h *history) remediator(what string) {
	all := h.objects()
	if len(all) == 0 {
		return
	}
	obj := rapid.SampledFrom(all).Draw(h.T, "request")
	switch what {
	case "answer":
		h.answer(obj, rapid.SampledFrom([]string{nhcv1.SucceededCondition, nhcv1.ProcessingCondition}).Draw(h.T, "condition"),
			rapid.SampledFrom([]string{"True", "False", "Unknown"}).Draw(h.T, "status"))
	case "stuck":
		if obj.GetDeletionTimestamp() != nil || len(obj.GetFinalizers()) > 0 {
			obj.SetFinalizers(nil)
		} else {
			obj.SetFinalizers([]string{"example.org/stuck"})
		}
		h.update(obj)
	case "delete":
		if err := h.client.Delete(h.fixture.t.Context(), obj); err != nil {
			h.Fatal(err)
		}
	case "strip":
		obj.SetAnnotations(nil)
		h.update(obj)
	}
}

// look looks for what must never be.
func (h *history) look() {
	if h.broken != "" {
		h.Fatal(h.broken)
	}
	owners := map[string]map[string]bool{} // node to checks
	perName := map[string]int{}
	var members []string
	for _, obj := range h.objects() {
		about := h.about(obj)
		if owners[about] == nil {
			owners[about] = map[string]bool{}
		}
		if by := obj.GetOwnerReferences()[0].Name; !h.givenUp(by, obj.GetUID()) { // a ladder that came to nothing lets others try
			owners[about][by] = true
		}
		perName[about+" "+obj.GetKind()+obj.GetName()]++
		h.forgets(obj)
		if about[0] == 'm' && !h.forgotten[obj.GetUID()] && !slices.Contains(members, about) {
			members = append(members, about)
		}
	}
	if len(members) > 1 {
		h.Fatalf("two nodes of the control plane are being remediated: %v", members)
	}
	for about, by := range owners {
		if len(by) > 1 {
			h.Fatalf("two checks remediate %s: %v", about, slices.Collect(maps.Keys(by)))
		}
	}
	for _, name := range names { // a node that is healthy, or another one, and has no request, begins at the first step when it is unhealthy again
		if n := h.node(name); (n == nil || util.IsNodeReady(n)) && owners[name] == nil {
			maps.DeleteFunc(h.climbed, func(asked string, _ int) bool { return strings.HasSuffix(asked, "/"+name) })
		}
	}
	h.lookAtLeases(owners)
	for what, n := range perName {
		if n > 1 {
			h.Fatalf("%d requests for %s", n, what)
		}
	}
}

// forgets notes that the end of a request is not waited for any more: its remediator has held on to it for too long after it was deleted, and its node
// is gone, or has long been healthy.
func (h *history) forgets(obj *unstructured.Unstructured) {
	if obj.GetDeletionTimestamp() == nil {
		return
	}
	n, leaves := h.node(h.about(obj)), h.clock.Now().Sub(obj.GetDeletionTimestamp().Time)
	if n == nil && leaves >= remediationrequest.ClingingFor || n != nil && util.IsNodeReady(n) && leaves >= controlplane.ReplacementPatience {
		h.forgotten[obj.GetUID()] = true
	}
}

// lookAtLeases looks for leases on nodes that their holder does nothing about. One that was deleted may be about to be made again.
func (h *history) lookAtLeases(owners map[string]map[string]bool) {
	for _, l := range h.heldLeases() {
		about, by := strings.TrimPrefix(l.Name, nhcv1.LeasePrefix), strings.TrimPrefix(*l.Spec.HolderIdentity, nhcv1.LeaseHolderPrefix)
		if !owners[about][by] && !h.clock.Now().Before(h.asked[by+"/"+about].Add(remake)) && !h.anyRequest(by, about) {
			h.Fatalf("%s holds the lease of %s and does nothing about it", by, about)
		}
	}
}

func (h *history) anyRequest(by, about string) bool {
	return slices.ContainsFunc(h.objects(), func(obj *unstructured.Unstructured) bool {
		return h.about(obj) == about && obj.GetOwnerReferences()[0].Name == by
	})
}

// isMade looks at a request in the moment in which it is made: the population must allow it, if it is the first one for its node, and it must
// be the next step, or the same one again.
func (h *history) isMade(obj *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	about, by := h.about(obj), obj.GetOwnerReferences()[0].Name
	step := slices.IndexFunc(h.steps, func(ref corev1.ObjectReference) bool {
		return ref.Kind == obj.GetKind()+"Template" && ref.Name == obj.GetAnnotations()[nhcv1.TemplateNameAnnotation]
	})
	bad := map[string]bool{}
	for _, other := range h.objects() {
		if of := h.about(other); of != about || other.GetUID() != obj.GetUID() {
			if other.GetOwnerReferences()[0].Name == by {
				bad[of] = true
			}
			if of == about && other.GetKind() == obj.GetKind() && other.GetName() == obj.GetName() {
				h.broken = fmt.Sprintf("%s %s was asked for twice", obj.GetKind(), obj.GetName())
			}
		}
	}
	asked := by + "/" + about
	was, known := h.climbed[asked]
	if first := !known; first && step != 0 || known && step != was+1 && step != was {
		h.broken = fmt.Sprintf("%s requests step %d for %s after step %d (known: %v)", by, step, about, was, known)
	}
	h.climbed[asked], h.asked[asked] = step, h.clock.Now()
	first := !bad[about]
	for _, name := range names {
		n := h.node(name)
		selected := n != nil && n.Labels[pool] == "watched"
		bad[name] = selected && (bad[name] || !util.IsNodeReady(n))
	}
	n := 0
	for _, is := range bad {
		if is {
			n++
		}
	}
	if first && n > h.limit[by] {
		h.broken = fmt.Sprintf("%s begins with %s although %d nodes are bad and %d are allowed", by, about, n, h.limit[by])
	}
}

// givenUp reports whether a check says of a request that it was given up.
func (h *history) givenUp(check string, uid types.UID) bool {
	for _, n := range h.check(check).Status.UnhealthyNodes {
		for _, r := range n.Remediations {
			if r.Resource.UID == uid && r.TimedOut != nil {
				return true
			}
		}
	}
	return false
}

// about is the node that a request was made for: remediators may take off its annotation, and then its name says it.
func (h *history) about(obj *unstructured.Unstructured) string {
	if is := nodeOf(obj); is != "" {
		return is
	}
	return strings.SplitN(obj.GetName(), "-", 2)[0]
}

// endsWell makes everything healthy, and expects that nothing is orphaned.
func (h *history) endsWell() {
	for _, name := range names {
		if h.node(name) == nil {
			h.befall("good", name)
		}
		h.turn(name, corev1.ConditionTrue)
		h.label(name, map[string]string{pool: "watched", nhcv1.ExcludeLabel: "-"})
	}
	for _, c := range h.checks {
		is := h.check(c)
		is.Spec.PauseRequests = nil
		h.update(is)
	}
	for range 3 {
		for _, c := range h.checks {
			h.settle(c)
		}
		for _, obj := range h.objects() {
			obj.SetFinalizers(nil)
			h.update(obj)
		}
		h.after(time.Second)
	}
	for _, c := range h.checks {
		h.settle(c)
		if is := h.check(c); len(is.Status.UnhealthyNodes) > 0 || is.Status.Phase != nhcv1.PhaseEnabled {
			h.Fatalf("all is healthy, and %s says %s", c, fmt.Sprintf("%+v", is.Status))
		}
	}
	if left := append(h.requests(), h.leases()...); len(left) > 0 {
		h.Fatalf("orphaned: %v", left)
	}
}
