package rig

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow watches the objects of a kind that options select: it sends those that are there, as Added, and then each write. An API server ends a watch that does
// not keep up with it, and a client one that is silent for too long; Follow goes on after what it has sent last, so that on a busy machine nothing is missed.
// It ends with Stop, with ctx, or after an Error, as when the API server does not know any more what came next.
func Follow(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	if err := c.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list what is to be followed: %w", err)
	}
	there, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read the list of what is to be followed: %w", err)
	}
	writes, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, from metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list, append(options[:len(options):len(options)], &client.ListOptions{Raw: &from})...)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch what is to be followed: %w", err)
	}
	events := make(chan watch.Event)
	following := watch.NewProxyWatcher(events)
	go pass(there, writes, events, following.StopChan())
	return following, nil
}

// pass sends what is there, and then all writes, until stopped.
func pass(there []runtime.Object, writes watch.Interface, to chan<- watch.Event, stopped <-chan struct{}) {
	defer close(to)
	defer writes.Stop()
	send := func(e watch.Event) bool {
		select {
		case to <- e:
			return true
		case <-stopped:
			return false
		}
	}
	for _, o := range there {
		if !send(watch.Event{Type: watch.Added, Object: o}) {
			return
		}
	}
	for {
		select {
		case e, open := <-writes.ResultChan():
			if !open || !send(e) {
				return
			}
		case <-stopped:
			return
		}
	}
}
