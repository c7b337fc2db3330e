package machinehealthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Rule is one reason why no remediation of a machine begins.
type Rule struct {
	Reason Reason
	asked  stage
	// Else says that the rule is skipped if the rule before it blocks, or any earlier rule of the same Else chain. Several rules then give
	// one reason for one cause.
	Else bool
	// unjudged says that the rule explains why a machine could not be judged.
	unjudged bool
	When     func(*Case) bool
	// Words returns what users read: the message, what ends the blocker, and what a person can do. An empty reason stands for Rule.Reason.
	// Rules without Words are not reported.
	Words func(*Case) rule.Blocker
}

type stage int

const (
	// ofMachine rules depend on the machine alone. A machine that they do not block waits for its turn.
	ofMachine stage = iota
	// unlessBegun rules depend on the machine alone too. They are skipped while a remediation is in flight.
	unlessBegun
	// ofAll rules depend on other machines, or on facts that are read once the waiting machines are known. They are skipped while a
	// remediation is in flight, which the limits have counted already.
	ofAll
	// ofLimits rules block all machines. The condition RemediationAllowed of the check reports them.
	ofLimits
)

// notAllowed begins the message of ofLimits rules, as in Cluster API.
const notAllowed = "Remediation is not allowed"

// Case is one machine with everything that rules depend on. plan holds what has been decided so far.
type Case struct {
	*Facts
	*Decision
	plan *Plan
}

// blockedAlone reports whether a rule about the machine alone blocks its remediation. It skips NotActing, so that a check that is only
// observed counts the machines that would wait.
func blockedAlone(facts *Facts, plan *Plan, decision *Decision) bool {
	c := &Case{Facts: facts, Decision: decision, plan: plan}
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.asked < ofAll && r.Reason != NotActing && r.When(c) })
}

func ask(facts *Facts, plan *Plan, decision *Decision) {
	c, blocked := &Case{Facts: facts, Decision: decision, plan: plan}, false
	for i := range rules {
		r := &rules[i]
		if decision.InFlight && r.asked != ofMachine || r.Else && blocked {
			continue
		}
		if blocked = r.When(c); blocked {
			decision.Blockers = append(decision.Blockers, r.blocker(c))
		}
	}
}

func (r *Rule) blocker(c *Case) Blocker {
	blocker := Blocker{Rule: r.Reason, unjudged: r.unjudged}
	if r.Words != nil {
		blocker.Blocker = r.Words(c)
		blocker.Reason = cmp.Or(blocker.Reason, string(r.Reason))
	}
	return blocker
}

// says returns words without arguments.
func says(words rule.Blocker) func(*Case) rule.Blocker {
	return func(*Case) rule.Blocker { return words }
}

func gated(by health.Gate) func(*Case) bool {
	return func(c *Case) bool { return c.Verdict.State == health.Unknown && c.Verdict.Gate == by }
}

func putOffFor(reason Reason) func(*Case) bool {
	return func(c *Case) bool { return c.PutOff.Reason == reason }
}

// whilePutOff returns the words of a rule that puts off a remediation. {check} stands for the check that has not judged the machine.
func whilePutOff(text, ends string) func(*Case) rule.Blocker {
	return func(c *Case) rule.Blocker {
		words := text
		if unheard := c.Target.unheard(); unheard != nil {
			words = strings.ReplaceAll(text, "{check}", unheard.Check)
		}
		return rule.Blocker{Text: words, Until: c.PutOff.Until, EndsWhen: ends}
	}
}

// updateHolds reports whether an update in place blocks the remediation. It does not if a rule about condition Updating is met or a person
// marked the machine. It ends two hours after the last progress, unless the firmware of the host is being written.
func updateHolds(c *Case) bool {
	cond := health.Updating(c.Target.Machine)
	about := func(finding health.Finding) bool { return finding.Signal.Type == clusterv1.MachineUpdatingCondition }
	if cond == nil || byHand(c.Decision) != 0 || slices.ContainsFunc(c.Verdict.Due(c.Now), about) {
		return false
	}
	until := health.UpdatingUntil(c.Target.Machine, c.Now)
	if until.IsZero() || c.Now.Before(until) {
		return true
	}
	host := c.Target.Host
	return host != nil && host.Serviced || host == nil && OnHost(c.Target.Machine)
}

// loop returns how often Machines of the same owner that never had a node were remediated, and until when the machine waits because of
// them; zero if the machine has had a node, or if a person marked it. Only remediations before the machine's creation count, because
// Machines that are created together fail for one reason.
func (c *Case) loop() (loop repeats.Loop, until time.Time) {
	machine, owner := c.Target.Machine, metav1.GetControllerOfNoCopy(c.Target.Machine)
	if owner == nil || machine.Status.NodeRef.Name != "" || c.Verdict.State != health.Unhealthy || byHand(c.Decision) != 0 {
		return repeats.Loop{}, time.Time{}
	}
	if c.Now.Before(c.FormerAwaited) {
		return repeats.Loop{}, c.FormerAwaited
	}
	before := slices.DeleteFunc(slices.Clone(c.Former[owner.UID]), func(record mendv1.RemediationRecord) bool {
		return record.CreationTimestamp.After(machine.CreationTimestamp.Time)
	})
	loop = repeats.Of(before, machine.CreationTimestamp.Time)
	return loop, loop.Until(c.Verdict.OverdueSince(c.Now), cmp.Or(c.Policy.NodeStartup, 10*time.Minute))
}

func inLoop(c *Case) rule.Blocker {
	loop, until := c.loop()
	owner := metav1.GetControllerOfNoCopy(c.Target.Machine)
	if loop.Times == 0 {
		return rule.Blocker{
			Text: "How often Machines of " + owner.Kind + " " + owner.Name + " were remediated before is not known yet, " +
				"as the manager has just started",
			Until: until, EndsWhen: "their RemediationRecords have been read",
		}
	}
	return rule.Blocker{
		Detail: fmt.Sprintf("remediation %d since %s", loop.Times+1, stamp(loop.Since)), Until: until,
		Text: fmt.Sprintf("The machine never had a node, and neither had the Machines of %s %s that were remediated before it (%d "+
			"since %s). kubemend waits longer before each replacement", owner.Kind, owner.Name, loop.Times, stamp(loop.Since)),
		Fix: "Find out why Machines of " + owner.Kind + " " + owner.Name + " do not start; to have this one replaced now, mark it " +
			"with the annotation " + clusterv1.RemediateMachineAnnotation,
	}
}

func unreachable(c *Case) rule.Blocker {
	fix := "Check the connection from the management cluster to the workload cluster"
	switch c.plan.Reach.Reason {
	case mendv1.KubeconfigRefusedReason:
		fix = "Put the credentials and certificates themselves into the kubeconfig, without paths, programs or a proxy"
	case mendv1.ChangedReason:
		fix = "Confirm the cluster that answers if it is the right one; else correct the kubeconfig or the load balancer"
	}
	return rule.Blocker{Reason: c.plan.Reach.Reason, Text: c.plan.Reach.Message, Fix: fix}
}

func inCycle(c *Case) rule.Blocker {
	cycle := c.Target.Cycle.Kind + " " + c.Target.Cycle.Name
	b := rule.Blocker{
		Detail: cycle, Until: cycleUntil(c.Target.Cycle), EndsWhen: cycle + " is over",
		Object: rule.Ref{Kind: c.Target.Cycle.Kind, Namespace: c.Check.Namespace, Name: c.Target.Cycle.Name},
		Text:   cycle + " is in progress for the machine: no other remediation starts before it is over",
	}
	if !c.Target.Cycle.DeletionTimestamp.IsZero() {
		b.Fix = fmt.Sprintf("%s is being deleted. If that takes long, find out why its finalizer is not removed", cycle)
	}
	return b
}

func withinTimeout(c *Case) rule.Blocker {
	until := c.Verdict.Recheck
	i := slices.IndexFunc(c.Verdict.Findings, func(finding health.Finding) bool { return finding.Due.Equal(until) })
	if until.IsZero() || i < 0 {
		return rule.Blocker{
			Text: "There is no start-up timeout: spec.checks.nodeStartupTimeoutSeconds is 0", Detail: "no start-up timeout", Until: until,
		}
	}
	finding := &c.Verdict.Findings[i]
	timeout := finding.Limit.String()
	if late := finding.Late.Since(); late != "" {
		timeout += ", counted from " + late
	}
	return rule.Blocker{Text: fmt.Sprintf("Its timeout of %s has not expired: %s", timeout, finding.Observed()), Until: until}
}

// unreadUntil returns until when the machine waits because its host, or the power cycles in progress, cannot be read.
func (c *Case) unreadUntil() time.Time {
	if host := c.Target.Host; host != nil && host.UnreadUntil.After(c.CyclesUnread) {
		return host.UnreadUntil
	}
	return c.CyclesUnread
}

func (c *Case) awaitsSpare(text, endsWhen string) rule.Blocker {
	return rule.Blocker{
		Text: text, Until: c.Spare.Until, EndsWhen: endsWhen,
		Brief: "It waits until " + endsWhen + ": the condition " + mendv1.SpareHostAvailable + " says what is free",
		Next:  "kubemend " + c.Action(c.Target.Machine) + ", or as soon as a host fits its replacement",
	}
}

func (c *Case) noSpare() string {
	spare := c.Spare
	switch {
	case spare.Free == 0:
		return "No spare host fits its replacement: no host is free"
	case spare.Fit == 0:
		return fmt.Sprintf("No spare host fits its replacement: of %d free none has the labels that its hostSelector asks for", spare.Free)
	}
	fit, others := "fit", "machines that wait for a host may need them"
	if spare.Fit == 1 {
		fit = "fits"
	}
	if spare.Expected == 1 {
		others = "machine that waits for a host may need it"
	}
	return fmt.Sprintf("No spare host is left for its replacement: %d of %d free %s, and %d other %s",
		spare.Fit, spare.Free, fit, spare.Expected, others)
}

// arithmetic returns why too many or too few machines are unhealthy: the sentence of Cluster API with today's field name, and the counts.
func (c *Case) arithmetic() string {
	population, spelled := &c.plan.Population, c.Check.Spec.Remediation.TriggerIf.UnhealthyInRange
	sum := fmt.Sprintf("%d of %d targets are not healthy", population.NotHealthy(), population.Total())
	if population.Unread == 0 {
		sum += fmt.Sprintf(": %d unhealthy, %d pending, %d starting, %d being deleted, %d unknown",
			population.Unhealthy, population.Pending, population.Starting, population.Deleting, population.Unknown)
	}
	if spelled != "" {
		return fmt.Sprintf("the number of not started or unhealthy machines does not fall within the range "+
			"(total: %d, unhealthy: %d, unhealthyInRange: %s). %s; the range allows %d to %d",
			population.Total(), population.Unhealthy, spelled, sum, c.Limits.AtLeast, c.Limits.AtMost)
	}
	limit := MostUnhealthy(c.Check)
	return fmt.Sprintf("the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo "+
		"(total: %d, unhealthy: %d, unhealthyLessThanOrEqualTo: %s). %s; %s of %d allows %d",
		population.Total(), population.Unhealthy, limit, sum, limit, population.Total(), c.Limits.AtMost)
}

func (facts *Facts) noTemplate() string { return "No request can be made: " + facts.Template.Missing }

// foreignRequest returns why no request is created for target: another request has its name.
func (facts *Facts) foreignRequest(target *Target) string {
	request := facts.Template.Kind + " " + target.Request.Name
	owns := func(owner metav1.OwnerReference) bool { return owner.UID == target.UID }
	if !slices.ContainsFunc(target.Request.OwnerReferences, owns) {
		return fmt.Sprintf("%s exists and is for another Machine: it does not name the UID %s of this one", request, target.UID)
	}
	return request + " exists and was not made by this MachineHealthCheck"
}

func (facts *Facts) template() string {
	return strings.TrimSpace(facts.Template.TemplateKind + " " + facts.Template.Name)
}

// templateRef returns the template of the check; zero if the check names none.
func (facts *Facts) templateRef() rule.Ref {
	if facts.Template.Name == "" {
		return rule.Ref{}
	}
	return rule.Ref{Kind: facts.Template.TemplateKind, Namespace: facts.Check.Namespace, Name: facts.Template.Name}
}

// notHealthy returns "wanted of all targets are not healthy", and how many are now.
func (c *Case) notHealthy(wanted int) string {
	population, are := &c.plan.Population, "are"
	if wanted == 1 {
		are = "is"
	}
	return fmt.Sprintf("%d of %d %s not healthy (now %d)", wanted, population.Total(), are, population.NotHealthy())
}

func (c *Case) counts() string {
	return "the condition " + RemediationAllowed + " of MachineHealthCheck " + c.Check.Name + " has the numbers"
}
