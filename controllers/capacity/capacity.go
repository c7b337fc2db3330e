// Package capacity says what the capacity of a machine that is being replaced waits for, and until when.
//
// It reads and quotes the conditions that Cluster API and its providers set on the old Machine (Deleting), on its owner (ScalingUp,
// Remediating) and on the new Machine (BootstrapConfigReady, InfrastructureReady, NodeReady), and the state of BareMetalHosts. It writes
// nothing. It reads with the rights of its caller. Kinds that the caller may not read are listed in Unread, and their objects never count
// as missing.
package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The stages, in their order. Back and NotReplaced are ends.
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

// StageTexts has the stages as headings of a page.
var StageTexts = map[string]string{
	OwnerActs: "the owner acts", Deleting: "being deleted", NoReplacement: "no new machine",
	WaitingForBootstrapData: "waiting for bootstrap data", NoHostFits: "no host fits", Provisioning: "provisioning", Booting: "booting",
	NodeNotReady: "node not Ready", Unread: "not known", Back: "back", NotReplaced: "not replaced",
}

// Story says what the capacity of a machine waits for, or how the wait has ended.
type Story struct {
	Stage string
	// Reason is what the capacity waits for. If Cluster API or a provider has a reason for it, Reason is the same.
	Reason string
	// Old is the machine that was lost. Machine is the machine that the stage is about: the old one, or its replacement.
	Old, Machine string
	// Owner creates the new machine. WaitsFor is the object that the capacity waits for; it has no name if there is none.
	Owner, WaitsFor rule.Ref
	// Replacement is the new machine; it has no name if there is none.
	Replacement Replacement
	// New is the Machine of Replacement, if it was read.
	New *clusterv1.Machine
	// Host is the name of New's BareMetalHost.
	Host string
	// Healthy reports that New's node is Ready, no check finds New unhealthy, and it is not being deleted.
	Healthy bool
	// Ready is how many machines of the owner have a Ready node, once the owner has all its machines; else 0.
	Ready int
	// Since is when the wait began. Deadline is when it ends by itself, or when a check will find the new machine unhealthy.
	Since, Deadline time.Time
	// Timeout is the setting that Deadline follows from.
	Timeout time.Duration
	Overdue bool
	// Message is what the capacity waits for, as a clause.
	Message string
	// Next is what happens next. Hint is what a user can do about this wait. Todo is the same as Hint once the wait has lasted too long.
	Next, Todo, Hint rule.Step
	// Hosts are the reasons why the BareMetalHosts are not used.
	Hosts  []cliv1.HostRefusal
	Unread []string
}

// Ended reports whether the wait is over.
func (s *Story) Ended() bool { return s.Stage == Back || s.Stage == NotReplaced }

// AwaitsNode reports whether only the node itself is missing, so that a check that selects it, or a user, has to remediate it.
func (s *Story) AwaitsNode() bool {
	return s.Stage == NodeNotReady && (s.Reason == NodeNotReadyReason || s.Reason == Disconnected)
}

// Document returns s for programs.
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

// The ways to find which machine replaces which.
const (
	// Recorded: the owner has written it down, as KubeadmControlPlanes do. All other ways are guesses.
	Recorded = "Recorded"
	// Remembered: a RemediationRecord names the replacement.
	Remembered = "Remembered"
	// SameHost: the new machine has the host of the old one.
	SameHost = "SameHost"
	// Alone: the owner has lost one machine, and created one since.
	Alone = "Alone"
	// ByOrder: the owner has lost several machines. The first one lost is replaced by the first one created since, and so on.
	ByOrder = "ByOrder"
)

var guessedBy = map[string]string{
	Remembered: "by the RemediationRecord of that machine", SameHost: "it has the same host",
	Alone: "it is the only one that its owner has made since", ByOrder: "by the order in which machines were lost and made",
}

// Replacement is the machine that replaces another, or that is replaced, and how it was found.
type Replacement struct{ Name, By string }

// Guess reports whether the replacement is not written down by the owner.
func (r Replacement) Guess() bool { return r.Name != "" && r.By != Recorded }

// Of returns a clause that says that r replaces the machine old; empty if either has no name.
func (r Replacement) Of(old string) string {
	switch {
	case r.Name == "" || old == "":
		return ""
	case !r.Guess():
		return "Machine " + r.Name + " replaces Machine " + old
	}
	return "Machine " + r.Name + " probably replaces Machine " + old + " (" + guessedBy[r.By] + ")"
}

// Predecessor returns the name of r for a text about the machine that replaces r.
func (r Replacement) Predecessor() string {
	if !r.Guess() {
		return r.Name
	}
	return "probably " + r.Name + " (" + guessedBy[r.By] + ")"
}

// Story returns what the capacity of the machine waits for.
func (f *Facts) Story() Story { return f.told(f.decide(), f.Name) }

// Follow returns what an existing new machine waits for, and which machine it replaces, if that is known.
func (f *Facts) Follow() (story Story, predecessor Replacement) {
	predecessor = f.Predecessor()
	return f.told(f.follow(f.old), predecessor.Name), predecessor
}

// Deletion returns what the deletion of a Machine waits for, whether the Machine is replaced or not.
func (f *Facts) Deletion() Story {
	w := f.deletion(f.old)
	if w.next == machineGoes && (f.end() != "" || f.surplus()) {
		w.next = machineIsGone
	}
	return f.told(w, f.Name)
}

// told returns w with its texts filled in; old is the name of the machine that was lost.
func (f *Facts) told(w found, old string) Story {
	s, fill := w.Story, f.words(&w, old)
	s.Stage, s.Reason, s.Message = w.stage, w.reason, oneLine(fill.Replace(w.message))
	s.Old, s.Owner, s.Unread = old, f.owner.ref, f.Unread
	s.Overdue = !s.Deadline.IsZero() && !f.now.Before(s.Deadline)
	if made := f.other(s.Replacement.Name); made != nil {
		s.New, s.Healthy = made, healthy(made)
		if host := f.hostOf(made); host != nil {
			s.Host = host.Name
		}
	}
	if w.next.text != "" {
		s.Next = rule.Step{Reason: w.next.reason, Text: fill.Replace(w.next.text)}
		if w.next == givenUp && !s.Overdue {
			s.Next.At = s.Deadline
		}
	}
	if w.hint.text != "" {
		s.Hint = rule.Step{Reason: w.hint.reason, Manual: true, Text: fill.Replace(w.hint.text)}
		if w.usual == atOnce || !s.Since.IsZero() && f.now.Sub(s.Since) > w.usual {
			s.Todo = s.Hint
		}
	}
	return s
}

// words fills the placeholders in the texts of w.
func (f *Facts) words(w *found, old string) *strings.Replacer {
	lost, gone := "Machine "+old, "Machine "+old+" is gone"
	if old == "" {
		lost, gone = "the machine that is missing", "a machine is missing"
	}
	replicas := strconv.Itoa(int(ptr.Deref(f.owner.replicas, 0)))
	ailing := ""
	if w.ailing.Reason != "" {
		ailing = "; its infrastructure reports" + reported(w.ailing)
	}
	pairs := []string{
		"{machine}", "Machine " + w.Machine, "{owner}", named(f.owner.ref), "{object}", named(w.WaitsFor),
		"{old}", lost, "{lost}", gone, "{said}", said(w.said), "{reported}", reported(w.said), "{ailing}", ailing, "{hosts}", hostsText(w),
		"{machines}", fmt.Sprintf("%d of %s", w.machines, replicas), "{ready}", fmt.Sprintf("%d of %s", w.Ready, replicas),
		"{finalizers}", w.finalizers, "{unread}", strings.Join(f.Unread, ", "), "{pause}", w.pause,
	}
	if w.host != nil {
		clause, _ := trouble(w.host)
		power := "off"
		if w.host.Status.PoweredOn {
			power = "on"
		}
		pairs = append(pairs, "{host}", w.host.Name, "{state}", "state "+spare.State(w.host)+", power "+power, "{trouble}", clause)
	}
	return strings.NewReplacer(pairs...)
}

// named returns the kind and name of an object; a PodDisruptionBudget, which is in the workload cluster, also has its namespace.
func named(ref rule.Ref) string {
	if ref.Kind == "PodDisruptionBudget" {
		return ref.String()
	}
	return ref.Kind + " " + ref.Name
}

// said quotes a condition. Its message may have several lines, which oneLine joins.
func said(cond metav1.Condition) string {
	switch {
	case cond.Message != "":
		return ":\n" + strings.TrimSuffix(cond.Message, ".")
	case cond.Reason != "":
		return " (" + cond.Reason + ")"
	}
	return ""
}

func reported(cond metav1.Condition) string {
	if cond.Reason == "" || cond.Message == "" {
		return said(cond)
	}
	return " (" + cond.Reason + ")" + said(cond)
}

// FewHosts is how many hosts a message names. Story.Hosts has all.
const FewHosts = 3

// hostsText returns which hosts fit, or why none does.
func hostsText(w *found) string {
	switch n := len(w.Hosts); {
	case len(w.fitting) == 1:
		return "BareMetalHost " + w.fitting[0] + " fits"
	case len(w.fitting) > FewHosts:
		return fmt.Sprintf("any of %d BareMetalHosts fits", len(w.fitting))
	case len(w.fitting) > 1:
		return "any of the BareMetalHosts " + strings.Join(w.fitting, ", ") + " fits"
	case n == 0:
		return "there is none in the namespace"
	case n > FewHosts:
		return fmt.Sprintf("none of the %d in the namespace fits", n)
	}
	names := make([]string, 0, len(w.Hosts))
	for _, refusal := range w.Hosts {
		names = append(names, refusal.Name+" "+refusal.Message)
	}
	return "none fits: " + strings.Join(names, ", ")
}

// mostQuoted is how long a quoted text may be. A tenant may write megabytes into a condition, an annotation or an error.
const mostQuoted = 2048

// oneLine joins the lines of a message without bullets, shortens it, and replaces control characters, which terminals obey.
func oneLine(message string) string {
	message = health.Short(message, 2*mostQuoted)
	var parts []string
	for line := range strings.Lines(message) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "* "); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	text = strings.ReplaceAll(text, ":; ", ": ") // a line that introduces others ends with a colon
	text = strings.Map(func(r rune) rune {       // replace control characters
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	return health.Short(strings.TrimSuffix(text, "."), mostQuoted)
}
