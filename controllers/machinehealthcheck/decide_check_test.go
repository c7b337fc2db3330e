package machinehealthcheck

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// conditionsOf returns the conditions that p sets on a check, as type, status and reason; a condition to remove has no status.
func conditionsOf(p *Plan) map[string]string {
	all := map[string]string{}
	for _, c := range p.Conditions {
		if all[c.Type] = string(c.Status) + "/" + c.Reason; c.Status == "" {
			all[c.Type] = ""
		}
	}
	return all
}

func TestTheConditionsOfACheck(t *testing.T) {
	const minute = time.Minute
	facts := func(changes ...func(*Facts)) Facts {
		f := facts(is(health.Healthy), bad())
		f.Policy.NodeStartup = minute
		for _, change := range changes {
			change(&f)
		}
		return f
	}
	unclaimed := func(f *Facts) { f.ActsUnclaimed = true }
	claimed := func(f *Facts) { f.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim} }
	mode := func(m Mode) func(*Facts) {
		return func(f *Facts) { f.Mode, f.SelectorErr = m, errors.New("it is odd") }
	}
	applied := func(version, spec string) func(*Facts) {
		return func(f *Facts) {
			f.Check.Annotations = map[string]string{
				corev1.LastAppliedConfigAnnotation: `{"apiVersion":"cluster.x-k8s.io/` + version + `","spec":{` + spec + `}}`,
			}
		}
	}
	ours := func(changes ...func(*Facts)) Facts { return facts(append([]func(*Facts){unclaimed}, changes...)...) }
	steady := "RemediationAllowed=True/RemediationAllowed WorkloadClusterReachable=True/Reachable TargetsExclusive=True/Exclusive " +
		"RemediationTemplateAvailable= SpareHostAvailable= Paused=False/NotPaused Effective="
	for name, tc := range map[string]struct {
		given Facts
		// want is the difference from an active check without trouble, or, for another check, all that it sets: empty for a condition to
		// remove, "-" for one that stays.
		want string
	}{
		"a check without trouble":                                {ours(), ""},
		"Paused of a claimed check is Cluster API's":             {facts(claimed), "Paused=-"},
		"an observed check is not written":                       {facts(mode(Observed)), ""},
		"nor is an ignored one":                                  {facts(mode(Ignored), claimed), ""},
		"a paused check says so where Cluster API core does not": {facts(mode(Paused), unclaimed), "Paused=True/Paused"},
		"but not if Cluster API core does so":                    {facts(mode(Paused), claimed, unclaimed), ""},
		"nor if it is not kubemend's":                            {facts(mode(Paused)), ""},
		"a check of no Cluster":                                  {facts(mode(NoCluster), claimed), "RemediationAllowed=False/ClusterNotFound"},
		"also one that is not claimed, where it is ours": {facts(mode(NoCluster), unclaimed),
			"RemediationAllowed=False/ClusterNotFound"},
		"but not of one that is Cluster API core's": {facts(mode(NoCluster)), ""},
		"a check whose selector cannot be parsed": {facts(mode(BadSelector), claimed),
			"RemediationAllowed=False/InvalidSelector"},
		"but not of one that is not kubemend's": {facts(mode(BadSelector)), ""},
		"too many":                              {ours(tooMany), "RemediationAllowed=False/TooManyUnhealthy"},
		"a limit that cannot be read":           {ours(invalid), "RemediationAllowed=False/InvalidLimit"},
		"an unreachable cluster": {ours(func(f *Facts) { f.Link = health.Down }),
			"WorkloadClusterReachable=False/Unreachable"},
		"while an answer is awaited the numbers stand": {ours(func(f *Facts) { f.Link = health.Unsure }),
			"WorkloadClusterReachable=Unknown/NotInitialized RemediationAllowed=- SpareHostAvailable=-"},
		"before the control plane is initialized there is no answer to await": {ours(uninitialized),
			"WorkloadClusterReachable=Unknown/NotInitialized"},
		"too few for a range have the same reason as too many": {ours(tooFew), "RemediationAllowed=False/TooManyUnhealthy"},
		"another check selects the same": {ours(func(f *Facts) { f.Overlaps = []Overlap{{Name: "x"}, {Name: "y", Shared: 1}} }),
			"TargetsExclusive=False/Overlap"},
		"another check on which kubemend acts too": {ours(func(f *Facts) { f.Overlaps = []Overlap{{Shared: 1, Acting: true}} }),
			"TargetsExclusive=True/Exclusive"},
		"a check without rules": {ours(func(f *Facts) { f.Policy = health.Policy{} }), "Effective=False/NoRules"},
		"a clock that is wrong": {ours(func(f *Facts) { f.ClockAhead = 24 * time.Hour }),
			"Effective=False/ManagerClockWrong"},
		"a status that no condition has": {
			ours(func(f *Facts) {
				f.Check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "Unknown"}, {Type: "Ready", Status: "NotReady"}}
			}),
			"Effective=False/NoSuchStatus",
		},
		"a field of the older version under the newer": {ours(applied("v1beta2", `"unhealthyConditions":[]`)),
			"Effective=False/FieldDropped"},
		"a field of the newer version under the older": {ours(applied("v1beta1", `"checks":{}`)), "Effective=False/FieldDropped"},
		"a field in another case": {ours(applied("v1beta2", `"checks":{"nodestartuptimeoutseconds":0}`)),
			"Effective=False/FieldDropped"},
		"fields that there are": {ours(applied("v1beta2", `"checks":{"unhealthyNodeConditions":[{"type":"Ready","status":"Unknown"}]}`)),
			""},
		"fields that there were": {ours(applied("v1beta1", `"maxUnhealthy":"40%"`)), ""},
		"a selector of nothing":  {ours(func(f *Facts) { f.SelectsNothing = true }), "Effective=False/SelectsNothing"},
		"one of a check whose Machines may come": {
			ours(func(f *Facts) { f.SelectsNothing, f.Check.CreationTimestamp = true, metav1.NewTime(ago(9*minute)) }), "",
		},
		"another check selects others": {ours(func(f *Facts) { f.Overlaps = []Overlap{{Name: "x"}} }), ""},
		"a template that is there":     {ours(external), "RemediationTemplateAvailable=True/TemplateFound"},
		"a template that is not there": {ours(external, func(f *Facts) { f.Template.Missing = "it is gone" }),
			"RemediationTemplateAvailable=False/RemediationTemplateNotFound"},
		"a kind that can be no template": {ours(external, func(f *Facts) { f.Template.Missing, f.Template.Refused = "it is a Lease", true }),
			"RemediationTemplateAvailable=False/TemplateRefused"},
		"a template that is not there, while requests are not known": {ours(missing, unknown),
			"RemediationTemplateAvailable=False/RemediationTemplateNotFound"},
		"a template that could not be read": {ours(external, func(f *Facts) { f.Template.Known = false }),
			"RemediationTemplateAvailable=-"},
	} {
		t.Run(name, func(t *testing.T) {
			want, says := map[string]string{}, tc.want
			if tc.given.Mode == Active {
				says = steady + " " + says
			}
			for _, cond := range strings.Fields(says) {
				kind, value, _ := strings.Cut(cond, "=")
				if want[kind] = value; value == "-" {
					delete(want, kind)
				}
			}
			p := Decide(tc.given)
			must.Equal(t, want, conditionsOf(&p), "conditions")
		})
	}
}

func TestWhetherTheWorkloadClusterIsReachable(t *testing.T) {
	was := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: "as it was", LastTransitionTime: metav1.NewTime(ago(time.Hour))}
	}
	for name, tc := range map[string]struct {
		was         metav1.Condition
		initialized bool
		link        health.Link
		outage      Outage
		want        string
		since       time.Time
	}{
		"a cluster that answers is reachable":                        {metav1.Condition{}, true, health.Up, Outage{}, "True/Reachable", noon},
		"and goes on being so":                                       {was("True", "Reachable"), true, health.Up, Outage{}, "True/Reachable", ago(time.Hour)},
		"one that is lost is not, from now on":                       {was("True", "Reachable"), true, health.Down, Outage{}, "False/Unreachable", noon},
		"and since then":                                             {was("False", "Unreachable"), true, health.Down, Outage{}, "False/Unreachable", ago(time.Hour)},
		"its kubeconfig may be the reason":                           {was("False", "Unreachable"), true, health.Down, Outage{Refused: "user: no"}, "False/KubeconfigRefused", ago(time.Hour)},
		"one that is back is reachable again, from now on":           {was("False", "Unreachable"), true, health.Up, Outage{}, "True/ReachableAgain", noon},
		"and that is remembered":                                     {was("True", "ReachableAgain"), true, health.Up, Outage{}, "True/ReachableAgain", ago(time.Hour)},
		"while an answer is awaited it stands as it was":             {was("False", "Unreachable"), true, health.Unsure, Outage{}, "False/Unreachable", ago(time.Hour)},
		"at first an answer is awaited":                              {metav1.Condition{}, true, health.Unsure, Outage{}, "Unknown/NotInitialized", noon},
		"a control plane that is not up cannot be asked at all":      {metav1.Condition{}, false, health.Unsure, Outage{}, "Unknown/NotInitialized", noon},
		"one whose control plane is not initialized any more is not": {was("True", "Reachable"), false, health.Unsure, Outage{}, "Unknown/NotInitialized", noon},
		"of a reachable one the kubeconfig may have been refused":    {was("False", "KubeconfigRefused"), true, health.Up, Outage{Refused: "user: no"}, "True/ReachableAgain", noon},
		"a reader that can ask the cluster does not repeat it":       {was("False", "KubeconfigRefused"), true, health.Down, Outage{}, "False/Unreachable", ago(time.Hour)},
		"another one in its place is not it": {
			was("True", "Reachable"), true, health.Down, Outage{Changed: "another"}, "False/WorkloadClusterChanged", noon,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts()
			if !tc.initialized {
				uninitialized(&f)
			}
			f.Reach, f.Link, f.Outage = tc.was, tc.link, tc.outage
			p := Decide(f)
			if got := string(p.Reach.Status) + "/" + p.Reach.Reason; got != tc.want || !p.Reach.LastTransitionTime.Time.Equal(tc.since) {
				t.Errorf("got %s since %s, want %s since %s", got, p.Reach.LastTransitionTime, tc.want, tc.since)
			}
		})
	}
}

// Nodes may start unseen during an outage, so its end counts as a start. Without an outage nothing does.
func TestOnlyContactThatCameBackCountsAsAStart(t *testing.T) {
	for reason, want := range map[string]time.Time{mendv1.ReachableAgainReason: ago(time.Minute), mendv1.ReachableReason: {}} {
		f := facts()
		f.Reach = metav1.Condition{Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(ago(time.Minute))}
		if got := f.ReachedAgain(); !got.Equal(want) {
			t.Errorf("%s: contact counts since %s, want %s", reason, got, want)
		}
	}
}

func TestAPlanNamesTheFactsThatItNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  Needs
	}{
		"nothing while all machines are healthy":           {byRequests(is(health.Healthy, onHost)), Needs{}},
		"power cycles if a machine on a host is unhealthy": {facts(bad(onHost)), Needs{Cycles: true}},
		"or is about to be":                                {facts(is(health.Pending, onHost)), Needs{Cycles: true}},
		"not if it is being deleted":                       {facts(bad(onHost, deleting)), Needs{}},
		"not if it is on no host":                          {facts(bad()), Needs{}},
		"whichever of several machines it is":              {facts(bad(onHost), bad()), Needs{Cycles: true}},
		"the template if a request is to be made":          {byRequests(bad()), Needs{Template: true}},
		"but after the power cycles":                       {byRequests(bad(onHost)), Needs{Cycles: true}},
		"when these were read":                             {byRequests(bad(onHost)).with(func(f *Facts) { f.Read.Cycles = true }), Needs{Template: true}},
		"for several that wait":                            {byRequests(bad(), bad()), Needs{Template: true}},
		"not while there is no place for them":             {byRequests(bad(), bad()).with(noPlace), Needs{}},
		"not for owners":                                   {facts(bad()), Needs{}},
		"not for a check that is only observed":            {byRequests(bad()).with(observe), Needs{}},
		"nor to explain a remediation that is in progress": {byRequests(bad(ownRequest)).with(explainedFacts), Needs{}},
		"nor to explain a machine that is healthy":         {byRequests(is(health.Healthy)).with(explainedFacts), Needs{}},
		"nor to explain one while requests are not known":  {facts(bad()).with(unknown, explainedFacts), Needs{}},
		"and once":                                 {byRequests(bad()).with(func(f *Facts) { f.Read.Template = true }), Needs{}},
		"not while too many are unhealthy":         {byRequests(bad()).with(tooMany), Needs{}},
		"but to explain all that blocks a machine": {byRequests(bad()).with(func(f *Facts) { f.Limits.AtMost, f.Explains = 0, true }), Needs{Template: true}},
		"not if the template is not there":         {byRequests(bad()).with(func(f *Facts) { f.Template.Missing, f.Explains = "it is gone", true }), Needs{}},
	} {
		must.Is(t, tc.want, Decide(tc.given).Needs, "%s: needs", name)
	}
}
