// Package capacity says what the capacity of a machine that is being replaced waits for, and until when.
//
// It reads the conditions that Cluster API and its providers set on the old Machine (Deleting), on its owner (ScalingUp, Remediating), on
// the new Machine (BootstrapConfigReady, InfrastructureReady, NodeReady) and the state of a BareMetalHost, and quotes them. It writes
// nothing. It reads with the rights of its caller: what could not be read is in Unread, and is never taken for missing.
package capacity

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The stages, in their order. Of the last three, Back and NotReplaced are ends.
const (
	OwnerActs               = "OwnerActs"
	Deleting                = "Deleting"
	NoReplacement           = "NoReplacement"
	WaitingForBootstrapData = "WaitingForBootstrapData"
	NoHostFits              = "NoHostFits"
	Provisioning            = "Provisioning"
	Booting                 = "Booting"
	NodeNotReady            = "NodeNotReady"
	Unread                  = "Unread"
	Back                    = "Back"
	NotReplaced             = "NotReplaced"
)

// StageTexts are the stages as headings of a page.
var StageTexts = map[string]string{
	OwnerActs: "the owner acts", Deleting: "being deleted", NoReplacement: "no new machine",
	WaitingForBootstrapData: "waiting for bootstrap data", NoHostFits: "no host fits", Provisioning: "provisioning", Booting: "booting",
	NodeNotReady: "node not Ready", Unread: "not known", Back: "back", NotReplaced: "not replaced",
}

// Story is what the capacity of a machine waits for, or how the wait has ended.
type Story struct {
	Stage string
	// Reason is what is waited for. Where a partner has a reason for it, it is the partner's.
	Reason string
	// Old is the machine that was lost, Machine the one that the stage is about: the old one, or the one that replaces it.
	Old, Machine string
	// Owner makes the new machine. WaitsFor is the object that is waited for; without a name it is none.
	Owner, WaitsFor rule.Ref
	// Replacement is the new machine; without a name there is none.
	Replacement Replacement
	// New is the Machine of Replacement, if it was read; Host is its BareMetalHost, Healthy reports that its node is Ready and no check
	// marks it.
	New     *clusterv1.Machine
	Host    string
	Healthy bool
	// Ready is how many machines of the owner have a Ready node, of one that has replaced them all.
	Ready int
	// Since is when the wait began. Deadline is when it ends by itself, or when a check counts the new machine as unhealthy, which follows
	// from Timeout.
	Since, Deadline time.Time
	Timeout         time.Duration
	Overdue         bool
	// Message is what is waited for, as a clause.
	Message string
	// Next is what comes next. Hint is what a user can do in this wait, and Todo is the same once the wait has lasted too long.
	Next, Todo, Hint rule.Step
	// Hosts are why none of the BareMetalHosts is taken.
	Hosts  []cliv1.HostRefusal
	Unread []string
}

// Ended reports whether nothing more is waited for.
func (s *Story) Ended() bool { return s.Stage == Back || s.Stage == NotReplaced }

// AwaitsNode reports whether nothing but the node itself is waited for: a check that selects it has to remediate it, or a user.
func (s *Story) AwaitsNode() bool {
	return s.Stage == NodeNotReady && (s.Reason == NodeNotReadyReason || s.Reason == Disconnected)
}

// Document is s for programs.
func (s *Story) Document() cliv1.Capacity {
	document := cliv1.Capacity{
		Machine: s.Old, About: s.Machine, Stage: s.Stage, Reason: s.Reason,
		Since: cliv1.Moment(s.Since), Deadline: cliv1.Moment(s.Deadline), Overdue: s.Overdue, Hosts: s.Hosts, Unread: s.Unread,
		Next: s.Next, Todo: s.Todo, Message: s.Message,
	}
	if s.Owner.Name != "" {
		document.Owner = new(s.Owner)
	}
	if s.WaitsFor.Name != "" {
		document.WaitsFor = new(s.WaitsFor)
	}
	if by := s.Replacement; by.Name != "" {
		document.Replacement = &cliv1.Replacement{Name: by.Name, By: by.By, Guess: by.Guess()}
	}
	return document
}

// What tells which machine replaces which.
const (
	// Recorded: its owner has written it down, as KubeadmControlPlanes do. All others are guesses.
	Recorded = "Recorded"
	// Remembered: a RemediationRecord has it.
	Remembered = "Remembered"
	// SameHost: it has the host that the old one had.
	SameHost = "SameHost"
	// Alone: the owner has lost one machine, and made one since.
	Alone = "Alone"
	// ByOrder: the owner has lost several, and made them in some order.
	ByOrder = "ByOrder"
)

// guessedBy is how a guess was made, in words.
var guessedBy = map[string]string{
	Remembered: "by the RemediationRecord of that machine", SameHost: "it has the same host",
	Alone: "it is the only one that its owner has made since", ByOrder: "by the order in which machines were lost and made",
}

// Replacement is a machine that replaces another, or of which another takes the place, and how it was found.
type Replacement struct{ Name, By string }

// Guess reports whether that is not written down.
func (r Replacement) Guess() bool { return r.Name != "" && r.By != Recorded }

// Of says that r replaces the machine old, as a clause; empty if there is none.
func (r Replacement) Of(old string) string {
	switch {
	case r.Name == "" || old == "":
		return ""
	case !r.Guess():
		return "Machine " + r.Name + " replaces Machine " + old
	}
	return "Machine " + r.Name + " probably replaces Machine " + old + " (" + guessedBy[r.By] + ")"
}

// Predecessor is the name of r as that of a machine that another replaces.
func (r Replacement) Predecessor() string {
	if !r.Guess() {
		return r.Name
	}
	return "probably " + r.Name + " (" + guessedBy[r.By] + ")"
}
