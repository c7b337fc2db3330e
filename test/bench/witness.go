package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/test/rig"
)

// milestone is a moment of a power cycle.
type milestone string

// The milestones of a cycle, in order, except that nodeReady and unfenced may come in any order.
const (
	nodeFailed milestone = "node Unknown"
	requested  milestone = "remediation created"
	askedOff   milestone = "power-off requested"
	off        milestone = "host off"
	fenced     milestone = "node fenced"
	askedOn    milestone = "power-on requested"
	on         milestone = "host on"
	nodeReady  milestone = "node Ready"
	unfenced   milestone = "fence removed"
	healthy    milestone = "machine healthy"
	ended      milestone = "remediation deleted"
)

// seenOf are the milestones that a witness sees.
var seenOf = []milestone{requested, askedOff, off, fenced, askedOn, on, nodeReady, unfenced, ended}

// cycle is when each milestone of a power cycle was seen first.
type cycle map[milestone]time.Time

func (c cycle) between(from, to milestone) time.Duration { return c[to].Sub(c[from]) }

// whole is the time from the node Unknown to the machine healthy.
func (c cycle) whole() time.Duration { return c.between(nodeFailed, healthy) }

// added is the part of it that neither the host nor the kubelet took.
func (c cycle) added() time.Duration {
	return c.whole() - c.between(askedOff, off) - c.between(askedOn, on) - c.between(on, nodeReady)
}

// witness watches hosts, nodes and remediations, and notes the milestones of the cycles that are waited for. Machine, node, host and
// remediation have the same name.
type witness struct {
	streams []watch.Interface
	reading sync.WaitGroup

	mu       sync.Mutex
	awaited  map[string]cycle
	complete map[string]chan cycle
}

// watch begins to watch everything that power cycles change.
func (r *hostEnvironment) watch(ctx context.Context) (*witness, error) {
	w := &witness{awaited: map[string]cycle{}, complete: map[string]chan cycle{}}
	for _, what := range []struct {
		from client.WithWatch
		list client.ObjectList
	}{{r.managementWatcher, &bmov1alpha1.BareMetalHostList{}}, {r.managementWatcher, &mendv1.HostRemediationList{}}, {r.workloadWatcher, &corev1.NodeList{}}} {
		stream, err := rig.Follow(ctx, what.from, what.list)
		if err != nil {
			w.close()
			return nil, fmt.Errorf("watch power cycles: %w", err)
		}
		w.streams = append(w.streams, stream)
		w.reading.Go(func() {
			for e := range stream.ResultChan() {
				w.see(e, time.Now())
			}
		})
	}
	return w, nil
}

func (w *witness) close() {
	for _, stream := range w.streams {
		stream.Stop()
	}
	w.reading.Wait()
}

// await returns where a cycle is sent when all its milestones were seen.
func (w *witness) await(name string) <-chan cycle {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaited[name], w.complete[name] = cycle{}, make(chan cycle, 1)
	return w.complete[name]
}

// seen are the milestones that were seen of a cycle that is awaited.
func (w *witness) seen(name string) []milestone {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.awaited[name]))
}

func (w *witness) see(e watch.Event, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object, ok := e.Object.(client.Object)
	if !ok {
		return
	}
	c := w.awaited[object.GetName()]
	if c == nil {
		return
	}
	switch is := object.(type) {
	case *bmov1alpha1.BareMetalHost:
		c.seeHost(is, at)
	case *mendv1.HostRemediation:
		c.note(requested, at, true)
		c.note(ended, at, e.Type == watch.Deleted)
	case *corev1.Node:
		c.seeNode(is, at)
	}
	if !slices.ContainsFunc(seenOf, func(m milestone) bool { return c[m].IsZero() }) {
		w.complete[object.GetName()] <- c
		delete(w.awaited, object.GetName())
	}
}

func (c cycle) seeHost(is *bmov1alpha1.BareMetalHost, at time.Time) {
	held := host.KeptOffByOthers(is, host.Remediation{}) != ""
	c.note(askedOff, at, held)
	c.note(off, at, !is.Status.PoweredOn)
	c.note(askedOn, at, !held, askedOff)
	c.note(on, at, is.Status.PoweredOn, off)
}

func (c cycle) seeNode(is *corev1.Node, at time.Time) {
	tainted := slices.ContainsFunc(is.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
	c.note(fenced, at, tainted)
	c.note(unfenced, at, !tainted, fenced)
	again := slices.ContainsFunc(is.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	c.note(nodeReady, at, again && is.Status.NodeInfo.BootID != is.Name) // it was created with its name as boot ID
}

// note notes a milestone that is reached for the first time, and after those that come before it.
func (c cycle) note(m milestone, at time.Time, reached bool, after ...milestone) {
	late := slices.ContainsFunc(after, func(before milestone) bool { return c[before].IsZero() })
	if reached && !late && c[m].IsZero() {
		c[m] = at
	}
}
