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

// scope is the check whose pending targets are watched.
type scope struct {
	check, by, things string // the name of the check, its controller, what it watches
	metrics           string // what the names of its metrics begin with
	environment       string // what the scenes about it need, for people
}

var (
	machinesOfCheck = scope{check: checkName, by: kubemend, things: "machines", metrics: "kubemend_machinehealthcheck_", environment: "two control planes"}
	nodesOfCheck    = scope{
		check: nodeCheckName, by: kubemendNodes, things: "nodes", metrics: "kubemend_nodehealthcheck_",
		environment: "one control plane, of a cluster that manages itself",
	}
)

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
		now, err := s.watched.pendingIn(text)
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
		by: s.watched.by, fact: pendingFact, about: s.watched.check, number: now.pending, of: now.total,
		text: fmt.Sprintf("%d of %d %s %s pending: unhealthy at %s unless %s Ready before", now.pending, now.total, s.watched.things, are,
			s.narrator.at(now.until), they),
	}
}

// pendingIn reads the pending targets from the metrics of the check.
func (w scope) pendingIn(text string) (pendingTargets, error) {
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
			found.take(w, sample)
		}
	}
}

func (found *pendingTargets) take(w scope, sample *model.Sample) {
	if sample.Metric["name"] != model.LabelValue(w.check) {
		return
	}
	switch strings.TrimPrefix(string(sample.Metric[model.MetricNameLabel]), w.metrics) {
	case "targets":
		found.total += int(sample.Value)
		if sample.Metric["state"] == "pending" {
			found.pending = int(sample.Value)
		}
	case "next_deadline_timestamp_seconds":
		found.until = time.Unix(int64(sample.Value), 0)
	}
}
