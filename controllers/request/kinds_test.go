package request

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watcher counts its watches, and may refuse one.
type watcher struct {
	watches int
	refuses bool
}

func (w *watcher) Watch(source.TypedSource[reconcile.Request]) error {
	if w.refuses {
		return errors.New("refused")
	}
	w.watches++
	return nil
}

func TestAWatchThatFailsIsTriedAgainAndTheOthersAreNot(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Thing"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind("ThingList"), &metav1.PartialObjectMetadataList{})
	synced := true
	informers := &informertest.FakeInformers{Scheme: scheme, Synced: &synced}
	k := NewKinds(cache.Cache(informers), fake.NewClientBuilder().WithScheme(scheme).Build(), "", NewMetadata)
	first, second := &watcher{}, &watcher{refuses: true}
	k.Notify(first, nil)
	k.Notify(second, nil)
	if _, err := k.Ready(context.Background(), kind); err == nil {
		t.Fatal("a watch that was refused is no error")
	}
	second.refuses = false
	if _, err := k.Ready(context.Background(), kind); err != nil {
		t.Fatal(err)
	}
	if first.watches != 1 || second.watches != 1 {
		t.Errorf("the first watches %d times, the second %d times; want one each", first.watches, second.watches)
	}
}
