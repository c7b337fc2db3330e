package api

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/rights"
	"github.com/kubemend/kubemend/test/suite"
)

// The manager runs with the rights of the shipped ServiceAccount, and with a kubeconfig of its own for the workload cluster. The specs run,
// in order and as briefly as possible, all cases that need a right. One spec compares the granted rights with the audit log.
var _ = Describe("A manager with no rights but those that it ships with", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { installEverything(ctx) }, NodeTimeout(specPatience))

	It("leads, makes the default check, and authorizes readers of its metrics", func(ctx SpecContext) {
		startManager(ctx, "--default-node-health-check-template="+agent.Kind+"Template.v1alpha1."+agent.Group+"/default/"+agentTemplate)
		Expect(builders.Apply(ctx, here, withKind(ours()), withKind(theirs()))).To(Succeed())
		requested(ctx, &coordinationv1.Lease{}, rig.Namespace, managerlease.LeaderLeaseName)
		byDefault := &nhcv1.NodeHealthCheck{}
		requested(ctx, byDefault, "", "nhc-worker-default")
		Expect(here.Delete(ctx, byDefault)).To(Succeed())
		Eventually(metricsStatus(ctx, nil)).Should(Equal(http.StatusUnauthorized))
		reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reader"}}
		Expect(here.Create(ctx, reader)).To(Succeed())
		Eventually(metricsStatus(ctx, reader)).Should(Equal(http.StatusForbidden))
		mayRead(ctx, reader)
		Eventually(metricsStatus(ctx, reader)).Should(Equal(http.StatusOK))
	}, SpecTimeout(specPatience))

	It("has a machine replaced", func(ctx SpecContext) {
		lost := metal.WorkerNames(ctx)[0]
		silence(lost)
		By("marking it unhealthy, and healthy after the check is deleted; then again, which repeats the same event")
		none := intstr.FromInt32(0)
		for range 2 {
			held := checked(ctx, "held", func(check *clusterv1.MachineHealthCheck) {
				check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &none
			})
			Eventually(healthCheckStatus(ctx, lost)).Should(Equal(metav1.ConditionFalse))
			Expect(here.Delete(ctx, held)).To(Succeed())
			Eventually(healthCheckStatus(ctx, lost)).ShouldNot(Equal(metav1.ConditionFalse))
		}

		By("requesting remediation by its owner")
		checked(ctx, "replaced")
		Eventually(func() []string { return metal.WorkerNames(ctx) }).Should(And(HaveLen(workers), Not(ContainElement(lost))))
		metal.AllWell(ctx)
	}, SpecTimeout(specPatience))

	It("has a host power-cycled, and its node fenced by a taint", func(ctx SpecContext) {
		checked(ctx, "ours", builders.RemediatedBy(mendv1.GroupVersion.String(), "HostRemediationTemplate", template))
		name := metal.WorkerNames(ctx)[0]
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "moves"},
			Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "moves", Image: "simulated/moves"}}},
		}
		Expect(here.Create(ctx, pod)).To(Succeed())
		silence(name)
		request := &mendv1.HostRemediation{}
		requested(ctx, request, namespace, name)
		gone(ctx, request)
		gone(ctx, pod)
		metal.AllWell(ctx)
	}, SpecTimeout(specPatience))

	It("has a host power-cycled for a Metal3Remediation, where a watch needs a list before", func(ctx SpecContext) {
		manager.Kill()
		GinkgoT().Setenv("KUBE_FEATURE_WatchListClient", "false") // as with API servers older than v1.34
		startManager(ctx)
		checked(ctx, "theirs", builders.RemediatedBy(infrav1.GroupVersion.String(), "Metal3RemediationTemplate", template))
		name := metal.WorkerNames(ctx)[1]
		silence(name)
		request := &infrav1.Metal3Remediation{}
		requested(ctx, request, namespace, name)
		gone(ctx, request)
		metal.AllWell(ctx)
	}, SpecTimeout(specPatience))

	It("has a control-plane host power-cycled, after it has read which API servers are alive", func(ctx SpecContext) {
		machine := metal.Machine(ctx, metal.ControlPlaneNames(ctx)[0])
		request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine.Name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID},
			}}}
		request.Spec.Strategy = builders.HostStrategy(strategy)
		Expect(here.Create(ctx, request)).To(Succeed())
		Eventually(as(ctx, request)).Should(HaveField("Status.Step", "Succeeded"))
		Expect(here.Delete(ctx, request)).To(Succeed())
		gone(ctx, request)
		metal.AllWell(ctx)
	}, SpecTimeout(specPatience))

	It("reads past its caches", func(ctx SpecContext) {
		machine := builders.ControlPlaneMachine(metal.Cluster, "nowhere", func(m *clusterv1.Machine) {
			m.Labels, m.Spec.ClusterName = nil, "nowhere"
		})
		Expect(here.Create(ctx, machine)).To(Succeed())
		request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine.Name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID},
			}}}
		request.Spec.Strategy = builders.HostStrategy(strategy)
		Expect(here.Create(ctx, request)).To(Succeed())
		Eventually(as(ctx, request)).ShouldNot(HaveField("Status.Conditions", BeEmpty()))
		Expect(here.Delete(ctx, request)).To(Succeed())
		gone(ctx, request)
		Expect(here.Delete(ctx, machine)).To(Succeed())
	}, SpecTimeout(specPatience))

	It("has nodes remediated, removes a confirmation, and takes over an expired lease", func(ctx SpecContext) {
		mine := map[string]string{"story": "lease"}
		first, second := loneNode(ctx, "first", mine, map[string]string{"machine.openshift.io/machine": "default/first"}),
			loneNode(ctx, "second", mine, nil)
		loneNode(ctx, "third", mine, nil)
		loneNode(ctx, "fourth", mine, nil)
		check := watched(ctx, "leases", mine)
		By("remediating the first")
		first.Stop()
		request := &unstructured.Unstructured{}
		request.SetGroupVersionKind(agent)
		requested(ctx, request, metav1.NamespaceDefault, "first")
		Expect(here.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: nhcv1.LeasePrefix + "second"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("somebody"), LeaseDurationSeconds: ptr.To[int32](1),
				RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Hour))),
			},
		})).To(Succeed())
		first.Start()
		gone(ctx, request)

		By("remediating the second, whose lease another holder had")
		second.Stop()
		requested(ctx, request, metav1.NamespaceDefault, "second")
		second.Start()
		gone(ctx, request)

		By("removing a confirmation")
		annotate(ctx, "third", nhcv1.ConfirmedHealthyAnnotation, "yes")
		third := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "third"}}
		Eventually(as(ctx, third)).ShouldNot(HaveField("Annotations", HaveKey(nhcv1.ConfirmedHealthyAnnotation)))
		Eventually(leases(ctx)).Should(BeEmpty())
		Eventually(countEvents(ctx, check, nhcv1.EventRemediationRemoved)).Should(BeNumerically(">=", 2))
		Eventually(openRecords(ctx, check)).Should(BeEmpty(), "a later manager would read the check of an open record")
	}, SpecTimeout(specPatience))

	It("reads OpenShift's disruption budget of etcd before a control-plane node is remediated", func(ctx SpecContext) {
		const etcd = "openshift-etcd"
		guards := map[string]string{"app": "guard"}
		mine := map[string]string{"story": "etcd", "node-role.kubernetes.io/control-plane": ""}
		member := loneNode(ctx, "member", mine, nil)
		guard := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: etcd, Name: "guard", Labels: guards},
			Spec:       corev1.PodSpec{NodeName: "member", Containers: []corev1.Container{{Name: "guard", Image: "simulated/guard"}}},
		}
		Expect(builders.Apply(ctx, here, builders.Namespace(etcd))).To(Succeed())
		Expect(here.Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: etcd, Name: "guards"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: guards}},
		})).To(Succeed())
		Expect(here.Create(ctx, guard)).To(Succeed())
		check := watched(ctx, "etcd", mine)
		member.Stop()
		Eventually(countEvents(ctx, check, nhcv1.EventRemediationSkipped)).ShouldNot(BeZero())
		member.Start()
		Eventually(metal.Ready).WithArguments(ctx, "member").Should(Equal(corev1.ConditionTrue))
	}, SpecTimeout(specPatience))

	It("migrates all objects when a release stores its kinds in another version", func(ctx SpecContext) {
		check := watched(ctx, "stored", map[string]string{"story": "stored"})
		Expect(here.Create(ctx, requestWithoutOwner(&mendv1.HostRemediation{}))).To(Succeed())
		Expect(here.Create(ctx, requestWithoutOwner(&infrav1.Metal3Remediation{}))).To(Succeed())
		crds := kindsOfOurs(ctx)
		Expect(crds).To(HaveLen(5))
		for i := range crds {
			ofFormerRelease(ctx, &crds[i])
		}
		By("writing in versions that are not served after the upgrade")
		touched(ctx, "v1alpha0", check)
		touched(ctx, "v1beta1", theirs())
		manager.Kill()
		for i := range crds {
			ofThisRelease(ctx, &crds[i])
		}
		startManager(ctx)
		for i := range crds {
			Eventually(func(g Gomega) {
				g.Expect(here.Get(ctx, client.ObjectKeyFromObject(&crds[i]), &crds[i])).To(Succeed())
				g.Expect(crds[i].Status.StoredVersions).To(HaveLen(1))
				g.Expect(crds[i].Annotations).
					To(HaveKey(clusterv1.CRDMigrationObservedGenerationAnnotation), "written last, and writing it needs a right")
			}).Should(Succeed(), crds[i].Name)
		}
	}, SpecTimeout(specPatience))

	It("claims the checks that a policy selects when it works in only one namespace", func(ctx SpecContext) {
		manager.Kill()
		policy := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "act"}}
		policy.Spec.Mode, policy.Spec.Selector.Namespaces = mendv1.PolicyActs, &metav1.LabelSelector{}
		Expect(here.Create(ctx, policy)).To(Succeed())
		check := checked(ctx, "by-policy", func(check *clusterv1.MachineHealthCheck) { check.Annotations = nil })
		startManager(ctx, "--namespace="+namespace, "--node-health-checks=off")
		Eventually(as(ctx, check)).Should(HaveField("Annotations", HaveKeyWithValue(mendv1.ClaimedByAnnotation, mendv1.ClaimedByPolicy)))
		Eventually(as(ctx, policy)).Should(HaveField("Status.Conditions", Not(BeEmpty())))
		Expect(here.Delete(ctx, policy)).To(Succeed())
	}, SpecTimeout(specPatience))

	It("tears down, returns the check that it has claimed, and deletes its leases", func(ctx SpecContext) {
		manager.Kill()
		// The pod exists by name only. If it existed, ClusterCache would take this control plane for the cluster in which the manager runs,
		// and read the address and CA from files that every pod has.
		GinkgoT().Setenv("POD_NAMESPACE", rig.Namespace)
		GinkgoT().Setenv("POD_NAME", "kubemend")
		GinkgoT().Setenv("POD_UID", "kubemend")
		check := checked(ctx, "given-back")
		startManager(ctx, "--teardown")
		Eventually(as(ctx, check)).ShouldNot(HaveField("Annotations", HaveKey(clusterv1.PausedAnnotation)))
		By("waiting until the pod owns each lease, or the lease is deleted; the leader creates its lease again")
		leases := []string{managerlease.LeaderLeaseName, managerlease.LeaseName}
		Eventually(func(g Gomega) {
			for _, name := range leases {
				lease := &coordinationv1.Lease{}
				err := here.Get(ctx, client.ObjectKey{Namespace: rig.Namespace, Name: name}, lease)
				g.Expect(client.IgnoreNotFound(err)).To(Succeed())
				g.Expect(err != nil || len(lease.OwnerReferences) > 0).To(BeTrue(), name)
			}
		}).Should(Succeed())
		manager.Kill()
		for _, name := range leases {
			gone(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: name}})
		}
	}, SpecTimeout(specPatience))

	It("has used every right that it has, and no other", func(ctx SpecContext) {
		manager.Kill() // so that it sends no further requests
		events := audited()
		shipped := suite.Must(control.Shipped(ctx, "standalone"))
		here := rights.Of(granted(shipped), "kubemend-manager-role", "kubemend-hosts", "kubemend-nodes", "kubemend-node-leases",
			"kubemend-api-servers", "kubemend-leader-election")
		Expect(here).NotTo(BeEmpty())
		roles := suite.Must(control.WorkloadRoles())
		there := granted(roles)
		Expect(there).NotTo(BeEmpty())

		inOne := suite.LookedFor[0] + " in " + namespace // by the manager that works in one namespace
		Expect(texts(rights.Refused(events, rig.Account))).To(ConsistOf(append(slices.Clone(suite.LookedFor), inOne)))
		Expect(texts(rights.Refused(events, rig.WorkloadUser))).To(BeEmpty())
		// The manager reads a MachineDeployment live before it ends a record without a replacement. That may or may not happen here.
		either := func(text string) bool { return strings.HasPrefix(text, "get cluster.x-k8s.io/machinedeployments ") }
		Expect(slices.DeleteFunc(texts(rights.Unused(here, rights.Used(events, rig.Account))), either)).
			// The simulated kubelet never booted this machine, so the manager runs on none of the hosts.
			To(ConsistOf("list pods in kubemend-system (kubemend-leader-election)",
				// Since BMO 0.14 a HostClaim may link a host and its Metal3Machine: see baremetal/host.
				"get metal3.io/hostclaims (kubemend-hosts)",
				// No machine of this suite is replaced by its owner, and no record is old. test/e2e/capi and test/e2e use these rights.
				"get cluster.x-k8s.io/machinesets (kubemend-manager-role)",
				"get controlplane.cluster.x-k8s.io/kubeadmcontrolplanes (kubemend-manager-role)",
				"delete kubemend.io/remediationrecords (kubemend-manager-role)",
				// No override exists in this suite. test/inmemory/kubemend uses these rights.
				"delete kubemend.io/remediationoverrides (kubemend-manager-role)",
				"patch kubemend.io/remediationoverrides/status (kubemend-manager-role)"),
				"granted in the management cluster, and never used")
		// No volume stays attached to a fenced node whose pods are gone. test/faults/hosts and baremetal/fence use this right.
		Expect(texts(rights.Unused(there, rights.Used(events, rig.WorkloadUser)))).To(ConsistOf(
			"get persistentvolumes (kubemend-workload-fencer)"), "granted in the workload cluster, and never used")
	}, SpecTimeout(specPatience))

	It("needs no rights outside of its namespace with --namespace", func(ctx SpecContext) {
		before := len(audited())
		for _, name := range []string{"kubemend-manager", "kubemend-hosts", "kubemend-nodes", "kubemend-ext-remediation"} {
			Expect(here.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}
		Expect(here.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace,
			Name: "kubemend-node-leases"}})).To(Succeed())
		grant(ctx, filepath.Join("..", "docs", "examples", "one-namespace"))
		Eventually(mayListSecrets(ctx, metav1.NamespaceDefault)).Should(BeFalse())
		Eventually(mayListSecrets(ctx, namespace)).Should(BeTrue())
		for _, crd := range kindsOfOurs(ctx) { // as if no manager had migrated them yet
			Expect(here.Patch(ctx, &crd, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`)))).To(Succeed())
		}
		startManager(ctx, "--namespace="+namespace, "--node-health-checks=off",
			"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields")
		checked(ctx, "narrow", builders.RemediatedBy(mendv1.GroupVersion.String(), "HostRemediationTemplate", template))
		name := metal.WorkerNames(ctx)[2]
		silence(name)
		request := &mendv1.HostRemediation{}
		requested(ctx, request, namespace, name)
		gone(ctx, request)
		metal.AllWell(ctx)
		manager.Kill()
		Expect(texts(rights.Refused(audited()[before:], rig.Account))).To(ConsistOf(
			suite.LookedFor[0]+" in "+namespace, "list coordination.k8s.io/leases controller-leader-election-capm3 in capm3-system"))
	}, SpecTimeout(specPatience))

	It("names the right that an installation without NodeHealthChecks lacks, and serves them once it is granted", func(ctx SpecContext) {
		before := len(audited())
		grant(ctx, "default")
		Eventually(mayListSecrets(ctx, metav1.NamespaceDefault)).Should(BeTrue())
		startManager(ctx, "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields")
		Eventually(unserved(ctx)).Should(ContainSubstring("the manager may not watch nodes"))
		Expect(texts(rights.Refused(audited()[before:], rig.Account))).
			To(ConsistOf(suite.LookedFor), "the manager asks for its rights, and sends no request that would be refused")

		grant(ctx, filepath.Join("rbac", "nodes"))
		Eventually(unserved(ctx)).Should(BeEmpty())
		mine := map[string]string{"story": "granted"}
		lost := loneNode(ctx, "granted", mine, nil)
		loneNode(ctx, "beside", mine, nil)
		loneNode(ctx, "besides", mine, nil)
		watched(ctx, "granted", mine)
		lost.Stop()
		request := &unstructured.Unstructured{}
		request.SetGroupVersionKind(agent)
		requested(ctx, request, metav1.NamespaceDefault, "granted")
		lost.Start()
		gone(ctx, request)
		Eventually(leases(ctx)).Should(BeEmpty())
	}, SpecTimeout(specPatience))

	It("may neither see nor write leases of others, nor make namespaces", hasNoLeasesOfOthers, SpecTimeout(specPatience))

	It("has, as a shard, the rights of its part, and no others", hasTheRightsOfItsPart, SpecTimeout(specPatience))
})

// requestWithoutOwner returns a remediation without an owner Machine, which no controller carries out.
func requestWithoutOwner[T client.Object](request T) T {
	request.SetNamespace(namespace)
	request.SetName("without-owner")
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, request))).To(Succeed()) })
	return request
}
