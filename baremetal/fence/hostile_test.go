package fence

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// endless offers page after page of pods, each with the same ones.
func endless(asked *int, pods ...corev1.Pod) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		into, is := list.(*corev1.PodList)
		if !is {
			return c.List(ctx, list, opts...)
		}
		*asked++
		if *asked > 10*mostPages {
			return context.Canceled // it would go on for ever
		}
		into.Continue, into.Items = "more", pods
		return nil
	}}
}

func TestAListWithoutEndIsNotFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		left bool
	}{
		"of pods that have to move: they are left": {[]corev1.Pod{*pod("p")}, true},
		"of pods that need not: others may follow": {[]corev1.Pod{*pod("p", inPhase(corev1.PodSucceeded))}, false},
		"of nothing": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			seen := clusterOf(endless(&asked, tc.pods...), node(outage)).look(t, us)
			if asked != mostPages || seen.Drained || (seen.Count > 0) != tc.left || len(seen.Left) > few {
				t.Errorf("asked for %d pages, drained: %t, %d left: %v", asked, seen.Drained, seen.Count, seen.Left)
			}
			if !tc.left && (seen.Presence != Unseen || seen.Cause == nil) {
				t.Errorf("it is %d, because of %v; want that it could not be seen", seen.Presence, seen.Cause)
			}
		})
	}
}
