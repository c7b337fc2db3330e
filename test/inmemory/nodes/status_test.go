package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/inmemory"
	"github.com/kubemend/kubemend/test/suite"
)

// phase is what a check says it is doing, and why.
func (e *environment) phase(check string) func() string {
	return func() string {
		st := e.getCheck(check).Status
		return fmt.Sprintf("%s: %s", st.Phase, st.Reason)
	}
}

const (
	enabled     = "Enabled: NHC is enabled, no ongoing remediation"
	remediating = "Remediating: NHC is remediating 1 nodes"
)

// counts are the nodes that a check observes, and those of them that are healthy.
func (e *environment) counts(check string) func() []int {
	return func() []int {
		st := e.getCheck(check).Status
		return []int{ptr.Deref(st.ObservedNodes, -1), ptr.Deref(st.HealthyNodes, -1)}
	}
}

// listed are the unhealthy nodes of a check, each with the requests that are listed for it and whether they were given up:
// "w1: Reboot/soft*, Replace/hard".
func (e *environment) listed(check string) func() []string {
	return func() []string {
		found := []string{}
		for _, n := range e.getCheck(check).Status.UnhealthyNodes {
			var requests []string
			for _, r := range n.Remediations {
				text := short(r.Resource.Kind) + "/" + r.TemplateName
				if r.TimedOut != nil {
					text += "*"
				}
				requests = append(requests, text)
			}
			found = append(found, strings.TrimSuffix(n.Name+": "+strings.Join(requests, ", "), ": "))
		}
		return found
	}
}

// entry is what a check says of a node; nil if it says nothing.
func (e *environment) entry(check, node string) *nhcv1.UnhealthyNode {
	nodes := e.getCheck(check).Status.UnhealthyNodes
	if i := slices.IndexFunc(nodes, func(n nhcv1.UnhealthyNode) bool { return n.Name == node }); i >= 0 {
		return &nodes[i]
	}
	return nil
}

// checkSays returns a condition of a check as "Status/Reason".
func (e *environment) checkSays(check, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(e.getCheck(check).Status.Conditions, kind)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

// message is that of a condition of a check.
func (e *environment) message(check, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(e.getCheck(check).Status.Conditions, kind)
		return ptr.Deref(c, metav1.Condition{}).Message
	}
}

func (e *environment) allowed(check string) func() string {
	return e.checkSays(check, nhcv1.RemediationAllowedCondition)
}

const yes = "True/Allowed"

// events are the events of a reason about a check, as "Type note", each as often as it was sent.
func (e *environment) events(check, reason string) func() []string {
	return func() []string {
		e.must(e.program.Settle())
		found := []string{}
		for _, n := range e.notes.all() {
			if n.name == check && n.reason == reason {
				found = append(found, n.text)
			}
		}
		return found
	}
}

// metric is the value of a series, the sum of a histogram's observations counting as one; -1 if there is none.
func (e *environment) metric(name string, labels map[string]string) float64 {
	GinkgoHelper()
	e.must(e.program.Settle())
	for _, f := range suite.Must(metrics.Registry.Gather()) {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			left := maps.Clone(labels)
			for _, l := range m.GetLabel() {
				if left[l.GetName()] == l.GetValue() {
					delete(left, l.GetName())
				}
			}
			if len(left) == 0 { // it has one of these
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

var _ = Describe("A check reports", func() {
	inEveryMode("nothing while nothing changes: it writes nothing, sends no events, and no heartbeat enqueues it", func(s *environment) {
		s.workers(5)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.check("strict", s.by(s.template(replace, "hard")), minHealthy("100%"))
		s.check("paused", s.by(s.template(replace, "hard")), pausedBy("me"))
		s.fails("w1")
		s.holds(s.request("w1"), true)
		s.reports("w2", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts("check")).Should(Equal([]int{5, 3}))
		Eventually(s.counts("strict")).Should(Equal([]int{5, 3}))
		Eventually(s.counts("paused")).Should(Equal([]int{5, 3}))
		checks := []string{"check", "strict", "paused"}
		for _, c := range checks {
			s.settle(c)
		}
		before, _ := s.program.Writes.Done()
		told, counts := s.notes.all(), s.program.Counts()
		for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
			n := s.getNode(name)
			n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(s.now().Add(time.Second))
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name}})
			s.must(s.here.Status().Update(s.Context(), n))
		}
		s.must(s.program.Settle())
		Expect(s.program.Counts()).To(Equal(counts))
		for _, c := range checks {
			s.reconcile(c)
		}
		after, _ := s.program.Writes.Done()
		Expect(after).To(Equal(before))
		Expect(s.notes.all()).To(Equal(told))
	})

	in(ladders, "its remediations in metrics, with medik8s' names and with kubemend's", func(s *environment) {
		s.workers(5)
		s.check("measured", escalating(s.template(reboot, "soft"), s.template(replace, "hard")))
		first := map[string]string{"name": "w1", "namespace": s.namespace, "remediation": "RebootRemediation"}
		second := map[string]string{"name": "w1", "namespace": s.namespace, "remediation": "ReplaceRemediation"}
		ours := func(more ...string) map[string]string {
			labels := map[string]string{"name": "measured"}
			for i := 0; i < len(more); i += 2 {
				labels[more[i]] = more[i+1]
			}
			return labels
		}
		Eventually(s.phase("measured")).Should(Equal(enabled))
		s.reports("w1", corev1.NodeReady, corev1.ConditionFalse)
		due := s.getNode("w1").Status.Conditions[0].LastTransitionTime.Add(patience)
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_targets", ours("state", "pending")).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_next_deadline_timestamp_seconds", ours()).Should(BeEquivalentTo(due.Unix()))
		Expect(s.metric("nodehealthcheck_ongoing_remediation", first)).To(BeEquivalentTo(-1))
		s.leaps(patience)
		s.request("w1")
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", first).Should(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_targets", ours("state", "unhealthy"))).To(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_targets", ours("state", "healthy"))).To(BeEquivalentTo(4))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_remediations_in_flight", ours()).Should(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_remediations_started_total", ours("kind", "RebootRemediation"))).To(BeEquivalentTo(1))
		s.leaps(step)
		s.latest("w1", 2)
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", second).Should(BeEquivalentTo(1))
		Expect(s.metric("nodehealthcheck_ongoing_remediation", first)).To(BeEquivalentTo(1))
		Expect(s.metric("nodehealthcheck_unhealthy_node_duration_seconds", first)).To(BeEquivalentTo(-1))

		s.fails("w2", "w3")
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_short_circuited", ours("reason", "TooManyUnhealthy")).Should(BeEquivalentTo(1))
		s.recovers("w1", "w2", "w3")
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", first).Should(BeEquivalentTo(0))
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", second).Should(BeEquivalentTo(0))
		Eventually(s.metric).WithArguments("nodehealthcheck_unhealthy_node_duration_seconds", first).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("nodehealthcheck_unhealthy_node_duration_seconds", second).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_remediations_finished_total", ours("result", "recovered")).Should(BeNumerically(">=", 1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_short_circuited", ours("reason", "")).Should(BeEquivalentTo(0))
	})

	once("seed 2.2: changes within a moment: of nodes, their conditions and the check itself", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(s.template(reboot, "soft")))
		Eventually(s.phase("check")).Should(Equal(enabled))
		s.node("w4")
		Eventually(s.counts("check")).Should(Equal([]int{4, 4}))
		s.loses("w4")
		Eventually(s.counts("check")).Should(Equal([]int{3, 3}))
		s.change("check", func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Duration.Duration = time.Hour })
		s.fails("w1")
		Eventually(s.counts("check")).Should(Equal([]int{3, 2}))
		s.settle("check")
		Expect(s.of("w1")).To(BeEmpty())
		s.change("check", func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Duration.Duration = time.Minute })
		Eventually(s.nodesRequested()).Should(Equal([]string{"w1"}))
	})
})

// settled is a client that reads when the controller has done all that it has to do.
type settled struct {
	client.WithWatch
	program *inmemory.Program
}

func (c settled) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.Get(ctx, key, obj, opts...)
}

func (c settled) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.List(ctx, list, opts...)
}

// notes are the events that the controller has sent.
type notes struct {
	mu   sync.Mutex
	sent []note
}

type note struct{ name, reason, text string }

// Eventf notes an event.
func (n *notes) Eventf(regarding, _ runtime.Object, kind, reason, _, text string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, note{regarding.(client.Object).GetName(), reason, kind + " " + fmt.Sprintf(text, args...)})
}

func (n *notes) all() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// installs makes the API server serve kinds from now on.
func (e *environment) installs(kinds ...schema.GroupVersionKind) {
	e.Helper()
	for _, kind := range kinds {
		singular := strings.ToLower(kind.Kind)
		e.makes(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: kind.Group, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: singular + "s", Singular: singular},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: kind.Version, Served: true, Storage: true}},
			},
		})
		e.server.Install(kind)
	}
}

// settle makes the controller reconcile a check once more when it has seen every change.
func (e *environment) settle(check string) {
	e.Helper()
	e.must(e.program.Settle())
	e.reconcile(check)
	e.must(e.program.Settle())
}

// reconcile makes the controller reconcile a check once.
func (e *environment) reconcile(check string) {
	e.Helper()
	e.must(e.program.Reconcile(reconcile.Request{NamespacedName: client.ObjectKey{Name: check}}))
}
