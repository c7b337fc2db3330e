package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kubemend/kubemend/test/builders"
)

// report is all that a run has measured.
type report struct {
	settings settings
	machine  []string
	took     map[string]time.Duration // by part

	checks  []sizeResults
	cycles  []cycleResults
	nodes   nodeResults
	fleet   []smallFleetResults
	hostile hostileResults
	classes *classFigures
	cli     []cliResults
}

// heading is how the section of a part begins.
func (r *report) heading(part, title, method string) string {
	return fmt.Sprintf("## %s\n\nThis part was generated on %s, in %s, on %s. %s. "+
		"`make bench ARGS=\"-only %s\"` takes it anew and leaves the rest as it is.\n\n%s\n",
		title, r.settings.date, r.took[part].Round(time.Second), strings.Join(r.machine, ", "), versions(), part, method)
}

// thisMachine is the computer that the figures were taken on.
func thisMachine() []string {
	about := []string{fmt.Sprintf("%d cores", runtime.NumCPU())}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		about[0] += " of " + model
	}
	var kib float64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%f kB", &kib); err == nil {
		about = append(about, fmt.Sprintf("%.0f GiB memory", kib/mebibyte))
	}
	about = append(about, runtime.GOOS+"/"+runtime.GOARCH)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		about = append(about, "load average before the run "+strings.Fields(string(load))[0])
	}
	return about
}

// field reads a line "key : value" of a file; empty where there is none, as on other systems than Linux.
func field(file, key string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// versions are those of what was measured.
func versions() string {
	about := []string{"Go " + strings.TrimPrefix(runtime.Version(), "go"), "Kubernetes " + builders.KubernetesVersion}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "sigs.k8s.io/cluster-api" || m.Path == "sigs.k8s.io/controller-runtime" {
				about = append(about, m.Path+" "+m.Version)
			}
		}
	}
	return strings.Join(about, ", ")
}
