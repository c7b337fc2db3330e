// Package baremetal tests the built manager on bare-metal hosts. Control planes, Cluster API's machine controllers and
// kube-controller-manager are real; hosts and kubelets are simulated. The manager has only the rights that it ships with, in both clusters,
// and any other request fails the suite.
package baremetal

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

const specPatience = suite.SpecPatience

// All specs share these.
var (
	control    *rig.Rig
	management *rig.ControlPlane
	here       client.WithWatch // to the management cluster
	hosts      *simulator.Hosts
	provider   *simulator.Infrastructure
	attacher   *simulator.Attacher // in the fixture's cluster
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig

	// fixture is the cluster of most specs, with the names of the documentation's manifests. Each spec leaves it as it found it. With fewer
	// healthy nodes kube-controller-manager would take a failed node for a network outage.
	fixture = &environment{suite.Site{Namespace: "metal3", Name: "test1", ControlPlanes: 3, Workers: 4, Spare: 3}}
)

func TestBareMetal(t *testing.T) {
	suite.Run(t, "Bare metal", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	control = suite.Rig(ctx)
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, Controllers: rig.OwnerControllers(), Own: true, Webhooks: true, Audit: true,
		})
		return err
	})
	group.Go(func() (err error) {
		fixture.Plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{
			Controllers: slices.Concat(rig.NodeControllers(), rig.PodControllers(), []string{"disruption-controller"}), Audit: true,
		})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{management, fixture.Plane}) })
	here = clientFor(management.Config())
	account = suite.Must(management.Install(ctx, "standalone"))
	startCluster()
	startManager(ctx)
	fixture.Build(ctx, here, provider, inPool)
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or again after it was killed.
func startManager(ctx context.Context, more ...string) {
	GinkgoHelper()
	manager = suite.Must(management.Kubemend(ctx, "baremetal", account, append(management.WebhookFlags(), more...)...))
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, nhcv1.AddToScheme,
		bmov1alpha1.AddToScheme, infrav1beta1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme)
}

// startCluster starts the simulators of hosts, scheduler and volumes.
func startCluster() {
	GinkgoHelper()
	hosts, provider = suite.Hardware(management.Config())
	scheduler := suite.Must(simulator.NewScheduler(fixture.Plane.Config()))
	attacher = suite.Must(simulator.NewAttacher(fixture.Plane.Config()))
	suite.Beside(scheduler.Start)
	suite.Beside(attacher.Start)
}

// environment is a cluster and its hosts, in one namespace of the management cluster.
type environment struct{ suite.Site }

// inPool gives the workers the label that the documentation's manifest selects.
func inPool(md *clusterv1.MachineDeployment) { md.Spec.Template.Labels["nodepool"] = "nodepool-0" }

func (env *environment) aWorker(ctx context.Context) (string, *simulator.Host) {
	GinkgoHelper()
	name := env.WorkerNames(ctx)[0]
	return name, env.Host(name)
}

// silence stops the kubelet of a machine and makes its node Unknown at once. It also shortens the timeouts of checks to a second: the
// documentation's checks wait five minutes, and an earlier lastTransitionTime does not shorten that if the manager has seen the node Ready
// since.
func (env *environment) silence(ctx context.Context, name string) {
	GinkgoHelper()
	checks := &clusterv1.MachineHealthCheckList{}
	Expect(here.List(ctx, checks, client.InNamespace(env.Namespace))).To(Succeed())
	for i := range checks.Items {
		check := &checks.Items[i]
		before := check.DeepCopy()
		for j := range check.Spec.Checks.UnhealthyNodeConditions {
			check.Spec.Checks.UnhealthyNodeConditions[j].TimeoutSeconds = ptr.To[int32](1)
		}
		Expect(here.Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
	}
	env.Host(name).Kubelet().Stop()
	node := env.Node(ctx, name)
	before := node.DeepCopy()
	builders.Reports(node, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
		Message:            "Kubelet stopped posting node status.",
		LastTransitionTime: metav1.Now(),
	})
	Expect(env.There.Status().Patch(ctx, node, client.StrategicMergeFrom(before))).To(Succeed())
}

// nodeOf waits until the pod of a Deployment runs, and returns its node.
func (env *environment) nodeOf(ctx context.Context, app string) (node string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &corev1.PodList{}
		g.Expect(env.There.List(ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": app})).To(Succeed())
		node = ""
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() {
				node = p.Spec.NodeName
			}
		}
		g.Expect(node).NotTo(BeEmpty())
	}).Should(Succeed())
	return node
}

// kind is one of the two remediation kinds, as a check refers to it.
type kind struct {
	apiVersion, name string
	template         func(namespace, name string, s infrav1.RemediationStrategy) client.Object
	empty            func() client.Object
}

var (
	ours = kind{
		apiVersion: mendv1.GroupVersion.String(), name: "HostRemediation",
		template: func(namespace, name string, s infrav1.RemediationStrategy) client.Object {
			t := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			t.Spec.Template.Spec.Strategy = builders.HostStrategy(s)
			return t
		},
		empty: func() client.Object { return &mendv1.HostRemediation{} },
	}
	theirs = kind{
		apiVersion: infrav1.GroupVersion.String(), name: "Metal3Remediation",
		template: func(namespace, name string, s infrav1.RemediationStrategy) client.Object {
			t := &infrav1.Metal3RemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			t.Spec.Template.Spec.Strategy = &s
			return t
		},
		empty: func() client.Object { return &infrav1.Metal3Remediation{} },
	}
)

// twoAttempts has the shortest timeout that the API allows.
var twoAttempts = infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 100}

// byHand creates a remediation of a machine, which may be healthy, as a user would.
func (env *environment) byHand(ctx context.Context, name string) *mendv1.HostRemediation {
	GinkgoHelper()
	m := env.Machine(ctx, name)
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: env.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID,
		}},
	}}
	rem.Spec.Strategy = builders.HostStrategy(twoAttempts)
	Expect(here.Create(ctx, rem)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(here.Delete(ctx, rem))).To(Succeed())
		Eventually(func() bool { return env.gone(ctx, ours, name) }).Should(BeTrue())
	})
	return rem
}

func powered(host *simulator.Host) func() bool { return host.Powered }

// gone reports whether a machine has no remediation.
func (env *environment) gone(ctx context.Context, k kind, name string) bool {
	return apierrors.IsNotFound(here.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: name}, k.empty()))
}

// recordedEvents returns the reasons of events about an object since a moment. Events come after the changes: use it with Eventually.
func (env *environment) recordedEvents(ctx context.Context, kind, name string, since time.Time) func() map[string]bool {
	return func() map[string]bool {
		GinkgoHelper()
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list, client.InNamespace(env.Namespace))).To(Succeed())
		reasons := map[string]bool{}
		for _, e := range list.Items {
			// A simulated power cycle can take less than a second, which is the precision of creationTimestamp, so this compares EventTime.
			if e.Regarding.Kind == kind && e.Regarding.Name == name && !e.EventTime.Time.Before(since.Truncate(time.Microsecond)) {
				reasons[e.Reason] = true
			}
		}
		return reasons
	}
}

// freed matches the event that reports an unfenced node. Usually the reason is PoweredOn; if the machine is healthy before, the request is
// deleted and the reason is another.
var freed = Or(HaveKey("PoweredOn"), HaveKey("Unfenced"), HaveKey("Releasing"))

func (env *environment) nothingIsLeft(ctx context.Context, host *simulator.Host, node string) {
	GinkgoHelper()
	hostIsFree(ctx, host)
	Eventually(func(g Gomega) {
		n := &corev1.Node{}
		g.Expect(env.There.Get(ctx, client.ObjectKey{Name: node}, n)).To(Succeed())
		g.Expect(outOfService(n)).To(BeFalse())
		g.Expect(n.Annotations).NotTo(HaveKey(fence.FencedByAnnotation))
	}).Should(Succeed())
}

// hostIsFree expects that no annotation acts on the power of a host or marks it as unhealthy.
func hostIsFree(ctx context.Context, host *simulator.Host) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		bmh := &bmov1alpha1.BareMetalHost{}
		g.Expect(here.Get(ctx, host.Key(), bmh)).To(Succeed())
		for key, value := range bmh.Annotations {
			if key == mendv1.ResetAnnotation { // names who has reset the host, and has no effect
				continue
			}
			g.Expect(key).NotTo(Or(HavePrefix(infrav1.RebootAnnotation), HavePrefix("kubemend.io/"), HaveSuffix("/unhealthy")),
				fmt.Sprintf("%s: %s", key, value))
		}
	}).Should(Succeed())
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}

func changes(history simulator.History) []simulator.Power {
	var all []simulator.Power
	for _, change := range history {
		all = append(all, change.To)
	}
	return all
}
