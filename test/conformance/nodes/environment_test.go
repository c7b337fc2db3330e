package nodes

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/inmemory"
	"github.com/kubemend/kubemend/test/testclock"
)

const (
	// patience is the duration of the conditions that a check has by default, long how long ago something must have happened for it to be
	// over.
	patience = 5 * time.Minute
	long     = 10 * time.Minute

	// sceneLabel is on all nodes and checks of an environment; its controller sees no others.
	environmentLabel = "test.kubemend.io/scene"
)

// mode is one of the ways to run the cases of medik8s: with one template or a ladder of a single step, whose template says or does not say
// that there may be several requests for one node.
type mode struct{ escalating, several bool }

var modes = []mode{{}, {several: true}, {escalating: true}, {escalating: true, several: true}}

func (m mode) String() string {
	text := "classic"
	if m.escalating {
		text = "escalating"
	}
	if m.several {
		text += ", several requests for one node"
	}
	return text
}

// step is the timeout of the steps of a ladder.
const step = 4 * time.Minute

// wanted is what a spec may want of the controller.
type wanted struct {
	mute   bool          // events go nowhere, which saves time
	user   string        // the user with whose rights the controller works; an administrator if empty
	resync time.Duration // 0 for never
}

// environment is a set of nodes and checks, with a controller and a clock of its own.
type environment struct {
	mode
	wanted wanted
	// name is that of the environment's namespace, and begins the names of its nodes and checks.
	name string
	// elsewhere is another namespace of the environment, missing is one that does not exist.
	elsewhere, missing string
	leases             string // the namespace of the leases
	clock              clock
	// here is the client of all but the controller. In memory the controller has done all that it has to do before an answer.
	here client.Client
	// memory is the controller of an environment in memory; nil at the API server.
	memory   *inmemory.Program
	pace     patient // the clock of an environment at the API server
	births   *births
	plan     *faultproxy.Plan
	kill     func()
	ears     *ears // nil while there is no controller
	recorder *teller
	notes    *notes              // the events of an environment in memory
	kinds    map[remediator]bool // of which there are templates
	nodes    []string
	checks   []string

	mu  sync.Mutex
	log []string
}

// clock is that of an environment: at the API server it goes as ours does, in memory only as far as the controller needs it to. It leaps by Step.
type clock interface {
	Now() time.Time
	Step(d time.Duration)
}

// newScene makes an environment at the API server.
func newEnvironment(ctx context.Context, m mode) *environment {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scene-"}}
	Expect(here.Create(ctx, namespace)).To(Succeed())
	name := namespace.Name
	s := &environment{
		here: here, mode: m, name: name, elsewhere: name + "-elsewhere", missing: name + "-missing", leases: name + "-leases",
		kill: func() {}, kinds: map[remediator]bool{},
	}
	s.pace = patient{Clock: testclock.New(), environment: s}
	s.clock = s.pace
	s.births = &births{now: s.clock.Now, of: map[types.UID]metav1.Time{}}
	Expect(s.here.Create(ctx, builders.Namespace(s.elsewhere))).To(Succeed())
	Expect(s.here.Create(ctx, builders.Namespace(s.leases))).To(Succeed())
	s.begin(0, "")
	return s
}

// begin begins to count the controller's writes anew, and decides the fate of one of them.
func (s *environment) begin(nth int, f faultproxy.Fate) { s.plan = way.Expect(s.name, nth, f) }

// end is to be deferred. It stops all that belongs to the environment, and reports the objects if the spec has failed.
func (s *environment) end() {
	failure := recover()
	ctx := context.Background()
	if failure != nil {
		AddReportEntry(fmt.Sprintf("%s in %s", s.mode, s.name), s.dump(ctx))
	}
	s.kill()
	if s.memory != nil {
		if failure != nil {
			panic(failure)
		}
		return
	}
	s.pace.Stop()
	// Other environments see what has no namespace, though not these.
	for _, name := range s.nodes {
		_ = s.here.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.called(name)}})
	}
	for _, name := range s.checks {
		_ = s.here.Delete(ctx, &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: s.called(name)}})
	}
	if failure != nil {
		panic(failure)
	}
}

// dump is all that may help to see why a spec has failed.
func (s *environment) dump(ctx context.Context) string {
	var text strings.Builder
	for _, name := range s.checks {
		check := &nhcv1.NodeHealthCheck{}
		if err := s.here.Get(ctx, client.ObjectKey{Name: s.called(name)}, check); err == nil {
			_, _ = fmt.Fprintf(&text, "check %s: %+v\n", name, check.Status)
		}
	}
	for _, name := range s.nodes {
		node := &corev1.Node{}
		if err := s.here.Get(ctx, client.ObjectKey{Name: s.called(name)}, node); err == nil {
			_, _ = fmt.Fprintf(&text, "node %s: %v %v %v\n", name, node.Labels, node.Annotations, node.Status.Conditions)
		}
	}
	for _, r := range s.allRequests(ctx) {
		_, _ = fmt.Fprintf(&text, "%s %s/%s: %v %v\n", r.GetKind(), r.GetNamespace(), r.GetName(), r.Object["metadata"], r.Object["status"])
	}
	if s.plan != nil {
		written, _ := s.plan.Written()
		_, _ = fmt.Fprintf(&text, "written: %q\n", written)
	}
	_, _ = fmt.Fprintf(&text, "it is %s", s.clock.Now().UTC().Format(time.RFC3339))
	return text.String()
}

// called is the name of a node or of a check in the cluster.
func (s *environment) called(name string) string { return s.name + "-" + name }

// short is the other way round.
func (s *environment) short(name string) string { return strings.TrimPrefix(name, s.name+"-") }

// check makes a check of all nodes of the pool "workers", which remediates with the template of that name, in the environment's mode.
func (s *environment) check(ctx context.Context, name string, edits ...func(*nhcv1.NodeHealthCheck)) *nhcv1.NodeHealthCheck {
	GinkgoHelper()
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: s.called(name), Labels: map[string]string{environmentLabel: s.name}}}
	c.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	c.Spec.MinHealthy = ptr.To(intstr.FromString("51%"))
	for _, edit := range edits {
		edit(c)
	}
	Expect(s.here.Create(ctx, c)).To(Succeed())
	s.checks = append(s.checks, name)
	return c
}

// by makes a check use one template, in the mode of the environment.
func (s *environment) by(template corev1.ObjectReference) func(*nhcv1.NodeHealthCheck) {
	if s.escalating {
		return ladder(step, template)
	}
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.RemediationTemplate = &template }
}

// ladder makes a check use templates one after the other, each for the same time.
func ladder(timeout time.Duration, templates ...corev1.ObjectReference) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) {
		c.Spec.RemediationTemplate = nil
		for i, t := range templates {
			c.Spec.EscalatingRemediations = append(c.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
				RemediationTemplate: t, Order: 10 * (i + 1), Timeout: metav1.Duration{Duration: timeout},
			})
		}
	}
}

// minHealthy sets the threshold.
func minHealthy(amount string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.MinHealthy = ptr.To(intstr.Parse(amount)) }
}

// maxUnhealthy sets the other threshold.
func maxUnhealthy(amount string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) {
		c.Spec.MinHealthy, c.Spec.MaxUnhealthy = nil, ptr.To(intstr.Parse(amount))
	}
}

// selecting makes a check select the nodes with a label.
func selecting(key, value string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) {
		c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

// change patches the spec of a check.
func (s *environment) change(ctx context.Context, name string, change func(*nhcv1.NodeHealthCheck)) {
	GinkgoHelper()
	c := s.get(ctx, name)
	before := c.DeepCopy()
	change(c)
	Expect(s.here.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
}

// get reads a check.
func (s *environment) get(ctx context.Context, name string) *nhcv1.NodeHealthCheck {
	GinkgoHelper()
	c := &nhcv1.NodeHealthCheck{}
	Expect(s.here.Get(ctx, client.ObjectKey{Name: s.called(name)}, c)).To(Succeed())
	return c
}

// node makes a node of the pool "workers" that has been Ready for an hour.
func (s *environment) node(ctx context.Context, name string, edits ...func(*corev1.Node)) *corev1.Node {
	GinkgoHelper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.called(name), Labels: map[string]string{environmentLabel: s.name, "pool": "workers"}}}
	for _, edit := range edits {
		edit(n)
	}
	n.Status.Conditions = []corev1.NodeCondition{s.condition(corev1.NodeReady, corev1.ConditionTrue, time.Hour)}
	status := n.Status
	Expect(s.here.Create(ctx, n)).To(Succeed())
	n.Status = status
	Expect(s.here.Status().Update(ctx, n)).To(Succeed())
	s.nodes = append(s.nodes, name)
	return n
}

// workers makes nodes w1 to wn.
func (s *environment) workers(ctx context.Context, n int) {
	GinkgoHelper()
	for i := range n {
		s.node(ctx, fmt.Sprintf("w%d", i+1))
	}
}

// member labels a node as one of the control plane.
func member(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func annotated(all map[string]string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		maps.Copy(n.Annotations, all)
	}
}

func (s *environment) condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
	now := s.clock.Now()
	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: "Test", LastHeartbeatTime: metav1.NewTime(now.Truncate(time.Second)),
		LastTransitionTime: metav1.NewTime(now.Add(-ago).Truncate(time.Second)),
	}
}

// reports sets a condition of a node, as if it had been so for some time, when the controller has heard of all that was before.
func (s *environment) reports(ctx context.Context, name string, kind corev1.NodeConditionType, status corev1.ConditionStatus, ago time.Duration) {
	GinkgoHelper()
	s.hears(ctx)
	n := s.getNode(ctx, name)
	before := n.DeepCopy()
	builders.Reports(n, s.condition(kind, status, ago))
	Expect(s.here.Status().Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
}

// fails makes nodes unhealthy, for long enough to be remediated.
func (s *environment) fails(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		s.reports(ctx, name, corev1.NodeReady, corev1.ConditionUnknown, long)
	}
}

// recovers makes nodes healthy.
func (s *environment) recovers(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		s.reports(ctx, name, corev1.NodeReady, corev1.ConditionTrue, 0)
	}
}

func (s *environment) getNode(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	n := &corev1.Node{}
	Expect(s.here.Get(ctx, client.ObjectKey{Name: s.called(name)}, n)).To(Succeed())
	return n
}

// changeNode patches the metadata and the spec of a node.
func (s *environment) changeNode(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	n := s.getNode(ctx, name)
	before := n.DeepCopy()
	change(n)
	Expect(s.here.Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
}

// loses deletes a node.
func (s *environment) loses(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(s.here.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.called(name)}})).To(Succeed())
}
