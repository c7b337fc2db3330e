package capacity

import (
	"cmp"
	"slices"
	"time"
)

// replacementOf finds the machine that replaces f.Old.
//
// A KubeadmControlPlane writes it down. A MachineSet does not, and makes a machine only after the old one is gone, since one that is being deleted counts
// among its replicas (syncReplicas): so a machine that still exists has none, and of those that are gone the first to go has the first that was made since.
//
// What replaced a replacement that is gone itself replaces f.Old.
func replacementOf(f *Facts) Replacement {
	if written := f.writtenDown(); written.Name != "" {
		return written
	}
	if of, is := f.ofReplacement(); is {
		by := replacementOf(&of)
		if by.By == Alone { // two are gone
			by.By = ByOrder
		}
		return by
	}
	if !f.Old.Gone || f.gone().IsZero() { // without a moment each machine might be the one
		return Replacement{}
	}
	candidates := f.madeSince(f.gone())
	if m := onHost(candidates, f.Old.Host); m != nil {
		return Replacement{Name: m.Name, By: SameHost}
	}
	if m := f.machine(f.Found); m != nil && m.Deleting.IsZero() { // else the next one would be taken once another loss is made up for, and forgotten
		return Replacement{Name: m.Name, By: ByOrder}
	}
	if len(f.Lost) == 0 && len(candidates) == 1 {
		return Replacement{Name: candidates[0].Name, By: Alone}
	}
	return f.inOrder()
}

// writtenDown is the machine of which an object says that it replaces f.Old.
func (f *Facts) writtenDown() Replacement {
	for _, m := range f.byCreation() {
		switch {
		case f.Old.Name == "" || m.Created.Before(f.Old.Created):
		case m.Replaces == f.Old.Name:
			return Replacement{Name: m.Name, By: Recorded}
		case m.Replaces == "" && m.Remembered == f.Old.Name:
			return Replacement{Name: m.Name, By: Remembered}
		}
	}
	return Replacement{}
}

// ofReplacement are the facts about the machine that replaced f.Old, if that is gone, and the caller has kept its loss or its owner says what replaces it.
func (f *Facts) ofReplacement() (of Facts, is bool) {
	if f.Found == "" || f.machine(f.Found) != nil || !f.Old.Gone {
		return of, false
	}
	of = *f
	of.Old, of.Found = Machine{Name: f.Found, Gone: true}, ""
	i := slices.IndexFunc(f.Lost, func(l Loss) bool { return l.Name == f.Found })
	if i < 0 {
		return of, of.writtenDown().Name != ""
	}
	l := f.Lost[i]
	of.Old.GoneAt, of.Old.Host, of.Found = l.At, l.Host, l.Found
	of.Lost = slices.Delete(slices.Clone(f.Lost), i, i+1)
	return of, true
}

// passedOn reports whether the loss of l is that of its replacement by now: that is f.Old, or lost as well.
func (f *Facts) passedOn(l Loss) bool {
	if l.Found == "" || l.Found == l.Name || f.machine(l.Found) != nil {
		return false
	}
	return l.Found == f.Old.Name || slices.ContainsFunc(f.Lost, func(o Loss) bool { return o.Name == l.Found })
}

// gone is since when f.Old is gone, or when its deletion or remediation began, if that is all that is known.
func (f *Facts) gone() time.Time { return firstKnown(f.Old.GoneAt, f.Old.Deleting, f.Began) }

func firstKnown(all ...time.Time) time.Time {
	for _, at := range all {
		if !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// onHost is the first machine that has a host; nil if none has.
func onHost(all []*Machine, host string) *Machine {
	i := slices.IndexFunc(all, func(m *Machine) bool { return m.Host == host })
	if host == "" || i < 0 {
		return nil
	}
	return all[i]
}

// madeSince are the other machines that were made since at and that are not written down as replacements, the oldest one first. Objects have the time
// of their creation in seconds.
func (f *Facts) madeSince(at time.Time) []*Machine {
	return slices.DeleteFunc(f.byCreation(), func(m *Machine) bool {
		return m.Replaces != "" || m.Remembered != "" || m.Created.Before(at.Truncate(time.Second))
	})
}

// inOrder gives each machine that was lost, in the order in which they were, the first machine that was made since and that no other has. One that has the
// host of a lost machine is not free for another.
func (f *Facts) inOrder() Replacement {
	others := slices.DeleteFunc(slices.Clone(f.Lost), f.passedOn)
	lost := append([]Loss{{Name: f.Old.Name, At: f.gone(), Host: f.Old.Host}}, others...)
	slices.SortFunc(lost, func(a, b Loss) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name)) })
	taken := map[string]bool{}
	for _, l := range others {
		if m := onHost(f.madeSince(l.At), l.Host); m != nil {
			taken[m.Name] = true
			lost = slices.DeleteFunc(lost, func(o Loss) bool { return o.Name == l.Name })
		}
	}
	for _, l := range lost {
		if l.Name != f.Old.Name && f.machine(l.Found) != nil {
			taken[l.Found] = true
		}
	}
	for _, l := range lost {
		if taken[l.Found] {
			continue
		}
		for _, m := range f.madeSince(l.At) {
			if taken[m.Name] {
				continue
			}
			if l.Name == f.Old.Name {
				return Replacement{Name: m.Name, By: ByOrder}
			}
			taken[m.Name] = true
			break
		}
	}
	return Replacement{}
}

// Predecessor returns the machine that f.Old was made for: what is written down or, of those that are lost, the one whose replacement it is by its host, or by
// order. The other machines and losses are those of the owner, as for Decide.
func Predecessor(f Facts) Replacement {
	switch {
	case f.Old.Replaces != "":
		return Replacement{Name: f.Old.Replaces, By: Recorded}
	case f.Old.Remembered != "":
		return Replacement{Name: f.Old.Remembered, By: Remembered}
	}
	for _, l := range f.Lost {
		of := f
		if l.Found != f.Old.Name && f.passedOn(l) {
			continue // it was not made for this one, but for that one's replacement
		}
		of.Old, of.Found = Machine{Name: l.Name, Gone: true, GoneAt: l.At, Host: l.Host}, l.Found
		of.Others = append(slices.Clone(f.Others), f.Old)
		of.Lost = slices.DeleteFunc(slices.Clone(f.Lost), func(o Loss) bool { return o.Name == l.Name })
		if by := replacementOf(&of); by.Name == f.Old.Name {
			return Replacement{Name: l.Name, By: by.By}
		}
	}
	return Replacement{}
}
