package machines

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// About is what sentences about a check name. No decision depends on it.
type About struct {
	Namespace, Name, Cluster string
	// Idle says that the machines of the check were not read.
	Idle bool
	// Deleting says that the check is being deleted, ClusterDeleting that its Cluster is, and ClusterPaused that this is paused.
	Deleting, ClusterDeleting, ClusterPaused bool
	// WatchFilter is the label that the check, or its Cluster, would need for this manager; empty if it has it.
	WatchFilter string
	// PausedBy is the value of the annotation that pauses the check; nil if none does.
	PausedBy *string
	Spelled  Spelled
	// InvalidField is the field that cannot be read, InvalidWhy why.
	InvalidField, InvalidWhy string
	// InvalidSelector is what is wrong with spec.selector; empty if it can be parsed.
	InvalidSelector string
	// Allowed and Template are the conditions RemediationAllowed and RemediationTemplateAvailable as they are stored.
	Allowed, Template Report
	// Trouble is what could not be read, and was done without.
	Trouble []string
}

// Spelled are the limits of a check as they are written.
type Spelled struct {
	MaxUnhealthy string // the default if it is not set
	Range        string // empty if it is not set
	// InFlight and Cooldown are annotations; nil if they are not set.
	InFlight, Cooldown *string
	// SpareWait is for how long remediations wait for a spare host; empty if they do not.
	SpareWait string
}

// String is the limits with the words of the version that is served, and not of one that is not.
func (s *Spelled) String() string {
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

// Report is a condition as it is stored; zero if there is none.
type Report struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

// RequestFacts are what sentences about the request of a machine name.
type RequestFacts struct {
	Name     string
	Created  time.Time
	ForOther bool // it does not name the UID of this Machine
}

// noTemplate is why no request can be made for any machine.
func (f *Facts) noTemplate() string { return "No request can be made: " + f.Template.Missing }

// foreignRequest is why none is made for t, for which one exists.
func (f *Facts) foreignRequest(t *Target) string {
	request := f.Template.Kind + " " + t.RequestFacts.Name
	if t.RequestFacts.ForOther {
		return fmt.Sprintf("%s exists and is for another Machine: it does not name the UID %s of this one", request, t.ID)
	}
	return request + " exists and was not made by this MachineHealthCheck"
}

func (f *Facts) template() string {
	return strings.TrimSpace(f.Template.TemplateKind + " " + f.Template.Name)
}

// templateRef is the template of the check; zero if the check names none.
func (f *Facts) templateRef() rule.Ref {
	if f.Template.Name == "" {
		return rule.Ref{}
	}
	return rule.Ref{Kind: f.Template.TemplateKind, Namespace: f.About.Namespace, Name: f.Template.Name}
}

// notHealthy is how many targets have to be not healthy for something, of how many, and how many are.
func (c *Case) notHealthy(wanted int) string {
	population := &c.plan.Population
	return fmt.Sprintf("%d of %d %s not healthy (now %d)", wanted, population.Total(), are(wanted), population.NotHealthy())
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// counts is where a person finds the numbers that a condition of a machine leaves out.
func (c *Case) counts() string {
	return "the condition " + RemediationAllowed + " of MachineHealthCheck " + c.About.Name + " has the numbers"
}
