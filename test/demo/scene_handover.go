package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	rebootingCheckV1beta2 = "machine-health-check-workers-host-remediation-v1beta2.yaml"
	// attemptInVain is how long a host may take to boot in vain, and a little more.
	attemptInVain = 2 * time.Minute
)

// handover: a host never boots again; it is tried twice, and then the machine is replaced on another one.
func handover(ctx context.Context, s *stage) error {
	s.narrator.heading("Scene handover: a host never boots again",
		"A power cycle does not help here, and neither does a second one: templates/"+rebootTemplate+", which the check names by "+
			"templates/"+rebootingCheckV1beta2+", allows one retry. Then the host is "+
			"marked and the Machine replaced on a spare host. An attempt has "+attemptSeconds+" s, the least that the API allows, so this takes a while.")
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
	before, err := s.trace(ctx, lost)
	if err != nil {
		return err
	}
	s.narrator.note("\nNow the failure. Times count from here.\n")
	s.narrator.countFrom(s.begin())
	from := s.cursor
	if err := s.ruin([]string{lost}); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("breaks BareMetalHost %s below Machine %s: its kubelet is silent, and no boot brings it back",
		before.host.Key().Name, lost))
	if err := s.requested(ctx, before); err != nil {
		return err
	}
	if err := s.cycled(ctx, before); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "waits as well; nothing else is to happen until then")
	back := s.rewind()
	if err := s.inOrder(ctx, s.attempt(2, attemptInVain, lost)); err != nil {
		return err
	}
	back() // the host was asked to be off before that
	if err := s.cycled(ctx, before); err != nil {
		return err
	}
	// No attempt is cut short: up to here nobody may have given the machine up.
	if err := s.never(ctx, from, 0, hostMarked, handedOver, takenUp, machineDeleting, machineCreated); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "waits once more; this was the last attempt")
	if err := s.givenUp(ctx, before); err != nil {
		return err
	}
	return s.replacedElsewhere(ctx, before)
}

func (s *stage) cycled(ctx context.Context, of trace) error {
	if err := s.poweredOff(ctx, of); err != nil {
		return err
	}
	return s.poweredOn(ctx, of)
}

// givenUp expects the host to be marked before the machine is handed to its owner, which replaces it.
func (s *stage) givenUp(ctx context.Context, before trace) error {
	each := []string{before.machine}
	if err := s.inOrder(ctx,
		expectation{text: "the host is marked unhealthy", within: attemptInVain, fact: hostMarked, each: []string{before.host.Key().Name}},
		expectation{
			text: "kubemend hands the machine over to its owner", within: attemptInVain, fact: handedOver, each: each,
			where: func(seen sighting) bool { return seen.by == kubemendHost },
		},
		expectation{text: "the MachineSet deletes the machine", within: attemptInVain, fact: machineDeleting, each: each},
	); err != nil {
		return err
	}
	other := func(seen sighting) bool { return seen.about != before.machine }
	return s.inAnyOrder(ctx,
		expectation{text: "the old machine is gone", within: replacedMachines, fact: machineGone, each: each},
		expectation{text: "the HostRemediation is gone", within: replacedMachines, fact: requestGone, each: each},
		expectation{text: "a new machine runs", within: replacedMachines, fact: machineRunning, where: other},
		allHealthy(replacedMachines),
	)
}

// replacedElsewhere looks at where the machines are now.
func (s *stage) replacedElsewhere(ctx context.Context, before trace) error {
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
			return fmt.Errorf("machine %s was put on the bad host %s", machines[i].Name, bad.Name)
		}
	}
	if err := s.hostIsFree(ctx, bad); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf(
		"has looked: no Machine is on BareMetalHost %s, and nothing holds it off; a person can repair it and remove the mark", bad.Name))
	return nil
}
