package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// size is a number of machines, evenly spread over a number of clusters.
type size struct{ machines, clusters int }

func parseSizes(list string) ([]size, error) {
	var sizes []size
	for part := range strings.SplitSeq(list, ",") {
		machines, clusters, _ := strings.Cut(part, "/")
		if clusters == "" {
			clusters = "1"
		}
		m, err := strconv.Atoi(machines)
		if err != nil {
			return nil, fmt.Errorf("read size %q: %w", part, err)
		}
		c, err := strconv.Atoi(clusters)
		if err != nil {
			return nil, fmt.Errorf("read size %q: %w", part, err)
		}
		if c < 1 || m < 20 || m%c != 0 {
			return nil, fmt.Errorf("read size %q: expected at least 20 machines, as many in each cluster", part)
		}
		sizes = append(sizes, size{m, c})
	}
	return sizes, nil
}

func (n size) String() string { return fmt.Sprintf("%d/%d", n.machines, n.clusters) }

// title is the size in words.
func (n size) title() string {
	if n.clusters == 1 {
		return fmt.Sprintf("%d machines in one cluster", n.machines)
	}
	return fmt.Sprintf("%d machines over %d clusters", n.machines, n.clusters)
}

// cluster names the cluster of a machine. Neighbours are in different clusters.
func (n size) cluster(machine int) string { return fmt.Sprintf("edge-%03d", machine%n.clusters) }

// machine names a machine and its node, about as long as a MachineDeployment would.
func (n size) machine(i int) string { return fmt.Sprintf("%s-md-0-x7kq2-%05d", n.cluster(i), i) }

// scale is how much is measured.
type scale struct {
	alone      int // changes one after another
	spread     int // changes, spread evenly over spreadOver
	mass       int // changes at once
	beats      int // heartbeats
	reconciles int // steady reconciles of each check
	slowly     int // the same, for a contender with an interval of 15 s between two
	isolate    int // changes one after another, for such a contender

	spreadOver time.Duration
	idle       time.Duration
}

func scaleOf(n size, quick bool) scale {
	if quick {
		return scale{
			alone: 3, spread: 10, mass: n.machines / 10, beats: 200, reconciles: 5, slowly: 1, isolate: 1,
			spreadOver: 5 * time.Second, idle: 5 * time.Second,
		}
	}
	s := scale{
		alone: 20, spread: 60, mass: n.machines / 10, beats: 1000, reconciles: 20, slowly: 3, isolate: 2,
		spreadOver: 40 * time.Second, idle: 20 * time.Second,
	}
	if n.machines < 200 {
		s.alone, s.spread = 10, 40 // each change is of another machine
	}
	s.isolate = min(max(s.isolate, n.clusters), s.alone) // those in clusters of their own need not wait for each other
	return s
}

// heartbeatEvery is the time between two heartbeats: 30000 nodes send as many, each every five minutes.
const heartbeatEvery = 10 * time.Millisecond
