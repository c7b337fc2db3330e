package kubemend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// fleet runs a story with a policy and two Clusters, c1 and c2, of two machines each. The manager reads the policy at its start.
func fleet(t *testing.T, policy *mendv1.RemediationPolicy, story func(ctx context.Context, f *fleetOf)) {
	t.Helper()
	world(t, func(ctx context.Context, e *environment) {
		e.servePolicies(ctx)
		policy.Namespace, policy.Name = "kubemend-system", "racks"
		f := &fleetOf{environment: e, t: t, policy: policy}
		Expect(e.here.Create(ctx, policy)).To(Succeed())
		f.start()
		defer func() { f.manager.Kill() }()
		e.furnish(ctx)
		e.more(ctx, "b")
		other := *e
		other.cluster = builders.Cluster("ns", "c2")
		other.stands(ctx, "workload")
		other.more(ctx, "c", "d")
		Expect(e.here.Create(ctx, builders.MachineHealthCheck(other.cluster, "check2"))).To(Succeed())
		for _, name := range []string{"a", "b", "c", "d"} {
			Eventually(e.health(ctx, name)).Should(Equal(metav1.ConditionTrue))
		}
		story(ctx, f)
	})
}

// servePolicies installs the kinds of policies and overrides.
func (e *environment) servePolicies(ctx context.Context) {
	for name, kind := range map[string]string{"remediationpolicies": "RemediationPolicy", "remediationoverrides": "RemediationOverride"} {
		served := kubemend.Kind(mendv1.GroupVersion.Group, mendv1.GroupVersion.Version, kind)
		e.management.Serve(served)
		crd := kubemend.CRD(served)
		crd.SetName(name + ".kubemend.io")
		Expect(e.here.Create(ctx, crd)).To(Succeed())
	}
	Expect(e.here.Create(ctx, builders.Namespace("kubemend-system"))).To(Succeed())
}

type fleetOf struct {
	*environment

	t       *testing.T
	policy  *mendv1.RemediationPolicy
	manager *kubemend.Manager
}

func (f *fleetOf) start() {
	f.manager = f.environment.start(f.t, "--unclaimed-machine-health-checks=act")
}

func (f *fleetOf) said(ctx context.Context, machine string) string {
	return conditions.GetMessage(f.machine(ctx, machine), mendv1.Remediation)
}

func TestALimitHoldsOverTwoClustersAndARestartAndUntilTheCapacityIsBack(t *testing.T) {
	policy := &mendv1.RemediationPolicy{}
	policy.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: new(intstr.FromInt32(1))}}
	fleet(t, policy, func(ctx context.Context, f *fleetOf) {
		f.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(f.asked).WithArguments(ctx).Should(Equal([]string{"a"}))
		f.reports(ctx, "c", corev1.ConditionUnknown)
		Eventually(f.health(ctx, "c")).Should(Equal(metav1.ConditionFalse))
		time.Sleep(time.Hour / 2)
		Expect(f.asked(ctx)).To(Equal([]string{"a"}))
		Expect(f.said(ctx, "c")).To(Equal("The limit all of RemediationPolicy kubemend-system/racks is reached"))

		f.manager.Kill()
		f.start()
		time.Sleep(time.Minute)
		Expect(f.asked(ctx)).To(Equal([]string{"a"}))
		Expect(f.here.Get(ctx, client.ObjectKeyFromObject(f.policy), f.policy)).To(Succeed())
		Expect(f.policy.Status.Groups).To(Equal([]mendv1.PolicyGroup{
			{Limit: "all", Targets: 4, Unavailable: 2, InFlight: 1, Waiting: 1, Reason: "GroupInFlight"},
		}))

		f.reports(ctx, "a", corev1.ConditionTrue)
		Eventually(f.asked).WithArguments(ctx).Should(ContainElement("c"))
		f.reports(ctx, "c", corev1.ConditionTrue)
		Eventually(f.said).WithArguments(ctx, "c").Should(BeEmpty())
		Eventually(func() mendv1.RemediationPolicyStatus {
			Expect(f.here.Get(ctx, client.ObjectKeyFromObject(f.policy), f.policy)).To(Succeed())
			return f.policy.Status
		}).Should(And(HaveField("Groups", BeEmpty()), HaveField("Selected", mendv1.PolicySelected{Checks: 2, Targets: 4})))
	})
}

func TestNoMoreBeginInAnHourAlsoAfterARestart(t *testing.T) {
	policy := &mendv1.RemediationPolicy{}
	policy.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxPerHour: new(int32(1))}}
	fleet(t, policy, func(ctx context.Context, f *fleetOf) {
		f.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(f.asked).WithArguments(ctx).Should(Equal([]string{"a"}))
		begun := time.Now()
		f.reports(ctx, "a", corev1.ConditionTrue)
		time.Sleep(10 * time.Minute)
		records := &mendv1.RemediationRecordList{}
		Expect(f.here.List(ctx, records)).To(Succeed())
		Expect(records.Items).To(ConsistOf(HaveField("Status.Ended", Not(BeNil()))))
		f.manager.Kill()
		f.start()
		f.reports(ctx, "c", corev1.ConditionUnknown)
		Eventually(f.health(ctx, "c")).Should(Equal(metav1.ConditionFalse))
		time.Sleep(time.Until(begun.Add(time.Hour - 2*time.Second)))
		Expect(f.asked(ctx)).NotTo(ContainElement("c"))
		time.Sleep(10 * time.Second)
		Expect(f.asked(ctx)).To(ContainElement("c"))
	})
}

// The manager dies after it has asked an owner and before the record says that the remediation has begun. The owner deletes the Machine in
// the meantime, so no check reports the remediation, and nothing says later whether it began.
func TestALimitHoldsIfTheManagerDiesBeforeARecordSaysThatItBegan(t *testing.T) {
	policy := &mendv1.RemediationPolicy{}
	policy.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: new(intstr.FromInt32(1))}}
	fleet(t, policy, func(ctx context.Context, f *fleetOf) {
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"}}
		set.Spec.Replicas = new(int32(2))
		Expect(f.here.Create(ctx, set)).To(Succeed())
		f.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(f.asked).WithArguments(ctx).Should(Equal([]string{"a"}))
		f.manager.Kill()
		list := &mendv1.RemediationRecordList{}
		Expect(f.here.List(ctx, list)).To(Succeed())
		record := &list.Items[0]
		record.Status = mendv1.RemediationRecordStatus{Attempted: record.Status.Attempted}
		Expect(f.here.Update(ctx, record)).To(Succeed())
		Expect(f.here.Delete(ctx, f.machine(ctx, "a"))).To(Succeed())
		f.reports(ctx, "c", corev1.ConditionUnknown)

		f.start()
		time.Sleep(10 * time.Minute)
		Expect(f.health(ctx, "c")()).To(Equal(metav1.ConditionFalse))
		Expect(f.asked(ctx)).To(BeEmpty(), "the capacity of a is not back")
	})
}

func TestAWindowLetsNothingBeginAndItsEndAndItsRemovalDo(t *testing.T) {
	policy := &mendv1.RemediationPolicy{}
	policy.Spec.Windows = []mendv1.PolicyWindow{{Action: mendv1.WindowDeny, Schedule: "0 * * * *", DurationSeconds: 1800}}
	fleet(t, policy, func(ctx context.Context, f *fleetOf) {
		next := time.Now().Truncate(time.Hour).Add(time.Hour)
		time.Sleep(time.Until(next))
		f.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(f.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))
		Expect(f.said(ctx, "a")).To(Equal("The windows of RemediationPolicy kubemend-system/racks allow no remediation to begin now. " +
			"This ends at " + next.Add(time.Hour/2).UTC().Format(time.RFC3339) + " at the latest"))
		time.Sleep(time.Until(next.Add(time.Hour/2 - time.Second)))
		Expect(f.asked(ctx)).To(BeEmpty())
		time.Sleep(3 * time.Second)
		Expect(f.asked(ctx)).To(Equal([]string{"a"}))

		time.Sleep(time.Until(next.Add(time.Hour)))
		f.reports(ctx, "c", corev1.ConditionUnknown)
		Eventually(f.health(ctx, "c")).Should(Equal(metav1.ConditionFalse))
		Expect(f.here.Delete(ctx, f.policy)).To(Succeed())
		time.Sleep(3 * time.Second)
		Expect(f.asked(ctx)).To(Equal([]string{"a", "c"}))
	})
}

func TestAHoldLetsNothingBeginUntilItEnds(t *testing.T) {
	policy := &mendv1.RemediationPolicy{}
	policy.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: new(intstr.FromInt32(9))}}
	fleet(t, policy, func(ctx context.Context, f *fleetOf) {
		override := func(action mendv1.OverrideAction, kind, name string) *mendv1.RemediationOverride {
			o := &mendv1.RemediationOverride{}
			o.Namespace, o.Name, o.CreationTimestamp = "ns", strings.ToLower(string(action)), metav1.Now()
			o.Spec = mendv1.RemediationOverrideSpec{
				TargetRef: mendv1.OverrideTarget{Kind: kind, Name: name}, Action: action, Reason: "switch swap",
				Until: metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second)),
			}
			return o
		}
		hold := override(mendv1.OverrideHold, "Cluster", "c1")
		Expect(f.here.Create(ctx, hold)).To(Succeed())
		f.reports(ctx, "a", corev1.ConditionUnknown)
		f.reports(ctx, "c", corev1.ConditionUnknown)
		Eventually(f.asked).WithArguments(ctx).Should(Equal([]string{"c"}))
		Eventually(f.said).WithArguments(ctx, "a").Should(HavePrefix("It is held: switch swap (RemediationOverride ns/hold). This ends at "))
		time.Sleep(time.Until(hold.Spec.Until.Time) - time.Second)
		Expect(f.asked(ctx)).To(Equal([]string{"c"}))
		time.Sleep(3 * time.Second)
		Expect(f.asked(ctx)).To(Equal([]string{"a", "c"}))
		time.Sleep(time.Minute)
		Expect(f.here.Get(ctx, client.ObjectKeyFromObject(hold), hold)).To(Succeed())
		Expect(hold.Status.Conditions).To(ConsistOf(HaveField("Reason", mendv1.OverrideEndedReason)))
		time.Sleep(25 * time.Hour)
		Expect(f.here.Get(ctx, client.ObjectKeyFromObject(hold), hold)).NotTo(Succeed(), "it is removed")
	})
}
