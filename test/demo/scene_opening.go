package main

import (
	"context"
	"time"

	"github.com/kubemend/kubemend/test/builders"
)

// opening claims the check for kubemend: Cluster API's own controller runs too, and has to stand back.
func opening(ctx context.Context, s *stage) error {
	s.narrator.heading("The check: templates/"+workerTemplate,
		"A worker whose Node is Unknown for "+nodeTimeout.String()+" is unhealthy; while more than 40% of the workers are not healthy, nothing is "+
			"remediated. Cluster API's own MachineHealthCheck controller runs as well, and has to stand back: the check is claimed, "+
			"by the annotation cluster.x-k8s.io/paused: kubemend.")
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
		expectation{
			text: "Cluster API core stands back from the check", within: 30 * time.Second, fact: coreStandsBack,
			where: func(seen sighting) bool { return seen.by == clusterAPI },
		},
		expectation{text: "kubemend finds each worker healthy", within: 30 * time.Second, fact: machineHealthy, each: names},
		allHealthy(30*time.Second),
	)
}

// allHealthy expects the check to find all workers healthy.
func allHealthy(within time.Duration) expectation {
	return expectation{
		text: "the check is healthy: all workers are", within: within, fact: counted,
		where: func(seen sighting) bool { return seen.number == workers && seen.of == workers },
	}
}
