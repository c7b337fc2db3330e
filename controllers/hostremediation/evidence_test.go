package hostremediation

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
)

func TestAHostIsKeptOffUnderTheUIDThatTheRemediationHadBeforeItWasMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		before, annotation, want string
	}{
		"moved":                               {"old", holdOff + "old", "old"},
		"moved, and kept off since":           {"old", holdOff + "new", "new"},
		"moved, and another keeps it off":     {"old", holdOff + "another", "new"},
		"never moved, and a UID was left out": {"", holdOff, "new"},
	} {
		w := &observed{rem: aRemediation("new", "")}
		w.record.UID = "new"
		if tc.before != "" {
			w.record.UID = "old"
		}
		w.found.Host = &host.Host{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.annotation: ""}}}
		if got := w.keptOffAs(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestTheFenceOfANodeHasAnAuthor(t *testing.T) {
	for name, tc := range map[string]struct {
		seen fence.Seen
		want string
	}{
		"this remediation":    {fence.Seen{Ours: true, Mark: "me"}, "of this remediation"},
		"another remediation": {fence.Seen{Mark: "another"}, "of remediation another"},
		"an unknown one":      {fence.Seen{}, "put there by another client"},
	} {
		if got := fencedBy(tc.seen); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A node that cannot be seen may still have pods.
func TestOnlyANodeThatWasSeenIsDrained(t *testing.T) {
	const drained, absent = "nothing is left on node n that would have to move", "node n does not exist"
	for name, tc := range map[string]struct {
		seen   fence.Seen
		unseen string
		want   []string
	}{
		"a node that is gone is drained":        {fence.Seen{Presence: fence.Absent, Drained: true}, "", []string{absent, drained}},
		"a node that is there may be":           {fence.Seen{Presence: fence.Present, Drained: true}, "", []string{drained}},
		"a node that was not seen never is":     {fence.Seen{Drained: true}, "no route", nil},
		"a node that still has pods is not yet": {fence.Seen{Presence: fence.Present}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &observed{rem: aRemediation("new", ""), observation: observation{seen: tc.seen, unseenBecause: tc.unseen}}
			w.record.Node = "n"
			var e evidence
			e.addNode(w)
			got := slices.DeleteFunc(slices.Clone(e), func(line string) bool { return line != drained && line != absent })
			if !slices.Equal([]string(got), tc.want) {
				t.Errorf("got %q, want %q, of %q", got, tc.want, e)
			}
		})
	}
}

func TestWhatIsAheadInTheQueueIsAnObject(t *testing.T) {
	w := &observed{rem: aRemediation("new", "")}
	w.rem.SetNamespace("ns")
	w.found.Host = &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "h"}}
	for _, tc := range []struct {
		ahead powercycle.Ahead
		want  string
	}{
		{powercycle.Ahead{Kind: "BareMetalHost"}, "BareMetalHost metal/h"},
		{powercycle.Ahead{Kind: "HostRemediation", Name: "b"}, "HostRemediation ns/b"},
		{powercycle.Ahead{Kind: "Machine"}, ""},
		{powercycle.Ahead{Text: "b is ahead in the queue"}, ""},
	} {
		w.ahead = []powercycle.Ahead{tc.ahead}
		if got := w.blockedBy(powercycle.TheQueue); got != (explain.Ref{}) && got.String() != tc.want || got == (explain.Ref{}) && tc.want != "" {
			t.Errorf("%+v: the object is %q, want %q", tc.ahead, got, tc.want)
		}
	}
	w.ahead, w.cluster = nil, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	w.cluster.Spec.Paused = ptr.To(true)
	if got := w.blockedBy(powercycle.TheCluster); got.String() != "Cluster ns/c" {
		t.Errorf("of a pause the object is %q", got)
	}
}

func TestAPersonLearnsWhatIsLeftToDoAfterTheEnd(t *testing.T) {
	unfenced := powercycle.Facts{
		Memory: powercycle.Memory{State: powercycle.Failed, Fencing: true}, Node: powercycle.NodeUnseen, Machine: powercycle.MachinePresent,
	}
	with := func(change func(*powercycle.Facts)) powercycle.Facts {
		facts := unfenced
		change(&facts)
		return facts
	}
	fix := func(reason powercycle.Reason) string { return powercycle.RuleOf(reason).Fix }
	bmh := &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h"}}
	asked := powercycle.Facts{Memory: powercycle.Memory{State: powercycle.OwnerRequested}}
	switchedOff := powercycle.Memory{State: powercycle.Failed, Cause: powercycle.Cause{Reason: powercycle.HostSwitchedOffReason}}
	for name, tc := range map[string]struct {
		facts powercycle.Facts
		host  *host.Host
		want  string
	}{
		"nothing before the end":                  {with(func(f *powercycle.Facts) { f.State = powercycle.Booting }), bmh, ""},
		"a node that may be fenced and is unseen": {unfenced, bmh, fix(powercycle.UnfenceTimedOutReason)},
		"not one that can be seen":                {with(func(f *powercycle.Facts) { f.Node = powercycle.NodePresent }), bmh, ""},
		"not that of a machine that is gone":      {with(func(f *powercycle.Facts) { f.Machine = powercycle.MachineGone }), bmh, ""},
		"a host of a machine to be replaced":      {asked, bmh, fix(powercycle.OwnerRequestedReason) + ": kubectl mend reset host/h -n ns"},
		"nothing if that has no host":             {asked, nil, ""},
		"the cause of a failure, without a host":  {powercycle.Facts{Memory: switchedOff}, nil, fix(powercycle.HostSwitchedOffReason)},
	} {
		w := &observed{facts: tc.facts, found: host.Found{Host: tc.host}}
		if got := w.afterwards(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
