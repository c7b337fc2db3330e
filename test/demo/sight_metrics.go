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

// scrapeEvery is how often the manager is asked for its metrics: the only way to see what it suspects.
const scrapeEvery = 200 * time.Millisecond

// scope is what is watched for suspects.
type scope struct {
	check, by, things string // the name of the check, who makes passes over it, what it watches
	metrics           string // what the names of its metrics begin with
	stage             string // what the scenes about it need, for people
}

var (
	machinesOfCheck = scope{check: checkName, by: kubemend, things: "machines", metrics: "kubemend_machinehealthcheck_", stage: "two control planes"}
	nodesOfCheck    = scope{
		check: nodeCheckName, by: kubemendNodes, things: "nodes", metrics: "kubemend_nodehealthcheck_",
		stage: "one control plane, of a cluster that manages itself",
	}
)

// suspicion is what the manager suspects.
type suspicion struct {
	suspects, total int
	// until is when the first of them is unhealthy unless it comes back.
	until time.Time
}

// watchSuspects records changes of what the manager suspects, by its own metrics, until the context ends.
func (s *stage) watchSuspects(background context.Context) {
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
		now, err := s.watched.suspicionIn(text)
		if err != nil {
			continue
		}
		// That there are fewer is told by whatever else became of them.
		if now.suspects > last {
			s.add(s.suspicionSeen(now))
		}
		last = now.suspects
	}
}

func (s *stage) suspicionSeen(now suspicion) sighting {
	are, they := "is", "it is"
	if now.suspects > 1 {
		are, they = "are", "they are"
	}
	return sighting{
		by: s.watched.by, fact: suspected, about: s.watched.check, number: now.suspects, of: now.total,
		text: fmt.Sprintf("%d of %d %s %s pending until %s, then unhealthy unless %s back", now.suspects, now.total, s.watched.things, are,
			s.narrator.at(now.until), they),
	}
}

// suspicionIn reads the metrics of the check.
func (w scope) suspicionIn(text string) (suspicion, error) {
	decoder := expfmt.SampleDecoder{
		Dec:  expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain)),
		Opts: &expfmt.DecodeOptions{},
	}
	var found suspicion
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

func (found *suspicion) take(w scope, sample *model.Sample) {
	if sample.Metric["name"] != model.LabelValue(w.check) {
		return
	}
	switch strings.TrimPrefix(string(sample.Metric[model.MetricNameLabel]), w.metrics) {
	case "targets":
		found.total += int(sample.Value)
		if sample.Metric["state"] == "pending" {
			found.suspects = int(sample.Value)
		}
	case "next_deadline_timestamp_seconds":
		found.until = time.Unix(int64(sample.Value), 0)
	}
}
