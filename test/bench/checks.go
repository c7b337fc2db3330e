package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// clusterName is the name of the one workload cluster of an environment.
const clusterName = "edge-000"

// machineName names a machine and its node, about as long as a MachineDeployment would.
func machineName(i int) string { return fmt.Sprintf("%s-md-0-x7kq2-%05d", clusterName, i) }

// scale is how much is measured.
type scale struct {
	alone      int // changes one after another
	spread     int // changes, spread evenly over spreadOver
	mass       int // changes at once
	beats      int // heartbeats
	spreadOver time.Duration
	idle       time.Duration
	beatsCPU   float64 // the aim of the processor time of 1000 heartbeats
}

// scaleOf needs no more than all machines: each changes once.
func scaleOf(machines int, quick bool) scale {
	if quick {
		return scale{alone: 5, spread: 20, mass: machines / 10, beats: 200, spreadOver: 5 * time.Second, idle: 5 * time.Second, beatsCPU: 0.6}
	}
	return scale{alone: 20, spread: 60, mass: machines / 10, beats: 1000, spreadOver: 40 * time.Second, idle: 20 * time.Second, beatsCPU: 0.6}
}

const checkMethod = `One management and one workload API server, Machines of about 4 KiB, Nodes of about 8 KiB, one
MachineHealthCheck, no other controller. API servers, etcd, the manager and the clients share the
cores, so a delay is also theirs.

- **Marked after**: from the API server's answer to the write of Ready=Unknown to the watch event with
  HealthCheckSucceeded=False. *Alone*: one change at a time. *Spread*: at even intervals. *A tenth at
  once*: written by 24 clients.
- **First full pass**: until every Machine has HealthCheckSucceeded=True.
- **1000 heartbeats**: 100 a second, each changes only lastHeartbeatTime.
- **Processor time** is without what an idle manager needs.
`

// measureChecks measures MachineHealthChecks. Its aims hold up to 5000 machines.
func measureChecks(ctx context.Context, b bench) (section, error) {
	sizes := []int{1000, 5000}
	if b.quick {
		sizes = []int{100, 200}
	}
	return section{title: "MachineHealthChecks", method: checkMethod}.columnsOf(sizes, "%d machines in one cluster",
		func(n int) (figures, error) {
			return measureCheck(ctx, n, b)
		})
}

func measureCheck(ctx context.Context, machines int, b bench) (_ figures, err error) {
	e := &environment{count: machines}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	if err := e.setUp(ctx, e.fill); err != nil {
		return nil, err
	}
	t := &trial{environment: e, scale: scaleOf(machines, b.quick), controller: checkController}
	if err := t.firstPass(ctx); err != nil {
		return nil, fmt.Errorf("first full pass: %w", err)
	}
	return t.run(ctx, []phase{
		{"idle", t.measureIdle}, {"heartbeats", t.heartbeats},
		{"changes one by one", t.alone}, {"changes spread", t.spread}, {"changes at once", t.mass},
	})
}
