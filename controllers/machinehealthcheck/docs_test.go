package machinehealthcheck

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/golden"
)

// docs/cli/explain.md has what blocks a remediation, in the order in which the rules are asked, with their words for an example. The one
// rule that has none is that nothing is held against the machine.
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

// exampleCase has all that the words of rules name.
func exampleCase() *Case {
	machine := bad(hasRequest(ForeignRequest), cycled, unstarted, besideCheck(Opinion{Check: "*check*", InFlight: true}))
	f := facts(machine).with(former(2*time.Hour), missing)
	f.Mode, f.Link, f.ClockAhead = Observed, health.Down, time.Hour
	f.Check.Name, f.Check.Namespace, f.Check.Spec.ClusterName = "*check*", "*namespace*", "*cluster*"
	f.Check.Annotations = map[string]string{mendv1.StormCooldownAnnotation: "10m", mendv1.MaxInFlightAnnotation: "0"}
	f.Template.Kind, f.Template.TemplateKind, f.Template.Name = "HostRemediation", "HostRemediationTemplate", "*template*"
	f.Template.Missing = "*why*"
	f.Limits = budget.Limits{AtMost: 2, AtLeast: 4, InFlight: 1}
	target := f.Targets[0]
	target.OlderCheck, target.Request.Name, target.Host, target.Unusable = "*check*", "*request*", &Host{Name: "*host*"}, errors.New("*why*")
	target.Cycle.Kind, target.Cycle.Name, target.Health.NodeName = "HostRemediation", "*request*", "*node*"
	target.OwnerReferences[0].Name = "*owner*"
	d := &Decision{Target: target, Spare: &Spare{}, Verdict: health.Verdict{State: health.Unhealthy}}
	return &Case{Facts: &f, Decision: d, plan: &Plan{Population: budget.Population{Healthy: 2, Unhealthy: 3}}}
}

// exampleChanges are what is different in the examples for a rule.
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
	CoolingDown: {func(c *Case) {
		c.plan.Grant.Reason, c.plan.Storm.Recheck, c.plan.Storm.CoolingSince = budget.CoolingDown, noon.Add(10*time.Minute), noon
	}},
	NoneAtOnce: {func(c *Case) { c.Limits.InFlight = 0 }},
}
