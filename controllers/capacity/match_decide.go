package capacity

import (
	"cmp"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// replacement returns the machine that replaces the lost one.
//
// A KubeadmControlPlane writes it down. A MachineSet does not. It creates a machine only after the old one is gone, since a machine that is
// being deleted counts as a replica (syncReplicas). So a machine that still exists has no replacement, and the machines that are gone match
// the machines that were created since, both in their order.
func (f *Facts) replacement() Replacement {
	if f.old != nil {
		for _, machine := range since(f.others, f.old.CreationTimestamp.Time) { // an older machine cannot replace it
			if lost := f.MadeFor(machine); lost.Name == f.Name {
				return Replacement{machine.Name, lost.By}
			}
		}
		return Replacement{}
	}
	asked := f.Subject
	asked.Gone = cmp.Or(f.Gone, f.Seen)
	losses := append(slices.Clone(f.Lost), asked)
	by := f.matches(losses)
	slices.SortFunc(losses, byLoss)
	for _, loss := range slices.Backward(losses) { // latest first: a lost replacement was lost after the machine it replaced
		if f.lostAgain(loss, losses, by) {
			next := by[loss.Found]
			if next.By == Alone { // two machines are gone
				next.By = ByOrder
			}
			by[loss.Name] = next
		}
	}
	return by[f.Name]
}

// matches returns the replacements by the names of the lost machines: first what is written down, then by the host of the lost machine,
// then what was found earlier, and last by the order of deletion and creation. Without what was found earlier, a machine would get another
// replacement once an older loss is forgotten. A loss without a time has no match, since each machine might be its replacement.
func (f *Facts) matches(losses []Subject) map[string]Replacement {
	by := f.writtenDown()
	open := slices.DeleteFunc(slices.Clone(losses), func(loss Subject) bool {
		return by[loss.Name].Name != "" || loss.Gone.IsZero() || f.lostAgain(loss, losses, by)
	})
	slices.SortFunc(open, byLoss)
	made := slices.DeleteFunc(slices.Clone(f.others), func(machine *clusterv1.Machine) bool { return f.MadeFor(machine).Name != "" })
	taken := make(map[string]bool, len(open))
	take := func(loss Subject, machine *clusterv1.Machine, how string) {
		if machine != nil && by[loss.Name].Name == "" && !taken[machine.Name] {
			by[loss.Name], taken[machine.Name] = Replacement{machine.Name, how}, true
		}
	}
	for _, loss := range open {
		take(loss, f.onHost(since(made, loss.Gone), loss.Host), SameHost)
	}
	for _, loss := range open {
		take(loss, f.other(loss.Found), ByOrder)
	}
	free := made // machines before these are taken, or too old for later losses
	for _, loss := range open {
		if by[loss.Name].Name != "" {
			continue
		}
		candidates, how := since(made, loss.Gone), ByOrder
		if len(losses) == 1 && len(candidates) == 1 {
			how = Alone
		}
		free = since(free, loss.Gone)
		for len(free) > 0 && taken[free[0].Name] {
			free = free[1:]
		}
		if len(free) > 0 {
			take(loss, free[0], how)
		}
	}
	return by
}

// writtenDown returns, by the name of the lost machine, the replacements that an owner or a record has written down.
func (f *Facts) writtenDown() map[string]Replacement {
	by := map[string]Replacement{}
	for _, machine := range f.others {
		lost := f.MadeFor(machine)
		if _, known := by[lost.Name]; lost.Name != "" && !known {
			by[lost.Name] = Replacement{machine.Name, lost.By}
		}
	}
	return by
}

// lostAgain reports whether the machine that replaced loss is lost as well. Then what replaces that machine replaces loss.
func (f *Facts) lostAgain(loss Subject, losses []Subject, by map[string]Replacement) bool {
	if loss.Found == "" || by[loss.Name].Name != "" || f.other(loss.Found) != nil {
		return false
	}
	return by[loss.Found].Name != "" || slices.ContainsFunc(losses, func(next Subject) bool {
		return next.Name == loss.Found && next.Gone.After(loss.Gone)
	})
}

// onHost returns the machine that has the host; nil if none has. It starts from the host, because it runs for each lost machine.
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

// since returns the machines that were created at or after at, the oldest first; at is cut to seconds, as a creationTimestamp is.
func since(machines []*clusterv1.Machine, at time.Time) []*clusterv1.Machine {
	i, _ := slices.BinarySearchFunc(machines, at.Truncate(time.Second), func(machine *clusterv1.Machine, at time.Time) int {
		return machine.CreationTimestamp.Compare(at)
	})
	return machines[i:]
}

// Predecessor returns the machine that this one replaces: by what is written down, else by its host, else by order.
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
	by := facts.matches(f.Lost)
	for _, loss := range f.Lost {
		if found := by[loss.Name]; found.Name == f.old.Name {
			return Replacement{loss.Name, found.By}
		}
	}
	return Replacement{}
}

// MadeFor returns the machine that machine replaces, if an owner or a record has written it down.
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

func byLoss(a, b Subject) int { return cmp.Or(a.Gone.Compare(b.Gone), cmp.Compare(a.Name, b.Name)) }
