package kubemend_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

// With thousands of machines, a list of them for each record is what a manager does all day.
func TestTheRecordOfAMachineThatIsReplacedListsNoMachinesAndReadsNothingWhileNothingHappens(t *testing.T) {
	scene(t, func(ctx context.Context, e *environment) {
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"}}
		set.Spec.ClusterName, set.Spec.Template.Spec.ClusterName, set.Spec.Replicas = "c1", "c1", new(int32(1))
		Expect(e.here.Create(ctx, set)).To(Succeed())
		e.reports(ctx, "a", corev1.ConditionUnknown)
		time.Sleep(10 * time.Minute)
		asks := func(call apiserver.Call) bool {
			return call.Verb != "watch" && call.Resource != "leases" && call.Manager != apiserver.Tester
		}
		before := len(e.management.Calls(asks))
		time.Sleep(time.Hour)
		Expect(e.management.Calls(asks)[before:]).To(BeEmpty())

		lists := func(call apiserver.Call) bool {
			return asks(call) && call.Verb == "list" && call.Resource == "machines"
		}
		listed := len(e.management.Calls(lists))
		set.Status.Conditions = []metav1.Condition{builders.LongTrue(clusterv1.ScalingUpCondition)}
		set.Status.Conditions[0].Message = "* quota exceeded"
		Expect(e.here.Delete(ctx, e.machine(ctx, "a"))).To(Succeed())
		time.Sleep(time.Minute)
		Expect(e.here.Status().Update(ctx, set)).To(Succeed())
		time.Sleep(10 * time.Second)
		hindered := ContainElement(HaveField("Message", ContainSubstring("quota exceeded")))
		Expect(e.record(ctx).Status.Conditions).To(hindered, "the MachineSet is watched")
		e.node(ctx, "b")
		e.worker(ctx, "b")
		Eventually(e.health(ctx, "b")).Should(Equal(metav1.ConditionTrue))
		time.Sleep(time.Minute)
		b := e.machine(ctx, "b")
		b.Status.Conditions = append(b.Status.Conditions, builders.LongTrue(clusterv1.MachineNodeReadyCondition))
		Expect(e.here.Status().Update(ctx, b)).To(Succeed())
		time.Sleep(10 * time.Second)
		Expect(e.record(ctx).Status.Outcome).To(Equal(mendv1.RecordReplaced), "the Machine in place of the target is watched")
		Expect(e.management.Calls(lists)).To(HaveLen(listed))
	})
}

func (e *environment) record(ctx context.Context) mendv1.RemediationRecord {
	list := &mendv1.RemediationRecordList{}
	Expect(e.here.List(ctx, list, client.InNamespace("ns"))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return list.Items[0]
}
