package api

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// All specs of rights share these.
var (
	control  *rig.Rig
	plane    *rig.ControlPlane
	here     client.Client
	provider *simulator.Infrastructure
	manager  *rig.Kubemend
	account  []byte // the manager's kubeconfig
)

// ownKinds is the folder of the CRDs that ship.
var ownKinds = filepath.Join(root, "config", "crd", "bases")

// agent is the request kind of a remediator whose ClusterRole is aggregated to the manager by its label. No controller serves the kind: the
// nodes recover by themselves.
var agent = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Kind: "SelfNodeRemediation"}

// installEverything starts one control plane that is both management and workload cluster. The user of a request tells for which of the two
// the manager sent it.
func installEverything(ctx context.Context) {
	GinkgoHelper()
	control = suite.Rig(ctx)
	plane = suite.Must(control.Management(ctx, rig.ManagementOptions{
		Name: "rights", Core: true, Controllers: slices.Concat(rig.NodeControllers(), rig.RoleControllers()), Own: true,
		CRDs: []string{filepath.Join("testdata", "openshift.yaml")}, Webhooks: true, Audit: true,
	}))
	here = suite.Client(plane.Config(), apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bmov1alpha1.AddToScheme, infrav1.AddToScheme,
		mendv1.AddToScheme, nhcv1.AddToScheme)
	Expect(simulator.InstallRemediator(plane.Config(), agent)).To(Succeed())
	account = suite.Must(plane.Install(ctx, "standalone"))
	for _, o := range suite.Manifest(filepath.Join("testdata", "self-node-remediator.yaml")) {
		Expect(here.Create(ctx, o)).To(Succeed())
	}
	collected := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kubemend-ext-remediation"}}
	Eventually(as(ctx, collected)).ShouldNot(HaveField("Rules", BeEmpty()))
	_, provider = suite.Hardware(plane.Config())
	metal.Plane = plane
	metal.Build(ctx, here, provider)
	metal.AllWell(ctx)
}

// startManager starts the manager with the shipped rights. It deletes the lease of a killed manager first, so that it need not wait for it.
// The renew deadline is nearly the whole lease, because with less the leader gives up on a busy machine.
func startManager(ctx context.Context, more ...string) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: managerlease.LeaderLeaseName}}
	Expect(client.IgnoreNotFound(here.Delete(ctx, lease))).To(Succeed())
	manager = suite.Must(plane.Kubemend(ctx, "rights", account, append(append(plane.WebhookFlags(),
		"--leader-elect", "--leader-elect-namespace="+rig.Namespace, "--leader-elect-lease-duration=15s",
		"--leader-elect-renew-deadline=14s",
		"--leader-elect-retry-period=1s", "--insecure-diagnostics=false"), more...)...))
	reportLog(manager)
}

const (
	namespace = "metal"
	workers   = 4
	// template is the name of a remediation template of either kind.
	template = "reboot"
	// agentTemplate is the template of the agent above.
	agentTemplate = "self-node-remediation-automatic-strategy-template"
)

// metal is the workload cluster. Its kubeconfig points to the API server that has its Cluster object.
var metal = &suite.Site{Namespace: namespace, Name: "itself", ControlPlanes: 3, Workers: workers, Spare: 1}

// strategy has the shortest timeout that the API allows.
var strategy = infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 100}

func silence(name string) {
	GinkgoHelper()
	kubelet := provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: name})
	Expect(kubelet).NotTo(BeNil(), name)
	kubelet.Stop()
}

// checked creates a MachineHealthCheck for as long as the spec runs.
func checked(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := builders.MachineHealthCheck(metal.Cluster, name, append([]func(*clusterv1.MachineHealthCheck){
		builders.Claimed, builders.Patience(2 * time.Second),
	}, edits...)...)
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
	return check
}

// ours and theirs return the templates of the two kinds of remediations that kubemend carries out.
func ours() client.Object {
	t := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: template}}
	t.Spec.Template.Spec.Strategy = builders.HostStrategy(strategy)
	return t
}

func theirs() client.Object {
	t := &infrav1.Metal3RemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: template}}
	t.Spec.Template.Spec.Strategy = &strategy
	return t
}

func as(ctx context.Context, object client.Object) func() (client.Object, error) {
	return komega.New(here).WithContext(ctx).Object(object)
}

func requested(ctx context.Context, request client.Object, where, name string) {
	GinkgoHelper()
	Eventually(func() error { return here.Get(ctx, client.ObjectKey{Namespace: where, Name: name}, request) }).Should(Succeed())
}

func gone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() bool {
		err := here.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err != nil && client.IgnoreNotFound(err) == nil
	}).Should(BeTrue())
}

// loneNode starts a node without a Machine for as long as the spec runs.
func loneNode(ctx context.Context, name string, labels, annotations map[string]string) *simulator.Kubelet {
	GinkgoHelper()
	kubelet := simulator.NewKubelet(here, simulator.KubeletOptions{Node: name, Labels: labels})
	kubelet.Start()
	Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionTrue))
	for key, value := range annotations {
		annotate(ctx, name, key, value)
	}
	DeferCleanup(func(ctx SpecContext) {
		kubelet.Stop()
		Expect(here.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	return kubelet
}

func annotate(ctx context.Context, node, key, value string) {
	GinkgoHelper()
	suite.Annotate(ctx, here, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, key, &value)
}

// watched creates a NodeHealthCheck for nodes with a label. It cannot be deleted while one of its nodes is being remediated.
func watched(ctx context.Context, name string, selector map[string]string) *nhcv1.NodeHealthCheck {
	GinkgoHelper()
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check.Spec.Selector.MatchLabels = selector
	check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 2 * time.Second},
	}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{
		APIVersion: agent.GroupVersion().String(), Kind: agent.Kind + "Template", Namespace: metav1.NamespaceDefault, Name: agentTemplate,
	}
	Eventually(func() error { return here.Create(ctx, check) }).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Eventually(func() error { return client.IgnoreNotFound(here.Delete(ctx, check)) }).Should(Succeed())
	})
	return check
}

// openRecords returns the names of a check's records that have not ended.
func openRecords(ctx context.Context, check *nhcv1.NodeHealthCheck) func() []string {
	return func() []string {
		GinkgoHelper()
		list, names := &mendv1.RemediationRecordList{}, []string(nil)
		Expect(here.List(ctx, list, client.MatchingLabels{mendv1.RecordOpenLabel: "true"})).To(Succeed())
		for i := range list.Items {
			if by := list.Items[i].Spec.Requester.Check; by != nil && by.Name == check.Name {
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	}
}

// grant creates the missing roles and bindings that a folder below config/ ships.
func grant(ctx context.Context, folder string) {
	GinkgoHelper()
	shipped := suite.Must(control.Shipped(ctx, folder))
	for i := range shipped {
		if o := &shipped[i]; o.GroupVersionKind().Group == rbacv1.GroupName {
			Expect(client.IgnoreAlreadyExists(here.Create(ctx, o))).To(Succeed())
		}
	}
}

// unserved returns the manager's reason for not serving NodeHealthChecks, or "" if it serves them.
func unserved(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		managers, err := managerlease.Of(ctx, here, time.Now())
		at := slices.IndexFunc(managers, func(m managerlease.Manager) bool { return m.Namespace == rig.Namespace && m.Alive })
		if err != nil || at < 0 || managers[at].Unverified != "" || managers[at].Announcement == nil {
			return "no manager", err
		}
		kind := managers[at].Unserved("nodehealthchecks.remediation.medik8s.io")
		if kind == nil {
			return "", nil
		}
		return kind.Because, nil
	}
}
