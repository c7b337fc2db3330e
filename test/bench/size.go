package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// world is a number of machines, evenly spread over a number of clusters.
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
			return nil, fmt.Errorf("read world %q: %w", part, err)
		}
		c, err := strconv.Atoi(clusters)
		if err != nil {
			return nil, fmt.Errorf("read world %q: %w", part, err)
		}
		if c < 1 || m < 20 || m%c != 0 {
			return nil, fmt.Errorf("read world %q: at least 20 machines, as many for each cluster", part)
		}
		sizes = append(sizes, size{m, c})
	}
	return sizes, nil
}

func (w size) String() string { return fmt.Sprintf("%d/%d", w.machines, w.clusters) }

// title says the same to a reader.
func (w size) title() string {
	if w.clusters == 1 {
		return fmt.Sprintf("%d machines in one cluster", w.machines)
	}
	return fmt.Sprintf("%d machines over %d clusters", w.machines, w.clusters)
}

// cluster names the cluster of a machine. Neighbours are in different clusters.
func (w size) cluster(machine int) string { return fmt.Sprintf("edge-%03d", machine%w.clusters) }

// machine names a machine and its node, about as long as a MachineDeployment would.
func (w size) machine(i int) string { return fmt.Sprintf("%s-md-0-x7kq2-%05d", w.cluster(i), i) }

// scale is how much is measured.
type scale struct {
	alone      int // flips one after another
	spread     int // flips, spread evenly over spreadOver
	mass       int // flips at once
	beats      int // heartbeats
	reconciles int // steady passes of each check
	slowly     int // the same, for a contender that makes one only every 15 s
	isolate    int // flips one after another, for a contender that has to be waited for

	spreadOver time.Duration
	idle       time.Duration
}

func scaleOf(w size, quick bool) scale {
	if quick {
		return scale{
			alone: 3, spread: 10, mass: w.machines / 10, beats: 200, reconciles: 5, slowly: 1, isolate: 1,
			spreadOver: 5 * time.Second, idle: 5 * time.Second,
		}
	}
	s := scale{
		alone: 20, spread: 60, mass: w.machines / 10, beats: 1000, reconciles: 20, slowly: 3, isolate: 2,
		spreadOver: 40 * time.Second, idle: 20 * time.Second,
	}
	if w.machines < 200 {
		s.alone, s.spread = 10, 40 // every flip is of a machine that was never flipped before
	}
	s.isolate = min(max(s.isolate, w.clusters), s.alone) // those in clusters of their own need not wait for each other
	return s
}

// heartbeatEvery is the time between two heartbeats: 30000 nodes send as many, each every five minutes.
const heartbeatEvery = 10 * time.Millisecond
