package capacity

import (
	"cmp"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// replacement finds the machine that replaces the one that is asked for.
//
// A KubeadmControlPlane writes it down. A MachineSet does not, and makes a machine only after the old one is gone, since one that is being
// deleted counts among its replicas (syncReplicas): so a machine that still exists has none, and of those that are gone the first to go has
// the first that was made since.
func (f *Facts) replacement() Replacement {
	if f.old != nil {
		return f.writtenDown(f.Name, f.old.CreationTimestamp.Time)
	}
	loss := Loss{Name: f.Name, At: firstKnown(f.Gone, f.Began), Found: f.Found, Host: f.Host}
	return f.replacementOf(loss, f.Created, f.Lost)
}

// replacementOf finds the machine that replaces loss, which was created then, where others were lost as well. Of a loss without a moment
// each machine might be the one. What replaced a replacement that is gone itself replaces loss.
func (f *Facts) replacementOf(loss Loss, created time.Time, others []Loss) Replacement {
	if written := f.writtenDown(loss.Name, created); written.Name != "" {
		return written
	}
	if next, known := f.lostAgain(loss, others); known {
		by := f.replacementOf(next, time.Time{}, without(others, next.Name))
		if by.By == Alone { // two are gone
			by.By = ByOrder
		}
		return by
	}
	if loss.At.IsZero() {
		return Replacement{}
	}
	candidates := f.madeSince(loss.At)
	if machine := f.onHost(candidates, loss.Host); machine != nil {
		return Replacement{machine.Name, SameHost}
	}
	if machine := f.other(loss.Found); machine != nil && machine.DeletionTimestamp.IsZero() {
		return Replacement{machine.Name, ByOrder} // else the next one would be taken once another loss is made up for, and forgotten
	}
	if len(others) == 0 && len(candidates) == 1 {
		return Replacement{candidates[0].Name, Alone}
	}
	return f.inOrder(loss, others)
}

// writtenDown is the machine of which its owner, or a record, says that it replaces the one of a name that was created then.
func (f *Facts) writtenDown(name string, created time.Time) Replacement {
	for _, machine := range f.others {
		replaces, _ := Replaces(machine)
		switch {
		case name == "" || machine.CreationTimestamp.Time.Before(created):
		case replaces == name:
			return Replacement{machine.Name, Recorded}
		case replaces == "" && f.Remembered[machine.Name] == name:
			return Replacement{machine.Name, Remembered}
		}
	}
	return Replacement{}
}

// lostAgain is the machine that replaced loss, if that is gone, and its own loss is known or its owner says what replaces it.
func (f *Facts) lostAgain(loss Loss, others []Loss) (next Loss, known bool) {
	if loss.Found == "" || f.other(loss.Found) != nil {
		return Loss{}, false
	}
	i := slices.IndexFunc(others, func(other Loss) bool { return other.Name == loss.Found })
	if i < 0 {
		return Loss{Name: loss.Found}, f.writtenDown(loss.Found, time.Time{}).Name != ""
	}
	return others[i], true
}

func without(losses []Loss, name string) []Loss {
	return slices.DeleteFunc(slices.Clone(losses), func(loss Loss) bool { return loss.Name == name })
}

// passedOn reports whether loss is that of its replacement by now: that is the machine that is asked for, or lost as well.
func (f *Facts) passedOn(loss Loss, asked string) bool {
	if loss.Found == "" || loss.Found == loss.Name || f.other(loss.Found) != nil {
		return false
	}
	return loss.Found == asked || slices.ContainsFunc(f.Lost, func(other Loss) bool { return other.Name == loss.Found })
}

// onHost is the first of machines that has a host; nil if none has. It is asked for each machine that was lost: the host tells its machine.
func (f *Facts) onHost(machines []*clusterv1.Machine, host string) *clusterv1.Machine {
	for i := range f.hosts {
		if f.hosts[i].Name != host {
			continue
		}
		for _, machine := range machines {
			if has(&f.hosts[i], machine) && f.hostOf(machine) == &f.hosts[i] {
				return machine
			}
		}
	}
	return nil
}

// madeSince are the other machines that were made since at and that are not written down as replacements, the oldest one first.
func (f *Facts) madeSince(at time.Time) []*clusterv1.Machine {
	return since(slices.DeleteFunc(slices.Clone(f.others), func(machine *clusterv1.Machine) bool {
		replaces, _ := Replaces(machine)
		return replaces != "" || f.Remembered[machine.Name] != ""
	}), at)
}

// since are those of machines, the oldest one first, that were made since at. Objects have the time of their creation in seconds.
func since(machines []*clusterv1.Machine, at time.Time) []*clusterv1.Machine {
	i := slices.IndexFunc(machines, func(machine *clusterv1.Machine) bool {
		return !machine.CreationTimestamp.Time.Before(at.Truncate(time.Second))
	})
	if i < 0 {
		return nil
	}
	return machines[i:]
}

// inOrder gives each machine that was lost, in the order in which they were, the first machine that was made since and that no other has.
// One that has the host of a lost machine is not free for another.
func (f *Facts) inOrder(loss Loss, others []Loss) Replacement {
	others = slices.DeleteFunc(slices.Clone(others), func(other Loss) bool { return f.passedOn(other, loss.Name) })
	lost, taken, made := append(slices.Clone(others), loss), map[string]bool{}, f.madeSince(time.Time{})
	for _, other := range others {
		if machine := f.onHost(since(made, other.At), other.Host); machine != nil {
			taken[machine.Name] = true
			lost = without(lost, other.Name)
		}
		if f.other(other.Found) != nil && slices.ContainsFunc(lost, func(l Loss) bool { return l.Name == other.Name }) {
			taken[other.Found] = true
		}
	}
	slices.SortFunc(lost, func(a, b Loss) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name)) })
	for _, next := range lost {
		if taken[next.Found] {
			continue
		}
		candidates := since(made, next.At)
		free := slices.IndexFunc(candidates, func(machine *clusterv1.Machine) bool { return !taken[machine.Name] })
		if free < 0 {
			continue
		}
		machine := candidates[free]
		if next.Name == loss.Name {
			return Replacement{machine.Name, ByOrder}
		}
		taken[machine.Name] = true
	}
	return Replacement{}
}

// Predecessor returns the machine that the one that is asked for was made for: what is written down or, of those that are lost, the one
// whose replacement it is by its host, or by order.
func (f *Facts) Predecessor() Replacement {
	if f.old == nil {
		return Replacement{}
	}
	if written := f.MadeFor(f.old); written.Name != "" {
		return written
	}
	facts := *f
	facts.old, facts.others = nil, append(slices.Clone(f.others), f.old)
	slices.SortFunc(facts.others, byAge)
	for _, loss := range f.Lost {
		if loss.Found != f.old.Name && f.passedOn(loss, f.old.Name) {
			continue // it was not made for this one, but for that one's replacement
		}
		if by := facts.replacementOf(loss, time.Time{}, without(f.Lost, loss.Name)); by.Name == f.old.Name {
			return Replacement{loss.Name, by.By}
		}
	}
	return Replacement{}
}

// MadeFor is the machine that machine was made for, as it is written down.
func (s *Subject) MadeFor(machine *clusterv1.Machine) Replacement {
	if name, _ := Replaces(machine); name != "" {
		return Replacement{name, Recorded}
	}
	if name := s.Remembered[machine.Name]; name != "" {
		return Replacement{name, Remembered}
	}
	return Replacement{}
}

func byAge(a, b *clusterv1.Machine) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
