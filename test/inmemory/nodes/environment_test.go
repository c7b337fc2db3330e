// Package nodes tests the NodeHealthCheck controller in memory, on virtual time. Its specs are what of the cases of medik8s' own tests, of
// the rows of the three seeds and of the weaknesses of medik8s that it does not share needs a controller. A spec is named after the case
// that it shows; the other ids are those of tables beside the code. Its campaigns play whole remediations, in which every write fails, the
// manager crashes at any moment, and events come in every order. Package test/api runs the built manager with the rights that it ships with.
//
// Nodes are objects whose status the tests write, the tests play the remediators, and no other controller runs: nothing is
// garbage-collected here.
package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory"
	"github.com/kubemend/kubemend/test/must"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	// patience is the duration of the conditions that a check has by default, long how long ago something must have happened for it to be
	// over.
	patience = 5 * time.Minute
	long     = 10 * time.Minute
	// step is the timeout of the steps of a ladder.
	step = 4 * time.Minute
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

// environment is a set of nodes and checks on an API server in memory, with a controller and a clock of its own.
type environment struct {
	testing.TB
	mode
	// namespace is that of the requests. elsewhere is another one, missing one that does not exist, and that of the leases is leasesIn.
	namespace, elsewhere, missing, leasesIn string

	server *inmemory.Server
	// here is the client of all but the controller. For a spec the controller has done all that it has to do before an answer.
	here        client.Client
	program     *inmemory.Program
	notes       *notes
	remediators []remediator // of which there are templates
	// policies are those that a manager finds at its start.
	policies []*policy.Policy

	safety *safety // of a campaign
	late   bool    // whether the controller's cache is stale

	mu  sync.Mutex
	log []string
}

func newEnvironment(t testing.TB, m mode, namespace string, logger logr.Logger) *environment {
	t.Helper()
	server, err := newServer()
	must.Do(t, err)
	e := &environment{
		TB: t, mode: m, namespace: namespace, elsewhere: namespace + "-elsewhere", missing: namespace + "-missing", leasesIn: namespace + "-leases",
		server: server, here: server, notes: &notes{},
	}
	e.program = &inmemory.Program{Server: server, Logger: logger, Transform: slim, SetUp: e.setUp}
	for _, name := range []string{e.namespace, e.elsewhere, e.leasesIn, "default", machineAPI, metav1.NamespaceSystem} {
		e.makes(builders.Namespace(name))
	}
	return e
}

func (e *environment) must(err error) {
	e.Helper()
	must.Do(e, err)
}

func (e *environment) makes(objects ...client.Object) {
	e.Helper()
	for _, obj := range objects {
		e.must(e.here.Create(e.Context(), obj))
	}
}

// get reads obj, and reports whether it exists.
func (e *environment) get(obj client.Object) bool {
	err := e.here.Get(e.Context(), client.ObjectKeyFromObject(obj), obj)
	e.must(client.IgnoreNotFound(err))
	return err == nil
}

func (e *environment) deletes(obj client.Object) {
	e.Helper()
	e.must(client.IgnoreNotFound(e.here.Delete(e.Context(), obj)))
}

// check makes a check of all nodes of the pool "workers".
func (e *environment) check(name string, edits ...func(*nhcv1.NodeHealthCheck)) *nhcv1.NodeHealthCheck {
	e.Helper()
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	for _, edit := range edits {
		edit(c)
	}
	e.makes(c)
	return c
}

// by makes a check use one template, in the mode of the environment.
func (e *environment) by(template corev1.ObjectReference) func(*nhcv1.NodeHealthCheck) {
	if e.escalating {
		return escalating(template)
	}
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.RemediationTemplate = &template }
}

// escalating makes a check use templates one after the other.
func escalating(templates ...corev1.ObjectReference) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) {
		c.Spec.RemediationTemplate = nil
		for i, t := range templates {
			c.Spec.EscalatingRemediations = append(c.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
				RemediationTemplate: t, Order: 10 * (i + 1), Timeout: metav1.Duration{Duration: step},
			})
		}
	}
}

// minHealthy sets the threshold.
func minHealthy(amount string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.MinHealthy = ptr.To(intstr.Parse(amount)) }
}

func pausedBy(requests ...string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = requests }
}

// change changes the spec of a check.
func (e *environment) change(name string, change func(*nhcv1.NodeHealthCheck)) {
	e.Helper()
	c := e.getCheck(name)
	change(c)
	e.must(e.here.Update(e.Context(), c))
}

// getCheck reads a check; nil if there is none.
func (e *environment) getCheck(name string) *nhcv1.NodeHealthCheck {
	e.Helper()
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !e.get(c) {
		return nil
	}
	return c
}

func (e *environment) checks() []nhcv1.NodeHealthCheck {
	list := &nhcv1.NodeHealthCheckList{}
	e.must(e.here.List(e.Context(), list))
	return list.Items
}

func (e *environment) deleteCheck(name string) {
	e.deletes(&nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// node makes a node of the pool "workers" that has been Ready for an hour.
func (e *environment) node(name string, edits ...func(*corev1.Node)) {
	e.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "workers"}}}
	n.Status.Conditions = []corev1.NodeCondition{e.condition(corev1.NodeReady, corev1.ConditionTrue, time.Hour)}
	for _, edit := range edits {
		edit(n)
	}
	e.makes(n)
}

// workers makes nodes w1 to wn.
func (e *environment) workers(n int) {
	e.Helper()
	for i := range n {
		e.node(fmt.Sprintf("w%d", i+1))
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

func (e *environment) condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
	now := e.now()
	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: "Test", LastHeartbeatTime: metav1.NewTime(now.Truncate(time.Second)),
		LastTransitionTime: metav1.NewTime(now.Add(-ago).Truncate(time.Second)),
	}
}

// reports turns a condition of a node, if it exists, now: a stamp from before the controller saw another status would be no evidence.
func (e *environment) reports(name string, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	e.Helper()
	if n := e.getNode(name); n != nil {
		builders.Reports(n, e.condition(kind, status, 0))
		e.must(e.here.Status().Update(e.Context(), n))
	}
}

// fails makes nodes unhealthy, for long enough to be remediated.
func (e *environment) fails(names ...string) {
	e.Helper()
	for _, name := range names {
		e.reports(name, corev1.NodeReady, corev1.ConditionUnknown)
	}
	e.leaps(long)
}

// recovers makes nodes healthy.
func (e *environment) recovers(names ...string) {
	e.Helper()
	for _, name := range names {
		e.reports(name, corev1.NodeReady, corev1.ConditionTrue)
	}
	e.must(e.program.Settle())
}

// getNode reads a node; nil if there is none.
func (e *environment) getNode(name string) *corev1.Node {
	e.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !e.get(n) {
		return nil
	}
	return n
}

// changeNode changes the metadata and the spec of a node.
func (e *environment) changeNode(name string, change func(*corev1.Node)) {
	e.Helper()
	n := e.getNode(name)
	change(n)
	e.must(e.here.Update(e.Context(), n))
}

// loses deletes a node.
func (e *environment) loses(name string) {
	e.Helper()
	e.deletes(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (e *environment) now() time.Time { return e.server.Clock.Now() }

// leaps moves the clock at once, elapse in steps: the controller reconciles whatever is due when it is due.
func (e *environment) leaps(d time.Duration) {
	e.Helper()
	e.must(e.program.Step(d))
}

func (e *environment) elapse(d time.Duration) {
	e.Helper()
	e.must(e.program.Walk(d))
}

// awaits lets time pass until is returns true.
func (e *environment) awaits(what string, is func() bool) {
	e.Helper()
	const most = controlplane.ReplacementPatience + 10*time.Minute // how long a deleted node counts unless replaced
	for until := e.now().Add(most); ; e.elapse(5 * time.Second) {
		e.must(e.program.Settle())
		if is() {
			return
		}
		if !e.now().Before(until) {
			e.Fatalf("%s: awaited for %s\n%s", what, most, e.state())
		}
	}
}

// leases returns the leases on nodes, by node.
func (e *environment) leases() map[string]coordinationv1.Lease {
	list := &coordinationv1.LeaseList{}
	e.must(e.here.List(e.Context(), list, client.InNamespace(e.leasesIn)))
	held := map[string]coordinationv1.Lease{}
	for _, lease := range list.Items {
		held[strings.TrimPrefix(lease.Name, nhcv1.LeasePrefix)] = lease
	}
	return held
}

// holder returns the holder of the lease on a node; it is empty if there is none.
func (e *environment) holder(node string) string {
	return ptr.Deref(e.leases()[node].Spec.HolderIdentity, "")
}

// state returns everything that may explain a failure.
func (e *environment) state() string {
	var b strings.Builder
	done, struck := e.program.Writes.Done()
	fmt.Fprintf(&b, "it is %s, after %d reconciles of %d instances, struck: %v\n",
		e.now().Format(time.TimeOnly), e.program.Reconciles, e.program.Starts, struck)
	for _, w := range done {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	for _, r := range e.requests() {
		fmt.Fprintf(&b, "request %v %v\n", r.Object["metadata"], r.Object["status"])
	}
	for _, c := range e.checks() {
		fmt.Fprintf(&b, "check %s: %+v\n", c.Name, c.Status)
	}
	nodes := &corev1.NodeList{}
	e.must(e.here.List(e.Context(), nodes))
	for _, n := range nodes.Items {
		fmt.Fprintf(&b, "node %s: %v %v %v, held by %q\n", n.Name, n.Labels, n.Annotations, n.Status.Conditions, e.holder(n.Name))
	}
	return b.String()
}

func TestNodes(t *testing.T) {
	// An environment answers when its controller has done all that it has to do, so that waiting helps nothing.
	suite.Run(t, "NodeHealthChecks in memory", suite.Patience{
		Eventually: time.Millisecond, Consistently: time.Millisecond, Polling: time.Millisecond,
	})
}

// in is a spec that runs in one mode.
func in(m mode, text string, body func(*environment)) {
	GinkgoHelper()
	inModes(text, []mode{m}, body)
}

// once is a spec about a check with one template.
func once(text string, body func(*environment)) {
	GinkgoHelper()
	in(mode{}, text, body)
}

// inEveryMode is a spec that runs in all modes.
func inEveryMode(text string, body func(*environment)) {
	GinkgoHelper()
	inModes(text, modes, body)
}

// scenes is how many specs there were: series of metrics have the namespaces of requests.
var scenes atomic.Int32

// inModes is a spec that runs in some modes, in which further kinds are installed.
func inModes(text string, modes []mode, body func(*environment), installed ...schema.GroupVersionKind) {
	GinkgoHelper()
	It(text, func() {
		for _, m := range modes {
			e := newEnvironment(GinkgoTB(), m, fmt.Sprintf("scene%d", scenes.Add(1)), logr.Discard())
			e.program.Logger = funcr.New(e.logs, funcr.Options{LogTimestamp: true})
			e.here = settled{e.server, e.program}
			e.installs(installed...)
			e.plays(body)
		}
	})
}

// plays runs a spec, and reports the objects if it has failed.
func (e *environment) plays(body func(*environment)) {
	GinkgoHelper()
	defer func() {
		failure := recover()
		if failure != nil {
			AddReportEntry(fmt.Sprintf("%s in %s", e.mode, e.namespace), e.state())
		}
		Expect(e.program.Kill()).To(Succeed())
		if failure != nil {
			panic(failure)
		}
	}()
	e.must(e.program.Start())
	body(e)
}

// logs writes where it is shown if a spec fails, and keeps what the controller says for specs about that.
func (e *environment) logs(prefix, args string) {
	GinkgoWriter.Printf("%s: %s %s\n", e.namespace, prefix, args)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log = append(e.log, prefix+" "+args)
}

// said reports how often the controller has said something in its log.
func (e *environment) said(text string) func() int {
	return func() int {
		e.must(e.program.Settle())
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(e.log), func(line string) bool { return !strings.Contains(line, text) }))
	}
}
