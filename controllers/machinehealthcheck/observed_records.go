package machinehealthcheck

import (
	"context"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/records"
)

// shadow is a remediation of a machine of a check that is only observed, of which there is to be a record: one that kubemend would begin
// now, or that others have begun.
type shadow struct {
	place int // of the target
	// key tells it from other remediations of the machine, as the API server keeps it.
	key string
	// begun is when others began it; zero if they did not. By is what carries it out then.
	begun time.Time
	by    mendv1.RecordRemediator
}

// shadows are the keys of those of which there are records, by the UIDs of the machines.
type shadows map[types.UID]string

// recordObserved makes sure that there are records of what kubemend would begin now and of what others have begun, of a check that is only
// observed. While there is neither it reads nothing. It returns of which there are records.
func (r *Reconciler) recordObserved(ctx context.Context, state *observed, plan *machines.Plan) shadows {
	switch {
	case r.Records == nil || state.Mode != machines.Observed:
		return nil
	case !state.Settled() || state.Template.Syncing: // what would begin is not known
		return state.before.shadows
	}
	recorded := shadows{}
	others := begunByOthers(plan)
	fresh := state.unrecorded(others, recorded)
	if len(fresh) == 0 && (plan.Grant.Start == 0 || plan.Population.Waiting == 0) {
		return recorded
	}
	alone, would := r.decideAlone(ctx, state, fresh)
	fresh = slices.DeleteFunc(fresh, func(s shadow) bool { // what blocks it is known later
		return would.Decisions[s.place].Blocked(machines.PowerCyclesUnread)
	})
	for _, i := range would.Open {
		if d := would.Decisions[i]; d.Starts() && !slices.ContainsFunc(others, func(s shadow) bool { return s.place == i }) {
			fresh = append(fresh, state.unrecorded([]shadow{{place: i, key: "unhealthy " + healthSaid(state.Targets[i].Machine)}}, recorded)...)
		}
	}
	written := make([]bool, len(fresh))
	var work errgroup.Group
	work.SetLimit(writers)
	for n, s := range fresh {
		work.Go(func() error {
			written[n] = r.recordShadow(ctx, alone, would, s)
			return nil
		})
	}
	_ = work.Wait() // what fails is tried again by the next reconcile
	for n, s := range fresh {
		if written[n] {
			recorded[state.Targets[s.place].Machine.UID] = s.key
		}
	}
	return recorded
}

// begunByOthers are the remediations of targets that were begun: their owners were asked, or there are requests for them. One
// that this manager began while it acted on the check has a record, which its request names.
func begunByOthers(plan *machines.Plan) []shadow {
	var begun []shadow
	for _, i := range plan.Open {
		switch target := plan.Decisions[i].Target; {
		case target.OlderCheck != "": // the older check records it
		case machines.OwnerOf(target.Machine) != machines.NotAsked:
			asked := machines.ConditionOf(target, machines.OwnerRemediated).LastTransitionTime
			key := "owner " + strconv.FormatInt(asked.Unix(), 10)
			begun = append(begun, shadow{place: i, key: key, begun: asked.Time, by: mendv1.RemediatedByOwner})
		case target.Request != nil && !target.RequestDeleting() && target.Request.Annotations[mendv1.RecordAnnotation] == "":
			req := target.Request
			key := "request " + string(req.UID)
			begun = append(begun, shadow{place: i, key: key, begun: req.CreationTimestamp.Time, by: mendv1.RemediatedByRequest})
		}
	}
	return begun
}

// unrecorded are those of begun of which this process knows no record. The others are added to recorded.
func (state *observed) unrecorded(begun []shadow, recorded shadows) []shadow {
	var fresh []shadow
	for _, s := range begun {
		if id := state.Targets[s.place].Machine.UID; state.before.shadows[id] == s.key {
			recorded[id] = s.key
		} else {
			fresh = append(fresh, s)
		}
	}
	return fresh
}

// decideAlone is the plan for state as if kubemend acted on the check, and as if others had not begun what they have; and what it was
// decided on.
func (r *Reconciler) decideAlone(ctx context.Context, state *observed, begun []shadow) (*observed, *machines.Plan) {
	alone := *state
	alone.Mode, alone.Targets = machines.Active, slices.Clone(state.Targets)
	for i, target := range state.Targets {
		copied := *target // what is read for this plan alone is not known of state
		alone.Targets[i] = &copied
	}
	for _, s := range begun {
		alone.Targets[s.place] = alone.Targets[s.place].Unbegun()
	}
	return &alone, r.decide(ctx, &alone)
}

// recordShadow makes sure that there is a record of s, and reports whether there is. would is what kubemend would do, decided on state.
func (r *Reconciler) recordShadow(ctx context.Context, state *observed, would *machines.Plan, s shadow) bool {
	d := would.Decisions[s.place]
	record := recordOf(state, step{Decision: d, population: would.Population}, records.HostOf(ctx, r.Metal, d.Target.Machine))
	record.Spec.Mode = mendv1.RecordObserved
	if !s.begun.IsZero() {
		record.Spec.Remediator, record.Spec.BlockedBy = s.by, blockedBy(d)
	}
	return r.Records.Beside(ctx, checkKind, record, s.key, s.begun)
}

// blockedBy is why kubemend would not begin what others have begun; empty if it would. That it would wait for a tenth of a second is no
// reason.
func blockedBy(decision *machines.Decision) string {
	for _, blocker := range decision.Blockers {
		switch blocker.Rule {
		case machines.JustSeen:
			continue
		case machines.NotUnhealthy, machines.WithinTimeout:
			return unhealthyNot[decision.Verdict.State]
		}
		return string(blocker.Rule)
	}
	return ""
}

// unhealthyNot are the states of machines that are not to be remediated, as records have them.
var unhealthyNot = map[health.State]string{
	health.Healthy: "Healthy", health.Pending: "Pending", health.Starting: "Starting", health.Unknown: "Unknown",
}
