package hostremediation

import (
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

func TestTheFenceOfANodeHasAnAuthor(t *testing.T) {
	for name, tc := range map[string]struct {
		seen fence.Seen
		want string
	}{
		"this remediation":    {fence.Seen{Ours: true, Mark: "me"}, "of this remediation"},
		"another remediation": {fence.Seen{Mark: "another"}, "of remediation another"},
		"nobody known":        {fence.Seen{}, "put there by somebody else"},
	} {
		if got := whoseFence(tc.seen); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestAHostIsKeptOffUnderTheUIDThatTheRemediationHadBeforeItWasMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		before, annotation, want string
	}{
		"moved":                               {"old", holdOff + "old", "old"},
		"moved, and kept off since":           {"old", holdOff + "new", "new"},
		"moved, and another keeps it off":     {"old", holdOff + "another", "new"},
		"never moved, and a UID was left out": {"", holdOff, "new"},
	} {
		w := &observed{rem: remediation("new", "")}
		w.record.UID = "new"
		if tc.before != "" {
			w.record.UID = "old"
		}
		w.found.Host = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.annotation: ""}}}
		if got := heldAs(w); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A node that cannot be seen may have pods: nobody knows.
func TestOnlyANodeThatWasSeenIsDrained(t *testing.T) {
	const drained, absent = "nothing is left on node n that would have to move", "node n does not exist"
	for name, tc := range map[string]struct {
		seen  fence.Seen
		blind string
		want  []string
	}{
		"a node that is gone is drained":        {fence.Seen{Presence: fence.Absent, Drained: true}, "", []string{absent, drained}},
		"a node that is there may be":           {fence.Seen{Presence: fence.Present, Node: &corev1.Node{}, Fenced: true, Drained: true}, "", []string{drained}},
		"a node that was not seen never is":     {fence.Seen{Presence: fence.Unseen, Drained: true}, "no route", nil},
		"a node that still has pods is not yet": {fence.Seen{Presence: fence.Present, Node: &corev1.Node{}, Fenced: true}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &observed{rem: remediation("m", ""), sight: sight{seen: tc.seen, blindness: tc.blind}}
			w.record.Node = "n"
			var e evidence
			e.ofNode(w)
			var got []string
			for _, line := range e {
				if line == drained || line == absent {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q, of %q", got, tc.want, e)
			}
		})
	}
}

func TestAMessageIsCutWhereTheFieldEnds(t *testing.T) {
	for length, want := range map[int]int{maxMessage - 1: maxMessage - 1, maxMessage: maxMessage, maxMessage + 1: maxMessage + len("...")} {
		text := textOf(&observed{}, powercycle.Step{Why: strings.Repeat("x", length)})
		if len(text) != want {
			t.Errorf("a sentence of %d characters becomes one of %d, want %d", length, len(text), want)
		}
	}
}
