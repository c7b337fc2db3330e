package main

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// watch records what changes from now on, until the context ends.
func (s *environment) watch(background context.Context) error {
	hosts := builders.Metal3Machine(&clusterv1.Machine{})
	here, err := s.observe(background, map[client.Object]toolscache.ResourceEventHandler{
		hosts:                           changes(s.record, hostChanged),
		&clusterv1.Machine{}:            changes(s.record, machineChanged),
		&clusterv1.MachineHealthCheck{}: changes(s.record, checkChanged),
		&eventsv1.Event{}:               changes(s.record, eventChanged),
		&bmov1alpha1.BareMetalHost{}:    changes(s.record, bareMetalChanged),
		&mendv1.HostRemediation{}:       changes(s.record, remediationChanged(s.narrator.at)),
		&corev1.Node{}:                  changes(s.record, nodeChanged),
		&corev1.Pod{}:                   changes(s.record, podChanged),
		&storagev1.VolumeAttachment{}:   changes(s.record, volumeChanged),
	})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(background, patience)
	defer cancel()
	if !here.WaitForCacheSync(ready) {
		return fmt.Errorf("watch the cluster: the first lists took longer than %s", patience)
	}
	s.background.Go(func() { s.watchPending(background) })
	return nil
}

func (s *environment) observe(background context.Context, handlers map[client.Object]toolscache.ResourceEventHandler) (cache.Cache, error) {
	c, err := cache.New(s.plane.Config(), cache.Options{Scheme: s.scheme})
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	for object, handler := range handlers {
		informer, err := c.GetInformer(background, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	s.background.Go(func() {
		// If it ends early nothing is seen any more, and the scene says so.
		_ = c.Start(background)
	})
	return c, nil
}

// changes calls a function for every change of an object: with the object as it was, or nil, and as it is, or nil. What
// was there at the beginning is no change.
func changes[T client.Object](r *record, changed func(old, updated T) []observation) toolscache.ResourceEventHandler {
	var none T
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if updated, ok := obj.(T); ok && !initial {
				r.add(changed(none, updated)...)
			}
		},
		UpdateFunc: func(before, after any) {
			old, known := before.(T)
			updated, ok := after.(T)
			if known && ok {
				r.add(changed(old, updated)...)
			}
		},
		DeleteFunc: func(obj any) {
			if last, missed := obj.(toolscache.DeletedFinalStateUnknown); missed {
				obj = last.Obj
			}
			if old, ok := obj.(T); ok {
				r.add(changed(old, none)...)
			}
		},
	}
}
