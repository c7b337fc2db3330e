package capacity

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestPartnersAreQuoted(t *testing.T) {
	stopped := func(f *Facts) {
		follows(provisioned, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n4" },
			says(clusterv1.MachineNodeReadyCondition, "Unknown", "NodeReadyUnknown", "* Node.Ready: Kubelet stopped posting node status.", time.Minute),
			says(clusterv1.MachineInfrastructureReadyCondition, "False", "InstanceStopped", "instance i-1 is stopped", time.Minute))(f)
	}
	hinders := []edit{deleting("WaitingForInfrastructureDeletion", metal, deleted(time.Minute)), hosts(aHost("h1", "deprovisioning", consumedBy("w1"), failing))}
	rows{
		"a list is one line": {
			[]edit{asksOwner("RemediationDeferred", "as it says:\n* one\n* two.", time.Minute)},
			"MachineDeployment md-0 has put off the replacement of Machine w1: as it says: one; two",
		},
		"an answer without words": {[]edit{asksOwner("Odd", "", time.Minute)}, "MachineDeployment md-0 was asked to replace Machine w1, and has not replaced it (Odd)"},
		"a node, and its infrastructure": {
			[]edit{stopped},
			"Node n4 of Machine w4 is not Ready (NodeReadyUnknown): Node.Ready: Kubelet stopped posting node status; its infrastructure reports (InstanceStopped): instance i-1 is stopped",
		},
		"an error of a host": {hinders, "the deletion of Machine w1 waits: BareMetalHost h1 has an error: no power"},
		"hosts that fit":     {[]edit{follows(metal), hosts(aHost("h1", "available"), aHost("h2", "ready"))}, "any of the BareMetalHosts h1, h2 fits Machine w4"},
		"hosts that do not": {
			[]edit{follows(metal), hosts(aHost("h1", "available", failing), aHost("h2", "provisioned", consumedBy("w2")), aHost("h3", "available", keptFor("md-x")))},
			"Machine w4 waits for a BareMetalHost, and none fits: h1 has an error: no power, h2 is in use by Metal3Machine w2, h3 is kept for machines of md-x (node reuse)",
		},
	}.tell(t, func(f *Facts) string { return f.Story().Message })
}

var placeholder = regexp.MustCompile(`[{}]`)

func TestNoWordIsLeftOut(t *testing.T) {
	known := strings.NewReplacer(
		"{machine}", "", "{owner}", "", "{object}", "", "{old}", "", "{lost}", "", "{said}", "", "{reported}", "", "{ailing}", "", "{hosts}", "", "{host}", "",
		"{state}", "", "{trouble}", "", "{pause}", "", "{machines}", "", "{ready}", "", "{finalizers}", "", "{unread}", "")
	waits := []wait{
		asked, putOff, deletes, refused, ownerless, paused, deletionBegins, hostIsCleaned, hostHinders, otherFinalizer, creates, blocked,
		bootstrapNotReady, noHost, hostFits, hostWorks, hostTrouble, notReady, noNode, hostOff, nodeNotReady, stillUnhealthy, replaced, recovered, complete, scaledDown, notReadable,
	}
	for _, deletion := range deletions {
		waits = append(waits, deletion)
	}
	for _, w := range waits {
		text := known.Replace(w.message + w.next.text + w.hint.text)
		if w.message == "" || placeholder.MatchString(text) || (w.hint.reason == "") != (w.hint.text == "") {
			t.Errorf("%s: %s", w.reason, text)
		}
	}
}

// A tenant may write such texts into a condition, or cause them in an error of a host.
func TestHostileTextsAreBoundedAndShown(t *testing.T) {
	for name, text := range map[string]string{
		"megabytes in a line":      strings.Repeat("x", 4<<20),
		"megabytes of lines":       strings.Repeat("* x\n", 1<<20),
		"megabytes of characters":  strings.Repeat("ü", 1<<20),
		"what is no text":          strings.Repeat("\xff", 1<<20),
		"characters that are cut":  strings.Repeat("\a", 1<<20),
		"what clears a screen":     "\x1b[2J\x1b[H all is done",
		"what writes over a line":  "failed\r all is done",
		"what turns the direction": "\u202ella si enod",
		"a line separator":         "failed\u2028Next: nothing",
		"a name of another":        "{owner}{machine}",
	} {
		s := given(asksOwner(text, text, time.Minute), hosts(aHost("h1", "available"))).Story()
		if len(s.Message) > mostQuoted || !utf8.ValidString(s.Message) || strings.ContainsAny(s.Message, "\x1b\r\n\u202e\u2028") {
			t.Errorf("%s: %d bytes, %.80q", name, len(s.Message), s.Message)
		}
	}
}
