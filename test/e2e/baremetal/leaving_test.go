package baremetal

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// rebooting is the kind of a remediator's requests; see docs/examples/remediator.yaml.
var rebooting = schema.GroupVersionKind{Group: "remediation.example.org", Version: "v1alpha1", Kind: "RebootRemediation"}

// working is the finalizer by which the remediator holds on to a request.
const working = "remediation.example.org/working"

var electing = []string{"--leader-elect", "--leader-elect-namespace=" + rig.Namespace, "--orphan-grace-period=1s"}

var _ = Describe("A manager with --teardown", Ordered, func() {
	It("releases everything, beside a replica without the flag and after another one with it is killed", func(ctx SpecContext) {
		manager.Kill()
		startManager(ctx, electing...)
		DeferCleanup(func(ctx SpecContext) {
			manager.Kill()
			startManager(ctx)
		})
		fixture.AllWell(ctx)

		By("holding a host off whose workload does not move, with its node fenced")
		app := "stuck"
		Expect(builders.Apply(ctx, fixture.There, append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))...)).To(Succeed())
		name := fixture.nodeOf(ctx, app)
		host, check := fixture.Host(name), client.ObjectKey{Namespace: fixture.Namespace, Name: "hostremediation"}
		fixture.watched(ctx, ours)
		patience := []byte(`{"spec":{"template":{"spec":{"strategy":{"timeoutSeconds":900}}}}}`) // no deadline comes in between
		template := ours.template(fixture.Namespace, check.Name, twoAttempts)
		Expect(here.Patch(ctx, template, client.RawPatch(types.MergePatchType, patience))).To(Succeed())
		attacher.Stick(true)
		DeferCleanup(func() { attacher.Stick(false) })
		began := time.Now()
		host.Kubelet().Stop()
		Eventually(func() bool { return outOfService(fixture.Node(ctx, name)) }).Should(BeTrue())

		By("leaving a fence and a hold behind whose remediation is gone")
		orphan := slices.DeleteFunc(fixture.WorkerNames(ctx), func(worker string) bool { return worker == name })[0]
		fixture.edit(ctx, orphan, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect,
			})
			n.Annotations[fence.FencedByAnnotation] = "of-none"
		})

		By("having a node of this cluster remediated, with a lease on it")
		request := remediatedNode(ctx)

		By("starting a replica that leaves beside the one that does not, with the rights that it is installed with")
		first := leavingReplica(ctx, "first", account)
		Eventually(leader(ctx)).Should(HavePrefix("teardown_"))
		Eventually(func() error { return manager.Ready(ctx) }).Should(HaveOccurred(), "it has lost its lease, and ends")
		manager.Kill()
		startManager(ctx, electing...) // as its Deployment would
		Eventually(func() map[string]string { return checkOf(ctx, check).Annotations }).ShouldNot(HaveKey(clusterv1.PausedAnnotation))
		Eventually(answer(ctx, first, "/readyz/teardown")).Should(And(
			ContainSubstring("HostRemediation "+fixture.Namespace+"/"+name), ContainSubstring("RebootRemediation default/drilled")))
		Expect(powered(host)()).To(BeFalse(), "its workload is on its way")
		Eventually(fixture.recordedEvents(ctx, "MachineHealthCheck", check.Name, began)).Should(HaveKey(mendv1.EventCheckReleased))

		By("killing it, and starting another one")
		first.Kill()
		second := leavingReplica(ctx, "second", account)
		Eventually(answer(ctx, second, "/readyz/teardown")).Should(ContainSubstring("HostRemediation " + fixture.Namespace + "/" + name))

		By("letting the workload move, and the remediator remove its finalizer")
		attacher.Stick(false)
		release(ctx, request)
		Eventually(func() error { return second.Ready(ctx) }).Should(Succeed(), answer(ctx, second, "/readyz/teardown"))

		Expect(traces(ctx, management.Config())).To(BeEmpty())
		Expect(traces(ctx, fixture.Plane.Config())).To(BeEmpty())
		Eventually(powered(host)).Should(BeTrue())
		Eventually(func() corev1.ConditionStatus { return fixture.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))

		for _, m := range []*rig.Kubemend{first, second} {
			Expect(os.ReadFile(m.Log)).NotTo(ContainSubstring("is forbidden"))
		}

		By("seeing that Cluster API core has taken the check over, and that the check of nodes says what it has lost")
		Eventually(func(g Gomega) {
			c := checkOf(ctx, check)
			g.Expect(conditionOf(c.Status.Conditions, clusterv1.PausedCondition)).To(Equal(metav1.ConditionFalse))
			g.Expect(c.Status.ExpectedMachines).To(Equal(ptr.To(fixture.Workers)))
			g.Expect(c.Status.CurrentHealthy).To(Equal(ptr.To(fixture.Workers)))
		}).Should(Succeed())
		drill := &nhcv1.NodeHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKey{Name: "drill"}, drill)).To(Succeed())
		Expect(drill.Status.Phase).To(Equal(nhcv1.PhaseDisabled))
		Expect(drill.Status.UnhealthyNodes).To(BeEmpty())

		By("deleting all objects of the kinds whose CRDs go, with no manager there")
		second.Kill()
		Expect(here.DeleteAllOf(ctx, &mendv1.HostRemediation{}, client.InNamespace(fixture.Namespace))).To(Succeed())
		Eventually(func() bool { return fixture.gone(ctx, ours, name) }).Should(BeTrue())
		manager.Kill()
		startManager(ctx, "--node-health-checks=off") // for its webhooks, while the check of the nodes is deleted
	}, SpecTimeout(specPatience))
})

// leavingReplica starts a replica that leaves; it ends with the spec.
func leavingReplica(ctx context.Context, name string, kubeconfig []byte) *rig.Kubemend {
	GinkgoHelper()
	m, err := management.Leaving(ctx, name, kubeconfig, electing...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		m.Kill()
		suite.LogOf("the "+name+" replica that leaves", m, CurrentSpecReport())
	})
	return m
}

// mayRemediate gives the manager the rights to make requests of the remediator, since no controller aggregates them here.
func mayRemediate(ctx context.Context) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: rebooting.Group}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rebooting.Group}, Resources: []string{"rebootremediations", "rebootremediationtemplates"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: rig.Account}},
	}
	Expect(here.Create(ctx, role)).To(Succeed())
	Expect(here.Create(ctx, binding)).To(Succeed())
}

// leader is the replica that holds the lease for leader election.
func leader(ctx context.Context) func() string {
	return func() string {
		lease := &coordinationv1.Lease{}
		if err := here.Get(ctx, client.ObjectKey{Namespace: rig.Namespace, Name: managerlease.LeaderLeaseName}, lease); err != nil {
			return err.Error()
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
}

// answer is what a manager says on one of its health endpoints.
func answer(ctx context.Context, m *rig.Kubemend, path string) func() string {
	return func() string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Health+path, http.NoBody)
		if err != nil {
			return err.Error()
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return fmt.Sprint(string(body), err)
	}
}

func checkOf(ctx context.Context, key client.ObjectKey) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, key, check)).To(Succeed())
	return check
}

func conditionOf(conditions []metav1.Condition, kind string) metav1.ConditionStatus {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// remediatedNode has a node of the management cluster remediated by a remediator that keeps the request.
func remediatedNode(ctx context.Context) *unstructured.Unstructured {
	GinkgoHelper()
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{}}}}
	template.SetGroupVersionKind(rebooting.GroupVersion().WithKind(rebooting.Kind + "Template"))
	template.SetNamespace("default")
	template.SetName("drill")
	drill := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "drill"}}
	drill.Spec.Selector.MatchLabels = map[string]string{"drill": "yes"}
	drill.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{{Type: "Drill", Status: corev1.ConditionTrue, Duration: metav1.Duration{Duration: time.Second}}}
	drill.Spec.RemediationTemplate = &corev1.ObjectReference{
		APIVersion: template.GetAPIVersion(), Kind: template.GetKind(), Namespace: template.GetNamespace(), Name: template.GetName(),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "drilled", Labels: drill.Spec.Selector.MatchLabels}}
	well := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "undrilled-1", Labels: drill.Spec.Selector.MatchLabels}}
	better := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "undrilled-2", Labels: drill.Spec.Selector.MatchLabels}}
	for _, o := range []client.Object{template, well, better, node, drill} {
		Expect(here.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, o)).To(Succeed()) })
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: "Drill", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
	Expect(here.Status().Update(ctx, node)).To(Succeed())
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(rebooting)
	Eventually(func() error {
		if err := here.Get(ctx, client.ObjectKey{Namespace: "default", Name: node.Name}, request); err != nil {
			return err
		}
		request.SetFinalizers([]string{working})
		return here.Update(ctx, request)
	}).Should(Succeed())
	return request
}

// release is what a remediator does when its request is deleted.
func release(ctx context.Context, request *unstructured.Unstructured) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(request), request)).To(Succeed())
		g.Expect(request.GetDeletionTimestamp()).NotTo(BeNil())
		request.SetFinalizers(nil)
		g.Expect(here.Update(ctx, request)).To(Succeed())
	}).Should(Succeed())
}

// traces are all that is ours on any object of any kind that a control plane serves. That the managed fields of an object name kubemend as one of
// its writers has no effect, events are gone after an hour, and the lease by which the manager announces itself goes with its pod, which it does
// not have here.
func traces(ctx context.Context, config *rest.Config) []string {
	GinkgoHelper()
	there := clientFor(config)
	api, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	lists, err := api.ServerPreferredResources()
	Expect(err).NotTo(HaveOccurred())
	var found []string
	kinds := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" || r.Kind == "CustomResourceDefinition" || r.Kind == "RemediationRecord" {
				continue // records are to outlive what they tell of, and go with the Cluster or their CRD
			}
			kinds++
			all := &unstructured.UnstructuredList{}
			all.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			Expect(there.List(ctx, all)).To(Succeed(), r.Name)
			for _, o := range all.Items {
				if o.GetKind() == "Lease" && o.GetNamespace() == rig.Namespace && o.GetName() == managerlease.LeaseName {
					continue
				}
				found = append(found, tracesOn(&o)...)
			}
		}
	}
	Expect(kinds).To(BeNumerically(">", 40), "all kinds are listed")
	return found
}

func tracesOn(o *unstructured.Unstructured) []string {
	var found []string
	see := func(what string) {
		found = append(found, fmt.Sprintf("%s %s/%s: %s", o.GetKind(), o.GetNamespace(), o.GetName(), what))
	}
	bad := func(text string) bool {
		return strings.Contains(text, "kubemend") && !strings.Contains(text, "simulated.csi.kubemend.io")
	}
	for key, value := range o.GetAnnotations() {
		ours := bad(key) || value == mendv1.Claim || strings.HasPrefix(key, infrav1.RebootAnnotation) || strings.HasSuffix(key, "-backup")
		if key != corev1.LastAppliedConfigAnnotation && ours {
			see(key + ": " + value)
		}
	}
	for key, value := range o.GetLabels() {
		if bad(key) && !strings.HasPrefix(key, "test.") {
			see(key + ": " + value)
		}
	}
	for _, finalizer := range o.GetFinalizers() {
		if bad(finalizer) || finalizer == infrav1.RemediationFinalizer {
			see(finalizer)
		}
	}
	taints, _, _ := unstructured.NestedSlice(o.Object, "spec", "taints")
	for _, t := range taints {
		if t.(map[string]any)["key"] == infrav1.OutOfServiceTaintKey {
			see("out of service")
		}
	}
	holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	if o.GetKind() == "Lease" && strings.HasPrefix(holder, nhcv1.LeaseHolderPrefix) {
		see("held by " + holder)
	}
	return found
}
