// Package nodes tests the NodeHealthCheck controller in memory, on virtual time: what of the cases of medik8s' own tests, of the rows of
// the three seeds and of the weaknesses of medik8s that it does not share needs a controller. A spec is named after the case that it shows;
// the other ids are those of tables beside the code, and of package test/faults/nodes, which plays whole remediations and tries each of
// their writes. Package test/api runs the built manager with the rights that it ships with.
//
// Nodes are objects whose status the tests write, the tests play the remediators, and no other controller runs: nothing is
// garbage-collected here.
package nodes

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	inprocess "github.com/kubemend/kubemend/test/faults/nodes"
	"github.com/kubemend/kubemend/test/inmemory"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	// patience is the duration of the conditions that a check has by default, long how long ago something must have happened for it to be
	// over.
	patience = 5 * time.Minute
	long     = 10 * time.Minute
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

// environment is a set of nodes and checks on an API server in memory, with a controller and a clock of its own.
type environment struct {
	mode
	// name is that of the environment's namespace, and begins the names of its nodes and checks: series of metrics are named after these.
	name string
	// elsewhere is another namespace of the environment, missing is one that does not exist.
	elsewhere, missing string
	leases             string // the namespace of the leases
	clock              clock
	here               client.Client // of all but the controller, which has done all that it has to do before an answer
	program            *inmemory.Program
	notes              *notes
	kinds              map[remediator]bool // of which there are templates
	nodes              []string
	checks             []string

	mu  sync.Mutex
	log []string
}

// environments is how many there were.
var environments atomic.Int32

func newEnvironment(ctx context.Context, m mode) *environment {
	GinkgoHelper()
	var kinds []inmemory.Kind
	add := func(kind schema.GroupVersionKind, global, later bool) {
		kinds = append(kinds, inmemory.Kind{GroupVersionKind: kind, Global: global, Later: later})
	}
	for _, r := range append([]remediator{metal3, hosts}, remediators...) {
		add(r.kind, r.global, r == late)
		add(r.templates(), r.global, r == late)
	}
	add(clusterVersion, true, true)
	add(theirCheck, false, true)
	add(theirMachine, false, true)
	server := suite.Must(inprocess.Server(clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), kinds...))
	name := fmt.Sprintf("scene%d", environments.Add(1))
	s := &environment{
		mode: m, name: name, elsewhere: name + "-elsewhere", missing: name + "-missing", leases: name + "-leases",
		kinds: map[remediator]bool{}, notes: &notes{},
	}
	s.program = inprocess.Program(server, inprocess.Options{Leases: s.leases, Recorder: s.notes, Logger: s.logger()})
	s.here = settled{server, s.program}
	s.clock = clock{s.program}
	for _, name := range []string{s.name, s.elsewhere, s.leases, "default", machineAPI, metav1.NamespaceSystem} {
		Expect(server.Create(ctx, builders.Namespace(name))).To(Succeed())
	}
	return s
}

// start starts the controller, for the first time or after kill.
func (s *environment) start() {
	GinkgoHelper()
	Expect(s.program.Start()).To(Succeed())
}

func (s *environment) kill() {
	GinkgoHelper()
	Expect(s.program.Kill()).To(Succeed())
}

// logger writes where it is shown if a spec fails, and keeps what the controller says for specs about that.
func (s *environment) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		GinkgoWriter.Printf("%s: %s %s\n", s.name, prefix, args)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, fmt.Sprintf("%s %s", prefix, args))
	}, funcr.Options{LogTimestamp: true})
}

// end is to be deferred. It stops the controller, and reports the objects if the spec has failed.
func (s *environment) end() {
	failure := recover()
	if failure != nil {
		AddReportEntry(fmt.Sprintf("%s in %s", s.mode, s.name), s.dump(context.Background()))
	}
	s.kill()
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
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: s.called(name)}}
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
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.called(name), Labels: map[string]string{"pool": "workers"}}}
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

// reports turns a condition of a node, now: a stamp from before the controller saw another status would be no evidence.
func (s *environment) reports(ctx context.Context, name string, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	GinkgoHelper()
	n := s.getNode(ctx, name)
	before := n.DeepCopy()
	builders.Reports(n, s.condition(kind, status, 0))
	Expect(s.here.Status().Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
}

// fails makes nodes unhealthy, for long enough to be remediated.
func (s *environment) fails(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		s.reports(ctx, name, corev1.NodeReady, corev1.ConditionUnknown)
	}
	s.clock.Step(long)
}

// recovers makes nodes healthy.
func (s *environment) recovers(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		s.reports(ctx, name, corev1.NodeReady, corev1.ConditionTrue)
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

func TestNodes(t *testing.T) {
	// An environment answers when its controller has done all that it has to do, so that waiting helps nothing.
	suite.Run(t, "NodeHealthChecks in memory", suite.Patience{
		Eventually: time.Millisecond, Consistently: time.Millisecond, Polling: time.Millisecond,
	})
}

// in is a spec that runs in one mode.
func in(m mode, text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inModes(text, []mode{m}, body)
}

// once is a spec about a check with one template.
func once(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	in(mode{}, text, body)
}

// inEveryMode is a spec that runs in all modes.
func inEveryMode(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	inModes(text, modes, body)
}

func inModes(text string, modes []mode, body func(context.Context, *environment)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		for _, m := range modes {
			play(ctx, newEnvironment(ctx, m), body)
		}
	})
}

// play runs a spec in an environment.
func play(ctx context.Context, s *environment, body func(context.Context, *environment)) {
	GinkgoHelper()
	defer s.end()
	s.start()
	body(ctx, s)
}
