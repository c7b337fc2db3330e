package remediator

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestARequestIsProcessedStepByStep(t *testing.T) {
	const takes = 4 * time.Minute
	says := func(r Report, ago time.Duration) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			must.Do(t, r.Set(u, noon.Add(-ago)))
		}
	}
	timedOut := func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{nhcv1.TimedOutAnnotation: "now"})
	}
	for name, tc := range map[string]struct {
		edits []func(*unstructured.Unstructured)
		want  Step
	}{
		"a new one is begun": {nil, Step{Report: &Started, After: takes}},
		"work goes on for as long as it takes": {[]func(*unstructured.Unstructured){says(Started, time.Minute)},
			Step{After: 3 * time.Minute}},
		"then it acts on the node":       {[]func(*unstructured.Unstructured){says(Started, takes)}, Step{Acts: true}},
		"what is finished is left alone": {[]func(*unstructured.Unstructured){says(Finished, 0)}, Step{}},
		"what has failed is left alone":  {[]func(*unstructured.Unstructured){says(Failed, 0)}, Step{}},
		"work stops when its time is over": {[]func(*unstructured.Unstructured){says(Started, takes), timedOut},
			Step{Report: &Stopped}},
		"a stopped one is left alone": {[]func(*unstructured.Unstructured){says(Stopped, 0), timedOut}, Step{}},
		"one that is being deleted is left alone": {[]func(*unstructured.Unstructured){says(Started,
			takes), func(u *unstructured.Unstructured) {
			u.SetDeletionTimestamp(&metav1.Time{Time: noon})
		}}, Step{}},
	} {
		request := &unstructured.Unstructured{Object: map[string]any{}}
		for _, edit := range tc.edits {
			edit(request)
		}
		must.Is(t, tc.want, Next(request, takes, noon), "%s:", name)
	}
}
