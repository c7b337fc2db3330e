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
		for _, machine := range since(f.others, f.old.CreationTimestamp.Time) { // none that is older replaces it
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
	for _, loss := range slices.Backward(losses) { // what replaced a replacement that is lost was lost later itself
		if f.lostAgain(loss, losses, by) {
			next := by[loss.Found]
			if next.By == Alone { // two are gone
				next.By = ByOrder
			}
			by[loss.Name] = next
		}
	}
	return by[f.Name]
}

// matches are the machines that replace losses, by the names of these: what is written down, what has the host of the lost one, what was
// found before (else the next one would be taken once another loss is made up for, and forgotten), and the others by order. Of a loss
// without a moment each machine might be the one.
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
	free := made // none before these is free for what was lost later
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

// writtenDown are the machines of which their owner, or a record, says that they replace another, by the name of that.
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

// lostAgain reports whether the machine that replaced loss is lost as well, so that what replaces that one replaces loss.
func (f *Facts) lostAgain(loss Subject, losses []Subject, by map[string]Replacement) bool {
	if loss.Found == "" || by[loss.Name].Name != "" || f.other(loss.Found) != nil {
		return false
	}
	return by[loss.Found].Name != "" || slices.ContainsFunc(losses, func(next Subject) bool {
		return next.Name == loss.Found && next.Gone.After(loss.Gone)
	})
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

// since are those of machines, the oldest one first, that were made since at. Objects have the time of their creation in seconds.
func since(machines []*clusterv1.Machine, at time.Time) []*clusterv1.Machine {
	i, _ := slices.BinarySearchFunc(machines, at.Truncate(time.Second), func(machine *clusterv1.Machine, at time.Time) int {
		return machine.CreationTimestamp.Compare(at)
	})
	return machines[i:]
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
	by := facts.matches(f.Lost)
	for _, loss := range f.Lost {
		if found := by[loss.Name]; found.Name == f.old.Name {
			return Replacement{loss.Name, found.By}
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

func byLoss(a, b Subject) int { return cmp.Or(a.Gone.Compare(b.Gone), cmp.Compare(a.Name, b.Name)) }
