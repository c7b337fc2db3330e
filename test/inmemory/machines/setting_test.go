// Package machines tests MachineHealthChecks, what they leave behind and records with the manager that users run, on virtual time. Its API
// servers are in memory, and the tests write what its machines and nodes report.
package machines

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// The time of a bubble: what an event causes is there within three seconds, one of which a manager waits that begins to watch a kind, and
// what stays does so for a minute.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(3 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Minute)
	SetDefaultConsistentlyPollingInterval(time.Second)
	m.Run()
}

// setting is a management cluster, its workload cluster, and the manager.
type setting struct {
	*WithT
	t                    *testing.T
	ctx                  context.Context
	management, workload *apiserver.Server
	here, there          client.Client
	manager              *kubemend.Manager
}

var environments atomic.Int64

func run(t *testing.T, test func(s *environment)) { runWith(t, act, test) }

// runWith runs a test with a manager that does that with checks that are not claimed.
func runWith(t *testing.T, unclaimed string, test func(s *environment)) {
	t.Helper()
	kubemend.Test(t, func(t *testing.T) {
		w := newSetting(t)
		w.start(unclaimed)
		defer func() {
			time.Sleep(time.Minute) // a ClusterCache that ends while it probes leaves a goroutine behind that sends what came of that
			w.manager.Kill()
		}()
		test(w.newEnvironment())
	})
}

func newSetting(t *testing.T) *setting {
	w := &setting{WithT: NewWithT(t), t: t, ctx: t.Context()}
	w.management = apiserver.New(kubemend.Host, kubemend.Kinds()...)
	w.workload = kubemend.WorkloadCluster("workload")
	w.here, w.there = kubemend.Client(w.management), kubemend.Client(w.workload)
	w.Expect(w.there.Create(w.ctx, builders.Namespace(metav1.NamespaceSystem))).To(Succeed())
	t.Cleanup(w.management.Close)
	t.Cleanup(w.workload.Close)
	kinds := []apiserver.Kind{
		kubemend.Kind(bmov1alpha1.GroupVersion.Group, bmov1alpha1.GroupVersion.Version, "BareMetalHost"),
		kubemend.Kind("infrastructure.cluster.x-k8s.io", "v1beta2", "Metal3Machine"),
		{GroupVersionKind: mendv1.GroupVersion.WithKind("RemediationRecord"), NoStatus: true},
		metal3.served(""), metal3.served("Template"), another.served(""), another.served("Template"),
	}
	for _, kind := range []string{"Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"} {
		kinds = append(kinds, apiserver.Kind{GroupVersionKind: clusterv1.GroupVersion.WithKind(kind)})
	}
	for _, kind := range kinds {
		w.management.Serve(kind)
		w.Expect(w.here.Create(w.ctx, kubemend.CRD(kind))).To(Succeed())
	}
	return w
}

// namespace makes one, whose name no other test has: metrics outlive a test.
func (w *setting) namespace() string {
	name := fmt.Sprintf("scene-%d", environments.Add(1))
	w.Expect(w.here.Create(w.ctx, builders.Namespace(name))).To(Succeed())
	return name
}

// What a manager does with checks that are not claimed.
const (
	act     = "act"
	observe = "observe"
)

// start starts a manager, and returns when it has asked which kinds there are.
func (w *setting) start(unclaimed string) {
	w.t.Helper()
	w.manager = kubemend.Start(w.t, "--unclaimed-machine-health-checks="+unclaimed, "--metal3-remediations=off")
	time.Sleep(time.Minute)
}

// restart ends the manager, does what is to happen while none runs, and starts another one. Its first look for orphaned requests fails, and
// the next one is a minute later: it would watch the kinds that it finds while controllers start, each of which holds a lock until its
// caches are full, and no time passes in a bubble while a goroutine waits for a lock.
func (w *setting) restart(meanwhile ...func()) {
	w.t.Helper()
	w.manager.Kill()
	for _, do := range meanwhile {
		do()
	}
	w.management.Refuse(func(call apiserver.Call) bool {
		return call.Verb == "list" && strings.HasSuffix(call.Resource, "remediations")
	})
	time.AfterFunc(30*time.Second, func() { w.management.Refuse(nil) })
	w.start(act)
}

// calls are those of the manager to the management cluster since there were so many, by verb and resource, and how many there are now.
func (w *setting) calls(since int, wanted func(apiserver.Call) bool) (by map[string]int, now int) {
	all := w.management.Calls(func(apiserver.Call) bool { return true })
	by = map[string]int{}
	for _, call := range all[since:] {
		if call.Manager != apiserver.Tester && wanted(call) {
			by[call.Verb+" "+call.Resource]++
		}
	}
	return by, len(all)
}

// allEvents are the events that were sent about objects of an environment, each as often as it came.
func (s *environment) allEvents() []eventsv1.Event {
	list := &eventsv1.EventList{}
	s.Expect(s.here.List(s.ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
	var all []eventsv1.Event
	for i := range list.Items {
		for all = append(all, list.Items[i]); list.Items[i].Series != nil && list.Items[i].Series.Count > 1; list.Items[i].Series.Count-- {
			all = append(all, list.Items[i])
		}
	}
	return all
}

// said returns what a machine's condition says, in both flavours, as one string: "False/UnhealthyNode False/UnhealthyNode".
// A flavour that is missing is "-".
func (s *environment) said(machine, kind string) func() string {
	return func() string { return flavours(s.get(machine), kind) }
}

func (s *environment) health(machine string) func() string {
	return s.said(machine, clusterv1.MachineHealthCheckSucceededCondition)
}

func (s *environment) owner(machine string) func() string {
	return s.said(machine, clusterv1.MachineOwnerRemediatedCondition)
}

// external is what ExternallyRemediated says, remediation what kubemend.io/Remediation says; there is no v1beta1 flavour of them.
func (s *environment) external(machine string) func() string {
	return func() string {
		return flavour(conditions.Get(s.get(machine), clusterv1.MachineExternallyRemediatedCondition))
	}
}

func (s *environment) remediation(machine string) func() string {
	return func() string { return flavour(conditions.Get(s.get(machine), mendv1.Remediation)) }
}

func flavour(c *metav1.Condition) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason)
}

func flavours(o interface {
	conditions.Getter
	v1beta1conditions.Getter
}, kind string) string {
	before := "-"
	if c := v1beta1conditions.Get(o, clusterv1.ConditionType(kind)); c != nil {
		before = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	return flavour(conditions.Get(o, kind)) + " " + before
}

// What is said of machines.
const (
	well           = "True/HealthCheckSucceeded True/"
	silent         = "False/UnhealthyNode False/UnhealthyNode"
	nothing        = "- -"
	ownerRequested = "False/WaitingForRemediation False/WaitingForRemediation"
)

// of returns a condition of a check as "Status/Reason".
func (s *environment) of(check, kind string) func() string {
	return func() string { return flavour(conditions.Get(s.getCheck(check), kind)) }
}

// both is what a condition of a check says in both flavours.
func (s *environment) both(kind string) func() string {
	return func() string { return flavours(s.getCheck("check"), kind) }
}

func (s *environment) message(check, kind string) func() string {
	return func() string { return conditions.GetMessage(s.getCheck(check), kind) }
}

func (s *environment) allowed(check string) func() string {
	return s.of(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
}

// counts are a check's numbers: expected, healthy, remediations allowed.
func (s *environment) counts(check string) func() []int32 {
	return func() []int32 {
		status := s.getCheck(check).Status
		return []int32{ptr.Deref(status.ExpectedMachines, -1), ptr.Deref(status.CurrentHealthy, -1),
			ptr.Deref(status.RemediationsAllowed, -1)}
	}
}

func (s *environment) events(object, reason string) func() int {
	return func() int { return len(s.notes(object, reason)) }
}

// number returns a metric: the sum of all series that have these labels, written like `kind="Owner"`.
func (w *setting) number(name string, labels ...string) func() float64 {
	return func() float64 {
		sum := 0.0
		for _, m := range w.manager.Series(name, labels...) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
}

// exported is how many series of a metric have these labels.
func (w *setting) exported(name string, labels ...string) func() int {
	return func() int { return len(w.manager.Series(name, labels...)) }
}

func (w *setting) reconciles() float64 {
	return w.number("controller_runtime_reconcile_total", `controller="machinehealthcheck"`)()
}

// labels are those by which an environment's check is known in metrics.
func (s *environment) labels(check string, more ...string) []string {
	return append([]string{
		`namespace="` + s.cluster.Namespace + `"`, `name="` + check + `"`, `cluster="` + s.cluster.Name + `"`,
	}, more...)
}

// settles returns the number of reconciles when nothing happens any more that was begun.
func (s *environment) settles() float64 {
	time.Sleep(10 * time.Second)
	return s.reconciles()
}

// versions returns the version of every Cluster, machine, check and request, and how many events were sent: equal maps mean that nothing
// was written in between.
func (s *environment) versions() map[string]string {
	all := map[string]string{"events": strconv.Itoa(len(s.sentEvents()()))}
	for _, kind := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("Machine"),
		clusterv1.GroupVersion.WithKind("MachineHealthCheck"),
		schema.FromAPIVersionAndKind(metal3.apiVersion, metal3.kind),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		s.Expect(s.here.List(s.ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
		for i := range list.Items {
			all[kind.Kind+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	}
	return all
}
