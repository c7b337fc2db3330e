package cli

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// Two remediators without a controller: kubemend waits for the first one in vain.
var (
	nudge = schema.GroupVersionKind{Group: "remediation.example.org", Version: "v1alpha1", Kind: "NudgeRemediation"}
	shake = schema.GroupVersionKind{Group: nudge.Group, Version: nudge.Version, Kind: "ShakeRemediation"}
)

const (
	// templates is the namespace of their templates, and so of their requests.
	templates = metav1.NamespaceDefault
	// drill is the condition of nodes that the check is about.
	drill corev1.NodeConditionType = "Drill"
	// drilled is for how long a node or a machine is pending. A busy machine takes seconds for each run of the plugin, or half a minute once, and
	// there have to be several meanwhile.
	drilled = 50 * time.Second
	// nudgeTakes is how long the first remediator is given; the least that the API server takes is a minute.
	nudgeTakes = time.Minute
)

var _ = Describe("For a node of the management cluster", func() {
	It("explain and status say when the remediation and its next step are due", func(ctx SpecContext) {
		served(ctx, nudge, shake)
		const lost = "drill-1"
		for _, name := range []string{lost, "drill-2", "drill-3"} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"story": "drill"}}}
			Expect(here.Create(ctx, node)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, node)).To(Succeed()) })
		}
		climbs(ctx, lost)
		Eventually(func() string { return explained(ctx, "node/"+lost).Message }).Should(Equal("HEALTHY"))
		nudged, shaken := asked(ctx, nudge, lost), asked(ctx, shake, lost)

		drills(ctx, lost, corev1.ConditionTrue)

		By("pending")
		due := announced(ctx, lost, cliv1.StatePending)
		var at time.Time
		Eventually(nudged).Should(Receive(&at))
		Expect(at).To(asAnnounced(due), "the first remediator is asked when it was said")
		AddReportEntry("asked after the announced moment", at.Sub(due).String())

		By("being remediated by the first")
		Eventually(func() bool { return targetOf(explained(ctx, "node/"+lost)).InFlight }).Should(BeTrue())
		turn := announced(ctx, lost, cliv1.StateUnhealthy)
		Expect(at.Add(nudgeTakes)).To(asAnnounced(turn))
		row := rowOf(ctx, "drills")
		Expect(row.Population.Remediating).To(Equal(1))
		Expect(row.Next.Time.Time).To(BeTemporally("==", turn), row.Next.Message)
		Eventually(shaken).Should(Receive(&at))
		Expect(at).To(asAnnounced(turn), "the second one is asked when it was said")
		AddReportEntry("the next one asked after the announced moment", at.Sub(turn).String())

		By("healthy again")
		drills(ctx, lost, corev1.ConditionFalse)
		Eventually(func() string { return explained(ctx, "node/"+lost).Message }).Should(Equal("HEALTHY"))
		Eventually(func() int { return rowOf(ctx, "drills").Population.Remediating }).Should(BeZero())
	}, SpecTimeout(specPatience))
})

// served installs remediators, and waits until the manager may ask them.
func served(ctx context.Context, kinds ...schema.GroupVersionKind) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
		Name: nudge.Group, Labels: map[string]string{"rbac.ext-remediation/aggregate-to-ext-remediation": "true"},
	}}
	role.Rules = []rbacv1.PolicyRule{{
		APIGroups: []string{nudge.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}}
	Expect(here.Create(ctx, role)).To(Succeed())
	Eventually(func() []rbacv1.PolicyRule {
		collected := &rbacv1.ClusterRole{}
		Expect(here.Get(ctx, client.ObjectKey{Name: "kubemend-ext-remediation"}, collected)).To(Succeed())
		return collected.Rules
	}).Should(ContainElement(HaveField("APIGroups", ContainElement(nudge.Group))))
	for _, kind := range kinds {
		Expect(simulator.InstallRemediator(management.Config(), kind)).To(Succeed())
		template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}}}}
		template.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "Template"))
		template.SetNamespace(templates)
		template.SetName("drill")
		Expect(here.Create(ctx, template)).To(Succeed())
	}
}

// climbs makes a check of the nodes that are drilled, of which lost is one, until the spec ends: it asks the one remediator first, and then the other.
func climbs(ctx context.Context, lost string) {
	GinkgoHelper()
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "drills"}}
	check.Spec.Selector.MatchLabels = map[string]string{"story": "drill"}
	check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{{Type: drill, Status: corev1.ConditionTrue, Duration: metav1.Duration{Duration: drilled}}}
	for order, kind := range []schema.GroupVersionKind{nudge, shake} {
		check.Spec.EscalatingRemediations = append(check.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
			Order: order, Timeout: metav1.Duration{Duration: nudgeTakes}, RemediationTemplate: corev1.ObjectReference{
				APIVersion: kind.GroupVersion().String(), Kind: kind.Kind + "Template", Namespace: templates, Name: "drill",
			},
		})
	}
	Eventually(func() error { return here.Create(ctx, check) }).Should(Succeed()) // its webhook is served once the CRD is
	DeferCleanup(func(ctx SpecContext) {
		drills(ctx, lost, corev1.ConditionFalse)                                                             // also where the spec has failed: other specs cannot have this check beside theirs
		Eventually(func() error { return client.IgnoreNotFound(here.Delete(ctx, check)) }).Should(Succeed()) // not while it remediates
	})
}

// drills writes the condition that the check is about.
func drills(ctx context.Context, node string, status corev1.ConditionStatus) {
	GinkgoHelper()
	n := &corev1.Node{}
	Expect(here.Get(ctx, client.ObjectKey{Name: node}, n)).To(Succeed())
	before := n.DeepCopy()
	n.Status.Conditions = append(slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == drill }),
		corev1.NodeCondition{Type: drill, Status: status, LastTransitionTime: metav1.Now()})
	Expect(here.Status().Patch(ctx, n, client.StrategicMergeFrom(before))).To(Succeed())
}

// asked returns when a remediator is first asked for a node.
func asked(ctx context.Context, kind schema.GroupVersionKind, node string) <-chan time.Time {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	changes, err := rig.Follow(ctx, here, list, client.InNamespace(templates), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", node)})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(changes.Stop)
	at := make(chan time.Time, 1)
	go func() {
		if _, open := <-changes.ResultChan(); open {
			at <- time.Now()
		}
	}()
	return at
}

// announced is when explain says that the next thing happens to a node of that state: each time that it is asked, the same.
func announced(ctx context.Context, node string, state cliv1.State) time.Time {
	GinkgoHelper()
	var all []time.Time
	Eventually(func() int {
		e := explained(ctx, "node/"+node)
		if targetOf(e).State == state {
			Expect(e.Next.Time.Time).To(BeTemporally(">=", e.Time.Time), "there is a next thing, and it is not late: %+v", e.Next)
			Expect(e.Next.Manual).To(BeFalse())
			all = append(all, e.Next.Time.Time)
		}
		return len(all)
	}).Should(BeNumerically(">=", 2))
	Expect(slices.Compact(all)).To(HaveLen(1), "nothing changes meanwhile")
	return all[0]
}

// rowOf is what status says of a check of nodes.
func rowOf(ctx context.Context, check string) cliv1.Check {
	GinkgoHelper()
	s := parsed[cliv1.Status](mend(ctx, "status", "-o", "json"))
	at := slices.IndexFunc(s.Items, func(c cliv1.Check) bool { return c.Kind == "NodeHealthCheck" && c.Name == check })
	Expect(at).To(BeNumerically(">=", 0))
	return s.Items[at]
}
