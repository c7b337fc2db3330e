package machinehealthcheck

import (
	"context"
	"slices"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Two machines that come due in different reconciles, between which nothing else has changed, are two events, each with the name of its machine. The
// recorder is the real one, which makes a series of those that it takes for the same.
func TestEachRemediationHasItsOwnEvent(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := kubefake.NewClientset()
	sent := events.NewBroadcaster(&events.EventSinkImpl{Interface: api.EventsV1()})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := sent.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Recorder: sent.NewRecorder(scheme, "kubemend")}
	for _, name := range []string{"first", "second"} {
		w := aCheck(a(name, health.Unhealthy))
		r.send(ctx, remediationNotes(w, w.decide(), []outcome{{step: step{Decision: w.decide().Decisions[0], target: w.targets[0]}, requested: true}}))
		orphan := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		orphan.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
		r.send(ctx, remediationNotes(w, w.decide(), []outcome{{released: orphan}}))
	}
	want := []string{"Asked the owner to remediate first", "Asked the owner to remediate second",
		"Deleted HostRemediation first: no target needs it any more", "Deleted HostRemediation second: no target needs it any more"}
	var told []string
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := api.EventsV1().Events("ns").List(ctx, metav1.ListOptions{})
		told = textsOf(list.Items)
		return len(told) >= len(want), err
	})
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("told are %q, want %q (%v)", told, want, err)
	}
}

func textsOf(told []eventsv1.Event) []string {
	var texts []string
	for i := range told {
		texts = append(texts, told[i].Note)
	}
	slices.Sort(texts)
	return texts
}
