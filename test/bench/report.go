package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kubemend/kubemend/test/builders"
)

// measured is what is measured, in the words of the tables.
type measured string

// figures are what was measured in one run of the manager.
type figures map[measured]float64

// row is a line of a table before anything was measured.
type row struct {
	measured
	show func(float64) string
	// aim is the highest value that is good enough.
	aim float64
}

// noAim is the aim of what is only told.
const noAim = -1

// line is a line of a table, with the verdict on its aim.
type line struct {
	name  string
	cells []string
	aim   string
	ok    bool
}

// table has the figures of one environment, or of the same rows in several.
type table struct {
	title   string
	columns []string
	lines   []line
}

// section is a part of the report.
type section struct {
	title, method string
	tables        []table
}

// tableOf shows rows, with the figures of each column. An aim is missed if it is in any column, and if nothing was measured.
func tableOf(rows []row, columns []string, of ...figures) table {
	t := table{columns: columns}
	for _, r := range rows {
		l := line{name: string(r.measured), ok: true}
		for _, figures := range of {
			value, known := figures[r.measured]
			if !known {
				l.cells = append(l.cells, "–")
			} else {
				l.cells = append(l.cells, r.show(value))
			}
			// What is shown is what counts.
			l.ok = l.ok && (r.aim < 0 || known && math.Round(value*1000)/1000 <= r.aim)
		}
		if r.aim >= 0 {
			l.aim = "≤ " + r.show(r.aim)
		}
		t.lines = append(t.lines, l)
	}
	return t
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

func (t table) markdown() string {
	var b strings.Builder
	if t.title != "" {
		fmt.Fprintf(&b, "### %s\n\n", t.title)
	}
	fmt.Fprintf(&b, "| measured | %s | aim |\n|---|%s---|\n", strings.Join(t.columns, " | "), strings.Repeat("---:|", len(t.columns)))
	for _, l := range t.lines {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.name, strings.Join(l.cells, " | "), l.verdict())
	}
	return b.String()
}

// missed names the aims that were missed.
func (s section) missed() []string {
	var names []string
	for _, t := range s.tables {
		for _, l := range t.lines {
			if !l.ok {
				title := strings.Trim(s.title+", "+t.title, ", ")
				names = append(names, fmt.Sprintf("- %s, %s: %s, want %s", title, l.name, strings.Join(l.cells, " / "), l.aim))
			}
		}
	}
	return names
}

func (s section) markdown(part, machine string, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\nMeasured on %s, in %s, on\n%s.\n%s.\n"+
		"`make bench ARGS=\"-only %s\"` takes it anew and leaves the rest as it is.\n\n%s",
		s.title, time.Now().Format(time.DateOnly), took.Round(time.Second), machine, versions(), part, s.method)
	for _, t := range s.tables {
		b.WriteString("\n" + t.markdown())
	}
	return b.String()
}

// merged is a document with these sections between the marks of their parts, and the rest as it was.
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

// machine is the computer that the figures were taken on.
func machine() string {
	about := fmt.Sprintf("%d cores of %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"))
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		about += ", load average before the run " + strings.Fields(string(load))[0]
	}
	return about
}

// field reads a line "key : value" of a file.
func field(file, key string) string {
	content, _ := os.ReadFile(file) // there is none on other systems than Linux
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown kind"
}

// versions are those of what was measured.
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
