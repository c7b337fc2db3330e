package kubemend_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
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

// environment is a Cluster c1 with one Machine "a", whose node is Ready, and a MachineHealthCheck.
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

// world runs a story with API servers alone.
func world(t *testing.T, story func(ctx context.Context, e *environment)) {
	t.Helper()
	kubemend.Test(t, func(t *testing.T) {
		RegisterTestingT(t)
		e := &environment{management: apiserver.New(kubemend.Host, kubemend.Kinds()...), cluster: builders.Cluster("ns", "c1")}
		defer e.management.Close()
		e.workload = kubemend.WorkloadCluster("workload")
		defer e.workload.Close()
		e.here, e.there = clientOf(e.management), clientOf(e.workload)
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

// start starts a manager, and returns when it has asked which kinds there are.
func (e *environment) start(t *testing.T, flags ...string) *kubemend.Manager {
	t.Helper()
	manager := kubemend.Start(t, flags...)
	time.Sleep(time.Minute)
	return manager
}

func clientOf(server *apiserver.Server) client.Client {
	c, err := kubemend.Client(server)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func (e *environment) furnish(ctx context.Context) {
	for _, object := range []client.Object{builders.Namespace("ns"), kubeconfig(), e.cluster} {
		Expect(e.here.Create(ctx, object)).To(Succeed())
	}
	e.cluster.Status = builders.Standing()
	Expect(e.here.Status().Update(ctx, e.cluster)).To(Succeed())
	e.node(ctx, "a")
	e.worker(ctx, "a")
	Expect(e.here.Create(ctx, builders.MachineHealthCheck(e.cluster, "check"))).To(Succeed())
}

// kubeconfig is the Secret of Cluster c1, for a user with these fields.
func kubeconfig(user ...string) *corev1.Secret {
	return kubemend.KubeconfigOf("ns", "c1", "workload", user...)
}

// worker makes a Machine whose node has its name.
func (e *environment) worker(ctx context.Context, name string) {
	machine := builders.ControlPlaneMachine(e.cluster, name)
	delete(machine.Labels, clusterv1.MachineControlPlaneLabel)
	machine.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", UID: "workers", Controller: ptr.To(true),
	}}
	Expect(e.here.Create(ctx, machine)).To(Succeed())
	machine.Status.NodeRef.Name, machine.Status.Conditions = "node-"+name,
		[]metav1.Condition{builders.LongTrue(clusterv1.MachineInfrastructureReadyCondition)}
	Expect(e.here.Status().Update(ctx, machine)).To(Succeed())
}

func (e *environment) node(ctx context.Context, machine string) {
	Expect(e.there.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + machine}})).To(Succeed())
	e.reports(ctx, machine, corev1.ConditionTrue)
}

// reports sets the condition Ready of the node of a Machine, as from now.
func (e *environment) reports(ctx context.Context, machine string, status corev1.ConditionStatus) {
	node := &corev1.Node{}
	Expect(e.there.Get(ctx, client.ObjectKey{Name: "node-" + machine}, node)).To(Succeed())
	builders.Reports(node, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()})
	Expect(e.there.Status().Update(ctx, node)).To(Succeed())
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

// writes are calls that change what users see.
func writes(call apiserver.Call) bool { return call.Writes() && call.Resource != "leases" }
