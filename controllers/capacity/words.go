package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Story returns what the capacity of the machine waits for.
func (f *Facts) Story() Story { return f.told(f.decide(), f.Name) }

// Follow returns what the machine, a new one, waits for, and which machine it replaces, if that is known.
func (f *Facts) Follow() (story Story, predecessor Replacement) {
	if f.old == nil { // it has gone meanwhile
		return f.Story(), Replacement{}
	}
	predecessor = f.Predecessor()
	return f.told(f.follow(f.old), predecessor.Name), predecessor
}

// Deletion returns what the deletion of the machine waits for, whether it is replaced or not. It is about a Machine that is being deleted.
func (f *Facts) Deletion() Story {
	if f.old == nil { // it has gone meanwhile
		return f.Story()
	}
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
	if w.hint != "" {
		s.Hint = rule.Step{Reason: w.hint, Manual: true, Text: fill.Replace(hints[w.hint])}
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

// reported quotes a condition with its reason.
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
	message = bounded(message, 2*mostQuoted)
	var parts []string
	for line := range strings.Lines(message) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "* "); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	text = strings.ReplaceAll(text, ":; ", ": ") // a line that introduces others ends with a colon
	return strings.TrimSuffix(bounded(visible(text), mostQuoted), ".")
}

// bounded is text of at most so many bytes. Where something is left out it ends with an ellipsis.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis // a character may be cut
}

// visible is text in which each character that is obeyed and not shown is replaced.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
