package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// MachineHealthCheck explains p, the plan for f.
func MachineHealthCheck(f *machines.Facts, p *machines.Plan) *Check {
	if f.About.Idle {
		return idle(f, p)
	}
	is := describe(f)
	is.Population, is.Limits, is.Remaining = p.Population, f.Limits, p.Grant.Remaining
	is.CountedByStatus = f.Counted != nil
	if reason, text := RemediationAllowed(f, p); text != "" {
		is.Reason, is.Text = reason, text
	} else if reason, text := awaitedSpares(f, p); text != "" {
		is.Reason, is.Text = reason, text
	}
	if p.Reach.Status != "True" {
		is.NodesUnknown, is.NodesUnknownSince = CheckMessage(f, p, p.Reach), p.Reach.Since
	}
	is.ReadErrors = f.About.Trouble
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
func idle(f *machines.Facts, p *machines.Plan) *Check {
	is, c := describe(f), &f.About
	if f.Mode == machines.NoCluster || f.Mode == machines.BadSelector {
		is.Reason, is.Text = RemediationAllowed(f, p)
	}
	switch {
	case c.Deleting:
		is.Next = Step{Reason: BeingDeleted, Text: "the check is deleted"}
	case c.WatchFilter != "":
	case f.Mode == machines.NoCluster:
		is.Next = Step{Reason: mendv1.ClusterNotFoundReason, Manual: true, Text: fmt.Sprintf(
			"make Cluster %s, or a check of another one in place of this: spec.clusterName cannot be changed", c.Cluster)}
	case f.Mode == machines.BadSelector:
		is.Next = Step{Reason: mendv1.InvalidSelectorReason, Manual: true, Text: "correct spec.selector"}
	default:
		if person := Enable(f); person != "" {
			is.Next = Step{Reason: NotActing, Text: person, Manual: true}
		}
	}
	return is
}

func describe(f *machines.Facts) *Check {
	c := &f.About
	is := &Check{Ref: Ref{Kind: "MachineHealthCheck", Namespace: c.Namespace, Name: c.Name}, Cluster: c.Cluster, Limit: limitSpelled(&c.Spelled)}
	if is.Mode, is.ModeText = MachineMode(f); is.Mode != Acting {
		is.ModeDetail = notActingDetail(f)
	}
	return is
}

// MachineMode is who acts on a check, and why it is not kubemend.
func MachineMode(f *machines.Facts) (Mode, string) {
	c := &f.About
	switch {
	case c.Deleting:
		return None, "The check is being deleted"
	case c.WatchFilter != "" && f.Claimed:
		return None, fmt.Sprintf("The check is claimed for kubemend, so Cluster API core leaves it alone, and the label %s of the check, or of its "+
			"Cluster if the check has none, is not %s, which the manager's flag --watch-filter asks for", clusterv1.WatchLabel, c.WatchFilter)
	case c.WatchFilter != "":
		return Core, fmt.Sprintf("The label %s of the check, or of its Cluster if the check has none, is not %s, which the manager's flag --watch-filter "+
			"asks for", clusterv1.WatchLabel, c.WatchFilter)
	case c.ClusterDeleting:
		return None, fmt.Sprintf("Cluster %s is being deleted", c.Cluster)
	}
	switch f.Mode {
	case machines.NoCluster:
		return None, fmt.Sprintf("There is no Cluster %s in namespace %s", c.Cluster, c.Namespace)
	case machines.BadSelector:
		return None, "The spec.selector of the check cannot be read"
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
	if s.SpareWait != "" {
		limit += ", waits up to " + s.SpareWait + " for a spare host"
	}
	return limit
}

// machine explains the decision about one machine.
func machine(f *machines.Facts, p *machines.Plan, d *machines.Decision) Target {
	t, v := d.Target, d.Verdict
	is := Target{
		Ref: Ref{Kind: "Machine", Namespace: f.About.Namespace, Name: t.Name}, Node: t.Health.NodeName,
		State: v.State, Verdict: v.State.String(), Class: d.Class(), Findings: Findings(v, f.Now), Ignored: IgnoredFindings(v),
		Action: would(f, t), Act: act(f, t), StartsNow: d.Starts(), InFlight: d.InFlight,
	}
	if v.State == health.Starting {
		is.Startup = latestOf(startsOf(f, p, t))
	}
	if r := t.RequestFacts; r != nil {
		is.Requests = []Ref{{Kind: f.Template.Kind, Namespace: f.About.Namespace, Name: r.Name}}
		is.InFlightSince = r.Created
	}
	is.Report = answer(f, t)
	if is.InFlight && t.RequestFacts == nil {
		asked := t.OwnerReport
		if f.Template.Unread && asked == nil {
			asked = t.ProviderReport
		}
		if asked != nil {
			is.InFlightSince = asked.Since
		}
	}
	is.PutOff, is.Refused = is.InFlight && putOff(t), is.InFlight && refused(t)
	is.owned(f, t)
	is.Blockers = blockersOf(f, p, d)
	is.Next = nextOf(f, d, &is)
	return is
}

// owned adds what the owner of a machine has to do with its remediation.
func (is *Target) owned(f *machines.Facts, t *machines.Target) {
	is.OwnerAsked = is.InFlight && (t.RequestFacts == nil && !f.Template.Unread || t.Owner != machines.NotAsked)
	if is.Owner = "its owner"; t.OwnerKind != "" {
		is.Owner = t.OwnerKind + " " + t.OwnerName
	}
	if is.Remediator = f.Template.Kind; !f.Template.External {
		is.Remediator = is.Owner
	}
	is.Ownerless = t.OwnerKind == "" && (is.OwnerAsked || is.StartsNow && !f.Template.External)
	if t.OwnerReport != nil && is.OwnerAsked {
		is.OwnerReason = t.OwnerReport.Reason
	}
}

// leftAlone explains a machine that its user wants left alone.
func leftAlone(f *machines.Facts, t *machines.Target) Target {
	is := Target{
		Ref: Ref{Kind: "Machine", Namespace: f.About.Namespace, Name: t.Name}, Node: t.Health.NodeName, Verdict: "left alone",
		Next: Step{Reason: Skipped, Manual: true,
			Text: fmt.Sprintf("if it is to be judged again, remove the annotation %s from the machine", strings.Join(t.LeftAlone, " and "))},
	}
	if len(t.LeftAlone) > 0 {
		is.Skipped = MachineAnnotated(t.LeftAlone[0])
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

// act is what is done about t when it is unhealthy, for programs.
func act(f *machines.Facts, t *machines.Target) Act {
	switch {
	case f.Template.External:
		return Act{CreateRequest, Ref{Kind: f.Template.TemplateKind, Namespace: f.About.Namespace, Name: f.Template.Name}}
	case t.OwnerKind != "":
		return Act{RequestOwner, Ref{Kind: t.OwnerKind, Namespace: f.About.Namespace, Name: t.OwnerName}}
	}
	return Act{Kind: RequestOwner}
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
		text := fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason)
		if message := strings.TrimPrefix(c.Message, "* "); message != "" {
			text += ": " + message
		}
		all = append(all, strings.TrimSuffix(text, "."))
	}
	return strings.Join(all, "; ")
}

// startsOf are the moments of which the latest is from when on the first node of t is waited for.
func startsOf(f *machines.Facts, p *machines.Plan, t *machines.Target) []Milestone {
	var reached time.Time
	if p.Reach.Reason == string(machines.ReachableAgain) {
		reached = p.Reach.Since
	}
	return []Milestone{
		{Text: "the machine was created", At: t.Created},
		{Text: "the control plane was initialized", At: f.Cluster.InitializedAt},
		{Text: "the infrastructure of the cluster became ready", At: f.Cluster.ReadyAt},
		{Text: "the infrastructure of the machine became ready", At: t.InfrastructureReady},
		{Text: "the workload cluster could be reached again", At: reached},
		{Text: "Cluster API took the machine up again after a pause", At: t.Health.Resumed},
	}
}

// latestOf are the starts that have happened, with a mark at the one that counts.
func latestOf(all []Milestone) []Milestone {
	var happened []Milestone
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
		happened[last].Latest = true
	}
	return happened
}
