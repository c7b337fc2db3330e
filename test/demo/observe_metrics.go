package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// scrapeEvery is the interval of reading the manager's metrics: the only source of what is pending.
const scrapeEvery = 200 * time.Millisecond

// pendingTargets are the targets that are pending.
type pendingTargets struct {
	pending, total int
	// until is when the first of them is unhealthy unless it comes back.
	until time.Time
}

// watchPending records changes of what is pending, from the manager's metrics, until the context ends.
func (s *environment) watchPending(background context.Context) {
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	var last int
	for {
		select {
		case <-background.Done():
			return
		case <-tick.C:
		}
		text, err := s.manager.Scrape(background)
		if err != nil {
			continue // it may be restarting; a scene that waits for it says so
		}
		now := pendingIn(text)
		// Fewer pending targets are reported by what became of them.
		if now.pending > last {
			s.add(s.pendingObserved(now))
		}
		last = now.pending
	}
}

func (s *environment) pendingObserved(now pendingTargets) observation {
	are, they := "is", "it is"
	if now.pending > 1 {
		are, they = "are", "they are"
	}
	return observation{
		by: kubemend, fact: pendingFact, about: checkName, number: now.pending, of: now.total,
		text: fmt.Sprintf("%d of %d machines %s pending: unhealthy at %s unless %s Ready before", now.pending, now.total, are,
			s.narrator.at(now.until), they),
	}
}

// pendingIn reads the pending targets from the metrics of the check.
func pendingIn(text string) (found pendingTargets) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, "{")
		labels, sample, _ := strings.Cut(strings.TrimSpace(rest), "} ")
		value, err := strconv.ParseFloat(sample, 64)
		switch {
		case err != nil || !strings.Contains(labels, `name="`+checkName+`"`):
		case name == "kubemend_machinehealthcheck_targets":
			found.total += int(value)
			if strings.Contains(labels, `state="pending"`) {
				found.pending = int(value)
			}
		case name == "kubemend_machinehealthcheck_next_deadline_timestamp_seconds":
			found.until = time.Unix(int64(value), 0)
		}
	}
	return found
}
