package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// scene is one part of the demo.
type scene struct {
	name string // the value of SCENE
	play func(context.Context, *environment) error
}

// scenes returns all scenes in the order in which they are played.
func scenes() []scene {
	return []scene{{"replace", replace}, {"short-circuit", shortCircuit}, {"reboot", reboot}}
}

// choose returns the scene with this name, or all scenes if the name is empty.
func choose(name string) ([]scene, error) {
	if name == "" || name == "all" {
		return scenes(), nil
	}
	var names []string
	for _, s := range scenes() {
		if s.name == name {
			return []scene{s}, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("there is no scene %q; SCENE is one of: %s, all", name, strings.Join(names, ", "))
}

func (s *environment) play(ctx context.Context, chosen []scene) error {
	for _, next := range append([]scene{{"opening", opening}}, chosen...) {
		if err := next.play(ctx, s); err != nil {
			return fmt.Errorf("scene %s: %w", next.name, err)
		}
	}
	return nil
}

// opening creates the check and claims it for kubemend, so that Cluster API's own controller, which runs too, skips it.
func opening(ctx context.Context, s *environment) error {
	s.narrator.heading("The check: templates/"+workerTemplate,
		"A worker whose Node is Unknown for "+nodeTimeout.String()+
			" is unhealthy. While more than 40% of the workers are not healthy, nothing is "+
			"remediated. Cluster API's own MachineHealthCheck controller runs as well, but skips this check: kubemend has claimed it "+
			"with the annotation cluster.x-k8s.io/paused: kubemend.")
	names, err := s.workerNames(ctx, workers)
	if err != nil {
		return err
	}
	s.narrator.countFrom(s.begin())
	check, err := builders.Template(workerTemplate, map[string]string{
		"CLUSTER_NAME":           clusterName,
		"NODE_UNHEALTHY_TIMEOUT": nodeTimeout.String(),
	})
	if err != nil {
		return err
	}
	if err := builders.Apply(ctx, s.here, check); err != nil {
		return err
	}
	return s.inAnyOrder(ctx,
		expectation{fact: coreSkips, where: func(seen observation) bool { return seen.by == clusterAPI }},
		expectation{fact: machineHealthy, each: names},
		allHealthy(),
	)
}

// allHealthy expects the check to count all workers as healthy.
func allHealthy() expectation {
	return expectation{fact: counted, where: func(seen observation) bool { return seen.number == workers && seen.of == workers }}
}

// replace: a kubelet stops, and the MachineSet replaces the machine.
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
	if err := s.inAnyOrder(ctx, // two watches observe these, and either may be late
		expectation{fact: nodeUnknown, each: chosen},
		expectation{fact: pendingFact, each: chosen},
	); err != nil {
		return err
	}
	if err := s.inOrder(ctx,
		expectation{fact: machineFailed, each: chosen, where: mine},
		expectation{fact: ownerRequested, each: chosen, where: mine},
		expectation{fact: machineDeleting, each: chosen},
	); err != nil {
		return err
	}
	other := func(seen observation) bool { return seen.about != lost }
	return s.inAnyOrder(ctx,
		expectation{fact: machineGone, each: chosen},
		expectation{fact: machineRunning, where: other},
		allHealthy(),
	)
}

// watched is for how long the scene makes sure that nothing is remediated.
const watched = 10 * time.Second

// shortCircuit: three of five kubelets stop. That is above the limit, so the fault is probably elsewhere, and nothing is remediated.
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
		expectation{fact: nodeReady, each: lost},
		expectation{fact: machineHealthy, each: lost},
		expectation{fact: allowedAgain},
		allHealthy(),
	)
}

// blocked expects the short-circuit and its arithmetic.
func (s *environment) blocked(ctx context.Context, lost []string) error {
	return s.inAnyOrder(ctx,
		expectation{fact: nodeUnknown, each: lost},
		expectation{fact: pendingFact, each: lost},
		expectation{fact: shortCircuited},
		expectation{fact: machineFailed, each: lost},
		expectation{fact: restrictedEvent},
	)
}

// nothingIsRemediated watches for a while that no owner remediation is requested and that no Machine is deleted or created.
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
	s.narrator.line(time.Now(), demo,
		fmt.Sprintf("verified for %s: no owner remediation was requested, and no Machine was deleted or made", watched))
	return nil
}
