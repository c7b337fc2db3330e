package snapshot

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

func TestNodesAreSeenAsTheyAre(t *testing.T) {
	w, _ := newSnapshot(t)
	w.SetNodes(key("c1"), []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}})
	view, err := w.Clusters().View(t.Context(), key("c1"), noon)
	if err != nil || view.Link != workload.Up || view.Node("a") == nil || view.Node("c") != nil {
		t.Fatalf("the view is %+v (%v)", view, err)
	}
	exist, err := w.Clusters().NodesExist(t.Context(), key("c1"), []string{"a", "b", "c"})
	if err != nil || !exist["a"] || !exist["b"] || exist["c"] || len(w.Nodes(key("c1"))) != 2 {
		t.Errorf("exist %v (%v)", exist, err)
	}
	direct, err := w.Clusters().GetUncachedClient(t.Context(), key("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := direct.Get(t.Context(), client.ObjectKey{Name: "a"}, &corev1.Node{}); err != nil {
		t.Errorf("past the view the node is not seen: %v", err)
	}
}

func TestAClusterThatWasNotSeenIsDown(t *testing.T) {
	w, _ := newSnapshot(t)
	w.SetNodes(key("lost"), []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	w.SetUnseen(key("lost"), "its API server does not answer", noon)
	for _, name := range []string{"lost", "never"} {
		view, err := w.Clusters().View(t.Context(), key(name), noon)
		if err != nil || view.Link != workload.Down {
			t.Errorf("%s: link %d (%v)", name, view.Link, err)
		}
		if _, err := w.Clusters().NodesExist(t.Context(), key(name), []string{"a"}); err == nil {
			t.Errorf("%s: nodes are said to be there or not", name)
		}
		if _, err := w.Clusters().GetUncachedClient(t.Context(), key(name)); !errors.Is(err, clustercache.ErrClusterNotConnected) {
			t.Errorf("%s: it can be asked: %v", name, err)
		}
	}
	if why, since, unseen := w.Unseen(key("lost")); why != "its API server does not answer" || !since.Equal(noon) || !unseen {
		t.Errorf("unseen %t since %s: %s", unseen, since, why)
	}
	if got := w.Workloads(); len(got) != 1 {
		t.Errorf("to ask for a cluster makes it known: %v", got)
	}
}

func TestKindsSayWhatCanBeRead(t *testing.T) {
	template := poisonKind.GroupVersion().WithKind("PoisonTemplate")
	other := schema.GroupVersionKind{Group: "remediators.example.com", Version: "v1", Kind: "Balm"}
	w, _ := newSnapshot(t)
	w.Install(poisonKind, "poisons", true)
	w.Install(template, "poisontemplates", true)
	w.Install(other, "balms", true)
	w.Install(other.GroupVersion().WithKind("BalmTemplate"), "balmtemplates", true)
	hidden := mendv1.GroupVersion.WithKind("HostRemediation")
	w.Forbid(hidden, "hostremediations", true, "", apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")))
	marked := whole(other)
	marked.SetName("m")
	marked.SetNamespace("ns")
	marked.SetLabels(map[string]string{mendv1.MadeByUIDLabel: "u"})
	if err := w.Add(marked); err != nil {
		t.Fatal(err)
	}
	kinds := NewKinds[*remediationrequest.Metadata](w, client.HasLabels{mendv1.MadeByUIDLabel})
	if got := kinds.InUse(); len(got) != 1 || got[0] != other {
		t.Errorf("in use before anybody asks: %v", got)
	}
	for _, gvk := range []schema.GroupVersionKind{poisonKind, template} {
		if ready, err := kinds.Ready(t.Context(), gvk); !ready || err != nil {
			t.Errorf("%s is ready: %t (%v)", gvk.Kind, ready, err)
		}
	}
	if got := kinds.InUse(); len(got) != 2 || got[0] != other || got[1] != poisonKind {
		t.Errorf("in use afterwards: %v", got)
	}
	if ready, err := kinds.Ready(t.Context(), hidden); ready || !apierrors.IsForbidden(err) {
		t.Errorf("a kind that may not be listed: %t, %v", ready, err)
	}
	if ready, err := kinds.Ready(t.Context(), poisonKind.GroupVersion().WithKind("None")); ready || !remediationrequest.Missing(err) || !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not installed: %t, %v", ready, err)
	}
}
