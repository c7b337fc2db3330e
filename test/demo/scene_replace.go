package main

import (
	"context"
	"time"

	"github.com/kubemend/kubemend/test/simulator"
)

// replace: a kubelet falls silent, and the machine is replaced by its MachineSet.
func replace(ctx context.Context, s *environment) error {
	s.narrator.heading("Scene replace: a kubelet falls silent",
		"One of five workers is silent, within the limit of 40%: kubemend has it replaced. Times are since the stop.")
	chosen, err := s.workerNames(ctx, 1)
	if err != nil {
		return err
	}
	lost := chosen[0]
	s.narrator.countFrom(s.begin())
	if err := s.eachKubelet(chosen, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "stops the kubelet of Machine "+lost)

	mine := func(seen observation) bool { return seen.by == kubemend }
	if err := s.inAnyOrder(ctx, // they are seen by two watches, of which either may be late
		expectation{text: "the Node becomes Unknown", fact: nodeUnknown, each: chosen},
		expectation{text: "the machine is pending, and kubemend says until when", fact: pendingFact},
	); err != nil {
		return err
	}
	if err := s.inOrder(ctx,
		expectation{text: "kubemend finds the machine unhealthy", fact: machineFailed, each: chosen, where: mine},
		expectation{text: "kubemend requests owner remediation of the machine", fact: ownerRequested, each: chosen, where: mine},
		expectation{text: "the MachineSet deletes the machine", fact: machineDeleting, each: chosen},
	); err != nil {
		return err
	}
	other := func(seen observation) bool { return seen.about != lost }
	return s.inAnyOrder(ctx,
		expectation{text: "the old machine is gone", fact: machineGone, each: chosen},
		expectation{text: "a new machine runs", fact: machineRunning, where: other},
		allHealthy(),
	)
}
