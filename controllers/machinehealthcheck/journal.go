package machinehealthcheck

import (
	"slices"
	"sync"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// journal holds the names of the machines that events were about, in their order, so that a reconcile reads those again and no others.
//
// A name is noted by the handler of the event, which the informer calls after it has stored the object, and before a reconcile is enqueued. A reconcile asks
// for the names first and reads the objects afterwards: it sees what the events were about or something newer, and is enqueued again for what has no entry yet.
// The zero value is ready for use, and notes nothing of clusters for which no check has asked.
type journal struct {
	mu       sync.Mutex
	clusters map[client.ObjectKey]*entries
}

// entries are those of one cluster. The first one has the number first.
type entries struct {
	first int
	names []string
}

// mostEntries is how many names are kept of a cluster at least. A check that was not reconciled for longer than that reads all of its machines.
const mostEntries = 1024

// position is a place in a journal. The zero value is in none.
type position struct {
	in *entries
	at int
}

// note notes that an event was about that machine or about its node.
func (j *journal) note(cluster client.ObjectKey, machine string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	is := j.clusters[cluster]
	if is == nil {
		return
	}
	if len(is.names) >= 2*mostEntries {
		is.first, is.names = is.first+mostEntries, slices.Clone(is.names[mostEntries:])
	}
	is.names = append(is.names, machine)
}

// forget forgets a cluster: to a check that asks for it next the names are not known.
func (j *journal) forget(cluster client.ObjectKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.clusters, cluster)
}

// since returns the names that were noted since a position, and the position from which to ask next. known is false if not all names are known any more.
func (j *journal) since(cluster client.ObjectKey, from position) (names []string, until position, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	is := j.clusters[cluster]
	if is == nil {
		is = &entries{}
		if j.clusters == nil {
			j.clusters = map[client.ObjectKey]*entries{}
		}
		j.clusters[cluster] = is
	}
	until = position{in: is, at: is.first + len(is.names)}
	if from.in != is || from.at < is.first {
		return nil, until, false
	}
	return slices.Clone(is.names[from.at-is.first:]), until, true
}

// noted is a predicate that lets all events of machines through, and notes them. It has to be the first one.
func (j *journal) noted() predicate.Predicate {
	note := func(obj client.Object) bool {
		if m, is := obj.(*clusterv1.Machine); is {
			j.note(client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, m.Name)
		}
		return true
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return note(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return note(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return note(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return note(e.ObjectOld) && note(e.ObjectNew) },
	}
}
