package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/kubemend/kubemend/test/builders"
)

// figure is one measured value, with the name it has in the table.
type figure struct {
	name  string
	value float64
	show  func(float64) string
	// aim is the highest value that passes.
	aim float64
}

// noAim marks a value that is only reported.
const noAim = -1

// figures are the values of one run of the manager.
type figures []figure

func (f *figures) add(name string, value float64, show func(float64) string, aim float64) {
	*f = append(*f, figure{name, value, show, aim})
}

func (f *figures) addDelays(name string, measured []time.Duration, median, worst float64) {
	slices.Sort(measured)
	f.add(name+", p50", percentile(measured, 50).Seconds(), seconds, median)
	f.add(name+", p99", percentile(measured, 99).Seconds(), seconds, worst)
}

// percentile returns a percentile of sorted values. For few values the 99th is the highest value.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}

// line is a line of a table, with the aim and whether it was met.
type line struct {
	name  string
	cells []string
	aim   string
	ok    bool
}

// section is a part of the report.
type section struct {
	title, method string
	columns       []string
	lines         []line
}

// add adds a column, which must have the figures of the other columns. The aim of a line is missed if any column misses it.
func (s *section) add(column string, measured figures) error {
	s.columns = append(s.columns, column)
	for i, f := range measured {
		if len(s.columns) == 1 {
			s.lines = append(s.lines, line{name: f.name, ok: true})
		}
		l := &s.lines[i]
		if l.name != f.name {
			return fmt.Errorf("%s was measured, want %s", f.name, l.name)
		}
		l.cells = append(l.cells, f.show(f.value))
		if f.aim >= 0 {
			l.aim = "≤ " + f.show(f.aim)
			l.ok = l.ok && math.Round(f.value*1000)/1000 <= f.aim // compare the rounded value, which the table shows
		}
	}
	return nil
}

func (s section) columnsOf(sizes []int, what string, measure func(int) (figures, error)) (section, error) {
	for _, size := range sizes {
		column := fmt.Sprintf(what, size)
		measured, err := measure(size)
		if err == nil {
			err = s.add(column, measured)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", column, err)
		}
	}
	return s, nil
}

func (l line) verdict() string {
	switch {
	case l.aim == "":
		return ""
	case l.ok:
		return l.aim + ": met"
	}
	return l.aim + ": **missed**"
}

func (s section) missed() []string {
	var names []string
	for _, l := range s.lines {
		if !l.ok {
			names = append(names, fmt.Sprintf("- %s, %s: %s, want %s", s.title, l.name, strings.Join(l.cells, " / "), l.aim))
		}
	}
	return names
}

func (s section) markdown(part, machine string, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\nMeasured on %s, in %s, on %s.\n%s. Repeat it with `make bench ARGS=\"-only %s\"`.\n\n%s",
		s.title, time.Now().Format(time.DateOnly), took.Round(time.Second), machine, versions(), part, s.method)
	fmt.Fprintf(&b, "\n| measured | %s | aim |\n|---|%s---|\n", strings.Join(s.columns, " | "), strings.Repeat("---:|", len(s.columns)))
	for _, l := range s.lines {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.name, strings.Join(l.cells, " | "), l.verdict())
	}
	return b.String()
}

// merged returns the document with these sections between their marks.
func merged(document string, sections map[string]string) (string, error) {
	for name, content := range sections {
		begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
		before, rest, found := strings.Cut(document, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return "", fmt.Errorf("there are no marks %q and %q", begin, end)
		}
		document = before + begin + content + end + after
	}
	return document, nil
}

func seconds(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1f s", v)
	}
	return fmt.Sprintf("%.3f s", v)
}

func milliseconds(v float64) string     { return fmt.Sprintf("%.1f ms", v) }
func milliseconds1000(v float64) string { return milliseconds(v * 1000) }
func mebibytes(v float64) string        { return fmt.Sprintf("%.0f MiB", v) }
func whole(v float64) string            { return fmt.Sprintf("%.0f", v) }
func count(v float64) string {
	if v == math.Trunc(v) {
		return whole(v)
	}
	return fmt.Sprintf("%.2f", v)
}

// machine describes the computer of the measurement.
func machine() string {
	about := fmt.Sprintf("%d cores of %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"))
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		about += ", load average before the run " + strings.Fields(string(load))[0]
	}
	return about
}

// field reads a line "key : value" of a file.
func field(file, key string) string {
	content, _ := os.ReadFile(file) // the file exists only on Linux
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown kind"
}

func versions() string {
	about := "Go " + strings.TrimPrefix(runtime.Version(), "go") + ", Kubernetes " + builders.KubernetesVersion
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "sigs.k8s.io/controller-runtime" {
				return about + ", controller-runtime " + m.Version
			}
		}
	}
	return about
}
