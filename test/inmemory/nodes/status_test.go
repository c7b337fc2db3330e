package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubemend/kubemend/test/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
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
)

// phase is what a check says it is doing, and why.
func (s *environment) phase(ctx context.Context, check string) func() string {
	return func() string {
		st := s.get(ctx, check).Status
		return fmt.Sprintf("%s: %s", st.Phase, st.Reason)
	}
}

const (
	enabled     = "Enabled: NHC is enabled, no ongoing remediation"
	remediating = "Remediating: NHC is remediating 1 nodes"
)

// counts are the nodes that a check observes, and those of them that are healthy.
func (s *environment) counts(ctx context.Context, check string) func() []int {
	return func() []int {
		st := s.get(ctx, check).Status
		return []int{ptr.Deref(st.ObservedNodes, -1), ptr.Deref(st.HealthyNodes, -1)}
	}
}

// listed are the unhealthy nodes of a check, each with the requests that are listed for it and whether they were given up:
// "w1: RebootRemediation/soft*, ReplaceRemediation/hard".
func (s *environment) listed(ctx context.Context, check string) func() []string {
	return func() []string {
		found := []string{}
		for _, n := range s.get(ctx, check).Status.UnhealthyNodes {
			var requests []string
			for _, r := range n.Remediations {
				text := r.Resource.Kind + "/" + r.TemplateName
				if r.TimedOut != nil {
					text += "*"
				}
				requests = append(requests, text)
			}
			found = append(found, strings.TrimSuffix(s.short(n.Name)+": "+strings.Join(requests, ", "), ": "))
		}
		return found
	}
}

// entry is what a check says of a node; nil if it says nothing.
func (s *environment) entry(ctx context.Context, check, node string) *nhcv1.UnhealthyNode {
	nodes := s.get(ctx, check).Status.UnhealthyNodes
	if i := slices.IndexFunc(nodes, func(n nhcv1.UnhealthyNode) bool { return n.Name == s.called(node) }); i >= 0 {
		return &nodes[i]
	}
	return nil
}

// of is a condition of a check, as "Status/Reason".
func (s *environment) of(ctx context.Context, check, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(s.get(ctx, check).Status.Conditions, kind)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

// message is that of a condition of a check.
func (s *environment) message(ctx context.Context, check, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(s.get(ctx, check).Status.Conditions, kind)
		if c == nil {
			return ""
		}
		return c.Message
	}
}

func (s *environment) allowed(ctx context.Context, check string) func() string {
	return s.of(ctx, check, nhcv1.RemediationAllowedCondition)
}

const yes = "True/Allowed"

// events are the events of a reason about a check, as "Type note", each as often as it was sent.
func (s *environment) events(_ context.Context, check, reason string) func() []string {
	return func() []string {
		GinkgoHelper()
		Expect(s.program.Settle()).To(Succeed())
		return s.notes.of(s, check, reason)
	}
}

// lease is the lease on a node; nil if there is none.
func (s *environment) lease(ctx context.Context, node string) *coordinationv1.Lease {
	GinkgoHelper()
	l := &coordinationv1.Lease{}
	err := s.here.Get(ctx, client.ObjectKey{Namespace: s.leases, Name: "node-" + s.called(node)}, l)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return l
}

// metric is the value of a series, the sum of a histogram's observations counting as one; -1 if there is none.
func (s *environment) metric(name string, labels map[string]string) float64 {
	GinkgoHelper()
	Expect(s.program.Settle()).To(Succeed())
	families := suite.Must(metrics.Registry.Gather())
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			is := map[string]string{}
			for _, l := range m.GetLabel() {
				is[l.GetName()] = l.GetValue()
			}
			for key, value := range labels {
				if is[key] != value {
					continue series
				}
			}
			switch {
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			default:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// said reports how often the controller has said something in its log.
func (s *environment) said(text string) func() int {
	return func() int {
		GinkgoHelper()
		Expect(s.program.Settle()).To(Succeed())
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for _, line := range s.log {
			if strings.Contains(line, text) {
				n++
			}
		}
		return n
	}
}

// versions are the resource versions of all that a check and its remediations have written.
func (s *environment) versions(ctx context.Context) map[string]string {
	GinkgoHelper()
	is := map[string]string{}
	for _, c := range s.checks {
		is["check "+c] = s.get(ctx, c).ResourceVersion
	}
	for _, n := range s.nodes {
		is["node "+n] = s.getNode(ctx, n).ResourceVersion
		if l := s.lease(ctx, n); l != nil {
			is["lease "+n] = l.ResourceVersion
		}
	}
	for _, r := range s.allRequests(ctx) {
		is["request "+r.GetName()] = r.GetResourceVersion()
	}
	return is
}

// heartbeat is what a kubelet writes every few minutes when nothing has changed.
func (s *environment) heartbeat(ctx context.Context, name string) {
	GinkgoHelper()
	n := s.getNode(ctx, name)
	before := n.DeepCopy()
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(n.Status.Conditions[i].LastHeartbeatTime.Add(time.Second))
	}
	n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: int64(len(n.Status.Images))})
	Expect(s.here.Status().Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("A check reports", func() {
	inEveryMode("nothing while nothing changes: it writes nothing, sends no events, and no heartbeat enqueues it", func(ctx context.Context, s *environment) {
		s.workers(ctx, 5)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.check(ctx, "strict", s.by(s.template(ctx, replace, "hard")), minHealthy("100%"))
		s.check(ctx, "paused", s.by(s.template(ctx, replace, "hard")), func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = []string{"me"} })
		s.fails(ctx, "w1")
		s.keeps(ctx, s.request(ctx, "w1"))
		s.reports(ctx, "w2", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{5, 3}))
		Eventually(s.counts(ctx, "strict")).Should(Equal([]int{5, 3}))
		Eventually(s.counts(ctx, "paused")).Should(Equal([]int{5, 3}))
		for _, c := range s.checks {
			s.settle(c)
		}
		before, told, counts := s.versions(ctx), s.notes.number(), s.program.Counts()
		for _, n := range s.nodes {
			s.heartbeat(ctx, n)
			before["node "+n] = s.getNode(ctx, n).ResourceVersion
		}
		Expect(s.program.Counts()).To(Equal(counts))
		for _, c := range s.checks {
			s.reconcile(c)
		}
		Expect(s.versions(ctx)).To(Equal(before))
		Expect(s.notes.number()).To(Equal(told))
	})

	in(ladders, "its remediations in metrics, with medik8s' names and with kubemend's", func(ctx context.Context, s *environment) {
		s.workers(ctx, 5)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
		first := map[string]string{"name": s.called("w1"), "namespace": s.name, "remediation": "RebootRemediation"}
		second := map[string]string{"name": s.called("w1"), "namespace": s.name, "remediation": "ReplaceRemediation"}
		ours := func(more ...string) map[string]string {
			labels := map[string]string{"name": s.called("check")}
			for i := 0; i < len(more); i += 2 {
				labels[more[i]] = more[i+1]
			}
			return labels
		}
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
		due := s.getNode(ctx, "w1").Status.Conditions[0].LastTransitionTime.Add(patience)
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_targets", ours("state", "pending")).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_next_deadline_timestamp_seconds", ours()).Should(BeEquivalentTo(due.Unix()))
		Expect(s.metric("nodehealthcheck_ongoing_remediation", first)).To(BeEquivalentTo(-1))
		s.clock.Step(patience)
		s.request(ctx, "w1")
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", first).Should(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_targets", ours("state", "unhealthy"))).To(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_targets", ours("state", "healthy"))).To(BeEquivalentTo(4))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_remediations_in_flight", ours()).Should(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_remediations_started_total", ours("kind", "RebootRemediation"))).To(BeEquivalentTo(1))
		s.clock.Step(step)
		s.latest(ctx, "w1", 2)
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", second).Should(BeEquivalentTo(1))
		Expect(s.metric("nodehealthcheck_ongoing_remediation", first)).To(BeEquivalentTo(1))
		Expect(s.metric("nodehealthcheck_unhealthy_node_duration_seconds", first)).To(BeEquivalentTo(-1))

		s.fails(ctx, "w2", "w3")
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_short_circuited", ours("reason", "TooManyUnhealthy")).Should(BeEquivalentTo(1))
		s.recovers(ctx, "w1", "w2", "w3")
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", first).Should(BeEquivalentTo(0))
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", second).Should(BeEquivalentTo(0))
		Eventually(s.metric).WithArguments("nodehealthcheck_unhealthy_node_duration_seconds", first).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("nodehealthcheck_unhealthy_node_duration_seconds", second).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_remediations_finished_total", ours("result", "recovered")).Should(BeNumerically(">=", 1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_short_circuited", ours("reason", "")).Should(BeEquivalentTo(0))
	})

	once("seed 2.2: changes within a moment: of nodes, their conditions and the check itself", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.node(ctx, "w4")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{4, 4}))
		s.loses(ctx, "w4")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 3}))
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Duration.Duration = time.Hour })
		s.fails(ctx, "w1")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Duration.Duration = time.Minute })
		Eventually(s.nodesRequested(ctx)).Should(Equal([]string{"w1"}))
	})
})

// clock is that of an environment, which goes as far as a test wants it to.
type clock struct{ program *inmemory.Program }

// Now is the time.
func (c clock) Now() time.Time { return c.program.Server.Clock.Now() }

// Step lets the clock leap.
func (c clock) Step(d time.Duration) {
	GinkgoHelper()
	Expect(c.program.Step(d)).To(Succeed())
}

// settled is a client that reads when the controller has done all that it has to do.
type settled struct {
	client.WithWatch
	program *inmemory.Program
}

// Get reads an object.
func (c settled) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.Get(ctx, key, obj, opts...)
}

// List reads objects.
func (c settled) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.List(ctx, list, opts...)
}

// notes are the events that the controller has sent.
type notes struct {
	mu  sync.Mutex
	all []note
}

type note struct{ kind, name, reason, text string }

// Eventf notes an event.
func (n *notes) Eventf(regarding, _ runtime.Object, kind, reason, _, text string, args ...any) {
	obj, err := meta.Accessor(regarding)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, note{regarding.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), reason, kind + " " + fmt.Sprintf(text, args...)})
}

// number is how many there are.
func (n *notes) number() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// of are the events of a reason about a check.
func (n *notes) of(s *environment, check, reason string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := []string{}
	for _, e := range n.all {
		if e.name == s.called(check) && e.reason == reason {
			found = append(found, strings.ReplaceAll(e.text, s.name+"-", ""))
		}
	}
	return found
}

// installs makes the API server serve kinds from now on.
func (s *environment) installs(ctx context.Context, kinds ...schema.GroupVersionKind) {
	GinkgoHelper()
	for _, kind := range kinds {
		singular := strings.ToLower(kind.Kind)
		Expect(s.here.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: kind.Group, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: singular + "s", Singular: singular},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: kind.Version, Served: true, Storage: true}},
			},
		})).To(Succeed())
		s.program.Server.Install(kind)
	}
}

// settle makes the controller reconcile a check once more when it has seen every change.
func (s *environment) settle(check string) {
	GinkgoHelper()
	Expect(s.program.Settle()).To(Succeed())
	s.reconcile(check)
	Expect(s.program.Settle()).To(Succeed())
}

// reconcile makes the controller reconcile a check once.
func (s *environment) reconcile(check string) {
	GinkgoHelper()
	Expect(s.program.Reconcile(reconcile.Request{NamespacedName: client.ObjectKey{Name: s.called(check)}})).To(Succeed())
}
