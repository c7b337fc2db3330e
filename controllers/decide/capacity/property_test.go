package capacity

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	anyMoment = rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "known") {
			return noon.Add(-time.Duration(rapid.IntRange(-60, 7200).Draw(t, "ago")) * time.Second)
		}
		return time.Time{}
	})
	anyTimeout   = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour})
	anyCondition = rapid.Custom(func(t *rapid.T) Condition {
		return Condition{
			Status: rapid.SampledFrom([]string{"", "True", "False", "Unknown"}).Draw(t, "status"),
			Reason: rapid.SampledFrom([]string{
				"", "RemediationDeferred", "CannotBeRemediated", "MachineDeleting", "WaitingForPreDrainHook", "DrainingNode", "WaitingForVolumeDetach",
				"WaitingForPreTerminateHook", "WaitingForInfrastructureDeletion", "WaitingForBootstrapDeletion", "DeletingNode", "InternalError",
				"DeletionCompleted", "Odd",
			}).Draw(t, "reason"),
			Since: anyMoment.Draw(t, "since"),
		}
	})
	anyDeletion = rapid.Custom(func(t *rapid.T) Deletion {
		return Deletion{
			Condition: anyCondition.Draw(t, "condition"), DrainTimeout: anyTimeout.Draw(t, "drain"), VolumeTimeout: anyTimeout.Draw(t, "volumes"),
			NodeTimeout: anyTimeout.Draw(t, "node"), DrainSince: anyMoment.Draw(t, "drainSince"), VolumesSince: anyMoment.Draw(t, "volumesSince"),
			Pods: rapid.SliceOfN(rapid.Just(Pod{Namespace: "a", Name: "b", Budget: "c"}), 0, 2).Draw(t, "pods"),
		}
	})
	anyMachine = rapid.Custom(func(t *rapid.T) Machine {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		return Machine{
			Created: anyMoment.Draw(t, "created"), Deleting: anyMoment.Draw(t, "deleting"), Paused: flag("paused"), ControlPlane: flag("controlPlane"),
			Set: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "set"), Deletion: anyDeletion.Draw(t, "deletion"), Asked: anyCondition.Draw(t, "asked"),
			Unhealthy: flag("unhealthy"), Replaces: rapid.SampledFrom([]string{"", "", "m0", "m1"}).Draw(t, "replaces"),
			BootstrapProvided: flag("bootstrap"), InfrastructureProvisioned: flag("infrastructure"), Metal3: flag("metal3"),
			Infrastructure: anyCondition.Draw(t, "infrastructureReady"), Bootstrap: anyCondition.Draw(t, "bootstrapReady"),
			Host: rapid.SampledFrom([]string{"", "h1", "h2"}).Draw(t, "host"), Node: rapid.SampledFrom([]string{"", "n"}).Draw(t, "node"),
			NodeReady: anyCondition.Draw(t, "nodeReady"), StartupTimeout: anyTimeout.Draw(t, "startup"),
		}
	})
	anyHost = rapid.Custom(func(t *rapid.T) Host {
		return Host{
			Name: rapid.SampledFrom([]string{"h1", "h2", "h3"}).Draw(t, "name"), Selected: rapid.Bool().Draw(t, "selected"),
			State:  rapid.SampledFrom([]string{"", "available", "provisioning", "provisioned", "deprovisioning"}).Draw(t, "state"),
			Paused: rapid.Bool().Draw(t, "paused"), Error: rapid.SampledFrom([]string{"", "odd"}).Draw(t, "error"),
			Consumer: rapid.SampledFrom([]string{"", "Metal3Machine x"}).Draw(t, "consumer"), Since: anyMoment.Draw(t, "since"),
		}
	})
	anyFacts = rapid.Custom(func(t *rapid.T) Facts {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		seldom := func(name string) time.Time {
			if rapid.IntRange(0, 9).Draw(t, name) == 0 {
				return noon
			}
			return time.Time{}
		}
		f := Facts{
			Now: noon, Began: anyMoment.Draw(t, "began"), Old: anyMachine.Draw(t, "old"), Others: rapid.SliceOfN(anyMachine, 0, 4).Draw(t, "others"),
			Initialized: flag("initialized"), HostsKnown: flag("hostsKnown"), ClusterPaused: !seldom("clusterPaused").IsZero(),
			NamespaceDeleting: seldom("namespace"), ClusterDeleting: seldom("cluster"),
			Owner: Owner{
				Kind: rapid.SampledFrom([]string{"", "MachineSet", "KubeadmControlPlane"}).Draw(t, "kind"), Name: "o", Known: flag("known"),
				Gone: !seldom("ownerGone").IsZero(), Deleting: seldom("ownerDeleting"), Paused: flag("ownerPaused"),
				Replicas: rapid.IntRange(0, 5).Draw(t, "replicas"), RollingOut: flag("rollingOut"), Set: "a", Blocked: flag("blocked"),
			},
		}
		if f.Old.Name = "m0"; flag("gone") {
			f.Old = Machine{Name: "m0", Gone: true, GoneAt: anyMoment.Draw(t, "goneAt"), Host: f.Old.Host}
		}
		for i := range f.Others {
			f.Others[i].Name = "m" + string(rune('1'+i))
		}
		if rapid.IntRange(0, 9).Draw(t, "unread") == 0 {
			f.Unread = []string{MachinesUnread}
		}
		if f.HostsKnown {
			f.Hosts = rapid.SliceOfN(anyHost, 0, 3).Draw(t, "hosts")
		}
		return f
	})
)

var stages = []Stage{
	OwnerActs, Deleting, NoReplacement, WaitingForBootstrapData, NoHostFits, Provisioning, Booting, NodeNotReady, Unread, Back, NotReplaced,
}

// What must hold of every story, whatever the facts are.
func TestNoStoryClaimsWhatTheFactsDoNotSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		s := Decide(f)
		if !slices.Contains(stages, s.Stage) || s.Reason == "" {
			t.Fatalf("%q (%q) is no stage with a reason", s.Stage, s.Reason)
		}
		about := &f.Old
		if s.Machine != f.Old.Name {
			about = f.machine(s.Machine)
		}
		if about == nil {
			t.Fatalf("the story is about %q, which does not exist", s.Machine)
		}
		checkEnds(t, &f, &s, about)
		checkWaits(t, &f, &s, about)
		if !s.Deadline.IsZero() && s.Deadline.Before(f.Now) && !s.Overdue {
			t.Error("the deadline has passed, and the story does not say so")
		}
		if s.Overdue && s.Deadline.IsZero() {
			t.Error("it is overdue without a deadline")
		}
	})
}

func checkEnds(t *rapid.T, f *Facts, s *Story, about *Machine) {
	switch {
	case s.Stage == Back && s.Reason != RolledOut && s.Reason != OwnerComplete && !ready(about):
		t.Errorf("the capacity is back by %s, whose node is not Ready", about.Name)
	case s.Stage == Back && s.Reason != RolledOut && s.Reason != OwnerComplete && !about.Deleting.IsZero():
		t.Errorf("the capacity is back by %s, which is being deleted", about.Name)
	case s.Stage == Back && s.Reason == Replaced && s.Replacement.Name != s.Machine:
		t.Errorf("%s is back and not the replacement %s", s.Machine, s.Replacement.Name)
	case s.Reason == RolledOut && !f.Owner.RollingOut:
		t.Error("there is no rollout")
	case s.Stage.Ended() && (s.Todo != "" || s.Next != Nothing):
		t.Errorf("an end has no next step: %q %q", s.Next, s.Todo)
	case s.Stage == NotReplaced && s.Reason == ScaledDown && s.Args.Machines < s.Args.Replicas:
		t.Errorf("%d of %d machines are not all", s.Args.Machines, s.Args.Replicas)
	}
}

func checkWaits(t *rapid.T, f *Facts, s *Story, about *Machine) {
	switch {
	case s.Stage == Deleting && about.Deleting.IsZero():
		t.Errorf("%s is not being deleted", about.Name)
	case s.Stage == NoReplacement && !f.Old.Gone:
		t.Error("the machine still exists")
	case s.Stage == NoHostFits && (!f.HostsKnown || about.Host != ""):
		t.Error("the hosts are not known, or it has one")
	case s.Stage == NoHostFits && len(s.Args.Hosts) != len(f.Hosts):
		t.Errorf("of %d hosts %d are answered", len(f.Hosts), len(s.Args.Hosts))
	case s.Stage == NodeNotReady && about.Node == "":
		t.Error("there is no node")
	case s.Stage == Unread && f.Owner.Known && len(f.Unread) == 0:
		t.Error("all was read")
	case s.Stage != Unread && slices.Contains(f.Unread, MachinesUnread):
		t.Error("the machines could not be read")
	case (s.Reason == PausedReason || s.Reason == ObjectPaused) && s.Todo != Unpause:
		t.Error("who is to unpause it?")
	case !s.Stage.Ended() && s.Stage != Unread && s.Next == "":
		t.Error("there is no next step")
	}
}

// The same facts in another order are the same story.
func TestTheOrderOfMachinesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		other := f
		other.Others = rapid.Permutation(f.Others).Draw(t, "order")
		a, b := Decide(f), Decide(other)
		if a.Stage != b.Stage || a.Reason != b.Reason || a.Machine != b.Machine || a.Replacement != b.Replacement {
			t.Errorf("%+v, and in another order %+v", a, b)
		}
	})
}
