package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// How many clusters are made from a class.
const (
	classClusters      = 30
	classClustersQuick = 5
	// classSlowness is that of the spec.
	classSlowness = 500 * time.Millisecond
)

// classFigures are what the spec of the fleet in test/e2e/capi measures, which makes the clusters and writes these.
type classFigures struct {
	// Clusters is how many there are, Machines how many of each.
	Clusters, Machines int
	// Judged and Slow are how long after the start of the manager all machines of the other clusters were judged, and those of the slow one.
	Judged, Slow time.Duration
	// Median and OtherLongest are how long after its timeout a verdict is written, but for that in the slow cluster, which is SlowestVerdict.
	Median, OtherLongest, SlowestVerdict time.Duration
	// Memory is in bytes, Processor in seconds for all verdicts.
	Memory, Processor float64
}

func (r *report) measureClasses(ctx context.Context, _ map[string]string) (err error) {
	folder, err := os.MkdirTemp("", "kubemend-bench-")
	if err != nil {
		return fmt.Errorf("make a folder for figures: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	file, clusters := filepath.Join(folder, "figures.json"), classClusters
	if r.settings.quick {
		clusters = classClustersQuick
	}
	if err := runFleet(ctx, folder, clusters, file); err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read what the suite measured: %w", err)
	}
	r.classes, err = classFiguresOf(content)
	return err
}

// classFiguresOf reads what the spec has written. A name that is not known here is a figure that would be missing in the report.
func classFiguresOf(content []byte) (*classFigures, error) {
	f := &classFigures{}
	from := json.NewDecoder(bytes.NewReader(content))
	from.DisallowUnknownFields()
	if err := from.Decode(f); err != nil {
		return nil, fmt.Errorf("read what the suite measured: %w", err)
	}
	return f, nil
}

// classSuite is the folder of the suite with the spec.
const classSuite = "./test/e2e/capi"

// runFleet builds the suite and runs its spec of a fleet. The process is the test itself, not `go test`, so that it hears when this one is interrupted.
func runFleet(ctx context.Context, folder string, clusters int, figures string) error {
	binary := filepath.Join(folder, "capi.test")
	if said, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", binary, classSuite).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", classSuite, err, said)
	}
	progress("making %d clusters from a class", clusters)
	run := exec.CommandContext(ctx, binary, "-test.timeout=1h", "-ginkgo.focus=A fleet of clusters from a class")
	run.Dir, run.Env = classSuite, append(os.Environ(), fmt.Sprintf("KUBEMEND_FLEET=%d", clusters), "KUBEMEND_FLEET_FIGURES="+figures)
	run.Cancel, run.WaitDelay = func() error { return run.Process.Signal(os.Interrupt) }, time.Minute
	if said, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("measure clusters from a class: %w: %s", err, said)
	}
	return nil
}

func (r *report) classesSection() string {
	f := r.classes
	if f == nil {
		return ""
	}
	var out strings.Builder
	out.WriteString(r.heading(classesPart, fmt.Sprintf("%d clusters from a class", f.Clusters), fmt.Sprintf(
		"Clusters of %d machines each, made by Cluster API's own providers from a ClusterClass, on its in-memory infrastructure (`test/e2e/capi`).\n"+
			"One is unreachable: its address takes connections and answers nothing. A proxy delays each request to another one by %d ms.\n"+
			"All have a check with a timeout of 4 s. Then a worker of each but the unreachable one becomes Unknown, within a few seconds; a verdict is late\n"+
			"by the time from the end of its timeout to the watch event with the condition. The other managers and all API servers, also those that\n"+
			"are simulated, share the cores with kubemend.\n", f.Machines, classSlowness.Milliseconds())))
	out.WriteString("| measured | |\n|---|---:|\n")
	row := func(name, format string, value any) { fmt.Fprintf(&out, "| %s | "+format+" |\n", name, value) }
	row(fmt.Sprintf("All machines of the other %d judged, after the start", f.Clusters-2), "%.1f s", f.Judged.Seconds())
	row("All machines of the slow one judged, after the start", "%.1f s", f.Slow.Seconds())
	row("Verdict late, p50 of the others", "%d ms", f.Median.Milliseconds())
	row("Verdict late, highest of the others", "%d ms", f.OtherLongest.Milliseconds())
	row("Verdict late, in the slow one", "%d ms", f.SlowestVerdict.Milliseconds())
	row(fmt.Sprintf("Processor time for %d verdicts", f.Clusters-1), "%.2f s", f.Processor)
	row("Resident memory", "%.0f MiB", f.Memory/mebibyte)
	return out.String()
}
