package hostremediation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

func readyNode(boot string) *corev1.Node {
	n := &corev1.Node{}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.NodeInfo.BootID = boot
	return n
}

// remediation returns one that remembers this; nothing if it has not begun.
func remediation(uid types.UID, remembers string) Object {
	rem := Own.New()
	rem.SetUID(uid)
	rem.SetName(string(uid))
	if remembers != "" {
		rem.SetAnnotations(map[string]string{mendv1.PowerCycleAnnotation: remembers})
	}
	return rem
}

func TestTurnsAreTakenOneAfterAnother(t *testing.T) {
	var turns Turns
	const one, two = "one", "two"
	for _, step := range []struct {
		name  string
		queue string
		by    types.UID
		at    time.Time
		ahead string
	}{
		{"the first has the turn", one, "a", noon, ""},
		{"and keeps it", one, "a", noon.Add(time.Second), ""},
		{"W27: the second of that cluster waits, and knows for whom", one, "b", noon.Add(time.Second), "a"},
		{"that of another cluster does not", two, "c", noon.Add(time.Second), ""},
		{"when the caches show who has begun, they decide", one, "b", noon.Add(time.Second + cachesLag), ""},
		{"and the one that was first waits", one, "a", noon.Add(2*time.Second + cachesLag), "b"},
	} {
		if got := turns.Take(step.queue, step.by, string(step.by), step.at); got != step.ahead {
			t.Errorf("%s: %q is ahead, want %q", step.name, got, step.ahead)
		}
	}
}

func TestATurnThatIsOverIsFree(t *testing.T) {
	var turns Turns
	turns.Take("queue", "a", "a", noon)
	turns.free("a")
	if got := turns.Take("queue", "b", "b", noon); got != "" {
		t.Errorf("%q is ahead, want nobody", got)
	}
}

func TestWhoWaitsIsKnownUntilItDoesNot(t *testing.T) {
	var turns Turns
	a, b := client.ObjectKey{Namespace: "ns", Name: "a"}, client.ObjectKey{Namespace: "other", Name: "b"}
	turns.await("X", a)
	turns.await("X", b)
	turns.await("Y", a)
	if got := turns.waiters("X", "ns"); len(got) != 1 || got[0] != a {
		t.Errorf("%v wait, want %v", got, a)
	}
	turns.leave("X", a)
	if got := turns.waiters("X", "ns"); len(got) != 0 {
		t.Errorf("%v wait, want nobody", got)
	}
	if got := turns.waiters("Y", "ns"); len(got) != 1 {
		t.Errorf("of another kind %v wait, want %v", got, a)
	}
}

func TestATurnLastsAsLongAsTheCachesSayOnceTheyShowIt(t *testing.T) {
	var turns Turns
	turns.Take("queue", "a", "a", noon)
	turns.shown("queue", "b")
	if got := turns.Take("queue", "b", "b", noon); got != "a" {
		t.Errorf("while the caches do not show who has begun, %q is ahead, want a", got)
	}
	turns.shown("queue", "a")
	if got := turns.Take("queue", "b", "b", noon); got != "" {
		t.Errorf("when they have shown it, %q is ahead, want nobody", got)
	}
}

func TestWhoGoesBeforeWhom(t *testing.T) {
	self := func(attempt int, began time.Time) *observed {
		return &observed{rem: remediation("m", ""), record: record{Memory: powercycle.Memory{Attempt: attempt, Began: began}}}
	}
	const begun = `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T12:00:00Z"}`
	for name, tc := range map[string]struct {
		other Object
		w     *observed
		want  bool
	}{
		"one that has begun goes before one that has not": {remediation("x", begun), self(0, time.Time{}), true},
		"one that has not begun goes before nobody":       {remediation("x", `{"state":"Pending"}`), self(0, time.Time{}), false},
		"nor does one that is new":                        {remediation("x", ""), self(0, time.Time{}), false},
		"nor one that is over":                            {remediation("x", `{"state":"Succeeded","attempt":1}`), self(0, time.Time{}), false},
		"of two that have begun the earlier goes first":   {remediation("x", begun), self(1, noon.Add(time.Second)), true},
		"and the later does not":                          {remediation("x", begun), self(1, noon.Add(-time.Second)), false},
		"of two that began together one goes, by its UID": {remediation("a", begun), self(1, noon), true},
		"and the other does not":                          {remediation("x", begun), self(1, noon), false},
		"nor one that is paused before it has touched its host": {
			remediation("x", `{"state":"Preparing","attempt":1,"began":"2026-01-01T12:00:00Z","paused":"2026-01-01T12:00:00Z"}`), self(0, time.Time{}), false,
		},
		"but one that is paused while its host boots does": {
			remediation("x", `{"state":"Booting","attempt":1,"began":"2026-01-01T12:00:00Z","paused":"2026-01-01T12:00:00Z"}`), self(0, time.Time{}), true,
		},
		"nobody goes before itself":                   {remediation("m", begun), self(0, time.Time{}), false},
		"of what cannot be read the worst is assumed": {remediation("x", "{"), self(1, noon.Add(-time.Hour)), true},
	} {
		if got := goesBefore(tc.other, tc.w); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatIsRememberedSurvivesAMove(t *testing.T) {
	rec, err := recordOf(remediation("new", `{"state":"PoweringOff","attempt":2,"uid":"old","host":"h","node":"n"}`))
	if err != nil {
		t.Fatal(err)
	}
	if by := rec.by(remediation("new", "")); by.UID != "new" || by.Before != "old" {
		t.Errorf("it is known as %+v, want new, and old before", by)
	}
	if by := rec.by(remediation("old", "")); by.Before != "" {
		t.Errorf("one that was not moved was known as %q before", by.Before)
	}
	if rec.State != powercycle.PoweringOff || rec.Attempt != 2 || rec.Host != "h" || rec.Node != "n" {
		t.Errorf("it remembers %+v", rec)
	}
	if _, err := recordOf(remediation("new", `{"state":7}`)); err == nil {
		t.Error("what cannot be read is no error: it would begin anew")
	}
}

func TestASketchOfTheQueueChangesNothing(t *testing.T) {
	var none *Turns
	if got := none.sketch().Take("queue", "a", "a", noon); got != "" {
		t.Errorf("without a queue %q is ahead, want nobody", got)
	}
	var turns Turns
	turns.Take("queue", "a", "a", noon)
	sketch := turns.sketch()
	if got := sketch.Take("queue", "b", "b", noon); got != "a" {
		t.Errorf("in the sketch %q is ahead, want a", got)
	}
	sketch.Take("other", "b", "b", noon)
	if got := turns.Take("other", "c", "c", noon); got != "" {
		t.Errorf("%q of the sketch is ahead, want nobody", got)
	}
}

func TestOnlyARemediationWithAHostTakesItsTurn(t *testing.T) {
	for is, takes := range map[powercycle.Host]bool{powercycle.HostOurs: true, powercycle.HostForeign: false} {
		k := fixtureOf(t)
		k.found = &host.Found{Host: k.host, Is: is, Why: "consumerRef"}
		w, err := k.r.observe(t.Context(), k.key, noon)
		if err != nil {
			t.Fatal(err)
		}
		if ahead := k.r.Turns.Take(queueOf(w), "other", "other", noon); (ahead != "") != takes {
			t.Errorf("host %d: %q goes before another one, want it to have taken its turn %t", is, ahead, takes)
		}
	}
}
