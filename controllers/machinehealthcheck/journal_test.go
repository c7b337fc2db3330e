package machinehealthcheck

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestAJournalTellsWhatWasNotedSinceOrThatItDoesNotKnow(t *testing.T) {
	var j journal
	one, other := client.ObjectKey{Name: "one"}, client.ObjectKey{Name: "other"}
	j.note(one, "before anybody asked")
	_, start, known := j.since(one, position{})
	if known || len(j.clusters[one].names) > 0 {
		t.Error("what was noted before anybody asked is known")
	}
	j.note(one, "a")
	j.note(other, "b")
	j.note(one, "c")
	names, next, known := j.since(one, start)
	if !known || !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("got %v, known: %t", names, known)
	}
	if names, _, known = j.since(one, next); !known || len(names) > 0 {
		t.Errorf("names that were returned already are returned again: %v", names)
	}
	if names, _, known = j.since(one, start); !known || len(names) != 2 {
		t.Errorf("another check that asks later gets %v", names)
	}
	if _, _, known = j.since(other, next); known {
		t.Error("a position in the journal of one cluster is known in that of another one")
	}
	for i := range 2 * mostEntries {
		j.note(one, strconv.Itoa(i))
	}
	if _, _, known = j.since(one, start); known {
		t.Error("what is not kept any more is known")
	}
	if names, _, known = j.since(one, position{next.in, next.at + mostEntries + 7}); !known || names[0] != strconv.Itoa(mostEntries+7) || len(names) != mostEntries-7 {
		t.Errorf("of what is kept, %d names are returned", len(names))
	}
	if kept := len(j.clusters[one].names); kept > 2*mostEntries {
		t.Errorf("%d names are kept", kept)
	}
	j.forget(one)
	if _, _, known = j.since(one, next); known {
		t.Error("of a cluster that was forgotten all is known")
	}
}

func nodeNamed(name, id string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
}

// Also of events after which no check is reconciled: the next reconcile, whatever causes it, reads these machines again.
func TestAMachineIsNotedWhateverEventIsAboutItOrItsNode(t *testing.T) {
	r, c1 := reconciling(t, func(*clusterv1.MachineHealthCheck) {}), client.ObjectKey{Namespace: "ns", Name: "c1"}
	m := r.machine()
	m.Spec.ProviderID = "azure://m"
	if err := r.api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Status.NodeRef.Name = "n"
	if err := r.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	noted := r.journal.noted()
	for name, about := range map[string]func(){
		"a machine is new":        func() { noted.Create(event.CreateEvent{Object: m}) },
		"a machine has changed":   func() { noted.Update(event.UpdateEvent{ObjectOld: m, ObjectNew: m}) },
		"a machine is gone":       func() { noted.Delete(event.DeleteEvent{Object: m}) },
		"a node has changed":      func() { r.checksOfNode(t.Context(), c1, nodeNamed("n", "")) },
		"a node of its provider":  func() { r.checksOfNode(t.Context(), c1, nodeNamed("renamed", "AZURE://m")) },
		"a machine is enqueued":   func() { noted.Generic(event.GenericEvent{Object: m}) },
		"a write of its own came": func() { r.written.begin(m); noted.Update(event.UpdateEvent{ObjectOld: m, ObjectNew: m}) },
	} {
		_, before, _ := r.journal.since(c1, position{})
		about()
		if names, _, known := r.journal.since(c1, before); !known || !slices.Contains(names, "m") {
			t.Errorf("%s: noted are %v", name, names)
		}
	}
	_, before, _ := r.journal.since(c1, position{})
	r.checksOfNode(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c2"}, nodeNamed("n", ""))
	if names, _, known := r.journal.since(c1, before); !known || len(names) > 0 {
		t.Errorf("a node of that name of another cluster: noted are %v", names)
	}
	r.Client = interceptor.NewClient(r.api.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, machines := list.(*clusterv1.MachineList); machines {
				return errors.New("the cache is being shut down")
			}
			return c.List(ctx, list, opts...)
		},
	})
	r.checksOfNode(t.Context(), c1, nodeNamed("n", ""))
	if _, _, known := r.journal.since(c1, before); known {
		t.Error("a node whose machine is not known is taken for none")
	}
}

// unreadable is a store of machines that cannot be read.
type unreadable struct{ toolscache.Indexer }

func (unreadable) ByIndex(string, string) ([]any, error) { return nil, errors.New("no such index") }

// Names are noted from when a reconcile asks for them, whether it ends or not.
func TestNothingIsNotedForACheckThatIsGoneBeforeAReconcileOfItSucceeded(t *testing.T) {
	r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
	r.machines = unreadable{}
	req, c1 := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.check)}, client.ObjectKey{Namespace: "ns", Name: "c1"}
	if _, err := r.Reconcile(t.Context(), req); err == nil || r.journal.clusters[c1] == nil {
		t.Fatalf("the reconcile ends with %v, and asks for no names", err)
	}
	if err := r.api.Delete(t.Context(), r.check); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), req); err != nil || len(r.journal.clusters) > 0 {
		t.Errorf("%v; names are noted of %d clusters, of none a check is left", err, len(r.journal.clusters))
	}
}
