package consistency

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestAnObjectIsStaleUntilTheCacheShowsWhatWasWritten(t *testing.T) {
	at := func(uid types.UID, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version}}
	}
	var w Writes
	for _, step := range []struct {
		name    string
		written string
		uid     types.UID
		cached  string
		want    bool
	}{
		{"what was never written is not", "", "u", "7", false},
		{"what was read before the write is", "12", "u", "7", true},
		{"and stays so", "", "u", "11", true},
		{"the write itself is not", "", "u", "12", false},
		{"nor what came after it", "", "u", "13", false},
		{"versions are numbers", "100", "u", "99", true},
		{"an older answer that comes later changes nothing", "98", "u", "99", true},
		{"another object of the name was not written", "", "other", "99", false},
	} {
		if step.written != "" {
			w.Note(at("u", step.written))
		}
		must.Is(t, step.want, w.Stale(at(step.uid, step.cached)), "%s: stale:", step.name)
	}
}

func TestOfWhatNoCacheShowsTheAPIServerKnowsWhetherItIsNewOrGone(t *testing.T) {
	kind, broken := corev1.SchemeGroupVersion.WithKind("ConfigMap"), errors.New("broken")
	at := func(namespace, name string, uid types.UID, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, ResourceVersion: version}}
	}
	for name, tc := range map[string]struct {
		written *metav1.PartialObjectMetadata
		cached  *metav1.PartialObjectMetadata // nil: the cache does not show it
		fails   error
		want    error
	}{
		"it is new":                             {written: at("ns", "there", "u", "12"), want: ErrStale},
		"it is gone":                            {written: at("ns", "gone", "u", "12")},
		"it may have been written, and it was":  {written: at("ns", "there", "", ""), want: ErrStale},
		"it may have been written, and was not": {written: at("ns", "gone", "", "")},
		"it cannot be asked":                    {written: at("ns", "gone", "u", "12"), fails: broken, want: broken},
		"the cache shows it":                    {written: at("ns", "there", "u", "12"), cached: at("ns", "there", "u", "12")},
		"the cache shows what may be the write": {written: at("ns", "there", "", ""), cached: at("ns", "there", "u", "12")},
		"what is elsewhere matters to no other": {written: at("other", "there", "u", "12")},
	} {
		t.Run(name, func(t *testing.T) {
			live := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "there"}}).
				WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						return cmp.Or(tc.fails, c.Get(ctx, key, obj, opts...))
					},
				}).Build()
			var kinds Kinds
			writes := kinds.Of(kind.GroupKind())
			writes.Note(tc.written)
			if tc.cached != nil && writes.Stale(tc.cached) {
				t.Error("the cache shows it")
			}
			if err := writes.Unseen(t.Context(), live, kind, "ns"); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if again := kinds.Of(kind.GroupKind()).Unseen(t.Context(), live, kind, "ns"); !errors.Is(again, tc.want) {
				t.Errorf("%v once more, want %v", again, tc.want)
			}
		})
	}
}

func TestACacheThatStandsStillIsReadLessAndLessOften(t *testing.T) {
	for times, want := range map[int]time.Duration{0: Lag, 1: Lag, 2: 2 * Lag, 4: 8 * Lag, 7: 64 * Lag, 8: 64 * Lag, 1000: 64 * Lag} {
		must.Is(t, want, Wait(times), "found stale %d times in a row: again after", times)
	}
}
