package machinehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/must"
)

// explanationOf returns the explanation of w.
func explanationOf(w *observed) *explain.Check {
	return explained(w, decide(w))
}

// seen returns the explanation of p for t.
func seen(w *observed, p *Plan, t *Target) explain.Target {
	all := explained(w, p).Targets
	return all[slices.IndexFunc(all, func(is explain.Target) bool { return is.Name == t.Machine.Name })]
}

func (w *observed) with(change func(*observed)) *observed {
	change(w)
	return w
}

func dueIn(d time.Duration) func(*Target) {
	return func(t *Target) {
		of(t).verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Signal: health.Signal{Reason: "Bad"}, Limit: 5 * time.Minute, Due: noon.Add(d)}}
		of(t).verdict.Recheck = noon.Add(d)
	}
}

func ownedBy(kind string) func(*Target) {
	return func(t *Target) {
		t.Machine.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	}
}

// answered gives the target's machine an answer of its owner, which was asked.
func answered(reason, message string) func(*Target) {
	return func(t *Target) {
		askedOwner(t)
		said := &t.Machine.Status.Conditions[len(t.Machine.Status.Conditions)-1]
		said.Reason, said.Message = reason, message
	}
}

func TestWhatComesNextForAMachine(t *testing.T) {
	owner, cannot, deferred := ownedBy("MachineSet"), clusterv1.MachineSetMachineCannotBeRemediatedReason, clusterv1.MachineSetMachineRemediationDeferredReason
	unclaimed := func(w *observed) { w.Mode = Observed }
	claimedAndPaused := func(w *observed) {
		w.Mode, w.Cluster.Spec.Paused = Paused, ptr.To(true)
		w.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	}
	for name, tc := range map[string]struct {
		given  *observed
		want   string
		person bool
	}{
		"its owner is asked": {aCheck(a("m", health.Unhealthy, owner)), "kubemend asks its owner, MachineSet owner, to remediate it", false},
		"its owner was asked": {aCheck(a("m", health.Unhealthy, owner, askedOwner)),
			"MachineSet owner replaces it, or reports in OwnerRemediated why it does not", false},
		"its owner has put it off": {aCheck(a("m", health.Unhealthy, owner, answered(deferred, "* Two are\n  too many."))),
			"MachineSet owner tries again by itself (RemediationDeferred)", false},
		"its owner cannot": {aCheck(a("m", health.Unhealthy, owner, answered(cannot, ""))),
			"remove what keeps MachineSet owner from replacing the machine, or replace it by hand", true},
		"no owner can be asked":     {aCheck(a("m", health.Unhealthy, withoutOwner)), "Repair or delete it by hand, or give the check a template", true},
		"no owner was there to ask": {aCheck(a("m", health.Unhealthy, withoutOwner, askedOwner)), "Repair or delete it by hand, or give the check a template", true},
		"its request is answered": {aCheck(a("m", health.Unhealthy, owner, requestedBy("check", "check-uid"))).external(),
			"Metal3Remediation ns/m goes on; the request is deleted as soon as the machine is healthy", false},
		"its owner was asked, and has put it off": {
			aCheck(a("m", health.Unhealthy, owner, requestedBy("check", "check-uid"), answered(deferred, "later"))).external(),
			"MachineSet owner tries again by itself (RemediationDeferred)", false},
		"it is on its way out": {aCheck(a("m", health.Unhealthy, owner, beingDeleted)), "the Machine controller deletes it", false},
		"it is core's":         {aCheck(a("m", health.Unhealthy, owner)).with(unclaimed), "Cluster API core acts on it", false},
		"it will be core's": {aCheck(a("m", health.Pending, owner, dueIn(time.Minute))).with(unclaimed),
			"it counts as unhealthy unless it recovers, and Cluster API core acts on it", false},
		"it is another check's": {aCheck(a("m", health.Unhealthy, owner, olderCheck("older"))), "MachineHealthCheck older acts on it", false},
		"it will be another check's": {aCheck(a("m", health.Pending, owner, olderCheck("older"), dueIn(time.Minute))),
			"it counts as unhealthy unless it recovers, and MachineHealthCheck older acts on it", false},
		"its cluster is paused": {aCheck(a("m", health.Unhealthy, owner)).with(claimedAndPaused),
			"When it is to go on, set spec.paused of Cluster c1 to false", true},
		"its cluster is paused within its timeout": {aCheck(a("m", health.Pending, owner, dueIn(time.Minute))).with(claimedAndPaused),
			"it counts as unhealthy unless it recovers; its remediation is still blocked then by NotActing (Cluster paused)", false},
		"the limit cannot be read": {aCheck(a("m", health.Unhealthy, owner)).limited("some"),
			"Correct spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", true},
		"there are too many": {aCheck(a("m", health.Unhealthy, owner), a("n", health.Unhealthy, owner)).limited("1"),
			"repair what the unhealthy ones have in common; remediation resumes when at most 1 of 2 is not healthy (now 2)", true},
		"it is healthy and being deleted": {aCheck(a("m", health.Healthy, owner, beingDeleted)), "", false},
		"no timeout runs for it":          {aCheck(a("m", health.Pending, owner)).limited("100%"), "", false},
		"it is core's, and its first node may take for ever": {aCheck(a("m", health.Starting, owner)).limited("100%").with(unclaimed),
			"no timeout runs before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0", false},
		"its first node may take for ever": {aCheck(a("m", health.Starting, owner)),
			"no timeout runs before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			if next := explanationOf(tc.given).Targets[0].Next; next.Text != tc.want || next.Manual != tc.person {
				t.Errorf("got %q, by a person: %t; want %q, %t", next.Text, next.Manual, tc.want, tc.person)
			}
		})
	}
}

func TestWhatTheOwnerReportsStandsBesideTheProviders(t *testing.T) {
	external := withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation")
	askedByPowerCycle := aCheck(a("m", health.Unhealthy, requestedBy("check", "check-uid"), external, answered("RemediationDeferred", "later"))).external()
	want := "ExternallyRemediated=False (WaitingForRemediation); OwnerRemediated=False (RemediationDeferred): later"
	must.Is(t, want, explanationOf(askedByPowerCycle).Targets[0].Message)
}

func TestWhyAMachineIsNotSelected(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Spec.ClusterName, m.Labels = "c1", map[string]string{"pool": "a"}
	for name, tc := range map[string]struct {
		cluster string
		labels  map[string]string
		want    string
	}{
		"it is":                    {"c1", map[string]string{"pool": "a"}, ""},
		"it is of another cluster": {"c2", map[string]string{"pool": "a"}, "it is about cluster c2, and the machine is of cluster c1"},
		"the selector is empty":    {"c1", nil, "its spec.selector is empty, which selects nothing"},
		"the label is another one": {"c1", map[string]string{"pool": "b"}, `label pool is "a": needs pool=b`},
		"the label is not there":   {"c1", map[string]string{"rack": "1"}, "has no label rack: needs rack=1"},
	} {
		check := &clusterv1.MachineHealthCheck{}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = tc.cluster, tc.labels
		must.Is(t, tc.want, Unselected(check, m), "%s:", name)
		selector, _ := selectorOf(check)
		if selected := tc.want == ""; selected != (tc.cluster == m.Spec.ClusterName && selector.Matches(labels.Set(m.Labels))) {
			t.Errorf("%s: the controller says otherwise", name)
		}
	}
}

// reported gives the check the status of a check that a manager acts on.
func (w *observed) reported(expected, healthy int32) *observed {
	w.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	w.Check.Status.ObservedGeneration = w.Check.Generation
	w.Check.Status.ExpectedMachines, w.Check.Status.CurrentHealthy = ptr.To(expected), ptr.To(healthy)
	return w
}

func TestWhichStatusTellsOfTheMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*observed)
		want   bool
	}{
		"that of a check that a manager acts on": {func(*observed) {}, true},
		"not one that is not there":              {func(w *observed) { w.Check.Status = clusterv1.MachineHealthCheckStatus{} }, false},
		"not that of a check as it was before":   {func(w *observed) { w.Check.Generation++ }, false},
		"not that of a check that is paused":     {func(w *observed) { w.Check.Annotations[clusterv1.PausedAnnotation] = "" }, false},
		"not that of a check that goes":          {func(w *observed) { w.Check.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }, false},
		"not that of a cluster that is paused":   {func(w *observed) { w.Cluster.Spec.Paused = ptr.To(true) }, false},
		"not that of one that shares machines with a check that kubemend does not act on": {func(w *observed) {
			has(w.Check, condition(mendv1.TargetsExclusive, metav1.ConditionFalse, mendv1.OverlapReason, ""))
		}, false},
		"not that of a cluster that goes": {func(w *observed) { w.Cluster.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck().reported(5, 3)
			tc.change(w)
			must.Is(t, tc.want, Reported(w.Check, w.Cluster), "reported:")
		})
	}
}

// Reading the condition of a machine gives back what the manager decided.
func TestAPageReadsWhatTheManagerHasDecided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		f.Mode, f.Template.Syncing = Active, false
		plan := Decide(f)
		for i, d := range plan.Decisions {
			at := slices.IndexFunc(d.Conditions, func(cond metav1.Condition) bool { return cond.Type == mendv1.Remediation && cond.Status != "" })
			if at < 0 {
				continue
			}
			refused := d.InFlight && d.Conditions[at].Status == metav1.ConditionFalse
			if d.Verdict.State == health.Pending && (refused || d.Conditions[at].Status == metav1.ConditionTrue) {
				continue // the remediation began while it was unhealthy
			}
			read := &Decision{Target: &Target{Machine: d.Target.Machine}}
			if read.remediation(&f, &plan, &d.Conditions[at]); read.Verdict.State != d.Verdict.State {
				t.Fatalf("machine %d is %s, and read as %s", i, d.Verdict.State, read.Verdict.State)
			}
			if inFlight := d.InFlight || d.Starts(); read.InFlight != inFlight {
				t.Fatalf("machine %d in flight: %t, and read as %t from %v", i, inFlight, read.InFlight, d.Conditions[at])
			}
			if read.InFlight {
				continue
			}
			for j := range read.Blockers {
				b := &read.Blockers[j]
				known := func(decided Blocker) bool {
					return oneLine(cmp.Or(decided.Brief, decided.Text)) == b.Text && decided.Until.Equal(b.Until) && decided.Fix == b.Fix
				}
				ofCheck := b.Text == plan.Allowed.Message && d.Verdict.State == health.Pending
				if !ofCheck && !slices.ContainsFunc(d.Blockers, known) || j == 0 && b.Reason != d.Conditions[at].Reason {
					t.Fatalf("machine %d is blocked by %+v, and read as %+v", i, d.Blockers, b)
				}
			}
		}
	})
}

func TestHowAMachineIsAsTheManagerWroteIt(t *testing.T) {
	healthy := withCondition(HealthCheckSucceeded, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)
	asked := func(t *Target) {
		askedOwner(t)
		withCondition(mendv1.Remediation, metav1.ConditionTrue, mendv1.OwnerAskedReason)(t)
	}
	madeNow := func(t *Target) { t.Machine.CreationTimestamp = metav1.NewTime(noon) }
	withNode := func(t *Target) { t.Machine.Status.NodeRef.Name = "node" }
	reach := func(status metav1.ConditionStatus) func(*observed) {
		return func(w *observed) {
			has(w.Check, condition(mendv1.WorkloadClusterReachable, status, mendv1.UnreachableReason, "out of reach"))
		}
	}
	for name, tc := range map[string]struct {
		given *observed
		want  string
	}{
		"healthy": {aCheck(a("m", health.Healthy, withNode, healthy)), "Healthy"},
		"marked, and nothing is written yet": {
			aCheck(a("m", health.Unhealthy, withNode, withCondition(HealthCheckSucceeded, "False", "UnhealthyNode"))), "Unhealthy blocked by UnhealthyNode",
		},
		"its owner was asked":                   {aCheck(a("m", health.Unhealthy, withNode, asked)), "Unhealthy in flight"},
		"nothing is written, and it has none":   {aCheck(a("m", health.Starting, madeNow)), "Starting blocked by WithinTimeout"},
		"nothing is written, and it has a node": {aCheck(a("m", health.Unknown, withNode)), "Unknown blocked by NotJudged"},
		"what was written before an outage is not believed": {
			aCheck(a("m", health.Healthy, withNode, healthy)).with(reach(metav1.ConditionFalse)), "Unknown blocked by Unreachable",
		},
		"but that it is remediated stands": {
			aCheck(a("m", health.Unhealthy, withNode, asked)).with(reach(metav1.ConditionFalse)), "Unknown in flight blocked by Unreachable",
		},
		"nor what was written before the infrastructure was not ready": {
			aCheck(a("m", health.Healthy, withNode, healthy)).with(func(w *observed) { w.Cluster.Status.Conditions[1].Status = metav1.ConditionFalse }),
			"Unknown blocked by InfrastructureNotReady",
		},
		"nor by a clock that is wrong": {
			aCheck(a("m", health.Healthy, withNode, healthy)).with(func(w *observed) { w.ClockAhead = time.Hour }), "Unknown blocked by ManagerClockWrong",
		},
		"it is being deleted": {aCheck(a("m", health.Healthy, withNode, healthy, beingDeleted)), "Healthy blocked by MachineBeingDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.given.reported(1, 0)
			w.Check.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
			machine := *w.Targets[0].Machine
			machine.Labels, machine.Spec.ClusterName = map[string]string{"pool": "workers"}, "c1"
			explained := (&Reconciler{}).Written(w.Check, w.Cluster, []clusterv1.Machine{machine}, noon, w.ClockAhead)
			target := &explained.Targets[0]
			got := string(target.State)
			if target.InFlight {
				got += " in flight"
			}
			if len(target.Blockers) > 0 {
				got += " blocked by " + target.Blockers[0].Reason
			}
			must.Is(t, tc.want, got)
			if target.State != "Healthy" && explained.Mode != cliv1.ModeActing {
				t.Errorf("mode %s", explained.Mode)
			}
		})
	}
}

// docs/cli/explain.md lists the blockers in the order of rules, with their words for an example. Only NotUnhealthy has no words.
func TestBlockersAreDocumented(t *testing.T) {
	seen := map[Reason]bool{}
	var table strings.Builder
	table.WriteString("| reason | message | until | what to do |\n|---|---|---|---|\n")
	for i, r := range rules {
		if seen[r.Reason] || r.Else && (r.asked < ofAll) != (rules[i-1].asked < ofAll) || (r.Words == nil) != (r.Reason == NotUnhealthy) {
			t.Errorf("%s is there twice, is an alternative to what is asked at another time, or has no words", r.Reason)
		}
		if seen[r.Reason] = true; r.Words == nil {
			continue
		}
		changes := exampleChanges[r.Reason]
		for _, change := range append(changes, func(*Case) {})[:max(1, len(changes))] {
			c := exampleCase()
			change(c)
			c.plan.Reach = reach(c.Facts)
			words := r.Words(c)
			for _, text := range []string{words.Text, words.Fix, words.EndsWhen, words.Next} {
				if strings.HasSuffix(text, ".") || words.Text == "" {
					t.Errorf("%s says %+v, want a sentence without a full stop", r.Reason, words)
				}
			}
			until := words.EndsWhen
			if !words.Until.IsZero() {
				until = cmp.Or(until, "the time that the message ends with")
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n",
				cmp.Or(words.Reason, string(r.Reason)), cmp.Or(words.Brief, words.Text), until, words.Fix)
		}
	}
	golden.Section(t, "../../docs/cli/explain.md", "blockers", table.String())
}

// examplePlaceless returns the words of each rule of policies.
func examplePlaceless() (blockers []rule.Blocker) {
	ledger := &policy.Ledger{Clock: clocktesting.NewFakePassiveClock(noon), Installed: func(context.Context) bool { return true }}
	key, sick := placesOf(types.NamespacedName{Name: "*check*"}), &place.Target{UID: "sick", Kind: policy.MachineHealthCheck, Unavailable: true}
	at, said := metav1.NewTime(noon), &corev1.Node{}
	for _, kind := range []corev1.NodeConditionType{"MaintenanceInProgress", "GracefulNodeShutdownInProgress"} {
		said.Status.Conditions = append(said.Status.Conditions, corev1.NodeCondition{Type: kind, Status: "True", LastTransitionTime: at})
	}
	said.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Value: strconv.FormatInt(noon.Unix(), 10)}}
	rolls := []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: "True", LastTransitionTime: at}}
	sick.On(said, &clusterv1.Cluster{Status: clusterv1.ClusterStatus{Conditions: rolls}}, "", nil)
	ask := func() {
		ledger.Report(key, []*place.Target{sick, {UID: "flies", Unavailable: true, InFlight: true}})
		blockers = append(blockers, ledger.Ask(key, []types.UID{sick.UID})[sick.UID]...)
	}
	ask()
	none := intstr.FromInt32(0)
	object := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "*namespace*", Name: "*policy*"}}
	object.Spec.Mode, object.Spec.Limits = mendv1.PolicyObserves, []mendv1.PolicyLimit{
		{Name: "*limit*", MaxUnavailable: &none}, {Name: "*flying*", MaxInFlight: &none}, {Name: "*rate*", MaxPerHour: new(int32)},
		{Name: "*slow*", SlowStart: mendv1.SlowStartEnabled},
	}
	object.Spec.BlockWhile = append([]mendv1.Signal{mendv1.SignalClusterRollout}, place.WithoutPolicy...)
	object.Spec.Windows = []mendv1.PolicyWindow{
		{Action: mendv1.WindowDeny, Schedule: "* * * * *", DurationSeconds: 3600}, {Schedule: "*schedule*"},
	}
	override := &mendv1.RemediationOverride{ObjectMeta: metav1.ObjectMeta{Namespace: "*namespace*", Name: "*name*"}}
	override.Spec = mendv1.RemediationOverrideSpec{
		TargetRef: mendv1.OverrideTarget{Kind: "Namespace"}, Action: mendv1.OverrideHold, Reason: "*reason*", By: "*user*",
		Until: metav1.NewTime(noon.Add(time.Hour)),
	}
	override.CreationTimestamp = metav1.NewTime(noon)
	hold, _ := policy.ReadOverride(override, "*namespace*", noon)
	ledger.Set([]*policy.Policy{hold, policy.Read(object, "*namespace*")})
	ask()
	return blockers
}

// exampleCase returns a case with everything that the words of rules name.
func exampleCase() *Case {
	machine := bad(hasRequest(ForeignRequest), cycled, unstarted, besideCheck(Opinion{Check: "*check*", InFlight: true}))
	f := facts(machine).with(former(2*time.Hour), missing)
	f.Mode, f.Link, f.ClockAhead = Observed, health.Down, time.Hour
	f.Check.Name, f.Check.Namespace, f.Check.Spec.ClusterName = "*check*", "*namespace*", "*cluster*"
	f.Template.Kind, f.Template.TemplateKind, f.Template.Name = "HostRemediation", "HostRemediationTemplate", "*template*"
	f.Template.Missing = "*why*"
	f.Limits = budget.Limits{AtMost: 2, AtLeast: 4}
	target := f.Targets[0]
	f.Placeless = map[types.UID][]rule.Blocker{target.UID: examplePlaceless()}
	target.OlderCheck, target.Request.Name, target.Host, target.Unusable = "*check*", "*request*", &Host{Name: "*host*"}, errors.New("*why*")
	target.Cycle.Kind, target.Cycle.Name, target.Health.NodeName = "HostRemediation", "*request*", "*node*"
	target.OwnerReferences[0].Name = "*owner*"
	d := &Decision{Target: target, Spare: &Spare{}, Verdict: health.Verdict{State: health.Unhealthy}}
	return &Case{Facts: &f, Decision: d, plan: &Plan{Population: budget.Population{Healthy: 2, Unhealthy: 3}}}
}

// exampleChanges are the differences from exampleCase in the example for a rule.
var exampleChanges = map[Reason][]func(*Case){
	NotActing: {
		func(*Case) {},
		func(c *Case) {
			c.Mode, c.Check.Annotations = Paused, map[string]string{clusterv1.PausedAnnotation: "*value*"}
		},
	},
	ClusterUnreachable: {
		func(*Case) {},
		func(c *Case) { c.Outage.Refused = "*why*" },
		func(c *Case) { c.Outage.Changed = "*which cluster answers*" },
		func(c *Case) { c.Link = health.Unsure },
	},
	WithinTimeout: {func(c *Case) {
		c.Verdict.Recheck = noon
		c.Verdict.Findings = []health.Finding{{
			Reason: health.NodeCondition, Limit: 5 * time.Minute, Due: noon,
			Signal: health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown"},
		}}
	}},
	RemediationLoop:  {func(*Case) {}, func(c *Case) { c.FormerAwaited = noon.Add(time.Second) }},
	InvalidSelector:  {func(c *Case) { c.SelectorErr = errors.New("*why*") }},
	InvalidLimit:     {func(c *Case) { c.Invalid = &InvalidField{"*field*", errors.New("*why*")} }},
	TooManyUnhealthy: {func(c *Case) { c.plan.Grant.Reason = budget.TooMany }},
	TooFewUnhealthy:  {func(c *Case) { c.plan.Grant.Reason = budget.TooFew }},
}
