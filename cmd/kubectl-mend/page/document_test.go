package page

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/test/golden"
)

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
	stories := map[string]struct {
		story
		phase  cliv1.Phase
		reason string
	}{
		"a machine that is healthy":          {story{aScene(), machine("w1")}, cliv1.Healthy, ""},
		"a machine within its timeout":       {story{aScene(silent(2*time.Minute, "w1")), machine("w1")}, cliv1.Pending, "NodeCondition"},
		"a machine whose remediation begins": {story{aScene(silent(6*time.Minute, "w1")), machine("w1")}, cliv1.Remediating, "RemediationStarts"},
		"a machine that its owner is asked to remediate": {story{aScene(silent(6*time.Minute, "w1"),
			askedOwner("w1", "WaitingForRemediation", "Waiting for remediation")), machine("w1")}, cliv1.Remediating, "WaitingForRemediation"},
		"a machine whose owner puts it off": {story{aScene(silent(6*time.Minute, "w1"),
			askedOwner("w1", "RemediationDeferred", "* MachineSet default/md-0 waits for other machines")), machine("w1")}, cliv1.Blocked, "RemediationDeferred"},
		"a machine whose owner refuses": {story{aScene(silent(6*time.Minute, "w1"),
			askedOwner("w1", "CannotBeRemediated", "* it cannot")), machine("w1")}, cliv1.Blocked, "CannotBeRemediated"},
		"a machine that is short-circuited": {story{aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")),
			machine("w1")}, cliv1.Blocked, "TooManyUnhealthy"},
		"a machine that waits for others": {story{aScene(silent(6*time.Minute, "w1"), silent(7*time.Minute, "w2"),
			func(s *scene) { s.check.Annotations[mendv1.MaxInFlightAnnotation] = "1" }), machine("w1")}, cliv1.Blocked, "RemediationsInProgress"},
		"a machine on its way out": {story{aScene(silent(6*time.Minute, "w1"), func(s *scene) {
			s.machines["w1"].DeletionTimestamp, s.machines["w1"].Finalizers = ptr.To(at(time.Minute)), []string{"a/b"}
		}), machine("w1")}, cliv1.Remediating, "MachineBeingDeleted"},
		"a machine that two checks select": {story{aScene(silent(6*time.Minute, "w1"), secondCheck), machine("w1")}, cliv1.Remediating, "RemediationStarts"},
		"a machine that no check selects": {story{aScene(func(s *scene) { s.machines["w1"].Labels["pool"] = "gpu" }),
			machine("w1")}, cliv1.NotChecked, "NotSelected"},
		"a machine to be skipped": {story{aScene(annotated("w1", clusterv1.MachineSkipRemediationAnnotation)), machine("w1")}, cliv1.NotChecked, "Skipped"},
		"a cluster out of sight":  {story{aScene(silent(6*time.Minute, "w1"), outOfSight), machine("w1")}, cliv1.Unknown, "Unreachable"},
		"no manager runs": {story{aScene(silent(6*time.Minute, "w1"),
			func(s *scene) { s.manager.Spec.RenewTime.Time = noon.Add(-time.Hour) }), machine("w1")}, cliv1.Blocked, "NoManager"},
		"a host that is being powered off": {story{aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff)), host("rack-w1")},
			cliv1.Remediating, "PoweringOff"},
		"a check of which all are healthy": {story{aScene(), check("workers")}, cliv1.Healthy, ""},
		"a check that is short-circuited": {story{aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")),
			check("workers")}, cliv1.Blocked, "TooManyUnhealthy"},
		"a host of the control plane that waits for another one": {story{aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.Pending), controlPlane),
			machine("w1")}, cliv1.Blocked, "WaitingInQueue"},
		"a node of the control plane that is second": {story{aScene(ownNodes(6*time.Minute, members, also(7*time.Minute, 1), few)), node("n1")},
			cliv1.Blocked, "NotFirstInQueue"},
		"a node after a storm": {story{aScene(ownNodes(6*time.Minute, cooling)), node("n1")}, cliv1.Blocked, "StormRecovery"},
	}
	golden.StoriesIn(t, "testdata/json", stories, func(t *testing.T, s struct {
		story
		phase  cliv1.Phase
		reason string
	},
	) string {
		e, err := s.ask(t.Context(), s.scene.asker(t))
		if err != nil {
			t.Fatal(err)
		}
		d := e.Document()
		if d.Phase != s.phase || d.Reason != s.reason {
			t.Errorf("it is %s %q, want %s %q", d.Phase, d.Reason, s.phase, s.reason)
		}
		reasoned(t, d)
		return indented(t, d)
	})
}

// reasoned fails if a step has no reason, or a field that programs read holds a sentence.
func reasoned(t *testing.T, d *cliv1.Explanation) {
	t.Helper()
	steps, words := []*cliv1.Step{&d.Next}, []string{d.Reason}
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
		if s == nil {
			continue
		}
		if words = append(words, s.Reason); s.Reason == "" {
			t.Errorf("a step has no reason: %s", s.Message)
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
		all, err := Of(t.Context(), s.asker(t), "", "")
		if err != nil {
			t.Fatal(err)
		}
		d := indented(t, all.Document())
		golden.Compare(t, "testdata/json/"+file, d)
		decoder := json.NewDecoder(bytes.NewBufferString(d))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&cliv1.Status{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
