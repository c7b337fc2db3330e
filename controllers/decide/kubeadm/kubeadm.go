// Package kubeadm decides why a KubeadmControlPlane does not replace a machine yet, and until when. It follows Cluster API v1.14.2
// (controlplane/kubeadm/reconcilers/kubeadmcontrolplane/remediation.go) in the order in which that asks.
//
// It decides nothing that kubemend does. What it has no reason for, the KubeadmControlPlane says in its own words.
package kubeadm

import "time"

// Facts are what is known of a machine that its KubeadmControlPlane was asked to replace, and has not.
type Facts struct {
	Now time.Time
	// Asked is since when it has been asked. Refused reports that it answers that it cannot, and not that it has put that off.
	Asked   time.Time
	Refused bool
	// Initialized reports that the control plane is initialized. Machines is how many it has. Provisioning are the healthy ones without a node, Deleting
	// those that are being deleted, by name.
	Initialized            bool
	Machines               int
	Provisioning, Deleting []string
	// InProgress is the machine that it has deleted, and has made no other for; empty if there is none.
	InProgress string
	// Last is the remediation that the machine was made by; zero if it was made by none.
	Last  Remediation
	Rules Rules
}

// Remediation is what a machine says of the one that it replaced.
type Remediation struct {
	// At is when that was deleted, and Retries how many failed before.
	At      time.Time
	Retries int
}

// Rules are the spec.remediation of a KubeadmControlPlane.
type Rules struct {
	// MaxRetry is how many retries there are; negative if there is no limit.
	MaxRetry int
	// RetryPeriod is the time from one to the next. After MinHealthy without one a failure is a new one, and its retries are counted from zero.
	RetryPeriod, MinHealthy time.Duration
}

// Reason is why the machine is not replaced yet.
type Reason string

// The reasons.
const (
	// WithinRetryPeriod means that the last remediation is not long enough ago. It may go on at Answer.Until.
	WithinRetryPeriod Reason = "WithinRetryPeriod"
	// RetriesExhausted means that all retries have failed. They are counted anew from Answer.Until on.
	RetriesExhausted Reason = "RetriesExhausted"
	// RetryDue means that either wait is over, and the KubeadmControlPlane has not reconciled since: no timer of its own makes it.
	RetryDue Reason = "RetryDue"
	// OnlyMachine means that it has no other.
	OnlyMachine Reason = "OnlyMachine"
	// OthersProvisioning and OthersDeleting mean that the machines Answer.Others have no node yet, or are being deleted.
	OthersProvisioning Reason = "OthersProvisioning"
	OthersDeleting     Reason = "OthersDeleting"
	// OtherReplaced means that it is replacing the machine Answer.Others, and does nothing about others before it has made the new one.
	OtherReplaced Reason = "OtherReplaced"
)

// Answer is why the machine is not replaced yet; without a reason that is not known.
type Answer struct {
	Reason Reason
	// Until is before when it certainly is not; zero if that is not known.
	Until  time.Time
	Others []string
}

// Decide returns why the machine is not replaced yet.
func Decide(f Facts) Answer {
	if f.InProgress != "" { // that is asked first of all
		return Answer{Reason: OtherReplaced, Others: []string{f.InProgress}}
	}
	if a := retry(f); a.Reason != "" {
		return a
	}
	switch {
	case !f.Initialized:
	case f.Refused && f.Machines <= 1:
		return Answer{Reason: OnlyMachine}
	case f.Refused: // the loss would cost the majority of etcd, say
	case len(f.Provisioning) > 0:
		return Answer{Reason: OthersProvisioning, Others: f.Provisioning}
	case len(f.Deleting) > 0:
		return Answer{Reason: OthersDeleting, Others: f.Deleting}
	}
	return Answer{}
}

// retry is what the limits of retries say. They count before all else. A machine that replaced no other has none.
func retry(f Facts) Answer {
	if f.Last.At.IsZero() {
		return Answer{}
	}
	exhausted := f.Rules.MaxRetry >= 0 && f.Last.Retries >= f.Rules.MaxRetry
	anew := f.Last.At.Add(f.Rules.MinHealthy)
	ends := f.Last.At.Add(f.Rules.RetryPeriod)
	if exhausted || anew.Before(ends) {
		ends = anew
	}
	switch waits := f.Now.Before(ends); {
	case waits && exhausted:
		return Answer{Reason: RetriesExhausted, Until: ends}
	case f.Refused && !exhausted: // for another reason
	case waits:
		return Answer{Reason: WithinRetryPeriod, Until: ends}
	case f.Asked.Before(ends):
		return Answer{Reason: RetryDue}
	}
	return Answer{}
}
