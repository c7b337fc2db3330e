package explain

import (
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Part is the part of a check's description that a blocker of one of its targets repeats.
type Part int

const (
	// OfTarget is a blocker that is about the target alone.
	OfTarget Part = iota
	// SameAsMode repeats ModeMessage.
	SameAsMode
	// SameAsNodesUnknown repeats NodesUnknown.
	SameAsNodesUnknown
	// SameAsLimit repeats Reason and Message.
	SameAsLimit
)

// PartOf is the part of c that b, which blocks one of its targets, repeats.
func (c *Check) PartOf(b *Blocker) Part {
	switch {
	case b.Reason == NoManager, b.Reason == NotServed, b.Reason == NotActing:
		return SameAsMode
	case b.Cause == NodesUnread, b.Reason == mendv1.UnreachableReason, b.Reason == mendv1.KubeconfigRefusedReason,
		b.Reason == mendv1.NotInitializedReason, b.Reason == mendv1.ChangedReason:
		return SameAsNodesUnknown
	case b.Reason == c.Blocked():
		return SameAsLimit
	}
	return OfTarget
}

// TextHasMode reports whether Message says what ModeMessage says.
func (c *Check) TextHasMode() bool {
	return c.Reason == mendv1.ClusterNotFoundReason || c.Reason == mendv1.InvalidSelectorReason
}
