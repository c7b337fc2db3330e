// Package capacity says what the capacity of a machine that is being replaced waits for, and until when.
//
// It reads the conditions that Cluster API and its providers set on the old Machine (Deleting), on its owner (ScalingUp, Remediating), on
// the new Machine (BootstrapConfigReady, InfrastructureReady, NodeReady) and the state of a BareMetalHost, and quotes them. It writes
// nothing. It reads with the rights of its caller: what could not be read is in Unread, and is never taken for missing.
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

// Story returns what the capacity of the machine waits for.
func (f *Facts) Story() Story { return f.told(f.decide(), f.Name) }

// Follow returns what the machine, a new one that exists, waits for, and which machine it replaces, if that is known.
func (f *Facts) Follow() (story Story, predecessor Replacement) {
	predecessor = f.Predecessor()
	return f.told(f.follow(f.old), predecessor.Name), predecessor
}

// Deletion returns what the deletion of the machine waits for, whether it is replaced or not. It is about a Machine that is being deleted.
func (f *Facts) Deletion() Story {
	w := f.deletion(f.old)
	if w.next == machineGoes && (f.end() != "" || f.surplus()) {
		w.next = machineIsGone
	}
	return f.told(w, f.Name)
}

// told is w with its words, about the machine old that was lost.
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

// words has the names and the quotations that texts of w have room for.
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

// named is an object; those of the workload cluster, whose namespace is not the machine's, with that.
func named(ref rule.Ref) string {
	if ref.Kind == "PodDisruptionBudget" {
		return ref.String()
	}
	return ref.Kind + " " + ref.Name
}

// said quotes a condition. The message is in lines of its own, of which oneLine makes one.
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

// FewHosts is how many hosts a sentence has room for. Of more the refusals are in Story.Hosts alone.
const FewHosts = 3

// hostsText is which hosts fit, or why none does.
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

// Texts of others are bounded where they are quoted: a tenant may have written megabytes into a condition, an annotation or an error, or
// what a terminal obeys.
const mostQuoted = 2048

// oneLine is a message of several lines in one, without the bullets, and bounded.
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
	text = strings.Map(func(r rune) rune {       // what is obeyed and not shown is replaced
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	return health.Short(strings.TrimSuffix(text, "."), mostQuoted)
}
