package machinehealthcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Events of the same regarding, related, reason and action are one to the API server's clients, which only count it: the second machine would be
// reported under the name of the first.
func TestEachRemediationHasItsOwnEvent(t *testing.T) {
	related := map[string]string{}
	for _, name := range []string{"first", "second"} {
		w := aCheck(a(name, health.Unhealthy))
		orphan := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		orphan.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
		p := w.decide()
		for _, note := range remediationNotes(w, p, []outcome{{step: step{Decision: p.Decisions[0], target: w.targets[0]}, requested: true}, {released: orphan}}) {
			related[note.Text] = note.Related.GetObjectKind().GroupVersionKind().Kind + " " + note.Related.GetName()
		}
	}
	want := map[string]string{
		"Asked the owner to remediate first": "Machine first", "Deleted HostRemediation first: no target needs it any more": "HostRemediation first",
		"Asked the owner to remediate second": "Machine second", "Deleted HostRemediation second: no target needs it any more": "HostRemediation second",
	}
	if diff := cmp.Diff(want, related); diff != "" {
		t.Errorf("what the events are about (-want +got):\n%s", diff)
	}
}
