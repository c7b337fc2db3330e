package hostremediation

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/workload"
)

// apply carries step out, stores all steps that were taken in one write, and reports them. It returns whether step was done.
func (r *Reconciler) apply(ctx context.Context, obs *observed, step powercycle.Step) (bool, error) {
	if obs.idle != "" {
		return false, r.writeStatus(ctx, obs, step, nil)
	}
	defer r.retain(obs)
	done, err := r.take(ctx, obs, step)
	if err != nil && !errors.Is(err, consistency.ErrStale) && !apierrors.IsConflict(err) {
		err = fmt.Errorf("%s: %w", step.Do, err)
	}
	return done, err
}

func (r *Reconciler) take(ctx context.Context, obs *observed, step powercycle.Step) (bool, error) {
	r.recorded(ctx, obs, step)
	// The remediation of a control-plane host is stored as begun before it acts on the host. The next reconcile reads the queue again. So
	// if two remediations begin at the same time, even with two managers, each sees the other.
	if obs.inPlane() && (step.Do == powercycle.KeepOff || step.Do == powercycle.Reboot) && len(obs.taken) > 0 {
		if err := client.IgnoreNotFound(r.store(ctx, obs)); err != nil {
			return true, err
		}
		r.report(ctx, obs, false)
		return true, r.writeStatus(ctx, obs, obs.taken[len(obs.taken)-1].step, nil)
	}
	carryOut := r.actAndStore
	if step.Do.Intended() && step.Next == obs.facts.State { // else the next reconcile would be in another state, and not repeat the action
		carryOut = r.storeAndAct
	}
	step, done, err := carryOut(ctx, obs, step)
	r.report(ctx, obs, done)
	if apierrors.IsConflict(err) {
		return done, err // the status could not be written either
	}
	if statusErr := r.writeStatus(ctx, obs, obs.settled(step, done), err); err == nil {
		err = statusErr
	}
	return done, err
}

// storeAndAct stores the step, and then carries it out. It returns whether it was done.
func (r *Reconciler) storeAndAct(ctx context.Context, obs *observed, step powercycle.Step) (powercycle.Step, bool, error) {
	if step.Do == powercycle.Fence {
		obs.record.Pods = obs.seen.Pods
	}
	err := r.took(obs, step)
	storeErr := r.store(ctx, obs)
	switch {
	case apierrors.IsNotFound(storeErr) && step.Do == powercycle.Release: // releasing the host is always right
	case apierrors.IsNotFound(storeErr):
		return step, false, nil // the remediation is gone
	case apierrors.IsConflict(storeErr) && !obs.kept.conflicted: // the decision was based on a stale object
		obs.kept.conflicted = true
		return step, false, storeErr
	case storeErr != nil && step.Do == powercycle.Release:
		// A host must not stay off because its remediation cannot be written, for example because another client rewrites it in a loop.
		// This process keeps the record until it can be stored. The annotation that ReleaseUnstored leaves on the host shows that the
		// remediation is not over, so that no other one begins.
		obs.keep(obs.stored.Annotations)
		return step, false, errors.Join(storeErr, r.Hosts.ReleaseUnstored(ctx, obs.found.Host, obs.record.By(obs.rem), obs.record.Attempt))
	case storeErr != nil:
		return step, false, storeErr
	}
	if err != nil {
		return step, false, err
	}
	done, err := r.act(ctx, obs, step)
	return step, done, err
}

// actAndStore carries step out, and then stores it. It returns the step that the status shows, and whether step was done. After an Unfence
// it decides again, and stores what follows at once (such as that the host counts as on) in the same write.
func (r *Reconciler) actAndStore(ctx context.Context, obs *observed, step powercycle.Step) (powercycle.Step, bool, error) {
	done, err := r.act(ctx, obs, step)
	if done {
		err = r.took(obs, step)
	}
	if next := step; done && err == nil && step.Do == powercycle.Unfence {
		obs.unfenced = &fence.Seen{Presence: obs.seen.Presence, Node: obs.seen.Node, Deleting: obs.seen.Deleting, Sign: obs.seen.Sign}
		if err = r.stateFacts(ctx, obs); err == nil {
			next, err = r.decide(ctx, obs)
		}
		if err == nil && (next.Do == powercycle.Wait || next.Do == powercycle.DropFinalizer) {
			step, err = next, r.took(obs, next)
		}
	}
	if storeErr := client.IgnoreNotFound(r.store(ctx, obs)); err == nil {
		err = storeErr
	}
	return step, done, err
}

// settled returns the step for the status. If step was done and its effect is awaited, that is the wait, which saves a write for each step.
func (obs *observed) settled(step powercycle.Step, done bool) powercycle.Step {
	if !done || step.Do == powercycle.Wait {
		return step
	}
	memory := obs.record.Memory
	obs.facts = powercycle.Expect(obs.facts, step, obs.now)
	obs.facts.Memory = memory
	if next := powercycle.Next(obs.facts, obs.policy, obs.now); next.Do == powercycle.Wait {
		return next
	}
	return step
}

// took makes obs and its remediation remember that step was, or will be, carried out. Nothing is written.
func (r *Reconciler) took(obs *observed, step powercycle.Step) error {
	obs.remember(step)
	err := r.mark(obs, step)
	obs.taken = append(obs.taken, taken{*obs, step})
	return err
}

func (obs *observed) remember(step powercycle.Step) {
	obs.record.Memory = powercycle.After(obs.facts, step, obs.now)
	obs.kept.held = obs.record.Held
	if obs.record.Cause != obs.facts.Cause {
		obs.record.Cause.Said = obs.cycle().CauseDetails(step)
	}
}

// errChanged says that the facts on which a step was decided have changed.
var errChanged = errors.New("the host has changed meanwhile")

// act carries a step out, unless the step only changes the memory. It returns false if another client has changed the object, so that the
// step has to be decided again: a host that belongs to another machine now must not be powered off.
func (r *Reconciler) act(ctx context.Context, obs *observed, step powercycle.Step) (bool, error) {
	var err error
	bmh, by := obs.found.Host, obs.record.By(obs.rem)
	switch step.Do {
	case powercycle.KeepOff:
		err = r.Hosts.KeepOff(ctx, bmh, by)
	case powercycle.AskReceipt:
		err = r.Hosts.AskReceipt(ctx, bmh, by, obs.record.Asked)
	case powercycle.Reboot:
		err = r.Hosts.Reboot(ctx, bmh, by, obs.record.Attempt)
	case powercycle.Release:
		err = r.Hosts.Release(ctx, bmh, by)
	case powercycle.MarkHost, powercycle.Disprove:
		err = r.markHost(ctx, obs, step.Do)
	case powercycle.Fence:
		err = r.fence(ctx, obs)
	case powercycle.Unfence:
		soon, end := context.WithTimeout(ctx, workload.AnswerWithin)
		defer end()
		err = r.Nodes.Unfence(soon, client.ObjectKeyFromObject(obs.cluster), obs.seen.Node, r.signs(obs))
	case powercycle.RequestOwner:
		err = remediation.RequestOwner(ctx, r.Client, obs.machine, obs.now)
	case powercycle.Withdraw: // the owner first: it must not replace a healthy machine
		err = remediation.WithdrawFromOwner(ctx, r.Client, obs.machine)
		if err == nil && bmh != nil {
			err = r.Hosts.MarkHealthy(ctx, bmh, obs.machine.UID)
		}
	}
	if apierrors.IsConflict(err) || errors.Is(err, errChanged) {
		return false, nil
	}
	if err == nil {
		obs.noteDone(step)
	}
	return err == nil, err
}

// markHost reads the host again and marks it, if it exists and is still the machine's.
func (r *Reconciler) markHost(ctx context.Context, obs *observed, do powercycle.Action) error {
	if obs.found.Host == nil {
		return nil
	}
	err := r.Hosts.Refresh(ctx, &obs.found)
	switch {
	case err != nil:
		return err
	case obs.found.Is != powercycle.HostOurs && do == powercycle.MarkHost:
		return errChanged
	case obs.found.Is != powercycle.HostOurs:
		return nil
	case do == powercycle.Disprove:
		return r.Hosts.Disprove(ctx, obs.found.Host, obs.now)
	}
	return r.Hosts.MarkUnhealthy(ctx, obs.found.Host, obs.machine.UID)
}

// fence fences the node, if the host is still off and kept off: time has passed since the host was read.
func (r *Reconciler) fence(ctx context.Context, obs *observed) error {
	if err := r.unchanged(ctx, obs); err != nil {
		return err
	}
	soon, end := context.WithTimeout(ctx, fenceWithin)
	defer end()
	return r.Nodes.Fence(soon, client.ObjectKeyFromObject(obs.cluster), obs.seen.Node, r.signs(obs))
}

// unchanged reads the host past the cache, and returns errChanged unless the host is as it was when the step was decided.
func (r *Reconciler) unchanged(ctx context.Context, obs *observed) error {
	if err := r.Hosts.Refresh(ctx, &obs.found); err != nil {
		return err
	}
	host, before := obs.found.Host, obs.facts.Power
	ours := obs.found.Is == powercycle.HostOurs
	if !ours || !host.Same(before) || host.Said.Before(before.Said) || obs.marks().KeptOff != obs.facts.KeptOff {
		return errChanged
	}
	return nil
}

// signs returns the remediation as the owner of a fence.
func (r *Reconciler) signs(obs *observed) fence.Owner {
	by := obs.record.By(obs.rem)
	owner := fence.Owner{
		UID: by.UID, Unsigned: obs.record.TakenOver && r.Kind.SignsNothing(),
		Fences: obs.record.State == powercycle.MovingWorkload, Found: obs.record.Pods,
		BootID: obs.record.BootID, On: obs.facts.PoweredOn && obs.record.State != powercycle.MovingWorkload,
		Long: !obs.record.FencedAt.IsZero() && !obs.now.Before(obs.record.FencedAt.Add(obs.policy.Move)),
	}
	for _, uid := range []types.UID{by.Before, obs.predecessor} {
		if uid != "" {
			owner.Former = append(owner.Former, uid)
		}
	}
	return owner
}
