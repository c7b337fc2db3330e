package machinehealthcheck

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// sighting is what a reconcile has read of the machines of a cluster, for the next one: the facts about a machine that has not changed are the same
// pointer, which tells a decision that nothing has to be judged again. It is not changed once the reconcile is over, and without it the facts
// are the same. (docs/adr/0051-decide-judges.md)
type sighting struct {
	check      types.UID
	generation int64
	places     map[string]int // in machines, by name
	machines   []*sighted     // of the cluster, by name
}

// sighted is one machine as it was read. It and its node are shared with the caches, which never change an object: another version of it is another
// pointer.
type sighted struct {
	machine  *clusterv1.Machine
	selected bool
	skipped  bool // its user wants it left alone

	node  *corev1.Node
	known health.Node
	facts *machines.Target
}

// machine is the machine of that name; nil if there is none.
func (s *sighting) machine(name string) *clusterv1.Machine {
	if place, known := s.places[name]; known {
		return s.machines[place].machine
	}
	return nil
}

// next is the sighting of all machines of the cluster, without their nodes. What has not changed since s is taken from there.
func (s *sighting) next(check *clusterv1.MachineHealthCheck, all []*clusterv1.Machine, selector labels.Selector) *sighting {
	is := &sighting{check: check.UID, generation: check.Generation, machines: make([]*sighted, len(all))}
	if s == nil || s.check != is.check || s.generation != is.generation { // the selector, or what is judged, may be another one
		s = &sighting{}
	}
	if len(all) != len(s.machines) {
		return s.sorted(is, all, selector)
	}
	for _, m := range all {
		place, known := s.places[m.Name]
		if !known {
			return s.sorted(is, all, selector)
		}
		if is.machines[place] = s.machines[place]; s.machines[place].machine != m {
			is.machines[place] = newlySighted(m, selector)
		}
	}
	is.places = s.places
	return is
}

func newlySighted(m *clusterv1.Machine, selector labels.Selector) *sighted {
	return &sighted{machine: m, selected: selector.Matches(labels.Set(m.Labels)), skipped: len(leftAloneBy(m)) > 0}
}

// sorted fills in is, which has other machines than s.
func (s *sighting) sorted(is *sighting, all []*clusterv1.Machine, selector labels.Selector) *sighting {
	for i, m := range all {
		if place, known := s.places[m.Name]; known && s.machines[place].machine == m {
			is.machines[i] = s.machines[place]
		} else {
			is.machines[i] = newlySighted(m, selector)
		}
	}
	slices.SortFunc(is.machines, func(a, b *sighted) int { return cmp.Compare(a.machine.Name, b.machine.Name) })
	is.places = make(map[string]int, len(all))
	for i, m := range is.machines {
		is.places[m.machine.Name] = i
	}
	return is
}
