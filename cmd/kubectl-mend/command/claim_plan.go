package command

import (
	"cmp"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	decide "github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// way is which way checks are handed.
type way string

const (
	claiming  way = "claim"   // from Cluster API core to kubemend
	releasing way = "release" // back
)

// claimFacts are all that the plan is made from.
type claimFacts struct {
	managers []managerlease.Manager
	unlisted explain.Unlisted
	core     explain.CoreLease
	checks   []explain.ClaimedCheck
}

// planHanding returns what becomes of each check, by namespace and name. Force goes on where it is not known whether a controller would act on it.
func planHanding(w way, f claimFacts, force bool) []explain.Claim {
	claims := make([]explain.Claim, 0, len(f.checks))
	for _, check := range f.checks {
		c := explain.Claim{ClaimedCheck: check, Release: w == releasing, Core: f.core}
		c.Reason = f.decide(&c)
		c.Forced = force && c.Unseen()
		claims = append(claims, c)
	}
	slices.SortFunc(claims, func(a, b explain.Claim) int {
		return cmp.Or(cmp.Compare(a.Check.Namespace, b.Check.Namespace), cmp.Compare(a.Check.Name, b.Check.Name))
	})
	return claims
}

// decide returns whether a check is claimed or released, and adds to c which managers that depends on.
func (f claimFacts) decide(c *explain.Claim) explain.ClaimReason {
	value, paused := c.Check.Annotations[clusterv1.PausedAnnotation]
	claimed := paused && value == mendv1.Claim
	switch {
	case !c.Check.DeletionTimestamp.IsZero():
		return explain.CheckDeleting
	case paused && !claimed:
		return explain.PausedByUser
	case !c.Release && claimed:
		return explain.AlreadyClaimed
	case c.Release && !claimed:
		return explain.AlreadyReleased
	case !c.Release:
		return f.takes(c)
	}
	return f.gives(c)
}

// gives returns whether Cluster API core, and it alone, would act on the check once it is released.
func (f claimFacts) gives(c *explain.Claim) explain.ClaimReason {
	plan, unclaimed := decide.Decide(c.Labels), f.actsOnUnclaimed(c)
	switch {
	case plan.Reason == decide.AlreadyClaimed, plan.Reason == decide.ClaimedByHand:
		return explain.LabelAsks
	case unclaimed == explain.ActsOnUnclaimed:
		return unclaimed
	case plan.Reason == decide.LabelUnread:
		return explain.UnseenLabel
	case f.core.Unseen() && unclaimed == explain.UnseenUnclaimed:
		return explain.UnseenCoreAndManagers
	case f.core.Unseen():
		return explain.UnseenCore
	case !f.core.Alive:
		return explain.CoreNotRunning
	}
	return unclaimed
}

// actsOnUnclaimed returns whether a manager of kubemend would act on the check although it is released, beside Cluster API core.
func (f claimFacts) actsOnUnclaimed(c *explain.Claim) explain.ClaimReason {
	seen := false
	for _, m := range f.managers {
		switch off := m.StandsOff(c.Check, c.Cluster); {
		case off.Unknown():
			c.Managers = append(c.Managers, off)
		case off.Reason == "" && m.Announcement.Unclaimed == "act":
			c.Manager = m.Namespace
			return explain.ActsOnUnclaimed
		case off.Reason == "":
			seen = true // it is the one of this check
		}
	}
	if !seen {
		c.Unlisted = f.unlisted
	}
	if len(c.Managers) == 0 && c.Unlisted.Err == nil {
		return explain.Changes
	}
	return explain.UnseenUnclaimed
}

// takes returns whether a manager of kubemend would act on the check once it is claimed.
func (f claimFacts) takes(c *explain.Claim) explain.ClaimReason {
	unknown := false
	for _, m := range f.managers {
		off := m.StandsOff(c.Check, c.Cluster)
		if off.Reason == "" {
			return explain.Changes
		}
		c.Managers = append(c.Managers, off)
		unknown = unknown || off.Unknown()
	}
	c.Unlisted = f.unlisted
	switch {
	case f.unlisted.Err != nil, managerlease.NoneSeen(f.managers): // one that runs outside of the cluster may have been unable to say so
		return explain.UnseenManagers
	case unknown:
		return explain.UnseenTakes
	}
	return explain.NoManagerTakes
}
