package page

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// aFleet is a scene with checks of which one selects nothing that is unhealthy, one has trouble, and one is not claimed.
func aFleet() *scene {
	return aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3"), func(s *scene) {
		for name, machines := range map[string][]string{"control-plane": {"w4", "w5"}, "storage": {"w3"}} {
			other := s.check.DeepCopy()
			other.Name, other.UID, other.CreationTimestamp = name, "", at(12*time.Hour)
			other.Spec.Selector.MatchLabels = map[string]string{"pool": name}
			for _, m := range machines {
				s.machines[m].Labels["pool"] = name
			}
			if name == "storage" {
				other.Annotations = nil
			} else {
				other.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
			}
			s.others = append(s.others, other)
		}
	})
}

func TestTheStatusOfAFleet(t *testing.T) {
	golden.Stories(t, "fleet", map[string]text.Layout{
		"all checks":             {},
		"checks that are not OK": {NotOK: true},
		"with all reasons":       {Wide: true, NotOK: true},
	}, func(t *testing.T, l text.Layout) string {
		s := aFleet()
		kindNotServed(s)
		narrow, wide := l, l
		narrow.Width, narrow.Namespaces, wide.Width, wide.Namespaces = 80, true, 200, true
		return printedAs(t, standing(t, s), narrow, wide)
	})
}

// Names that have no room on a terminal are cut in the middle, and -o wide has them whole.
func TestTheStatusOfSeveralClusters(t *testing.T) {
	golden.Stories(t, "clusters", map[string]text.Layout{"of all namespaces": {Namespaces: true}}, func(t *testing.T, l text.Layout) string {
		s := standing(t, aFleet())
		s.Checks[1].Cluster, s.Checks[1].Name = "edge-7-in-the-north-of-the-country", "workers-with-graphics-cards-of-last-year"
		nodes := cliv1.Check{Reference: explain.Ref{Kind: "NodeHealthCheck", Name: "own-nodes"}, Mode: explain.Acting, Limits: cliv1.Limits{AtMost: new(0)}}
		s.Checks = append(s.Checks, explain.Check{Check: nodes})
		narrow, wide, whole := l, l, l
		narrow.Width, wide.Width, whole.Width, whole.Wide = 80, 200, 40, true
		return printedAs(t, s, narrow, wide, whole)
	})
}

func TestAPageHasOneClock(t *testing.T) {
	east := noon.In(time.FixedZone("EAST", 2*60*60))
	p := &page{Page: text.Page{Layout: text.Layout{Now: east}}}
	for stored, want := range map[string]string{
		"out of reach since 2026-01-01T11:56:00Z; machines":   "out of reach since 13:56:00; machines",
		"(until 2026-01-02T11:56:00.5Z)":                      "(until 2026-01-02 13:56:00)",
		`annotation a/b="2026-01-01T11:56:00Z"`:               `annotation a/b="2026-01-01T11:56:00Z"`,
		"kubectl annotate machine/m a/b=2026-01-01T11:56:00Z": "kubectl annotate machine/m a/b=2026-01-01T11:56:00Z",
		"since 2026-99-01T11:56:00Z":                          "since 2026-99-01T11:56:00Z",
	} {
		if got := p.local(stored); got != want {
			t.Errorf("%q is %q, want %q", stored, got, want)
		}
	}
}

// indented is a document as -o json prints it.
func indented(t *testing.T, document any) string {
	t.Helper()
	content, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(content) + "\n"
}

func TestDocuments(t *testing.T) {
	golden.Stories(t, "json", map[string]story{
		"a machine within its timeout":       {aScene(silent(2*time.Minute, "w1")), machine("w1")},
		"a machine whose remediation begins": {aScene(silent(6*time.Minute, "w1")), machine("w1")},
		"a machine that is short-circuited":  {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")), machine("w1")},
		"a machine that no check selects":    {aScene(func(s *scene) { s.machines["w1"].Labels["pool"] = "gpu" }), machine("w1")},
		"a machine to be skipped":            {aScene(annotated("w1", clusterv1.MachineSkipRemediationAnnotation)), machine("w1")},
		"a cluster out of sight":             {aScene(silent(6*time.Minute, "w1"), outOfSight), machine("w1")},
		"a host that is being powered off":   {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff)), host("rack-w1")},
		"a check of which all are healthy":   {aScene(), check("workers")},
		"a check that is short-circuited":    {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")), check("workers")},
		"a node after a storm":               {aScene(ownNodes(6*time.Minute, cooling)), node("n1")},
	}, func(t *testing.T, s story) string {
		e, err := s.ask(t.Context(), s.scene.asker(t))
		if err != nil {
			t.Fatal(err)
		}
		d := e.Document()
		reasoned(t, d)
		return indented(t, d)
	})
}

// reasoned fails if a step has no reason, or a field that programs read holds a sentence.
func reasoned(t *testing.T, d *cliv1.Explanation) {
	t.Helper()
	steps, words := []cliv1.Step{d.Next}, []string{d.Reason}
	for i := range d.Checks {
		steps, words = append(steps, d.Checks[i].Next), append(words, d.Checks[i].Reason)
		for j := range d.Checks[i].Targets {
			target := &d.Checks[i].Targets[j]
			steps, words = append(steps, target.Next), append(words, target.Reason)
			for _, b := range target.Blockers {
				words = append(words, b.Reason, b.Cause)
			}
		}
	}
	for i := range d.Remediations {
		steps, words = append(steps, d.Remediations[i].Next), append(words, d.Remediations[i].Reason)
	}
	for _, s := range steps {
		if words = append(words, s.Reason); s.Reason == "" && s != (cliv1.Step{}) {
			t.Errorf("a step has no reason: %s", s.Text)
		}
	}
	for _, word := range words {
		if strings.ContainsAny(word, " :.") {
			t.Errorf("%q is a sentence in place of a reason", word)
		}
	}
}

func TestTheDocumentOfAStatus(t *testing.T) {
	for file, s := range map[string]*scene{
		"the-status.json":                           aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3"), secondCheck, kindNotServed),
		"the-status-of-an-unlimited-check.json":     aScene(ownNodes(6 * time.Minute)),
		"the-status-of-a-cluster-out-sight.json":    aScene(outOfSight),
		"the-status-while-capacity-is-missing.json": aScene(drained, noHost),
	} {
		all := standing(t, s)
		d := indented(t, all.Document())
		golden.Compare(t, "testdata/json/"+file, d)
		decoder := json.NewDecoder(bytes.NewBufferString(d))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&cliv1.Status{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// sample is the recording that the docs let readers try --from with.
var sample = filepath.Join("..", "..", "..", "docs", "cli", "samples", "three-of-five.json")

// shortCircuited is the scene of the sample: three of five are silent, and the limit is two.
func shortCircuited() *scene {
	return aScene(silent(6*time.Minute, "w1", "w2", "w3"), func(s *scene) {
		for _, name := range []string{"w1", "w2", "w3"} {
			s.event(corev1.ObjectReference{Kind: "Machine", Namespace: "default", Name: name}, "MachineMarkedUnhealthy",
				"Machine default/"+name+" has been marked as unhealthy by default/workers: Condition Ready on Node is reporting status Unknown with reason NodeStatusUnknown for more than 5m0s")
		}
		s.event(corev1.ObjectReference{Kind: "MachineHealthCheck", Namespace: "default", Name: "workers"}, "RemediationRestricted",
			"Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo (total: 5, unhealthy: 3, unhealthyLessThanOrEqualTo: 40%)")
	})
}

// event adds one of a minute ago.
func (s *scene) event(about corev1.ObjectReference, reason, note string) {
	about.APIVersion = clusterv1.GroupVersion.String()
	s.others = append(s.others, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: about.Name + "." + reason}, EventTime: metav1.NewMicroTime(noon.Add(-time.Minute)),
		Regarding: about, Reason: reason, Note: note, Type: corev1.EventTypeNormal, ReportingController: "kubemend",
	})
}

func TestSampleRecordingsAreDocumented(t *testing.T) {
	var recording bytes.Buffer
	if err := shortCircuited().snapshot(t).Save(&recording); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, sample, recording.String())

	loaded, err := snapshot.Load(&recording)
	if err != nil {
		t.Fatal(err)
	}
	a, err := inspect.New(t.Context(), loaded, loaded.Taken)
	if err != nil {
		t.Fatal(err)
	}
	e, err := check("workers")(t.Context(), a)
	golden.Story(t, "stories", "a check that is short-circuited by the unhealthy", page80and200(t, e, err))
}
