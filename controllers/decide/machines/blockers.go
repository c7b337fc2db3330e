package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// own are the blockers of a machine itself, as one reads them. They do not depend on any other machine.
func own(f *Facts, p *Plan, d *Decision) []Blocker {
	t := d.Target
	var all []Blocker
	block := func(reason Reason, until time.Time) { all = append(all, Blocker{Reason: reason, Until: until}) }
	if t.Deleting {
		block(MachineDeleting, time.Time{})
	}
	if t.Older {
		block(OlderCheckActs, time.Time{})
	}
	if f.Mode != Active {
		block(NotActing, time.Time{})
	}
	all = append(all, notJudged(p, d)...)
	all = append(all, notDue(d)...)
	if d.InFlight {
		return all
	}
	if t.Updating && byHand(d) == 0 { // marking it by hand is the way out of an update that never ends
		block(MachineUpdating, time.Time{})
	}
	switch {
	case t.Deleting:
	case t.Cycle != nil:
		block(PowerCycleInProgress, t.Cycle.Until)
	case t.OnHost && !f.CyclesUnread.IsZero():
		block(PowerCyclesUnread, f.CyclesUnread)
	}
	return all
}

// notJudged is why a machine could not be judged.
func notJudged(p *Plan, d *Decision) []Blocker {
	if d.Verdict.State != health.Unknown {
		return nil
	}
	switch {
	case d.Verdict.Gate == health.ControlPlaneNotInitialized:
		return []Blocker{{Reason: ControlPlaneNotInitialized}}
	case d.Verdict.Gate == health.InfrastructureNotReady:
		return []Blocker{{Reason: InfrastructureNotReady}}
	case p.Reach.Status != conditionTrue:
		return []Blocker{{Reason: ClusterUnreachable}}
	case d.Verdict.Doubted(health.NotSincePause):
		return []Blocker{{Reason: AwaitsClusterAPI}}
	case d.Target.Deleting:
		return nil // its node is not looked for
	}
	return []Blocker{{Reason: NodeNotSeen}}
}

// notDue is until when the timeout of a machine lasts; one that starts may have none.
func notDue(d *Decision) []Blocker {
	v := &d.Verdict
	switch {
	case v.State == health.Unhealthy:
		return nil
	case v.State == health.Starting && v.Doubted(health.NotSincePause):
		return []Blocker{{Reason: AwaitsClusterAPI}}
	case v.State != health.Starting && v.Recheck.IsZero():
		return nil
	}
	return []Blocker{{Reason: WithinTimeout, Until: v.Recheck}}
}

// unrequestable is why no request can be made for a machine, as far as that is known before the template is read.
func unrequestable(f *Facts, t *Target) []Blocker {
	var all []Blocker
	if t.Request == ForeignRequest {
		all = append(all, Blocker{Reason: RequestInTheWay})
	}
	switch {
	case f.Template.Unread:
		all = append(all, Blocker{Reason: TemplateUnread})
	case f.Template.Refused:
		all = append(all, Blocker{Reason: TemplateRefused})
	case f.Template.Missing != "":
		all = append(all, Blocker{Reason: TemplateMissing})
	case !f.Template.Known:
		all = append(all, Blocker{Reason: RequestsUnread})
	}
	return all
}

// notGranted is why the limits keep a machine from being remediated. One that is not due yet comes after those that wait.
func notGranted(f *Facts, p *Plan, d *Decision) []Blocker {
	ahead := p.Population.InFlight + p.Population.Waiting
	if d.Waits {
		ahead--
	}
	switch {
	case f.Invalid:
		return []Blocker{{Reason: InvalidLimit}}
	case p.Grant.Reason == budget.TooMany:
		return []Blocker{{Reason: TooManyUnhealthy}}
	case p.Grant.Reason == budget.TooFew:
		return []Blocker{{Reason: TooFewUnhealthy}}
	case p.Grant.Reason == budget.CoolingDown:
		return []Blocker{{Reason: CoolingDown, Until: p.Storm.Recheck}}
	case f.Limits.InFlight == 0:
		return []Blocker{{Reason: NoneAtOnce}}
	case f.queueUnread():
		return []Blocker{{Reason: QueueUnread}}
	case f.Limits.InFlight != budget.Unlimited && ahead >= f.Limits.InFlight && !d.Tried:
		return []Blocker{{Reason: RemediationsInProgress}}
	}
	return nil
}
