package capacity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/must"
)

// replaces writes into a machine, as a KubeadmControlPlane does, which machine it was created for.
func replaces(name string) editMachine {
	return func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{controlplanev1.RemediationForAnnotation: `{"machine":"` + name + `","timestamp":"2026-01-01T11:51:00Z","retryCount":2}`}
	}
}

func remembers(machine, replaced string) edit {
	return func(f *Facts) { f.Remembered = map[string]string{machine: replaced} }
}

// onHosts puts machines on BareMetalHosts: names of hosts by names of machines.
func onHosts(hosts map[string]string) edit {
	return func(f *Facts) {
		for machine, host := range hosts {
			f.hosts = append(f.hosts, aHost(host, "provisioned", consumedBy(machine)))
		}
		for _, m := range f.others {
			m.Spec.InfrastructureRef.Kind = "Metal3Machine"
		}
	}
}

func lost(losses ...Subject) edit { return func(f *Facts) { f.Lost = append(f.Lost, losses...) } }

func TestWhichMachineReplacesWhich(t *testing.T) {
	four, six := 4*time.Minute, noon.Add(-6*time.Minute)
	two := func(f *Facts) {
		gone(f)
		f.Lost, f.others = []Subject{{Name: "w0", Gone: six}}, append(f.others, worker("w5", 3*time.Minute), worker("w4", four))
	}
	chain := func(f *Facts) { // w4 has replaced w1, and is gone, too
		gone(f)
		f.Gone, f.Found = noon.Add(-30*time.Minute), "w4"
		f.Lost, f.others = []Subject{{Name: "w4", Gone: noon.Add(-2 * time.Minute)}}, append(f.others, worker("w5", time.Minute))
	}
	second := func(f *Facts) { // the same loss, as w4 sees it
		f.Name, f.Gone, f.Found = "w4", noon.Add(-2*time.Minute), ""
		f.Lost = []Subject{{Name: "w1", Gone: noon.Add(-30 * time.Minute)}}
	}
	rows{
		"what the owner has written down is no guess": {
			[]edit{gone, made(worker("w5", four), worker("w4", four, replaces("w1")))}, "w4/Recorded",
		},
		"what cannot be read says nothing": {
			[]edit{gone, made(worker("w5", four), worker("w4", four, replaces(`"`)))}, "w4/ByOrder?",
		},
		"a machine that is older replaces none": {
			[]edit{deleting(""), made(worker("w0", 25*time.Hour, replaces("w1")))}, "",
		},
		"a machine that is known by no name is replaced by none": {
			[]edit{gone, func(f *Facts) { f.Name, f.Gone = "", time.Time{} }}, "",
		},
		"the second to go has the second that was made": {[]edit{two}, "w5/ByOrder?"},
		"unless a machine has the host of the old one": {
			[]edit{two, onHosts(map[string]string{"w4": "h1"}), func(f *Facts) { f.Host = "h1" }}, "w4/SameHost?",
		},
		"a machine that replaces another by record is not free": {[]edit{gone, made(worker("w4", four, replaces("w0")))}, ""},
		"a machine that was made before does not replace it":    {[]edit{gone, made(worker("w4", 6*time.Minute))}, ""},
		"creation times are in seconds": {
			[]edit{gone, func(f *Facts) { f.Gone = noon.Add(-four + time.Millisecond) }, made(worker("w4", four))}, "w4/Alone?",
		},
		"without the time of the loss no machine is taken for it": {
			[]edit{gone, made(worker("w4", four)), func(f *Facts) { f.Gone = time.Time{} }}, "",
		},
		"one on the host of another lost one is not free": {
			[]edit{two, onHosts(map[string]string{"w5": "h0"}), func(f *Facts) { f.Lost[0].Host = "h0" }}, "w4/ByOrder?",
		},
		"what a record has kept is believed before order": {[]edit{two, remembers("w4", "w1")}, "w4/Remembered?"},
		"one that replaces another by that is not free":   {[]edit{gone, made(worker("w4", four)), remembers("w4", "w0")}, ""},
		"the one that another has found is not free":      {[]edit{two, func(f *Facts) { f.Lost[0].Found = "w5" }}, "w4/ByOrder?"},
		"what was found before is kept":                   {[]edit{two, func(f *Facts) { f.Found = "w4" }}, "w4/ByOrder?"},
		"what replaced its replacement, as it is written": {
			[]edit{gone, func(f *Facts) { f.Found = "w4" }, made(worker("w5", time.Minute, replaces("w4")))}, "w5/Recorded",
		},
		"by order": {[]edit{chain}, "w5/ByOrder?"},
		"twice": {[]edit{chain, lost(Subject{Name: "w5", Gone: noon.Add(-time.Minute)}), func(f *Facts) {
			f.Lost[0].Found, f.others[2].Name = "w5", "w6"
		}}, "w6/ByOrder?"},
		"but not in a circle": {[]edit{chain, func(f *Facts) { f.Lost[0].Found = "w1" }}, "w5/ByOrder?"},
		"and what was made for a replacement is not free": {
			[]edit{chain, second, func(f *Facts) { f.Lost[0].Found = "w4" }}, "w5/ByOrder?",
		},
		"nor on the host of what it replaces":               {[]edit{chain, second, onHosts(map[string]string{"w5": "h1"}), func(f *Facts) { f.Lost[0].Found, f.Lost[0].Host = "w4", "h1" }}, "w5/ByOrder?"},
		"fewer new machines than losses leave one without":  {[]edit{gone, lost(Subject{Name: "w0", Gone: six}), made(worker("w4", four))}, ""},
		"a machine that still exists is not replaced by it": {[]edit{deleting(""), made(worker("w4", four))}, ""},
	}.tell(t, func(f *Facts) string { return by(f.replacement()) })
}

func TestWhichMachineANewOneWasMadeFor(t *testing.T) {
	a, b := Subject{Name: "w0", Gone: noon.Add(-6 * time.Minute)}, Subject{Name: "w1", Gone: noon.Add(-5 * time.Minute)}
	four, three := worker("w4", 4*time.Minute), worker("w5", 3*time.Minute)
	about := func(machine *clusterv1.Machine, others ...*clusterv1.Machine) edit {
		return func(f *Facts) {
			f.Subject = Of(machine)
			f.old, f.others = machine, append(f.others, others...)
		}
	}
	rows{
		"for the one that its owner has written down": {
			[]edit{about(worker("w4", 4*time.Minute, replaces("w9"))), lost(a)}, "w9/Recorded",
		},
		"for the one that was lost":          {[]edit{about(four), lost(b)}, "w1/Alone?"},
		"for the second that was lost":       {[]edit{about(three, four), lost(a, b)}, "w1/ByOrder?"},
		"for none that is known":             {[]edit{about(four)}, ""},
		"for the one that a record has kept": {[]edit{about(four), lost(a, b), remembers("w4", "w7")}, "w7/Remembered?"},
		"not for the one that the lost one had replaced": {
			[]edit{about(four), lost(Subject{Name: "w0", Gone: a.Gone, Found: "w1"}, b)}, "w1/ByOrder?",
		},
		"for the one that has found it": {
			[]edit{about(three, four), lost(a, Subject{Name: "w1", Gone: b.Gone, Found: "w5"})}, "w1/ByOrder?",
		},
		"for the one whose host it has": {
			[]edit{about(worker("w4", 4*time.Minute, metal)), lost(a, Subject{Name: "w1", Gone: b.Gone, Host: "h1"}), hosts(aHost("h1", "provisioned", consumedBy("w4")))}, "w1/SameHost?",
		},
	}.tell(t, func(f *Facts) string { return by(f.Predecessor()) })
}

// Each of hundreds of machines that are lost at once is matched with all others. The effort must not grow with their square.
func TestManyLossesAreMatched(t *testing.T) {
	f := given(gone)
	for i := range 300 {
		f.Lost = append(f.Lost, Subject{Name: fmt.Sprintf("lost-%d", i), Gone: noon.Add(-time.Hour)})
		f.others = append(f.others, worker(fmt.Sprintf("made-%d", i), time.Minute))
	}
	if allocations := testing.AllocsPerRun(1, func() { f.replacement() }); allocations > 10*300 {
		t.Errorf("one story takes %v allocations", allocations)
	}
}

// anyFacts combines the facts of the tables at random. Many of them contradict each other.
var anyFacts = rapid.Custom(func(t *rapid.T) *Facts {
	reasons := []string{
		"", "Deleting", "WaitingForPreDrainHook", "DrainingNode", "WaitingForVolumeDetach", "WaitingForPreTerminateHook", "WaitingForInfrastructureDeletion",
		"WaitingForBootstrapDeletion", "DeletingNode", "InternalError", "DeletionCompleted", "Odd",
	}
	states := []edit{
		gone, deleting(rapid.SampledFrom(reasons).Draw(t, "reason")), asksOwner(rapid.SampledFrom([]string{"WaitingForRemediation", "CannotBeRemediated", "Odd"}).Draw(t, "answer"), "", time.Minute),
		func(*Facts) {},
	}
	f := given(rapid.SampledFrom(states).Draw(t, "state"))
	for _, name := range []string{"w4", "w5", "w6"}[:rapid.IntRange(0, 3).Draw(t, "made")] {
		edits := rapid.SliceOf(rapid.SampledFrom([]editMachine{
			func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }, provisioned, metal, deleted(time.Minute), isPausedNow, replaces("w1"), replaces("w4"),
			says(clusterv1.MachineNodeReadyCondition, "False", "Odd", "", time.Minute), says(clusterv1.MachineHealthCheckSucceededCondition, "False", "", "", time.Minute),
			func(m *clusterv1.Machine) { m.Status = clusterv1.MachineStatus{} },
		})).Draw(t, "edits")
		f.others = append(f.others, worker(name, time.Duration(rapid.IntRange(0, 15).Draw(t, "age"))*time.Minute, edits...))
	}
	for _, edit := range rapid.SliceOf(rapid.SampledFrom([]edit{
		replicas(0), replicas(2), replicas(5), ofOwner(func(o *owner) { o.rollingOut = true }), ofOwner(func(o *owner) { o.paused = true }),
		ofOwner(func(o *owner) { o.known = false }), ofOwner(func(o *owner) { o.gone = true }), controlledBy("K3sControlPlane"), controlledBy(kubeadmKind),
		hosts(), hosts(aHost("h1", "available"), aHost("h2", "inspecting")), hosts(aHost("h1", "provisioning", consumedBy("w4"), failing)),
		lost(Subject{Name: "w0", Gone: noon.Add(-6 * time.Minute), Found: "w4"}), func(f *Facts) { f.namespaceDeleted = true }, func(f *Facts) { f.cluster = nil },
		checked(60), func(f *Facts) { f.Unread = []string{machinesUnread} },
	})).Draw(t, "circumstances") {
		edit(f)
	}
	slices.SortFunc(f.others, byAge)
	return f
})

// If the machine is not being deleted, readMachines asks for Notable machines only.
func TestOthersThatAreNotNotableChangeNoStoryOfAMachineThatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		few := *f
		few.others = slices.DeleteFunc(slices.Clone(f.others), func(m *clusterv1.Machine) bool { return !Notable(m) })
		if f.old != nil && f.old.DeletionTimestamp.IsZero() && len(f.Lost) == 0 {
			must.Equal(t, f.Story(), few.Story())
		}
	})
}

// These rules hold for every story, whatever the facts are.
func TestNoStoryClaimsWhatTheFactsDoNotSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		s, about := f.Story(), f.old
		if s.Machine != f.Name || about == nil {
			about = f.other(s.Machine)
		}
		counted := s.Reason == RolledOut || s.Reason == OwnerComplete
		switch {
		case StageTexts[s.Stage] == "" || s.Reason == "" || s.Message == "":
			t.Fatalf("%+v is no stage with a reason and a message", s)
		case about == nil && s.Machine != f.Name:
			t.Fatalf("the story is about %q, which does not exist", s.Machine)
		case s.Stage == Back && !counted && (about == nil || !ready(about) || !about.DeletionTimestamp.IsZero()):
			t.Errorf("the capacity is back by %s, whose node is not Ready, or that is being deleted", s.Machine)
		case s.Reason == Replaced && s.Replacement.Name != s.Machine:
			t.Errorf("%s is back and not the replacement %s", s.Machine, s.Replacement.Name)
		case s.Ended() && (s.Todo.Text != "" || s.Next.Text != ""):
			t.Errorf("an end has no next step: %+v", s)
		case s.Stage == Deleting && (about == nil || about.DeletionTimestamp.IsZero()):
			t.Errorf("%s is not being deleted", s.Machine)
		case s.Stage == NoReplacement && f.old != nil:
			t.Error("the machine still exists")
		case s.Stage == NoHostFits && (!f.hostsKnown || f.hostOf(about) != nil || len(s.Hosts) != len(f.hosts)):
			t.Error("the hosts are not known, or it has one, or not all of them are answered")
		case s.Stage == NodeNotReady && !about.Status.NodeRef.IsDefined():
			t.Error("there is no node")
		case (s.Stage == Unread) != (s.Reason == "NotReadable") || s.Stage != Unread && slices.Contains(f.Unread, machinesUnread):
			t.Error("what could not be read is something else")
		case s.Overdue != (!s.Deadline.IsZero() && !noon.Before(s.Deadline)):
			t.Error("it is overdue without a deadline, or the deadline has passed in silence")
		}
	})
}
