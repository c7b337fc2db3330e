package kubemend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

const (
	infrastructure = "infrastructure.cluster.x-k8s.io"
	requests       = "metal3remediations"
)

// byRequests makes the check "check" use a Metal3RemediationTemplate, and installs its kinds.
func (e *environment) byRequests(ctx context.Context) {
	for _, name := range []string{"Metal3Remediation", "Metal3RemediationTemplate"} {
		kind := kubemend.Kind(infrastructure, "v1beta1", name)
		e.management.Serve(kind)
		Expect(e.here.Create(ctx, kubemend.CRD(kind))).To(Succeed())
	}
	template := metal3("Metal3RemediationTemplate", "reboot")
	template.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
	Expect(e.here.Create(ctx, template)).To(Succeed())
	check := e.check(ctx, "check")
	builders.RemediatedBy(template.GetAPIVersion(), template.GetKind(), template.GetName())(check)
	Expect(e.here.Update(ctx, check)).To(Succeed())
	Eventually(func() bool { return conditions.IsTrue(e.check(ctx, "check"), "RemediationTemplateAvailable") }).Should(BeTrue())
}

func metal3(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(infrastructure + "/v1beta1")
	o.SetKind(kind)
	o.SetNamespace("ns")
	o.SetName(name)
	return o
}

// created selects the creations of requests.
func created(call apiserver.Call) bool { return call.Verb == "create" && call.Resource == requests }

func TestW8ARequestThatCannotBeReadDoesNotCountAsAbsent(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		e.byRequests(ctx)
		e.management.Refuse(func(call apiserver.Call) bool { return call.Verb == "get" && call.Resource == requests })
		e.reports(ctx, "a", corev1.ConditionUnknown)
		external := func() string {
			return conditions.GetReason(e.machine(ctx, "a"), clusterv1.MachineExternallyRemediatedCondition)
		}
		Eventually(external).Should(Equal("RemediationRequestCreationFailed"))
		Expect(conditions.GetMessage(e.machine(ctx, "a"), clusterv1.MachineExternallyRemediatedCondition)).
			To(ContainSubstring("look for Metal3Remediation"))
		Eventually(func() *int32 { return e.check(ctx, "check").Status.CurrentHealthy }).
			Should(HaveValue(BeEquivalentTo(0)), "the reconcile continues without it")
		Expect(e.management.Calls(created)).To(BeEmpty())

		e.management.Refuse(nil)
		Eventually(external).Should(Equal(clusterv1.MachineExternallyRemediatedWaitingForRemediationReason))
		Expect(e.management.Calls(created)).To(HaveLen(1))
	})
}

func TestW8ARequestThatTheCacheLacksIsFoundBeforeASecondOneIsMade(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		e.byRequests(ctx)
		e.reports(ctx, "a", corev1.ConditionUnknown)
		pending := func() bool { return conditions.Has(e.machine(ctx, "a"), mendv1.Remediation) }
		Eventually(pending).Should(BeTrue())
		time.Sleep(time.Second) // the check waits until its cache has its own write
		e.management.Lag(true)
		request := metal3("Metal3Remediation", "a")
		request.SetAnnotations(map[string]string{
			clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
			clusterv1.TemplateClonedFromGroupKindAnnotation: "Metal3RemediationTemplate." + infrastructure,
		})
		request.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "a", UID: e.machine(ctx, "a").UID,
		}})
		Expect(e.here.Create(ctx, request)).To(Succeed())
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))
		time.Sleep(time.Minute)

		e.management.Lag(false)
		is := metal3("Metal3Remediation", "a")
		Eventually(func() map[string]string {
			Expect(e.here.Get(ctx, client.ObjectKeyFromObject(is), is)).To(Succeed())
			return is.GetAnnotations()
		}).Should(HaveKeyWithValue("kubemend.io/made-by", "check"))
		Expect(is.GetUID()).To(Equal(request.GetUID()))
		Expect(e.management.Calls(created)).To(HaveLen(1), "that of the test")
	})
}

// CAPM3's controller acts on the request. The kind was installed after the manager had started, and only the status of the request changes.
func TestARecordFollowsARequestOfAnotherControllerAsItChanges(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		e.byRequests(ctx)
		e.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(func() int { return len(e.management.Calls(created)) }).Should(Equal(1))
		time.Sleep(3 * time.Hour)
		Expect(e.record(ctx).Status.Steps).To(HaveLen(2), "the request was made, and is waited for")

		request := metal3("Metal3Remediation", "a")
		Expect(e.here.Get(ctx, client.ObjectKeyFromObject(request), request)).To(Succeed())
		request.Object["status"] = map[string]any{"phase": "Running"}
		Expect(e.here.Status().Update(ctx, request)).To(Succeed())
		time.Sleep(2 * time.Second)
		Expect(e.record(ctx).Status.Steps).To(ContainElement(HaveField("Reason", "RemediatorActs")))
	})
}

func TestW8ANodeThatTheCacheLacksDoesNotCountAsDeleted(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		e.workload.Lag(true)
		e.more(ctx, "b")
		Expect(e.there.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})).To(Succeed())
		e.worker(ctx, "c")
		Eventually(e.health(ctx, "c")).Should(Equal(metav1.ConditionFalse), "there never was such a node, says the cluster itself")
		Expect(e.health(ctx, "b")()).To(Equal(metav1.ConditionUnknown))
		Expect(e.health(ctx, "a")()).To(Equal(metav1.ConditionTrue), "that this one is gone is not known yet")

		e.workload.Lag(false)
		Eventually(e.health(ctx, "b")).Should(Equal(metav1.ConditionTrue))
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))
	})
}

func TestW12AReconcileWithoutChangesReadsOnlyCachesAndWritesNothing(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		e.byRequests(ctx)
		e.more(ctx, "bad")
		e.worker(ctx, "gone")
		e.reports(ctx, "bad", corev1.ConditionUnknown)
		Eventually(func() int { return len(e.management.Calls(created)) }).Should(Equal(2))
		time.Sleep(time.Minute)
		asked := func(call apiserver.Call) bool { return call.Verb != "watch" && call.Resource != "leases" }
		before := len(e.management.Calls(asked))
		const changes = 10
		for value := range changes {
			note := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"metadata":{"annotations":{"irrelevant":"%d"}}}`, value))
			Expect(e.here.Patch(ctx, e.check(ctx, "check"), note)).To(Succeed())
			time.Sleep(time.Second)
		}
		by := map[string]int{}
		for _, call := range e.management.Calls(asked)[before:] {
			by[fmt.Sprint(call)]++
			Expect(writes(call) && call.Manager != apiserver.Tester).To(BeFalse(), "%v", call)
		}
		for call, times := range by {
			if !strings.Contains(call, apiserver.Tester) {
				Expect(times).
					To(BeNumerically("<", changes), "%s: who follows a record reads now and then, and a reconcile would each time", call)
			}
		}
	})
}

func TestAKubeconfigThatNamesAFileOfTheManagerIsRefusedAndItsServerReceivesNoRequestUntilItIsCorrected(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		Expect(e.here.Delete(ctx, kubeconfig())).To(Succeed())
		e.workload.Silence(true)
		time.Sleep(time.Hour) // the manager closes the connection
		e.workload.Silence(false)
		Expect(e.here.Create(ctx, kubeconfig(`tokenFile: /token`))).To(Succeed())
		asked := func() int { return len(e.workload.Calls(func(apiserver.Call) bool { return true })) }
		before := asked()
		Eventually(e.reach(ctx)).Should(Equal("KubeconfigRefused"))
		Expect(conditions.GetMessage(e.check(ctx, "check"), "WorkloadClusterReachable")).To(HavePrefix(
			"Secret c1-kubeconfig: the kubeconfig is refused: users[u].user.tokenFile names a file, which kubemend would read from its own disk. "))
		Expect(asked()).To(Equal(before))

		Expect(e.here.Delete(ctx, kubeconfig())).To(Succeed())
		Expect(e.here.Create(ctx, kubeconfig())).To(Succeed())
		Eventually(e.reach(ctx)).Should(Equal("ReachableAgain"))
	})
}

// With thousands of machines, a list of machines for each record would take all of the manager's time. With hundreds of replacements at
// once, a few reads for each would overload the API server.
func TestTheRecordOfAMachineThatIsReplacedReadsNothingThatAWatchHas(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"}}
		set.Spec.ClusterName, set.Spec.Template.Spec.ClusterName, set.Spec.Replicas = "c1", "c1", new(int32(1))
		Expect(e.here.Create(ctx, set)).To(Succeed())
		time.Sleep(time.Minute)
		asks := func(call apiserver.Call) bool {
			return call.Verb != "watch" && call.Resource != "leases" && call.Manager != apiserver.Tester
		}
		reads := func(call apiserver.Call) bool {
			one := call.Verb == "get" && call.Resource != "" && call.Resource != "namespaces" // the manager watches no namespaces
			return asks(call) && (one || call.Verb == "list" && call.Resource == "machines")
		}
		read := len(e.management.Calls(reads))
		e.reports(ctx, "a", corev1.ConditionUnknown)
		time.Sleep(10 * time.Minute)
		before := len(e.management.Calls(asks))
		time.Sleep(time.Hour)
		Expect(e.management.Calls(asks)[before:]).To(BeEmpty(), "while nothing happens")

		set.Status.Conditions = []metav1.Condition{builders.LongTrue(clusterv1.ScalingUpCondition)}
		set.Status.Conditions[0].Message = "* quota exceeded"
		a := e.machine(ctx, "a")
		a.Finalizers = []string{"machine.cluster.x-k8s.io"}
		Expect(e.here.Update(ctx, a)).To(Succeed())
		Expect(e.here.Delete(ctx, a)).To(Succeed())
		time.Sleep(time.Minute)
		a = e.machine(ctx, "a")
		a.Finalizers = nil
		Expect(e.here.Update(ctx, a)).To(Succeed())
		went := time.Now()
		time.Sleep(time.Minute)
		Expect(e.record(ctx).Status.Steps).To(ContainElement(And(
			HaveField("Reason", "TargetGone"), HaveField("Time.Time", BeTemporally("~", went, 10*time.Millisecond)))))
		Expect(e.here.Status().Update(ctx, set)).To(Succeed())
		time.Sleep(10 * time.Second)
		hindered := ContainElement(HaveField("Message", ContainSubstring("quota exceeded")))
		Expect(e.record(ctx).Status.Conditions).To(hindered, "the MachineSet is watched")
		e.more(ctx, "b")
		Eventually(e.health(ctx, "b")).Should(Equal(metav1.ConditionTrue))
		time.Sleep(time.Minute)
		b := e.machine(ctx, "b")
		b.Status.Conditions = append(b.Status.Conditions, builders.LongTrue(clusterv1.MachineNodeReadyCondition))
		Expect(e.here.Status().Update(ctx, b)).To(Succeed())
		time.Sleep(10 * time.Second)
		Expect(e.record(ctx).Status.Outcome).To(Equal(mendv1.RecordReplaced), "the Machine in place of the target is watched")
		Expect(e.management.Calls(reads)[read:]).To(BeEmpty())
	})
}

func (e *environment) record(ctx context.Context) mendv1.RemediationRecord {
	list := &mendv1.RemediationRecordList{}
	Expect(e.here.List(ctx, list, client.InNamespace("ns"))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return list.Items[0]
}
