package main

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/test/simulator"
)

// watched is for how long nothing must be remediated while the check is short-circuited.
const watched = 10 * time.Second

// shortCircuit: three of five workers fall silent, which is above the limit, so the fault must be elsewhere and nothing is remediated.
func shortCircuit(ctx context.Context, s *environment) error {
	s.narrator.heading("Scene short-circuit: three kubelets fall silent at once",
		"Three of five workers are silent, above the limit of 40%: the fault is likely elsewhere, and nothing is replaced.")
	lost, err := s.workerNames(ctx, 3)
	if err != nil {
		return err
	}
	s.narrator.countFrom(s.begin())
	from := s.cursor
	if err := s.eachKubelet(lost, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("stops the kubelets of Machines %s, %s and %s", lost[0], lost[1], lost[2]))
	if err := s.blocked(ctx, lost); err != nil {
		return err
	}
	if err := s.nothingIsRemediated(ctx, from, lost); err != nil {
		return err
	}
	if err := s.eachKubelet(lost, (*simulator.Kubelet).Start); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "starts the three kubelets again")
	return s.inAnyOrder(ctx,
		expectation{text: "the Nodes are Ready again", fact: nodeReady, each: lost},
		expectation{text: "the machines are healthy again", fact: machineHealthy, each: lost},
		expectation{text: "remediation is allowed again", fact: allowedAgain},
		allHealthy(),
	)
}

// blocked expects the short-circuit, with its arithmetic.
func (s *environment) blocked(ctx context.Context, lost []string) error {
	return s.inAnyOrder(ctx,
		expectation{text: "the Nodes become Unknown", fact: nodeUnknown, each: lost},
		expectation{
			text: "the three machines are pending", fact: pendingFact,
			where: func(seen observation) bool { return seen.number == len(lost) },
		},
		expectation{text: "the check is short-circuited", fact: shortCircuited},
		expectation{text: "the machines are unhealthy", fact: machineFailed, each: lost},
		expectation{text: "the event RemediationRestricted", fact: restrictedEvent},
	)
}

// nothingIsRemediated watches for some time that no owner remediation is requested, and no Machine deleted or made.
func (s *environment) nothingIsRemediated(ctx context.Context, from int, lost []string) error {
	if err := s.never(ctx, from, watched, ownerRequested, ownerActs, machineDeleting, machineGone, machineCreated); err != nil {
		return err
	}
	for _, name := range lost {
		machine, err := s.machine(ctx, name)
		if err != nil {
			return err
		}
		if conditions.Has(machine, clusterv1.MachineOwnerRemediatedCondition) || !machine.DeletionTimestamp.IsZero() {
			return fmt.Errorf("machine %s is being remediated, although it must not be", name)
		}
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("verified for %s: no owner remediation was requested, and no Machine was deleted or made", watched))
	return nil
}
