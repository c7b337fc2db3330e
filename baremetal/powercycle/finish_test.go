package powercycle

import (
	"testing"
	"time"
)

func TestASignOfLifeIsRememberedForAsLongAsTheFenceMayStand(t *testing.T) {
	sign := Step{Do: Unfence, From: PoweringOn, Next: PoweringOn, Reason: SignOfLifeReason}
	seen := After(in(PoweringOn, fenced, renewedAgain), sign, noon)
	if !seen.Lived || !seen.Sign.Equal(ago(time.Second)) || !seen.SignSeen.Equal(noon) {
		t.Errorf("after a sign: %+v", seen)
	}
	for _, tc := range []struct {
		name  string
		given Facts
		step  Step
		lived bool
		kept  bool
	}{
		{"until the host boots", in(PoweringOn, lived), Step{Do: Advance, Next: Booting}, true, true},
		{"not under a new boot", in(Booting, lived, anotherBoot), Step{Do: Wait, Next: Booting}, false, true},
		{"nor after the attempt", in(Booting, lived), Step{Do: BeginAttempt, Next: Preparing}, false, false},
		{"nor if the host is proven off anew", in(PoweringOff, lived), Step{Do: Advance, Next: MovingWorkload}, false, false},
	} {
		if m := After(tc.given, tc.step, noon); m.Lived != tc.lived || m.SignSeen.IsZero() == tc.kept {
			t.Errorf("%s: %+v", tc.name, m)
		}
	}
}

func TestWhatKeepsAHostOffAndWhatLetsItGo(t *testing.T) {
	for _, tc := range []struct {
		name   string
		given  Facts
		do     Action
		next   State
		reason Reason
	}{
		{
			"what kept the host off is not put back once it was proven off",
			in(MovingWorkload, released, fenced), Advance, PoweringOn, "HoldRemoved",
		},
		{
			"nor if the workload has moved by then",
			in(MovingWorkload, released, fenced, empty), Advance, PoweringOn, "WorkloadMoved",
		},
		{
			"nor if it is remembered that it was, and no more",
			in(PoweringOff, off, wasOff, receiptNoted, wasHeld, released), Advance, PoweringOn, "HoldRemoved",
		},
		{
			"nor if it was seen to go off, and that is not remembered",
			in(PoweringOff, off, wasHeld, released), Advance, PoweringOn, "HoldRemoved",
		},
		{
			"nor if that was released and not stored, and the host is on again by now",
			in(PoweringOff, on, wasHeld, released, rebooted), Advance, PoweringOn, "HoldRemoved",
		},
		{
			"it is if it never was held, and went off by itself",
			in(PoweringOff, off, released), KeepOff, PoweringOff, "PowerOffRequested",
		},
		{
			"it is before that",
			in(PoweringOff, released), KeepOff, PoweringOff, "PowerOffRequested",
		},
		{
			"also of a host that was off",
			in(PoweringOff, off, wasOff, released), KeepOff, PoweringOff, "PowerOffRequested",
		},
		{
			"a workload on its way is waited for if the remediation goes",
			in(MovingWorkload, fenced, deleting), Wait, MovingWorkload, "WorkloadMoving",
		},
		{
			"or the machine",
			in(MovingWorkload, fenced, machineGoing), Wait, MovingWorkload, "WorkloadMoving",
		},
		{
			"also when that is gone, and its host not to be found by it",
			in(MovingWorkload, fenced, machineVanished, hostVanished), Wait, MovingWorkload, "WorkloadMoving",
		},
		{
			"or its owner wants the host off",
			in(MovingWorkload, fenced, switchedOff), Wait, MovingWorkload, "WorkloadMoving",
		},
		{
			"or the cluster is out of reach",
			in(MovingWorkload, deleting, blind, fencedBefore), Wait, MovingWorkload, "WorkloadMoving",
		},
		{
			"but not if it hangs on this very host",
			in(MovingWorkload, deleting, blind, fencedBefore, controlPlane), Advance, Ended, "Cancelled",
		},
		{
			"nor if the cluster is deleted, or somebody deletes the node",
			in(MovingWorkload, fenced, machineGoing, discarded), Advance, Ended, "MachineDeleting",
		},
		{
			"nor if the node is",
			in(MovingWorkload, deleting, noNode), Advance, Ended, "Cancelled",
		},
		{
			"nor if nothing was fenced",
			in(MovingWorkload, deleting), Advance, Ended, "Cancelled",
		},
		{
			"nor if the host is on",
			in(MovingWorkload, fenced, deleting, on), Advance, Ended, "Cancelled",
		},
		{
			"nor once it has moved",
			in(MovingWorkload, fenced, empty, switchedOff), Advance, PoweringOn, "WorkloadMoved",
		},
		{
			"nor after the deadline",
			in(MovingWorkload, fenced, deleting, attemptOver), Advance, Ended, "Cancelled",
		},
		{
			"volumes that nothing waits for keep no host off",
			in(MovingWorkload, fenced, empty, func(f *Facts) { f.Idle = true }), Advance, PoweringOn, "WorkloadMoved",
		},
		{
			"a node that lives on after it was fenced ends all attempts",
			in(MovingWorkload, fencedBefore, renewedAgain), Disprove, Failed, "SignOfLife",
		},
		{
			"also if nothing had to move",
			in(MovingWorkload, fencedBefore, empty, renewedAgain), Disprove, Failed, "SignOfLife",
		},
		{
			"it is unfenced at once while its host powers on",
			in(PoweringOn, fenced, renewedAgain), Unfence, PoweringOn, "Unfenced",
		},
		{
			"when that is said to be on",
			in(Booting, fenced, renewedAgain), Unfence, Booting, "Unfenced",
		},
		{
			"and when it came on again",
			in(PoweringOff, fenced, renewedAgain), Unfence, PoweringOff, "SignOfLife",
		},
		{
			"which ends all attempts once it goes on to report",
			in(PoweringOn, lived, renewedAgain), Disprove, Failed, "SignOfLife",
		},
		{
			"in each of these states",
			in(Booting, lived, renewedAgain, stateOver), Disprove, Failed, "SignOfLife",
		},
		{
			"before its host is held off once more",
			in(PoweringOff, lived, renewedAgain, released), Disprove, Failed, "SignOfLife",
		},
		{
			"but not by one report, with which a kubelet begins that has yet to say that it has booted",
			in(Booting, lived), Wait, Booting, "Booting",
		},
		{
			"but not one that has booted, which says nothing of before",
			in(MovingWorkload, fencedBefore, anotherBoot), Advance, PoweringOff, "SignOfLife",
		},
		{
			"the fence goes when the node has booted, whatever is said",
			in(PoweringOn, fenced, anotherBoot), Unfence, PoweringOn, "Unfenced",
		},
		{
			"also after the patience with the power-on",
			in(PoweringOn, fenced, anotherBoot, stateOver), Unfence, PoweringOn, "Unfenced",
		},
		{
			"or while somebody else is waited for",
			in(PoweringOn, fenced, anotherBoot, switchedOff, stateOver), Unfence, PoweringOn, "Unfenced",
		},
		{
			"nor does a node that lives on under the boot of before stay fenced then",
			in(PoweringOn, fenced, renewedAgain, stateOver), Unfence, PoweringOn, "Unfenced",
		},
		{
			"which may fail, and holds up nothing for ever",
			in(PoweringOn, fenced, anotherBoot, stateOver, hasFailed), BeginAttempt, Preparing, "PowerOnTimedOut",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Next(tc.given, policy, noon)
			if got.Do != tc.do || got.Next != tc.next || got.Reason != tc.reason {
				t.Errorf("Next(): %s, then %s (%s), want %s, then %s (%s)", got.Do, got.Next, got.Reason, tc.do, tc.next, tc.reason)
			}
		})
	}
}
