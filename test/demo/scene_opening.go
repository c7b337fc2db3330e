package main

import (
	"context"

	"github.com/kubemend/kubemend/test/builders"
)

// opening claims the check for kubemend: Cluster API's own controller runs too, and has to skip it.
func opening(ctx context.Context, s *environment) error {
	s.narrator.heading("The check: templates/"+workerTemplate,
		"A worker whose Node is Unknown for "+nodeTimeout.String()+" is unhealthy. While more than 40% of the workers are not healthy, nothing is "+
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
		expectation{
			text: "Cluster API core skips the check", fact: coreSkips,
			where: func(seen observation) bool { return seen.by == clusterAPI },
		},
		expectation{text: "kubemend finds each worker healthy", fact: machineHealthy, each: names},
		allHealthy(),
	)
}

// allHealthy expects the check to find all workers healthy.
func allHealthy() expectation {
	return expectation{
		text: "all workers are healthy", fact: counted,
		where: func(seen observation) bool { return seen.number == workers && seen.of == workers },
	}
}
