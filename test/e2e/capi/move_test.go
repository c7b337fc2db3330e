package capi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
)

// The machines stay where they are: in the memory of the infrastructure of the old management cluster. The new one has an infrastructure that is paused
// for them, and the spec tells it of them, as one would find out that asks real machines.
var _ = Describe("A cluster from a class that clusterctl moves", func() {
	It("is judged in its new management cluster, keeps its claims, and no machine that is healthy is replaced", func(ctx SpecContext) {
		target := startTarget(ctx)
		travels.allHealthy(ctx)
		travels.check(ctx, controlPlane)
		travels.check(ctx, worker)
		manager.Kill() // so that a record stays open until it is moved: clusterctl moves no Cluster that is paused
		closed, open := travels.records(ctx)
		states := travels.pauseInfrastructure(ctx)
		machines, verdicts := travels.names(ctx, worker), travels.verdicts(ctx)

		By("moving it")
		config := filepath.Join(GinkgoT().TempDir(), "clusterctl.yaml")
		Expect(os.WriteFile(config, nil, 0o600)).To(Succeed())
		_, err := rig.Clusterctl(ctx, config, "move", "--namespace", travels.namespace,
			"--kubeconfig", management.KubeconfigFile(), "--to-kubeconfig", target.plane.KubeconfigFile())
		Expect(err).NotTo(HaveOccurred())
		startManager(ctx)
		Expect(verdicts()).To(BeEmpty())
		Expect(travels.machines(ctx)).To(BeEmpty(), "they are in the new management cluster alone")

		source := here
		here = target.client
		defer func() { here = source }()
		verdicts = travels.verdicts(ctx)
		travels.restore(ctx, states)
		Eventually(travels.counts(ctx, "control-plane")).Should(Equal("1 of 1"))
		Eventually(travels.counts(ctx, "workers")).Should(Equal("2 of 2"))
		Consistently(func(g Gomega) {
			g.Expect(travels.names(ctx, worker)).To(Equal(machines))
			g.Expect(verdicts()).To(BeEmpty())
		}).Should(Succeed())

		By("following its records there")
		for _, was := range []*mendv1.RemediationRecord{closed, open} {
			Eventually(func(g Gomega) {
				is := &mendv1.RemediationRecord{}
				g.Expect(here.Get(ctx, client.ObjectKeyFromObject(was), is)).To(Succeed())
				g.Expect(is.UID).NotTo(Equal(was.UID))
				g.Expect(is.Spec).To(BeComparableTo(was.Spec))
				g.Expect(is.Status.Outcome).To(Equal(mendv1.RecordHealed), "by the name of its Machine, if it was open")
				g.Expect(is.Status.Steps).To(ContainElements(was.Status.Steps))
				g.Expect(is.OwnerReferences[0].UID).NotTo(Equal(was.OwnerReferences[0].UID))
			}).Should(Succeed())
		}

		By("losing a worker there")
		travels.turn(ctx, machines[0], corev1.ConditionFalse)
		Eventually(func(g Gomega) {
			lost := travels.machines(ctx)[machines[0]]
			g.Expect(conditions.GetReason(lost, clusterv1.MachineHealthCheckSucceededCondition)).To(Equal(clusterv1.MachineHealthCheckUnhealthyNodeReason))
			g.Expect(lost.DeletionTimestamp).NotTo(BeNil(), "its owner replaces it")
		}).Should(Succeed())
		Expect(travels.machines(ctx)[machines[1]].DeletionTimestamp).To(BeNil())
	}, SpecTimeout(specPatience))
})

// pivot is a second management cluster.
type pivot struct {
	plane  *rig.ControlPlane
	client client.WithWatch
}

func startTarget(ctx context.Context) *pivot {
	GinkgoHelper()
	plane, err := control.Management(ctx, rig.ManagementOptions{
		Name: "target", Providers: true, Controllers: rig.RoleControllers(), Own: true, Webhooks: true,
	})
	Expect(err).NotTo(HaveOccurred())
	p := &pivot{plane: plane, client: clientFor(plane.Config())}
	account, err := plane.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	there, err := plane.Kubemend(ctx, "target", account, plane.WebhookFlags()...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { // so that the other specs have the cores
		there.Kill()
		for _, provider := range []rig.Provider{rig.Core, rig.Bootstrap, rig.KubeadmControlPlane, rig.InMemory} {
			Expect(plane.StopProvider(provider)).To(Succeed())
		}
		Expect(plane.StopAPIServer(ctx)).To(Succeed())
	})
	for _, c := range []client.Client{here, p.client} {
		labelOthers(ctx, c)
	}
	return p
}

// labelOthers gives the CRDs of Cluster API and its providers the label by which clusterctl knows what to move, which they have when clusterctl installs
// them. Those of ours are as they ship.
func labelOthers(ctx context.Context, c client.Client) {
	GinkgoHelper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	Expect(c.List(ctx, list)).To(Succeed())
	for _, crd := range list.Items {
		if crd.Spec.Group == mendv1.GroupVersion.Group || !strings.HasSuffix(crd.Spec.Group, clusterv1.GroupVersion.Group) || strings.HasPrefix(crd.Name, "metal3") {
			continue
		}
		before := crd.DeepCopy()
		metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlv1.ClusterctlLabel, "")
		Expect(c.Patch(ctx, &crd, client.MergeFrom(before))).To(Succeed())
	}
}

// infrastructure are the kinds of the in-memory infrastructure that have a state.
var infrastructure = []string{"DevCluster", "DevMachine"}

// pauseInfrastructure keeps the infrastructure from acting on the cluster, here and where it is moved to, and returns what it knows, by kind and name.
func (env *environment) pauseInfrastructure(ctx context.Context) map[string]any {
	GinkgoHelper()
	states := map[string]any{}
	for _, kind := range infrastructure {
		for _, object := range env.list(ctx, kind) {
			states[kind+"/"+object.GetName()] = object.Object["status"]
			before := object.DeepCopy()
			object.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: "moves"})
			Expect(here.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
		}
	}
	return states
}

// restore tells of the infrastructure what it knew.
func (env *environment) restore(ctx context.Context, states map[string]any) {
	GinkgoHelper()
	restored := 0
	for _, kind := range infrastructure {
		for _, object := range env.list(ctx, kind) {
			before := object.DeepCopy()
			object.Object["status"] = states[kind+"/"+object.GetName()]
			Expect(here.Status().Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
			restored++
		}
	}
	Expect(restored).To(Equal(len(states)))
}

func (env *environment) list(ctx context.Context, kind string) []*unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	list.SetKind(kind + "List")
	Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
	all := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// records makes two records of remediations of a worker: one that has ended, and one that is open, and stays so while no manager runs here.
func (env *environment) records(ctx context.Context) (closed, open *mendv1.RemediationRecord) {
	GinkgoHelper()
	clusters := &clusterv1.ClusterList{}
	Expect(here.List(ctx, clusters, client.InNamespace(env.namespace))).To(Succeed())
	Expect(clusters.Items).To(HaveLen(1))
	cluster := &clusters.Items[0]
	m := env.machines(ctx)[env.names(ctx, worker)[0]]
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	recordOf := func(name string) *mendv1.RemediationRecord {
		return &mendv1.RemediationRecord{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: env.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}},
			},
			Spec: mendv1.RemediationRecordSpec{
				Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByRequest, Decided: at, Cause: "Ready=Unknown",
				Target: mendv1.RecordTarget{
					ClusterName: cluster.Name, ClusterUID: string(cluster.UID),
					Machine: &mendv1.RecordRef{Kind: "Machine", Namespace: env.namespace, Name: m.Name, UID: string(m.UID)},
				},
			},
			Status: mendv1.RemediationRecordStatus{Attempted: &at, Begun: &at, BegunBy: "kubemend", Steps: []mendv1.RecordStep{
				{Time: at, Reason: "RequestCreated", Message: "HostRemediation was created"},
			}},
		}
	}
	closed = recordOf("closed")
	closed.Status.Ended, closed.Status.CapacityBack, closed.Status.Outcome = &at, &at, mendv1.RecordHealed
	open = recordOf("open")
	open.Labels[mendv1.RecordOpenLabel] = "true"
	Expect(here.Create(ctx, closed)).To(Succeed())
	Expect(here.Create(ctx, open)).To(Succeed())
	return closed, open
}
