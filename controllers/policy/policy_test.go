package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/test/must"
)

func TestWindows(t *testing.T) {
	const hour = 3600
	deny := func(schedule, zone string, seconds int32) mendv1.PolicyWindow {
		return mendv1.PolicyWindow{Action: mendv1.WindowDeny, Schedule: schedule, TimeZone: zone, DurationSeconds: seconds}
	}
	allow := func(schedule string, seconds int32) mendv1.PolicyWindow {
		return mendv1.PolicyWindow{Action: mendv1.WindowAllow, Schedule: schedule, DurationSeconds: seconds}
	}
	live := deny("0 8 * * *", "", 10*hour)
	live.Scope = mendv1.WindowLiveNodes
	office, night := deny("0 8 * * 1-5", "Europe/Berlin", 10*hour), deny("0 1 * * *", "Europe/Berlin", 4*hour)
	never, maintenance := "0 0 30 2 *", allow("0 2 * * *", 2*hour)
	type windows = []mendv1.PolicyWindow
	for name, tc := range map[string]struct {
		windows
		at   string
		want string // until when nothing begins
	}{
		"before it opens":                {windows{office}, "2026-11-30T06:59:59Z", ""},
		"when it opens":                  {windows{office}, "2026-11-30T07:00:00Z", "2026-11-30T17:00:00Z"},
		"when it has closed":             {windows{office}, "2026-11-30T17:00:00Z", ""},
		"on another day":                 {windows{office}, "2026-11-29T09:00:00Z", ""},
		"over midnight":                  {windows{deny("0 22 * * *", "", 4*hour)}, "2026-12-01T01:00:00Z", "2026-12-01T02:00:00Z"},
		"across the end of a month":      {windows{deny("0 0 30 11 *", "", 48*hour)}, "2026-12-01T12:00:00Z", "2026-12-02T00:00:00Z"},
		"clocks go forward in it":        {windows{night}, "2026-03-29T01:30:00Z", "2026-03-29T04:00:00Z"},
		"clocks go back in it":           {windows{night}, "2026-10-25T02:30:00Z", "2026-10-25T03:00:00Z"},
		"openings that follow":           {windows{deny("0 8,9 * * *", "", hour)}, "2026-11-30T08:30:00Z", "2026-11-30T10:00:00Z"},
		"two that overlap":               {windows{deny("0 8 * * *", "", hour), deny("30 8 * * *", "", hour)}, "2026-11-30T08:45:00Z", "2026-11-30T09:30:00Z"},
		"outside of what is allowed":     {windows{maintenance, allow("0 22 * * *", hour)}, "2026-11-30T12:00:00Z", "2026-11-30T22:00:00Z"},
		"within it":                      {windows{maintenance}, "2026-11-30T03:00:00Z", ""},
		"what is denied goes first":      {windows{maintenance, deny("0 3 * * *", "", hour)}, "2026-11-30T03:00:00Z", "2026-11-30T04:00:00Z"},
		"a day that never comes":         {windows{deny(never, "", hour)}, "2026-11-30T03:00:00Z", ""},
		"allowed on a day that never is": {windows{allow(never, hour)}, "2026-11-30T03:00:00Z", "2027-11-30T03:00:00Z"},
		"for a live node":                {windows{live}, "2026-11-30T09:00:00Z", "2026-11-30T18:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Read(&mendv1.RemediationPolicy{Spec: mendv1.RemediationPolicySpec{Windows: tc.windows}}, "")
			must.Equal(t, "", p.Invalid)
			at, err := time.Parse(time.RFC3339, tc.at)
			must.Do(t, err)
			got := ""
			if until := p.Closed(true, at); !until.IsZero() {
				got = until.UTC().Format(time.RFC3339)
			}
			must.Equal(t, tc.want, got)
			if name == "for a live node" {
				must.Is(t, true, p.Closed(false, at).IsZero())
			}
		})
	}
}

func TestWhatIsWrongNamesTheField(t *testing.T) {
	for want, edit := range map[string]func(*mendv1.RemediationPolicySpec){
		`spec.windows[0].schedule: "0 25 * * *" does not have the five fields of cron, such as 0 8 * * 1-5`: func(s *mendv1.RemediationPolicySpec) {
			s.Windows[0].Schedule = "0 25 * * *"
		},
		`spec.windows[0].schedule: "@weekly" does not have the five fields of cron, such as 0 8 * * 1-5`: func(s *mendv1.RemediationPolicySpec) {
			s.Windows[0].Schedule = "@weekly"
		},
		`spec.windows[0].schedule: "TZ=UTC 0 8 * * *" names a time zone, which belongs into timeZone`: func(s *mendv1.RemediationPolicySpec) {
			s.Windows[0].Schedule = "TZ=UTC 0 8 * * *"
		},
		`spec.windows[0].timeZone: "Berlin" is no name of the IANA database, such as Europe/Berlin`: func(s *mendv1.RemediationPolicySpec) {
			s.Windows[0].TimeZone = "Berlin"
		},
		`spec.windows[0].timeZone: "Local" is no name of the IANA database, such as Europe/Berlin`: func(s *mendv1.RemediationPolicySpec) {
			s.Windows[0].TimeZone = "Local"
		},
		`spec.selector.checks: "of" is not a valid label selector operator`: func(s *mendv1.RemediationPolicySpec) {
			s.Selector.Checks = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "of"}}}
		},
	} {
		policy := policyWith()
		policy.Spec.Windows = []mendv1.PolicyWindow{{Action: mendv1.WindowDeny, Schedule: "0 8 * * *", DurationSeconds: 60}}
		edit(&policy.Spec)
		f := newFleet(t, policy)
		f.machines("a", "r1", 1)
		f.edit("a", 0, sick)
		_, blocked := f.ask("a")
		f.ledger.describe(policy)
		valid := policy.Status.Conditions[0]
		if policy.Spec.Selector.Checks != nil { // what the policy selects is unknown
			must.Equal(t, 0, len(blocked))
			must.Equal(t, want+". The policy selects nothing", valid.Message)
			continue
		}
		must.Equal(t, "RemediationPolicy kubemend-system/racks is invalid, so nothing that it selects is remediated: "+want,
			blocked["a-r1-0"][0].Text)
		must.Equal(t, want+". Until that is corrected, nothing that the policy selects is remediated", valid.Message)
	}
}

func overrideOf(kind, name string, until time.Duration) *mendv1.RemediationOverride {
	o := &mendv1.RemediationOverride{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o", CreationTimestamp: metav1.NewTime(start)}}
	o.Spec = mendv1.RemediationOverrideSpec{
		TargetRef: mendv1.OverrideTarget{Kind: kind, Name: name}, Action: mendv1.OverrideHold, Until: metav1.NewTime(start.Add(until)),
		Reason: "switch swap", By: "alice",
	}
	return o
}

func TestAHoldBlocksWhatItIsAboutUntilItEnds(t *testing.T) {
	everywhere := func(o *mendv1.RemediationOverride) { o.Namespace = "kubemend-system" }
	for kind, tc := range map[string]struct {
		name string
		edit func(*mendv1.RemediationOverride)
		want string // the reason of the condition
	}{
		"Cluster": {name: "a"}, "MachineHealthCheck": {name: "a"}, "Machine": {name: "a-r1-0"}, "MachineDeployment": {name: "pool"},
		"BareMetalHost": {name: "host"}, "FailureDomain": {name: "r1", edit: everywhere}, "Namespace": {name: "ns", edit: everywhere},
		"Cluster ": {name: "b"}, "Cluster  ": {name: "a", edit: everywhere},
		"Namespace ": {name: "ns", want: mendv1.OverrideReachReason},
		"Machine ": {name: "a-r1-0", want: mendv1.OverrideTooLongReason, edit: func(o *mendv1.RemediationOverride) {
			o.Spec.Until.Time = o.Spec.Until.Add(longestOverride)
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			o := overrideOf(strings.TrimSpace(kind), tc.name, time.Hour)
			if tc.edit != nil {
				tc.edit(o)
			}
			p, active := ReadOverride(o, "kubemend-system", start)
			must.Is(t, cmp.Or(tc.want, mendv1.OverrideActiveReason), active.Reason)
			f := newFleet(t)
			if active.Status == metav1.ConditionTrue {
				f.ledger.Set([]*Policy{p})
			}
			f.machines("a", "r1", 1)
			f.edit("a", 0, func(t *Target) {
				sick(t)
				t.Host, t.Labels = "host", map[string]string{clusterv1.MachineDeploymentNameLabel: "pool"}
			})
			begin, blocked := f.ask("a")
			if held := strings.TrimSpace(kind) == kind; held != (len(begin) == 0) {
				t.Fatalf("%v begin; %v", begin, blocked)
			} else if held {
				must.Is(t, "It is held by alice: switch swap (RemediationOverride "+o.Namespace+"/o)", blocked["a-r1-0"][0].Text)
				must.Equal(t, start.Add(time.Hour), blocked["a-r1-0"][0].Until)
			}
			_, active = ReadOverride(o, "kubemend-system", o.Spec.Until.Time)
			must.Is(t, metav1.ConditionFalse, active.Status)
		})
	}
}

func TestAnAllowanceLimitsItselfAndPassesNoPolicyButTheOneThatItLifts(t *testing.T) {
	allows := overrideOf("MachineHealthCheck", "a", time.Hour)
	allows.Spec.Action = mendv1.OverrideAllow
	allows.Spec.Allow = &mendv1.OverrideAllowance{MaxUnhealthy: intstr.Parse("60%"), MaxInFlight: intstr.FromInt32(1)}
	read, _ := ReadOverride(allows, "kubemend-system", start)
	racks := Read(policyWith(rack("0", "")), "kubemend-system")
	f := newFleet(t)
	f.machines("a", "r1", 4)
	f.edit("a", 0, sick)
	f.edit("a", 1, sick)
	f.ledger.Set([]*Policy{read, racks})
	must.Equal(t, "60%", f.ledger.Allows(check("a").NamespacedName, "a").MaxUnhealthy.String())
	must.Is(t, true, f.ledger.Allows(check("b").NamespacedName, "b") == nil)
	f.wants("a")
	lifts := overrideOf("RemediationPolicy", "racks", time.Hour)
	lifts.Namespace, lifts.Spec.Action = "kubemend-system", mendv1.OverrideAllow
	lifting, _ := ReadOverride(lifts, "kubemend-system", start)
	f.ledger.Set([]*Policy{read, racks, lifting})
	f.wants("a", 0)
}

func (f *fleet) reconciler(objects ...client.Object) *Reconciler {
	scheme := runtime.NewScheme()
	must.Do(f.t, errors.Join(corev1.AddToScheme(scheme), mendv1.AddToScheme(scheme)))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&mendv1.RemediationPolicy{}, &mendv1.RemediationOverride{}).Build()
	return &Reconciler{Client: c, Live: c, Ledger: f.ledger, Everywhere: "kubemend-system", Ahead: func() time.Duration { return 0 }}
}

func TestNamespacesAreSelectedByTheirLabelsInThePolicyNamespaceAlone(t *testing.T) {
	prod := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"tier": "prod"}}}
	policy := policyWith(rack("0", ""))
	policy.Spec.Selector.Namespaces = &metav1.LabelSelector{MatchLabels: prod.Labels}
	tenants := policy.DeepCopy()
	tenants.Namespace = "ns"
	f := newFleet(t)
	r := f.reconciler(prod, policy, tenants)
	f.machines("a", "r1", 1)
	f.edit("a", 0, sick)
	for _, labels := range []map[string]string{prod.Labels, nil} {
		prod.Labels = labels
		must.Do(t, r.Client.Update(t.Context(), prod))
		for _, of := range []*mendv1.RemediationPolicy{policy, tenants} {
			result, err := r.Reconcile(t.Context(), rule.Ref{Kind: "RemediationPolicy", Namespace: of.Namespace, Name: of.Name})
			must.Do(t, err)
			must.Is(t, namespacesEvery, result.RequeueAfter)
			must.Do(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(of), of))
		}
		if begin, _ := f.ask("a"); (len(begin) == 0) != (labels != nil) {
			t.Errorf("of a Namespace with the labels %v begin %v", labels, begin)
		}
	}
	must.Equal(t, "True Read ", condition(policy))
	must.Equal(t, "False InvalidSelector spec.selector.namespaces: a policy outside of namespace kubemend-system applies only to its own namespace. "+
		"The policy selects nothing", condition(tenants))
}

func TestNamespacesThatCannotBeListedKeepNoHoldFromItsEffect(t *testing.T) {
	policy := policyWith(rack("0", ""))
	policy.Spec.Selector.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}}
	f := newFleet(t)
	r := f.reconciler(policy)
	var fails error
	r.Live = interceptor.NewClient(r.Live.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			return cmp.Or(fails, c.List(ctx, list, o...))
		},
	})
	for _, cluster := range []string{"a", "b"} {
		f.machines(cluster, "r1", 1)
		f.edit(cluster, 0, sick)
	}
	step := func(of client.Object, kind, cluster string, failure error, again time.Duration, begin ...int) {
		t.Helper()
		fails = failure
		result, err := r.Reconcile(t.Context(), rule.Ref{Kind: kind, Namespace: of.GetNamespace(), Name: of.GetName()})
		if !errors.Is(err, failure) {
			t.Errorf("got the error %v, want %v", err, failure)
		}
		must.Is(t, again, result.RequeueAfter)
		f.wants(cluster, begin...)
	}
	broken := errors.New("etcdserver: request timed out")
	step(policy, "RemediationPolicy", "a", broken, namespacesEvery) // the Namespaces that it selects are unknown
	step(policy, "RemediationPolicy", "a", nil, namespacesEvery, 0)
	step(policy, "RemediationPolicy", "a", broken, namespacesEvery, 0) // it selects the same Namespaces as before
	must.Do(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	must.Equal(t, "True Read ", condition(policy))
	hold := overrideOf("MachineHealthCheck", "b", time.Second)
	must.Do(t, r.Client.Create(t.Context(), hold))
	step(hold, "RemediationOverride", "b", broken, time.Second)
}

func condition(policy *mendv1.RemediationPolicy) string {
	valid := meta.FindStatusCondition(policy.Status.Conditions, mendv1.PolicyValid)
	return string(valid.Status) + " " + valid.Reason + " " + valid.Message
}

func TestOfSeveralPoliciesTheLongestWaitForASpareCounts(t *testing.T) {
	waits := func(name string, seconds int32, pool string) *mendv1.RemediationPolicy {
		policy := policyWith()
		policy.Name, policy.Spec.WaitForSpare = name, &mendv1.PolicyWaitForSpare{TimeoutSeconds: seconds}
		policy.Spec.Selector.Targets = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
		return policy
	}
	f := newFleet(t, policyWith(), waits("short", 60, "a"), waits("long", 600, "a"), waits("other", 3600, "b"), waits("default", 0, "c"))
	of := f.ledger.SpareWaits(&clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{})
	for pool, want := range map[string]time.Duration{"a": 10 * time.Minute, "b": time.Hour, "c": time.Hour, "d": 0} {
		must.Is(t, want, of(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": pool}}}), "in pool "+pool)
	}
}

func TestChecksBeginNothingOfWhatAPolicyObserves(t *testing.T) {
	observes := policyWith()
	observes.Spec.Mode = mendv1.PolicyObserves
	f := newFleet(t, observes)
	f.machines("a", "r1", 2)
	f.edit("a", 0, sick)
	f.edit("a", 1, flying)
	_, blocked := f.ask("a")
	must.Is(t, place.ObservedByPolicy, blocked["a-r1-0"][0].Reason)
	must.Is(t, 0, len(f.ledger.Ask(check("a"), []types.UID{"a-r1-1"})), "what has begun is blocked:")
	cycle := Check{"HostRemediation", types.NamespacedName{Namespace: "ns", Name: "of-core"}}
	f.ledger.Report(cycle, []*Target{{UID: "a-r1-0", Namespace: "ns", Name: "a-r1-0", Kind: cycle.Kind, Unavailable: true}})
	must.Is(t, 0, len(f.ledger.Ask(cycle, []types.UID{"a-r1-0"})), "a power cycle of Cluster API core's check is blocked:")
	observes.Spec.Mode = mendv1.PolicyActs
	f.set(observes)
	f.wants("a", 0)
}

// A user who may write policies in one namespace can make more signals block, but not fewer.
func TestPoliciesSayWhichSignalsBlock(t *testing.T) {
	says := func(namespace string, while ...mendv1.Signal) *mendv1.RemediationPolicy {
		p := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("p", while)}}
		p.Spec.BlockWhile = append([]mendv1.Signal{}, while...)
		return p
	}
	drained := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "medik8s.io/drain"}}}}
	rolls := &clusterv1.Cluster{Status: clusterv1.ClusterStatus{Conditions: []metav1.Condition{{Type: "RollingOut", Status: "True"}}}}
	for name, tc := range map[string]struct {
		policies []*mendv1.RemediationPolicy
		want     string
	}{
		"none says so":                      {[]*mendv1.RemediationPolicy{policyWith(rack("100%", ""))}, "NodeInMaintenance"},
		"the manager's says that none does": {[]*mendv1.RemediationPolicy{says("kubemend-system")}, ""},
		"several of the manager's": {
			[]*mendv1.RemediationPolicy{says("kubemend-system"), says("kubemend-system", mendv1.SignalClusterRollout)}, "ClusterRollingOut",
		},
		"a tenant's says that none does": {[]*mendv1.RemediationPolicy{says("ns")}, "NodeInMaintenance"},
		"a tenant's adds one": {
			[]*mendv1.RemediationPolicy{says("ns", mendv1.SignalClusterRollout)}, "NodeInMaintenance ClusterRollingOut",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, tc.policies...)
			f.machines("a", "b07", 1)
			f.edit("a", 0, sick)
			f.edit("a", 0, func(target *Target) { target.On(drained, rolls, "", nil) })
			_, blocked := f.ask("a")
			var got []string
			for _, b := range blocked["a-b07-0"] {
				got = append(got, b.Reason)
			}
			must.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}

// After a start, or once the check is paused, the ledger does not know the target of a power cycle that is under way.
func TestWhatNoCheckReportsIsHeldBySignalsAlone(t *testing.T) {
	f := newFleet(t)
	f.ledger.SetUp(MachineHealthCheck, func() []reconcile.Request {
		return []reconcile.Request{{NamespacedName: check("a").NamespacedName}}
	}, func(reconcile.Request, time.Duration) {})
	f.set(policyWith(rack("1", "")))
	drained := place.SignalsOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "medik8s.io/drain"}}}}, nil)
	holds := func(signals []place.Signal) string {
		blockers := f.ledger.Holds(check("a"), "a-r1-0", signals)
		if len(blockers) == 0 {
			return ""
		}
		return blockers[0].Reason
	}
	must.Equal(t, place.PoliciesUnread, holds(nil), "before its check was heard:")
	f.ledger.Forget(check("a"))
	must.Equal(t, "", holds(nil))
	must.Equal(t, place.NodeInMaintenance, holds(drained))
	f.machines("a", "r1", 1)
	must.Equal(t, place.NodeInMaintenance, holds(drained), "with what the node says now:")
}
