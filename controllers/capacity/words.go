package capacity

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
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

// told is w in words, about the machine old that was lost.
func (f *Facts) told(w found, old string) Story {
	fill := f.words(&w, old)
	_, withNode := f.count()
	s := Story{
		Stage: w.stage, Reason: w.reason, Old: old, Machine: w.machine, Owner: f.owner.ref, WaitsFor: w.object, Replacement: w.by,
		Ready: withNode, Since: w.since, Deadline: w.deadline, Timeout: w.timeout, Unread: f.Unread,
		Overdue: !w.deadline.IsZero() && !f.now.Before(w.deadline), Message: oneLine(fill.Replace(w.message)),
	}
	if made := f.other(w.by.Name); made != nil {
		s.New, s.Healthy = made, healthy(made)
		if bmh := f.hostOf(made); bmh != nil {
			s.Host = bmh.Name
		}
	}
	for _, refusal := range w.refusals {
		s.Hosts = append(s.Hosts, cliv1.HostRefusal{Name: refusal.Name, Reason: refusal.Reason, Message: oneLine(refusal.Message)})
	}
	if w.next.text != "" {
		s.Next = rule.Step{Reason: w.next.reason, Text: fill.Replace(w.next.text)}
		if w.next == givenUp && !s.Overdue {
			s.Next.At = w.deadline
		}
	}
	if w.hint.text != "" {
		s.Hint = rule.Step{Reason: w.hint.reason, Manual: true, Text: fill.Replace(w.hint.text)}
		if f.late(w.since, w.usual) {
			s.Todo = s.Hint
		}
	}
	return s
}

// words has the names and the quotations that texts of w have room for.
func (f *Facts) words(w *found, old string) *strings.Replacer {
	pairs := make([]string, 0, 32)
	lost, gone := "Machine "+old, "Machine "+old+" is gone"
	if old == "" {
		lost, gone = "the machine that is missing", "a machine is missing"
	}
	if w.host != nil {
		state, power := spare.State(w.host), "off"
		if w.host.Status.PoweredOn {
			power = "on"
		}
		clause, _ := trouble(w.host)
		pairs = append(pairs, "{host}", w.host.Name, "{state}", "state "+state+", power "+power, "{trouble}", clause)
	}
	machines, withNode := f.count()
	replicas := strconv.Itoa(ptr.Deref(f.owner.replicas, 0))
	pairs = append(pairs,
		"{machine}", "Machine "+w.machine, "{owner}", named(f.owner.ref), "{object}", named(w.object),
		"{old}", lost, "{lost}", gone, "{said}", said(w.said), "{reported}", reported(w.said),
		"{ailing}", ailingText(w.ailing), "{hosts}", hostsText(w),
		"{machines}", fmt.Sprintf("%d of %s", machines, replicas), "{ready}", fmt.Sprintf("%d of %s", withNode, replicas),
		"{finalizers}", w.finalizers, "{unread}", strings.Join(f.Unread, ", "),
	)
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

func ailingText(cond metav1.Condition) string {
	if cond.Reason == "" {
		return ""
	}
	return "; its infrastructure reports" + reported(cond)
}

// FewHosts is how many hosts a sentence has room for. Of more the refusals are in Story.Hosts alone.
const FewHosts = 3

// hostsText is which hosts fit, or why none does.
func hostsText(w *found) string {
	switch n := len(w.refusals); {
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
	names := make([]string, 0, len(w.refusals))
	for _, refusal := range w.refusals {
		names = append(names, refusal.Name+" "+refusal.Message)
	}
	return "none fits: " + strings.Join(names, ", ")
}

// AwaitsNode reports whether nothing but the node itself is waited for: a check that selects it has to remediate it, or a user.
func (s *Story) AwaitsNode() bool {
	return s.Stage == NodeNotReady && (s.Reason == NodeNotReadyReason || s.Reason == Disconnected)
}
