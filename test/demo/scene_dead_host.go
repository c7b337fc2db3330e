package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	rebootingCheckV1beta2 = "machine-health-check-workers-host-remediation-v1beta2.yaml"
	// attemptInVain is the timeout of an attempt, and a little more.
	attemptInVain = 2 * time.Minute
)

// deadHost: a host never boots again; it is tried twice, and then the machine is replaced on another one.
func deadHost(ctx context.Context, s *environment) error {
	s.narrator.heading("Scene dead-host: a host never boots again",
		"A power cycle does not help here, and neither does a second one: templates/"+rebootTemplate+", which the check of "+
			"templates/"+rebootingCheckV1beta2+" names, allows one retry. Then kubemend marks the host unhealthy and requests "+
			"owner remediation, and the MachineSet replaces the Machine on a spare host. The timeout of an attempt is "+
			attemptSeconds+" s, the least that the API allows, so this takes a while.")
	s.narrator.countFrom(s.begin())
	// The other scene has the file for the older version.
	seconds := strconv.Itoa(int(nodeTimeout.Seconds()))
	if err := s.checkReboots(ctx, rebootingCheckV1beta2, map[string]string{"NODE_UNHEALTHY_TIMEOUT_SECONDS": seconds}); err != nil {
		return err
	}
	names, err := s.workerNames(ctx, 1)
	if err != nil {
		return err
	}
	lost := names[0]
	before, err := s.origin(ctx, lost)
	if err != nil {
		return err
	}
	s.narrator.note("\nNow the failure. Times count from here.\n")
	s.narrator.countFrom(s.begin())
	from := s.cursor
	if err := s.breakHosts([]string{lost}); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("breaks BareMetalHost %s of Machine %s: its kubelet is silent, and it never boots again",
		before.host.Key().Name, lost))
	if err := s.requested(ctx, before); err != nil {
		return err
	}
	if err := s.cycled(ctx, before); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "waits for that moment; nothing else may happen before")
	back := s.rewind()
	if err := s.inOrder(ctx, s.attempt(2, attemptInVain, lost)); err != nil {
		return err
	}
	back() // the host was asked to be off before that
	if err := s.cycled(ctx, before); err != nil {
		return err
	}
	// No attempt is cut short: up to here the machine must not have been given up.
	if err := s.never(ctx, from, 0, hostMarked, ownerRequested, ownerActs, machineDeleting, machineCreated); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "waits for that moment again; this was the last attempt")
	if err := s.givenUp(ctx, before); err != nil {
		return err
	}
	return s.replacedElsewhere(ctx, before)
}

func (s *environment) cycled(ctx context.Context, of origin) error {
	if err := s.poweredOff(ctx, of); err != nil {
		return err
	}
	return s.poweredOn(ctx, of)
}

// givenUp expects the host to be marked before owner remediation is requested, and the owner to replace the machine.
func (s *environment) givenUp(ctx context.Context, before origin) error {
	each := []string{before.machine}
	if err := s.inOrder(ctx,
		expectation{text: "the host is marked unhealthy", within: attemptInVain, fact: hostMarked, each: []string{before.host.Key().Name}},
		expectation{
			text: "kubemend requests owner remediation of the machine", within: attemptInVain, fact: ownerRequested, each: each,
			where: func(seen observation) bool { return seen.by == kubemendHost },
		},
		expectation{text: "the MachineSet deletes the machine", within: attemptInVain, fact: machineDeleting, each: each},
	); err != nil {
		return err
	}
	other := func(seen observation) bool { return seen.about != before.machine }
	return s.inAnyOrder(ctx,
		expectation{text: "the old machine is gone", fact: machineGone, each: each},
		expectation{text: "the HostRemediation is gone", fact: requestGone, each: each},
		expectation{text: "a new machine runs", fact: machineRunning, where: other},
		allHealthy(),
	)
}

// replacedElsewhere checks that no machine is on the broken host.
func (s *environment) replacedElsewhere(ctx context.Context, before origin) error {
	machines, err := s.machines(ctx)
	if err != nil {
		return err
	}
	bad := before.host.Key()
	for i := range machines {
		host, err := s.host(machines[i].Name)
		if err != nil {
			return err
		}
		if host.Key() == bad {
			return fmt.Errorf("machine %s was put on the broken host %s", machines[i].Name, bad.Name)
		}
	}
	if err := s.hostIsFree(ctx, bad); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf(
		"verified: BareMetalHost %s has no Machine and no annotation of kubemend but the mark; repair it, then remove the mark", bad.Name))
	return nil
}
