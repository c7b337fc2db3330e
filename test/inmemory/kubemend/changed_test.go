package kubemend_test

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// reach returns the reason of the condition WorkloadClusterReachable of the check.
func (e *environment) reach(ctx context.Context) func() string {
	return func() string { return conditions.GetReason(e.check(ctx, "check"), mendv1.WorkloadClusterReachable) }
}

func (e *environment) kept(ctx context.Context) string {
	cluster := &clusterv1.Cluster{}
	Expect(e.here.Get(ctx, client.ObjectKeyFromObject(e.cluster), cluster)).To(Succeed())
	return cluster.Annotations[mendv1.WorkloadClusterAnnotation]
}

func (e *environment) keep(ctx context.Context, value string) {
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"annotations":{"`+mendv1.WorkloadClusterAnnotation+`":`+value+`}}}`))
	Expect(e.here.Patch(ctx, e.cluster.DeepCopy(), patch)).To(Succeed())
}

// fallOver makes a standby answer in place of the workload cluster. The nodes of the machines were deleted there.
func (e *environment) fallOver(ctx context.Context, machines ...string) *apiserver.Server {
	standby := kubemend.WorkloadCluster("workload")
	there := kubemend.Client(standby)
	names := append([]string{"default", metav1.NamespaceSystem}, make([]string, 20)...)
	for _, name := range names { // its resource versions are later than those of the first cluster
		namespace := builders.Namespace(name)
		namespace.GenerateName = "other-"
		Expect(there.Create(ctx, namespace)).To(Succeed())
	}
	for _, name := range machines {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}}
		Expect(there.Create(ctx, node)).To(Succeed())
		Expect(there.Delete(ctx, node)).To(Succeed())
	}
	e.endWatches()
	return standby
}

// endWatches ends the watches of the workload cluster, like a load balancer that moves its clients to another server.
func (e *environment) endWatches() {
	e.workload.Silence(true)
	e.workload.Silence(false)
}

// asked returns the machines whose owner was asked to replace them.
func (e *environment) asked(ctx context.Context) []string {
	machines := &clusterv1.MachineList{}
	Expect(e.here.List(ctx, machines)).To(Succeed())
	var asked []string
	for i := range machines.Items {
		if conditions.IsFalse(&machines.Items[i], clusterv1.MachineOwnerRemediatedCondition) {
			asked = append(asked, machines.Items[i].Name)
		}
	}
	return asked
}

func TestAnotherWorkloadClusterBehindTheSameEndpointIsNoEvidenceAgainstAMachine(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		for _, name := range []string{"b", "c"} {
			e.more(ctx, name)
			Eventually(e.health(ctx, name)).Should(Equal(metav1.ConditionTrue))
		}
		was := e.kept(ctx)
		Expect(was).NotTo(BeEmpty())

		standby := e.fallOver(ctx, "a", "b", "c")
		time.Sleep(24 * time.Hour)
		Expect(e.reach(ctx)()).To(Equal("WorkloadClusterChanged"))
		Expect(conditions.GetMessage(e.check(ctx, "check"), mendv1.WorkloadClusterReachable)).To(And(
			ContainSubstring("has UID uid-2, but the annotation of the Cluster has uid-1"), ContainSubstring("clusters.cluster.x-k8s.io c1 -n ns kubemend.io/workload-cluster-")))
		Expect(e.asked(ctx)).To(BeEmpty())
		for _, name := range []string{"a", "b", "c"} {
			Expect(e.health(ctx, name)()).To(Equal(metav1.ConditionTrue))
		}
		Expect(e.events(ctx, "WorkloadClusterChanged")).To(HaveLen(1))
		Expect(e.events(ctx, "WorkloadClusterUnreachable")).To(BeEmpty())
		e.worker(ctx, "marked")
		mark := []byte(`{"metadata":{"annotations":{"cluster.x-k8s.io/remediate-machine":""}}}`)
		Expect(e.here.Patch(ctx, e.machine(ctx, "marked"), client.RawPatch(client.Merge.Type(), mark))).To(Succeed())
		Eventually(e.asked).WithArguments(ctx).Should(ConsistOf("marked"), "a mark needs no workload cluster")

		standby.Silence(true)
		Eventually(e.reach(ctx)).WithTimeout(2*time.Minute).Should(Equal("Unreachable"), "none answers")
		e.workload.Open()
		Eventually(e.reach(ctx)).WithTimeout(time.Minute).Should(Equal("ReachableAgain"), "the first one answers again")
		Eventually(func() *int32 { return e.check(ctx, "check").Status.CurrentHealthy }).WithTimeout(time.Minute).Should(
			HaveValue(BeEquivalentTo(3)), "all of its nodes are read anew, by a connection of its own")
		Expect(e.kept(ctx)).To(Equal(was))
	})
}

func TestAConfirmedWorkloadClusterIsJudgedAnew(t *testing.T) {
	for how, value := range map[string]string{
		"it is named": `"UID/uid-2"`, "what is kept is removed": "null", "another Cluster has kept what is there": `"other/uid-9"`,
	} {
		t.Run(how, func(t *testing.T) {
			scene(t, func(ctx context.Context, e *environment) {
				e.fallOver(ctx, "a")
				Eventually(e.reach(ctx)).Should(Equal("WorkloadClusterChanged"))
				if value == `"UID/uid-2"` {
					value = `"` + string(e.cluster.UID) + `/uid-2"`
				}
				e.keep(ctx, value)
				Eventually(e.asked).WithArguments(ctx).WithTimeout(time.Minute).Should(ConsistOf("a"), "its node does not exist")
				Expect(e.kept(ctx)).To(Equal(string(e.cluster.UID) + "/uid-2"))
				Expect(e.reach(ctx)()).To(Equal("ReachableAgain"))
			})
		})
	}
}

// The standby has a node of the same name, but that node does not run on the host.
func TestAHostIsPoweredOffWhileAnotherWorkloadClusterAnswersAndNoNodeOfThatIsFenced(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		host, rem := e.powerCycled(ctx)
		is := e.state(ctx, rem)
		Eventually(is).WithTimeout(time.Minute).Should(Equal(powercycle.PoweringOff))
		standby := e.fallOver(ctx, "b")
		e.there = kubemend.Client(standby)
		e.node(ctx, "a")
		e.reports(ctx, "a", corev1.ConditionUnknown)
		e.switchOff(ctx, host)
		Eventually(is).WithTimeout(time.Minute).Should(Equal(powercycle.MovingWorkload))
		time.Sleep(5 * time.Minute)
		Expect(is()).To(Equal(powercycle.MovingWorkload), "it is not known where the workload is")
		Expect(rem.(*mendv1.HostRemediation).Status.Conditions).To(ContainElement(
			HaveField("Message", ContainSubstring("kubectl annotate clusters.cluster.x-k8s.io c1"))))

		Expect(standby.Calls(func(call apiserver.Call) bool {
			return call.Resource == "nodes" && call.Writes() && call.Manager != apiserver.Tester
		})).To(BeEmpty())

		e.keep(ctx, "null")
		Eventually(is).WithTimeout(time.Minute).Should(Equal(powercycle.PoweringOn), "what the standby says of its node counts from now on")
	})
}

func TestAWorkloadClusterThatCannotBeIdentifiedIsJudgedAllTheSame(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		e.workload.Refuse(func(call apiserver.Call) bool { return call.Resource == "namespaces" })
		e.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(e.asked).WithArguments(ctx).WithTimeout(6 * time.Minute).Should(ConsistOf("a"))
	})
}

func TestAManagerThatObservesWritesNothingUntilACheckIsClaimed(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		defer e.start(t).Kill()
		e.furnish(ctx)
		e.reports(ctx, "a", corev1.ConditionUnknown)
		time.Sleep(time.Hour)
		Expect(e.management.Calls(func(call apiserver.Call) bool {
			return writes(call) && call.Manager != apiserver.Tester && call.Resource != "selfsubjectaccessreviews"
		})).To(BeEmpty())

		claim := []byte(`{"metadata":{"annotations":{"` + clusterv1.PausedAnnotation + `":"` + mendv1.Claim + `"}}}`)
		Expect(e.here.Patch(ctx, e.check(ctx, "check"), client.RawPatch(client.Merge.Type(), claim))).To(Succeed())
		Eventually(e.kept).WithArguments(ctx).WithTimeout(time.Minute).Should(Equal(string(e.cluster.UID) + "/uid-1"))
	})
}

func (e *environment) events(ctx context.Context, reason string) []eventsv1.Event {
	list, all := &eventsv1.EventList{}, []eventsv1.Event(nil)
	Expect(e.here.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		if list.Items[i].Reason == reason {
			all = append(all, list.Items[i])
		}
	}
	return all
}

var (
	template = remediation.Own.GroupVersion().WithKind(remediation.Own.Kind + "Template")
	strategy = infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 600}
)

// host creates the host of Machine "a", which is on, and installs the kinds of hosts.
func (e *environment) host(ctx context.Context, edits ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	for _, kind := range []apiserver.Kind{
		kubemend.Kind(bmov1alpha1.GroupVersion.Group, "v1alpha1", "BareMetalHost"),
		kubemend.Kind(infrav1.GroupVersion.Group, "v1beta2", "Metal3Machine"),
		{GroupVersionKind: remediation.Own.GroupVersionKind}, {GroupVersionKind: template},
	} {
		e.management.Serve(kind)
		Expect(e.here.Create(ctx, kubemend.CRD(kind))).To(Succeed())
	}
	time.Sleep(5 * time.Minute) // the manager has found the kinds
	machine := e.machine(ctx, "a")
	between := builders.Metal3Machine(machine)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: "ns/h"})
	host := builders.BareMetalHost("ns", "h", append(edits, builders.ExternallyDeployed, builders.ConsumedBy(machine.Name))...)
	Expect(e.here.Create(ctx, between)).To(Succeed())
	Expect(e.here.Create(ctx, host)).To(Succeed())
	host.Status.PoweredOn, host.Status.OperationalStatus = true, bmov1alpha1.OperationalStatusOK
	host.Status.Provisioning.State = bmov1alpha1.StateExternallyProvisioned
	Expect(e.here.Status().Update(ctx, host)).To(Succeed())
	return host
}

// powerCycled creates the host of Machine "a" and a remediation of it.
func (e *environment) powerCycled(ctx context.Context) (*bmov1alpha1.BareMetalHost, client.Object) {
	host, machine := e.host(ctx), e.machine(ctx, "a")
	e.reports(ctx, "a", corev1.ConditionUnknown)
	rem := builders.HostRemediation(metav1.ObjectMeta{
		Namespace: "ns", Name: machine.Name,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID},
		},
	}, strategy)
	Expect(e.here.Create(ctx, rem)).To(Succeed())
	return host, rem
}

func (e *environment) state(ctx context.Context, rem client.Object) func() powercycle.State {
	return func() powercycle.State {
		Expect(e.here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
		return remediation.Remembered(rem).State
	}
}

func (e *environment) switchOff(ctx context.Context, h *bmov1alpha1.BareMetalHost) {
	Eventually(func() (map[string]string, error) { // BMO powers a host off only when it is asked to
		err := e.here.Get(ctx, client.ObjectKeyFromObject(h), h)
		return h.Annotations, err
	}).WithTimeout(time.Minute).Should(HaveKey(HavePrefix(infrav1.PowerOffAnnotationPrefix)))
	h.Status.PoweredOn = false
	Expect(e.here.Status().Update(ctx, h)).To(Succeed())
}

func TestARemediationHearsOfItsBareMetalHostAndOfTime(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		host, rem := e.powerCycled(ctx)
		is := e.state(ctx, rem)
		time.Sleep(time.Minute)
		Expect(is()).To(Equal(powercycle.PoweringOff))
		e.reports(ctx, "a", corev1.ConditionTrue)
		e.switchOff(ctx, host)
		time.Sleep(time.Second)
		Expect(is()).To(Equal(powercycle.MovingWorkload), "its node may live")
		time.Sleep(30 * time.Minute)
		Expect(is()).To(Equal(powercycle.PoweringOn), "its timeout is over, and there was no event")
	})
}

func TestWhatARemediationHasLeftThatDoesNotExistIsReleasedAfterTheGracePeriod(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		host, _ := e.powerCycled(ctx)
		const mark = infrav1.PowerOffAnnotationPrefix + "gone"
		patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"annotations":{"`+mark+`":"x"}}}`))
		Expect(e.here.Patch(ctx, host, patch)).To(Succeed())
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fenced",
			Annotations: map[string]string{mendv1.FencedByAnnotation: "gone"}}}
		node.Spec.Taints = []corev1.Taint{{
			Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect,
		}}
		Expect(e.there.Create(ctx, node)).To(Succeed())
		left := func() (marks map[string]string, taints []corev1.Taint) {
			Expect(e.here.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
			Expect(e.there.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			return host.Annotations, node.Spec.Taints
		}
		time.Sleep(4 * time.Minute)
		marks, taints := left()
		Expect(marks).To(HaveKey(mark))
		Expect(taints).To(HaveLen(1))
		time.Sleep(3 * time.Minute)
		marks, taints = left()
		Expect(marks).NotTo(HaveKey(mark))
		Expect(taints).To(BeEmpty())
	})
}

func (e *environment) rebootTemplate(ctx context.Context) {
	reboot := &mendv1.HostRemediationTemplate{}
	reboot.Namespace, reboot.Name = "ns", "reboot"
	reboot.Spec.Template.Spec.Strategy = builders.HostStrategy(strategy)
	Expect(e.here.Create(ctx, reboot)).To(Succeed())
}

// faultyHost creates the host of Machine "a", which may only be rebooted, and makes the check request power cycles.
func (e *environment) faultyHost(ctx context.Context) *bmov1alpha1.BareMetalHost {
	host := e.host(ctx, builders.NeverOff)
	e.rebootTemplate(ctx)
	check := &clusterv1.MachineHealthCheck{}
	Expect(e.here.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "check"}, check)).To(Succeed())
	builders.RemediatedBy(template.GroupVersion().String(), template.Kind, "reboot")(check)
	Expect(e.here.Update(ctx, check)).To(Succeed())
	return host
}

// reboots carries out a requested reboot, after which the node is Ready, and reports whether one was requested.
func (e *environment) reboots(ctx context.Context, host *bmov1alpha1.BareMetalHost, boot int) bool {
	Expect(e.here.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
	before := len(host.Annotations)
	maps.DeleteFunc(host.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix) })
	if len(host.Annotations) == before {
		return false
	}
	Expect(e.here.Update(ctx, host)).To(Succeed())
	time.Sleep(2 * time.Minute)
	node := &corev1.Node{}
	Expect(e.there.Get(ctx, client.ObjectKey{Name: "node-a"}, node)).To(Succeed())
	node.Status.NodeInfo.BootID = strconv.Itoa(boot)
	Expect(e.there.Status().Update(ctx, node)).To(Succeed())
	e.reports(ctx, "a", corev1.ConditionTrue)
	return true
}

// Before kubemend counted power cycles, it power-cycled such a host every twelve minutes for ever.
func TestAHostThatFailsSoonAfterEachPowerCycleIsPowerCycledEverMoreRarely(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		host, cycles, begin := e.faultyHost(ctx), 0, time.Now()
		e.reports(ctx, "a", corev1.ConditionUnknown)
		for ; time.Since(begin) < 6*time.Hour; time.Sleep(10 * time.Second) {
			if e.reboots(ctx, host, cycles) {
				cycles++
				time.Sleep(4 * time.Minute)
				e.reports(ctx, "a", corev1.ConditionUnknown)
			}
		}
		Expect(cycles).To(BeNumerically("~", 10, 1), "after 1, 2, 4 ... minutes, and then an hour")
	})
}
