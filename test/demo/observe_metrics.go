package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
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
		now, err := pendingIn(text)
		if err != nil {
			continue
		}
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
func pendingIn(text string) (pendingTargets, error) {
	decoder := expfmt.SampleDecoder{
		Dec:  expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain)),
		Opts: &expfmt.DecodeOptions{},
	}
	var found pendingTargets
	for {
		var samples model.Vector
		err := decoder.Decode(&samples)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read metrics: %w", err)
		}
		for _, sample := range samples {
			found.take(sample)
		}
	}
}

func (found *pendingTargets) take(sample *model.Sample) {
	if sample.Metric["name"] != checkName {
		return
	}
	switch strings.TrimPrefix(string(sample.Metric[model.MetricNameLabel]), "kubemend_machinehealthcheck_") {
	case "targets":
		found.total += int(sample.Value)
		if sample.Metric["state"] == "pending" {
			found.pending = int(sample.Value)
		}
	case "next_deadline_timestamp_seconds":
		found.until = time.Unix(int64(sample.Value), 0)
	}
}
