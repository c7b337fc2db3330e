package page

import (
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/test/golden"
)

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
	var packed bytes.Buffer
	if err := shortCircuited().snapshot(t).Save(&packed); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, sample, string(text))

	loaded, err := snapshot.Load(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	a, err := inspect.New(t.Context(), loaded, loaded.Taken)
	if err != nil {
		t.Fatal(err)
	}
	e, err := check("workers")(t.Context(), a)
	golden.Compare(t, filepath.Join("testdata", "a-check-that-is-short-circuited-by-the-unhealthy.txt"), page80and200(t, e, err))
}
