package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// MachineHealthCheck explains p, the plan for f.
func MachineHealthCheck(f *machines.Facts, p *machines.Plan) *Check {
	if f.About.Idle {
		return idle(f)
	}
	is := describe(f)
	is.Population, is.Limits, is.Remaining = p.Population, f.Limits, p.Grant.Remaining
	is.CountedByStatus = f.Counted != nil
	if reason, text := RemediationAllowed(f, p); text != "" {
		is.Reason, is.Text = reason, text
	}
	if f.About.Reach.Status != "True" {
		is.Unseen, is.UnseenSince = f.About.Reach.Message, f.About.Reach.Since
	}
	is.Trouble = f.About.Trouble
	for _, d := range p.Decisions {
		is.Targets = append(is.Targets, machine(f, p, d))
	}
	for _, t := range f.Skipped {
		is.Targets = append(is.Targets, leftAlone(f, t))
	}
	slices.SortFunc(is.Targets, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	is.Next = Soonest(is.Targets)
	return is
}

// idle explains a check whose machines are not read.
func idle(f *machines.Facts) *Check {
	is, c := describe(f), &f.About
	if c.Mode == machines.NoCluster {
		is.Reason, is.Text = mendv1.ClusterNotFoundReason, ClusterNotFound(c)
	}
	switch {
	case c.Deleting:
		is.Next = Step{Text: "nothing, until the check is gone"}
	case c.WatchFilter != "":
	case c.Mode == machines.NoCluster:
		is.Next = Step{Person: true, Text: fmt.Sprintf(
			"make Cluster %s, or a check of another one in place of this: spec.clusterName cannot be changed", c.Cluster)}
	default:
		if person := Enable(c); person != "" {
			is.Next = Step{Text: person, Person: true}
		}
	}
	return is
}

func describe(f *machines.Facts) *Check {
	c := &f.About
	is := &Check{Ref: Ref{Kind: "MachineHealthCheck", Namespace: c.Namespace, Name: c.Name}, Cluster: c.Cluster, Limit: limitSpelled(&c.Spelled)}
	is.Mode, is.Because = MachineMode(c)
	return is
}

// MachineMode is who acts on a check, and why it is not kubemend.
func MachineMode(c *machines.About) (Mode, string) {
	switch {
	case c.Deleting:
		return Nobody, "The check is being deleted"
	case c.WatchFilter != "":
		return Core, fmt.Sprintf("The check has not the label %s: %s that the manager's flag --watch-filter asks for", clusterv1.WatchLabel, c.WatchFilter)
	case c.ClusterDeleting:
		return Nobody, fmt.Sprintf("Cluster %s is being deleted", c.Cluster)
	}
	switch c.Mode {
	case machines.NoCluster:
		return Nobody, fmt.Sprintf("There is no Cluster %s in namespace %s", c.Cluster, c.Namespace)
	case machines.Paused:
		return Paused, pausedBecause(c)
	case machines.Ignored:
		return Core, "The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: Cluster API core acts on it"
	case machines.Observed:
		return Observing, "The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges"
	case machines.Active:
	}
	return Acting, ""
}

// pausedBecause says what pauses a check. Of the annotation by which kubemend claims a check it says nothing: that pauses Cluster API core alone.
func pausedBecause(c *machines.About) string {
	var why []string
	if c.ClusterPaused {
		why = append(why, fmt.Sprintf("Cluster %s is paused (spec.paused)", c.Cluster))
	}
	if c.PausedBy != nil {
		because := fmt.Sprintf("The check has the annotation %s: %q", clusterv1.PausedAnnotation, *c.PausedBy)
		if strings.EqualFold(strings.TrimSpace(*c.PausedBy), mendv1.Claim) {
			because += fmt.Sprintf(", which pauses it for all; %q claims it", mendv1.Claim)
		}
		why = append(why, because)
	}
	if len(why) == 2 {
		return why[0] + ", and " + Clause(why[1])
	}
	return strings.Join(why, "")
}

// ClusterNotFound is the message of a check whose Cluster does not exist.
func ClusterNotFound(c *machines.About) string {
	return fmt.Sprintf("Remediation is not allowed, spec.clusterName: there is no Cluster %s in namespace %s", c.Cluster, c.Namespace)
}

// limitSpelled are the limits of a check as people write them: with the words of the version that is served, and not of one that is not.
func limitSpelled(s *machines.Spelled) string {
	limit := "unhealthyLessThanOrEqualTo " + s.MaxUnhealthy
	if s.Range != "" {
		limit = "unhealthyInRange " + s.Range
	}
	if s.InFlight != nil {
		limit += ", " + *s.InFlight + " at once"
	}
	if s.Cooldown != nil {
		limit += ", " + *s.Cooldown + " of cooldown after a storm"
	}
	return limit
}

// machine explains the decision about one machine.
func machine(f *machines.Facts, p *machines.Plan, d *machines.Decision) Target {
	t, v := d.Target, d.Verdict
	is := Target{
		Ref: Ref{Kind: "Machine", Namespace: f.About.Namespace, Name: t.Name}, Node: t.Health.NodeName,
		State: v.State, Verdict: v.State.String(), Class: d.Class(), Findings: Findings(v, f.Now), Doubted: Doubted(v),
		Would: would(f, t), Begins: d.Starts(), InFlight: d.InFlight,
	}
	if v.State == health.Starting {
		is.Starts = latestOf(startsOf(f, t))
	}
	if r := t.RequestFacts; r != nil {
		is.Underway = []Ref{{Kind: f.Template.Kind, Namespace: f.About.Namespace, Name: r.Name}}
		is.UnderwaySince = r.Created
	}
	is.Answer = answer(f, t)
	if is.InFlight && t.RequestFacts == nil {
		asked := t.OwnerReport
		if f.Template.Unread && asked == nil {
			asked = t.ProviderReport
		}
		if asked != nil {
			is.UnderwaySince = asked.Since
		}
	}
	is.Blockers = blockersOf(f, p, d)
	is.Next = nextOf(f, d, &is)
	return is
}

// leftAlone explains a machine that its user wants left alone.
func leftAlone(f *machines.Facts, t *machines.Target) Target {
	is := Target{
		Ref: Ref{Kind: "Machine", Namespace: f.About.Namespace, Name: t.Name}, Node: t.Health.NodeName, Verdict: "left alone",
		Next: Step{Text: fmt.Sprintf("take the annotation %s off the machine, if it is to be judged again", strings.Join(t.LeftAlone, " and ")), Person: true},
	}
	if len(t.LeftAlone) > 0 {
		is.Left = "The machine has the annotation " + t.LeftAlone[0]
	}
	return is
}

// would is what is done about t when it is unhealthy.
func would(f *machines.Facts, t *machines.Target) string {
	if f.Template.External {
		return fmt.Sprintf("requests a %s from %s %s/%s", f.Template.Kind, f.Template.TemplateKind, f.About.Namespace, f.Template.Name)
	}
	if t.OwnerKind != "" {
		return fmt.Sprintf("asks its owner, %s %s, to remediate it", t.OwnerKind, t.OwnerName)
	}
	return "asks its owner to remediate it, but it has none"
}

// answer is what the remediators of the machine report: the provider of the requests, and the owner, which may have been asked.
func answer(f *machines.Facts, t *machines.Target) string {
	reports := []*machines.Report{t.ProviderReport, t.OwnerReport}
	if !f.Template.External {
		reports = reports[1:]
	}
	var all []string
	for _, c := range reports {
		if c == nil {
			continue
		}
		text := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
		if c.Message != "" {
			text += ": " + c.Message
		}
		all = append(all, strings.TrimSuffix(text, "."))
	}
	return strings.Join(all, "; ")
}

// startsOf are the moments of which the latest is from when on the first node of t is waited for.
func startsOf(f *machines.Facts, t *machines.Target) []Start {
	return []Start{
		{What: "the machine was created", At: t.Created},
		{What: "the control plane was initialized", At: f.Cluster.InitializedAt},
		{What: "the infrastructure of the cluster became ready", At: f.Cluster.ReadyAt},
		{What: "the infrastructure of the machine became ready", At: t.InfrastructureReady},
		{What: "the workload cluster could be reached again", At: f.Cluster.Reached},
		{What: "Cluster API took the machine up again after a pause", At: t.Health.Resumed},
	}
}

// latestOf are the starts that have happened, with a mark at the one that counts.
func latestOf(all []Start) []Start {
	var happened []Start
	last := -1
	for _, start := range all {
		if start.At.IsZero() {
			continue
		}
		happened = append(happened, start)
		if last < 0 || start.At.After(happened[last].At) {
			last = len(happened) - 1
		}
	}
	if last >= 0 {
		happened[last].Counts = true
	}
	return happened
}

// RemediationAllowed is the reason and the message of the condition RemediationAllowed.
func RemediationAllowed(f *machines.Facts, p *machines.Plan) (reason, message string) {
	reason = p.Allowed.Reason
	switch reason {
	case mendv1.InvalidLimitReason:
		message = "Remediation is not allowed, " + f.About.InvalidField + ": " + f.About.InvalidWhy
	case clusterv1.MachineHealthCheckTooManyUnhealthyReason:
		message = machineArithmetic(f, p)
	case mendv1.CoolingDownReason:
		message = CoolingDown(f, p)
	case mendv1.NoneAtOnceReason:
		message = fmt.Sprintf("Remediation is not allowed, metadata.annotations[%s] is %q: none may be in flight",
			mendv1.MaxInFlightAnnotation, *f.About.Spelled.InFlight)
	default:
		if p.Grant.Reason == budget.AtWork {
			message = queue(f, p)
		}
	}
	if f.Counted != nil { // the manager has counted what was not read
		if stored := f.About.Allowed; stored.Status == p.Allowed.Status && stored.Reason == reason {
			message = stored.Message
		}
		return reason, message
	}
	if left := leftToCycles(p); p.Allowed.Status == "True" && left != "" {
		message = strings.TrimPrefix(message+". "+left, ". ")
	}
	return reason, message
}

// maxNames is how many machines a message names; the rest are counted.
const maxNames = 10

// leftToCycles names the unhealthy machines that are left to a power cycle which the check did not request; empty if there is none.
func leftToCycles(p *machines.Plan) string {
	var left []string
	for _, d := range p.Decisions {
		if t := d.Target; t.Cycle != nil && d.Verdict.State == health.Unhealthy && !t.Deleting {
			left = append(left, fmt.Sprintf("%s to %s %s", t.Name, t.Cycle.Kind, t.Cycle.Name))
		}
	}
	switch n := len(left); {
	case n == 0:
		return ""
	case n > maxNames:
		return fmt.Sprintf("Left to a power cycle that is under way: %s and %d more", strings.Join(left[:maxNames], ", "), n-maxNames)
	}
	return "Left to a power cycle that is under way: " + strings.Join(left, ", ")
}

// queue says how many wait because of how many are remediated at once.
func queue(f *machines.Facts, p *machines.Plan) string {
	waiting, inFlight := p.Population.Waiting-p.Grant.Start, p.Population.InFlight+p.Grant.Start
	wait := "remediations wait"
	if waiting == 1 {
		wait = "remediation waits"
	}
	return fmt.Sprintf("%d %s, %d of at most %d %s in flight (%s)", waiting, wait, inFlight, f.Limits.InFlight, Are(inFlight), mendv1.MaxInFlightAnnotation)
}

// machineArithmetic says why nothing is remediated: Cluster API's sentence, with the field's name of today, and the sum that decided.
func machineArithmetic(f *machines.Facts, plan *machines.Plan) string {
	p, spelled := plan.Population, &f.About.Spelled
	sum := fmt.Sprintf("%d of %d targets are not healthy: %d unhealthy, %d pending, %d starting, %d being deleted, %d unknown",
		p.NotHealthy(), p.Total(), p.Unhealthy, p.Pending, p.Starting, p.Deleting, p.Unknown)
	if p.Unread > 0 {
		sum = fmt.Sprintf("%d of %d targets are not healthy", p.NotHealthy(), p.Total())
	}
	if spelled.Range != "" {
		return fmt.Sprintf("Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range "+
			"(total: %d, unhealthy: %d, unhealthyInRange: %s). %s; the range allows %d to %d",
			p.Total(), p.Unhealthy, spelled.Range, sum, f.Limits.AtLeast, f.Limits.AtMost)
	}
	limit := spelled.MaxUnhealthy
	return fmt.Sprintf("Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo "+
		"(total: %d, unhealthy: %d, unhealthyLessThanOrEqualTo: %s). %s; %s of %d allows %d",
		p.Total(), p.Unhealthy, limit, sum, limit, p.Total(), f.Limits.AtMost)
}

// CoolingDown says until when nothing starts after a storm.
func CoolingDown(f *machines.Facts, p *machines.Plan) string {
	cooldown := ""
	if f.About.Spelled.Cooldown != nil {
		cooldown = *f.About.Spelled.Cooldown
	}
	return fmt.Sprintf("Remediation is not allowed before %s: until %s too many machines were not healthy, and the cooldown after that is %s (%s)",
		p.Storm.Recheck.UTC().Format(time.RFC3339), p.Storm.CoolingSince.UTC().Format(time.RFC3339), cooldown, mendv1.StormCooldownAnnotation)
}
