package explain

import (
	"fmt"
	"strings"
	"time"
)

// Why something was not read, as clauses.
const (
	NodesNotAsked              = "its nodes were not read"
	ControlPlaneNotInitialized = "its control plane is not initialized yet"
	NoAnswer                   = "no answer came in time"
)

// UnreachableClusters is the heading of the list of workload clusters that the manager cannot reach.
const UnreachableClusters = "Workload clusters that the manager cannot reach"

// OfManagementCluster names objects that are read from the management cluster.
func OfManagementCluster(objects string) string { return objects + " of the management cluster" }

// MadeByChecks names objects that checks have made.
func MadeByChecks(objects string) string { return objects + " that a check has made" }

// OtherVersions is why the objects of a kind are not read that is served in other versions.
func OtherVersions(served []string, needed string) string {
	return fmt.Sprintf("they are served in %s, and version %s is needed", strings.Join(served, ", "), needed)
}

// MachineIn names one of several machines.
func MachineIn(name, cluster, namespace string) string {
	return fmt.Sprintf("machine/%s of cluster %s in namespace %s", name, cluster, namespace)
}

// ManagerVersion names a manager by its version.
func ManagerVersion(version, namespace string) string {
	return fmt.Sprintf("version %s in namespace %s", version, namespace)
}

// ClockDiffers is that the clock of this machine is ahead of that of the API server, or behind it if ahead is negative.
func ClockDiffers(ahead time.Duration) string {
	is := "ahead of"
	if ahead < 0 {
		ahead, is = -ahead, "behind"
	}
	return fmt.Sprintf("the clock of this machine is %s %s that of the API server, which is the one that counts here", ahead.Round(time.Second), is)
}

// Heading names the remediation, its state and its attempt.
func (r *Remediation) Heading() string {
	return fmt.Sprintf("%s: %s", r.Ref, r.State)
}

// Step is the step that is taken, with its reason if that is not the state.
func (r *Remediation) Step() string {
	if r.Reason == r.State {
		return r.Text
	}
	return r.Reason + ": " + r.Text
}

// Since is since when the remediation is in its state, and until when it may be.
func (r *Remediation) Since(at Moment) string {
	text := "In this state since " + at(r.StateSince)
	if !r.Deadline.IsZero() {
		text += ", deadline " + at(r.Deadline)
	}
	return text
}
