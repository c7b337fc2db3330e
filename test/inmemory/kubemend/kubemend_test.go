package kubemend_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(time.Hour) // of virtual time
	SetDefaultEventuallyPollingInterval(time.Second)
	os.Exit(m.Run())
}

// environment is a Cluster c1 with Machine "a", whose node is Ready, and a MachineHealthCheck.
type environment struct {
	management, workload *apiserver.Server
	here, there          client.Client
	cluster              *clusterv1.Cluster
}

// scene runs a story with a manager that acts on all checks.
func scene(t *testing.T, story func(ctx context.Context, e *environment)) {
	t.Helper()
	world(t, func(ctx context.Context, e *environment) {
		defer e.start(t, "--unclaimed-machine-health-checks=act").Kill()
		e.furnish(ctx)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionTrue))
		story(ctx, e)
	})
}

// world runs a story with API servers and no manager.
func world(t *testing.T, story func(ctx context.Context, e *environment)) {
	t.Helper()
	kubemend.Test(t, func(t *testing.T) {
		RegisterTestingT(t)
		e := &environment{management: apiserver.New(kubemend.Host, kubemend.Kinds()...), cluster: builders.Cluster("ns", "c1")}
		defer e.management.Close()
		e.workload = kubemend.WorkloadCluster("workload")
		defer e.workload.Close()
		e.here, e.there = kubemend.Client(e.management), kubemend.Client(e.workload)
		Expect(e.there.Create(t.Context(), builders.Namespace(metav1.NamespaceSystem))).To(Succeed())
		kinds := []apiserver.Kind{{GroupVersionKind: mendv1.GroupVersion.WithKind("RemediationRecord"), NoStatus: true}}
		for _, name := range []string{"Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"} {
			kinds = append(kinds, kubemend.Kind(clusterv1.GroupVersion.Group, "v1beta2", name))
		}
		for _, kind := range kinds {
			e.management.Serve(kind)
			Expect(e.here.Create(t.Context(), kubemend.CRD(kind))).To(Succeed())
		}
		story(t.Context(), e)
	})
}

// start starts a manager, and returns when it has read which kinds exist.
func (e *environment) start(t *testing.T, flags ...string) *kubemend.Manager {
	t.Helper()
	manager := kubemend.Start(t, flags...)
	time.Sleep(time.Minute)
	return manager
}

func (e *environment) furnish(ctx context.Context) {
	Expect(e.here.Create(ctx, builders.Namespace("ns"))).To(Succeed())
	e.stands(ctx, "workload")
	e.more(ctx, "a")
	Expect(e.here.Create(ctx, builders.MachineHealthCheck(e.cluster, "check"))).To(Succeed())
}

// stands creates the Cluster, which is ready, and its kubeconfig for an API server.
func (e *environment) stands(ctx context.Context, host string) {
	Expect(e.here.Create(ctx, kubemend.KubeconfigOf("ns", e.cluster.Name, host))).To(Succeed())
	Expect(e.here.Create(ctx, e.cluster)).To(Succeed())
	e.cluster.Status = builders.Standing()
	Expect(e.here.Status().Update(ctx, e.cluster)).To(Succeed())
}

// more creates Machines with their nodes.
func (e *environment) more(ctx context.Context, names ...string) {
	for _, name := range names {
		e.node(ctx, name)
		e.worker(ctx, name)
	}
}

// kubeconfig returns the kubeconfig Secret of Cluster c1, whose user has these fields.
func kubeconfig(user ...string) *corev1.Secret {
	return kubemend.KubeconfigOf("ns", "c1", "workload", user...)
}

// worker creates a Machine with the node of its name.
func (e *environment) worker(ctx context.Context, name string) {
	machine := builders.Worker(e.cluster, name)
	Expect(e.here.Create(ctx, machine)).To(Succeed())
	machine.Status.NodeRef.Name, machine.Status.Conditions = "node-"+name,
		[]metav1.Condition{builders.LongTrue(clusterv1.MachineInfrastructureReadyCondition)}
	Expect(e.here.Status().Update(ctx, machine)).To(Succeed())
}

func (e *environment) node(ctx context.Context, machine string) {
	Expect(e.there.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + machine}})).To(Succeed())
	e.reports(ctx, machine, corev1.ConditionTrue)
}

// reports sets the condition Ready of a Machine's node, with a transition at this moment.
func (e *environment) reports(ctx context.Context, machine string, status corev1.ConditionStatus) {
	node := &corev1.Node{}
	Expect(e.there.Get(ctx, client.ObjectKey{Name: "node-" + machine}, node)).To(Succeed())
	before := node.DeepCopy()
	builders.Reports(node, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()})
	Expect(e.there.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed(), "the manager may write to the node as well")
}

func (e *environment) machine(ctx context.Context, name string) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	Expect(e.here.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, machine)).To(Succeed())
	return machine
}

func (e *environment) health(ctx context.Context, machine string) func() metav1.ConditionStatus {
	return func() metav1.ConditionStatus {
		cond := conditions.Get(e.machine(ctx, machine), clusterv1.MachineHealthCheckSucceededCondition)
		if cond == nil {
			return metav1.ConditionUnknown
		}
		return cond.Status
	}
}

func (e *environment) check(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	check := &clusterv1.MachineHealthCheck{}
	Expect(e.here.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, check)).To(Succeed())
	return check
}

func TestASteadyWorldCausesNoWrites(t *testing.T) {
	scene(t, func(_ context.Context, e *environment) {
		time.Sleep(time.Minute)
		before := len(e.management.Calls(writes))
		time.Sleep(11 * time.Hour)
		Expect(e.management.Calls(writes)).To(HaveLen(before))
	})
}

// writes selects calls that change what users see.
func writes(call apiserver.Call) bool { return call.Writes() && call.Resource != "leases" }

// The tests of the controller cover which checks a policy claims. This test covers the changes that it has to notice.
func TestAPolicyClaimsChecksThatAreThereOrMadeLaterAndReleasesThem(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		e.servePolicies(ctx)
		policy := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: "production"}}
		policy.Spec.Mode, policy.Spec.Selector.Clusters = mendv1.PolicyActs, &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}
		claimed := func(name string) func() map[string]string {
			return func() map[string]string { return e.check(ctx, name).Annotations }
		}
		by := map[string]string{clusterv1.PausedAnnotation: mendv1.Claim, mendv1.ClaimedByAnnotation: mendv1.ClaimedByPolicy}
		const observing = "--unclaimed-machine-health-checks=observe"
		manager := e.start(t, observing)
		defer func() { manager.Kill() }()
		e.furnish(ctx)
		Expect(e.here.Create(ctx, policy)).To(Succeed())
		time.Sleep(time.Minute)
		Expect(claimed("check")()).To(BeEmpty())
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"prod"}}}`))
		Expect(e.here.Patch(ctx, e.cluster, label)).To(Succeed())
		Eventually(claimed("check")).Should(Equal(by))
		Expect(e.here.Delete(ctx, e.check(ctx, "check"))).To(Succeed())
		time.Sleep(time.Minute)
		for _, name := range []string{"check", "later"} {
			Expect(e.here.Create(ctx, builders.MachineHealthCheck(e.cluster, name))).To(Succeed())
			Eventually(claimed(name)).Should(Equal(by))
		}

		manager.Kill()
		Expect(e.here.Delete(ctx, policy)).To(Succeed())
		manager = e.start(t, observing)
		Eventually(claimed("check")).Should(BeEmpty())
		policy.ResourceVersion, policy.Spec.Selector = "", mendv1.PolicySelector{Namespaces: policy.Spec.Selector.Clusters}
		Expect(e.here.Create(ctx, policy)).To(Succeed())
		time.Sleep(time.Hour)
		Expect(claimed("check")()).To(BeEmpty())
		Expect(e.here.Patch(ctx, builders.Namespace("ns"), label)).To(Succeed())
		Eventually(claimed("check")).Should(Equal(by))
		Eventually(claimed("later")).Should(Equal(by))

		manager.Kill()
		manager = e.start(t, "--teardown")
		Eventually(claimed("check")).Should(BeEmpty())
		Expect(e.here.Create(ctx, builders.MachineHealthCheck(e.cluster, "last"))).To(Succeed())
		time.Sleep(time.Hour)
		Expect(claimed("last")()).To(BeEmpty())
		lease := &coordinationv1.Lease{} // which may be of a manager in the cluster
		Expect(e.here.Get(ctx, client.ObjectKey{Namespace: policy.Namespace, Name: managerlease.LeaseName}, lease)).To(Succeed())
		Expect(lease.Annotations[mendv1.ManagerAnnotation]).NotTo(ContainSubstring(`"teardown":true`))
	})
}

func TestAManagerOfOneNamespaceWorksThereAloneAndFindsThereWhatIsOrphaned(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		flags := []string{"--namespace=ns", "--unclaimed-machine-health-checks=act", "--node-health-checks=off"}
		manager := e.start(t, flags...)
		defer func() { manager.Kill() }()
		e.furnish(ctx)
		elsewhere := builders.Cluster("elsewhere", "c1")
		check := builders.MachineHealthCheck(elsewhere, "check")
		for _, o := range []client.Object{builders.Namespace("elsewhere"), elsewhere, check} {
			Expect(e.here.Create(ctx, o)).To(Succeed())
		}
		said := func() []metav1.Condition {
			Expect(e.here.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
			return check.Status.Conditions
		}
		e.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))

		manager.Kill()
		Expect(e.here.Delete(ctx, e.check(ctx, "check"))).To(Succeed())
		manager = e.start(t, flags...)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionUnknown))
		time.Sleep(time.Hour)
		Expect(said()).To(BeEmpty())

		manager.Kill()
		manager = e.start(t, "--unclaimed-machine-health-checks=act")
		Eventually(said).ShouldNot(BeEmpty(), "without the flag it is reconciled")
	})
}

func TestAManagerWithAFilterLeavesMachinesOfOtherManagersWhenItReleases(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		const acting = "--unclaimed-machine-health-checks=act"
		e.cluster.Labels = map[string]string{clusterv1.WatchLabel: "one"}
		manager := e.start(t, acting, "--watch-filter=one")
		defer func() { manager.Kill() }()
		e.furnish(ctx)
		e.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))
		manager.Kill()
		Expect(e.here.Delete(ctx, e.check(ctx, "check"))).To(Succeed())

		manager = e.start(t, acting, "--watch-filter=two")
		time.Sleep(time.Hour)
		Expect(e.health(ctx, "a")()).To(Equal(metav1.ConditionFalse), "this is not its Cluster")
		manager.Kill()
		manager = e.start(t, acting, "--watch-filter=one")
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionUnknown))
	})
}

// nodeChecks installs NodeHealthChecks, and returns their CRD.
func (e *environment) nodeChecks(ctx context.Context) *unstructured.Unstructured {
	kind := kubemend.Global(nhcv1.GroupVersion.Group, nhcv1.GroupVersion.Version, "NodeHealthCheck")
	e.management.Serve(kind)
	crd := kubemend.CRD(kind)
	Expect(e.here.Create(ctx, crd)).To(Succeed())
	return crd
}

// pointless returns a check whose template does not exist, so that the manager only writes its status.
func pointless(name string) *nhcv1.NodeHealthCheck {
	c := &nhcv1.NodeHealthCheck{}
	c.Name, c.Spec.Selector.MatchLabels = name, map[string]string{"none": "none"}
	c.Spec.RemediationTemplate = &corev1.ObjectReference{APIVersion: "example.org/v1", Kind: "RebootRemediationTemplate", Namespace: "ns",
		Name: "none"}
	return c
}

// observed reports whether a manager has written the status of a check.
func (e *environment) observed(ctx context.Context, c *nhcv1.NodeHealthCheck) func() bool {
	return func() bool {
		Expect(e.here.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		return len(c.Status.Conditions) > 0
	}
}

func TestTheFlagNodeHealthChecksDecidesWhetherTheyAreActedOnAndAMetricSaysWhyNot(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		crd := e.nodeChecks(ctx)
		// The Operator Lifecycle Manager sets this label on the kinds that it installs.
		olm := func(value string) {
			patch := fmt.Sprintf(`{"metadata":{"labels":{"operators.coreos.com/node-healthcheck-operator.ns":%s}}}`, value)
			Expect(e.here.Patch(ctx, crd, client.RawPatch(client.Merge.Type(), []byte(patch)))).To(Succeed())
		}
		olm(`""`)
		manager := e.start(t)
		defer func() { manager.Kill() }()
		served := func(reason string, value int) {
			series := manager.Series("kubemend_kind_served", `kind="nodehealthchecks.remediation.medik8s.io"`, fmt.Sprintf("reason=%q", reason))
			Expect(series).To(ConsistOf(HaveField("GetGauge().GetValue()", BeEquivalentTo(value))))
		}
		unseen, leftAlone := pointless("unseen"), pointless("left-alone")
		Expect(e.here.Create(ctx, builders.Namespace("ns"))).To(Succeed())
		Expect(e.here.Create(ctx, unseen)).To(Succeed())
		time.Sleep(time.Hour)
		served("Foreign", 0)
		Expect(e.observed(ctx, unseen)()).To(BeFalse(), "it is the affair of the operator that was installed")

		olm("null")
		Eventually(e.observed(ctx, unseen)).Should(BeTrue(), "the kind is free")
		served("", 1)
		olm(`""`)
		time.Sleep(time.Minute)
		Expect(e.here.Create(ctx, leftAlone)).To(Succeed())
		time.Sleep(time.Hour)
		served("Foreign", 0)
		Expect(e.observed(ctx, leftAlone)()).To(BeFalse(), "it is not free any more")

		manager.Kill()
		manager = e.start(t, "--node-health-checks=on")
		Eventually(e.observed(ctx, leftAlone)).Should(BeTrue(), "whichever project installed the kind")
		served("", 1)

		manager.Kill()
		manager = e.start(t, "--node-health-checks=off")
		ignored := pointless("ignored")
		Expect(e.here.Create(ctx, ignored)).To(Succeed())
		time.Sleep(time.Hour)
		served("Off", 0)
		Expect(e.observed(ctx, ignored)()).To(BeFalse())
	})
}
