package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// pluginSource is the package of kubectl mend.
const pluginSource = "github.com/kubemend/kubemend/cmd/kubectl-mend"

// cliWorlds are what the command line is measured in, and how often.
func cliWorlds(quick bool) ([]world, int) {
	if quick {
		return []world{{200, 4}, {100, 1}}, 3
	}
	return []world{{5000, 50}, {5000, 1}, {1000, 1}}, 10
}

// question is a command that is measured, and how long it may take.
type question struct {
	args []string
	aim  time.Duration
}

func (q question) String() string { return strings.Join(q.args, " ") }

// questions are the commands; the names in them are those of a world.
func questions(w world) []question {
	machine := "machine/" + w.machine(0)
	return []question{
		{[]string{"status"}, 2 * time.Second},
		{[]string{"status", unpacked}, 2 * time.Second},
		{[]string{"status", "--full"}, 2 * time.Second},
		{[]string{"explain", machine}, time.Second},
		{[]string{"explain", machine, unpacked}, time.Second},
		{[]string{"explain", "mhc/" + w.cluster(0)}, time.Second},
	}
}

// unpacked has the API server send lists as they are. To pack them takes longer than to send them where, as here, there is no network in between.
const unpacked = "--disable-compression"

// answers are what was measured of one question.
type answers struct {
	question
	took     []time.Duration
	cpu      []time.Duration
	resident float64 // bytes, the highest of all
}

// cliResults are what was measured of the command line in one world.
type cliResults struct {
	world
	all []answers
}

// measureCommands asks a cluster whose machines were all judged by a manager, which still runs, and of which one has just fallen silent.
func measureCommands(ctx context.Context, s settings, w world, runs int, binaries map[string]string) (_ cliResults, err error) {
	results := cliResults{world: w}
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubemend/kubemend")
	if err != nil {
		return results, err
	}
	stage, err := raised(ctx, &stage{world: w, crds: []string{filepath.Join(root, "config", "crd", "bases")}})
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, stage.strike()) }()
	c := contenders()[0]
	c.args = append(c.args, s.more...)
	t := &trial{stage: stage, figures: figures{}}
	if err := t.firstPass(ctx, c, binaries[c.source]); err != nil {
		return results, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	if err := stage.patchNode(ctx, 0, silentSince(time.Now())); err != nil {
		return results, err
	}
	if _, err := t.settle(ctx); err != nil {
		return results, err
	}
	home, err := os.MkdirTemp("", "kubemend-bench-")
	if err != nil {
		return results, fmt.Errorf("make a home for the user: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	for _, q := range questions(w) {
		of, err := stage.ask(ctx, q, binaries[pluginSource], home, runs)
		if err != nil {
			return results, err
		}
		results.all = append(results.all, of)
		say("%s %s: %s, at the worst %s", w, q, percentile(of.took, 50), slices.Max(of.took))
	}
	return results, nil
}

// ask runs a command as often as is asked for, and once before.
func (s *stage) ask(ctx context.Context, q question, binary, home string, runs int) (answers, error) {
	of := answers{question: q}
	for i := range runs + 1 {
		run := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", s.management.KubeconfigFile(), "-n", namespace}, q.args...)...)
		run.Env = append(os.Environ(), "HOME="+home)
		var said, complaint bytes.Buffer
		run.Stdout, run.Stderr = &said, &complaint
		since := time.Now()
		err := run.Run()
		took := time.Since(since)
		if err != nil {
			return of, fmt.Errorf("ask %s: %w: %s", q, err, complaint.String())
		}
		if said.Len() == 0 {
			return of, fmt.Errorf("ask %s: it says nothing", q)
		}
		if i == 0 {
			continue // the program was read from the disk, and the certificates were
		}
		of.took = append(of.took, took)
		of.cpu = append(of.cpu, run.ProcessState.UserTime()+run.ProcessState.SystemTime())
		slices.Sort(of.took)
		slices.Sort(of.cpu)
		if usage, known := run.ProcessState.SysUsage().(*syscall.Rusage); known {
			of.resident = max(of.resident, float64(usage.Maxrss)*1024)
		}
	}
	return of, nil
}

// measureCommandLine measures how long the command line takes.
func (r *report) measureCommandLine(ctx context.Context, binaries map[string]string) error {
	began := time.Now()
	defer func() { r.cliTook = time.Since(began) }()
	worlds, runs := cliWorlds(r.settings.quick)
	for _, w := range worlds {
		results, err := measureCommands(ctx, r.settings, w, runs, binaries)
		if err != nil {
			return fmt.Errorf("measure the command line with %s: %w", w.title(), err)
		}
		r.cli = append(r.cli, results)
	}
	return nil
}

// cliMarkdown is the part of the report about the command line.
func (r report) cliMarkdown() string {
	if len(r.cli) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## The command line\n\nThis part was generated on %s, in %s, on %s. %s. "+
		"`make bench ARGS=\"-only cli\"` takes it anew and leaves the rest as it is.\n\n%s\n",
		r.settings.date, r.cliTook.Round(time.Second), strings.Join(r.machine, ", "), versions(), cliMethod)
	for _, results := range r.cli {
		fmt.Fprintf(&b, "\n| %s | median | worst of %d | processor time, median | resident memory, highest | aim |\n"+
			"|---|---:|---:|---:|---:|---|\n", results.title(), len(results.all[0].took))
		for _, a := range results.all {
			worst, verdict := slices.Max(a.took), "met"
			if worst > a.aim {
				verdict = "**missed**"
			}
			fmt.Fprintf(&b, "| `kubectl mend %s` | %s | %s | %s | %s | ≤ %s: %s |\n", a.question,
				seconds(percentile(a.took, 50).Seconds()), seconds(worst.Seconds()), seconds(percentile(a.cpu, 50).Seconds()),
				mebibytes(a.resident/mebibyte), seconds(a.aim.Seconds()), verdict)
		}
	}
	return b.String()
}

// cliMethod says how the figures of the command line are taken, and what distorts them.
const cliMethod = `One management and one workload API server of their own, with Machines of about 4 KiB and what a manager has written on them, Nodes of
about 8 KiB and one MachineHealthCheck for each cluster. Each run of a command is a process of its own and is measured from its start to its end, as an
administrator who waits for it would; one run before is not counted. Memory and processor time are those that the system has counted
for the process. The machine that is explained has just fallen silent. The aim is for the worst run.

The API servers, etcd and the manager share the cores with the command: about as much as the command works, the API servers do, to list all
Machines and Nodes once for each run. A machine is explained with the numbers in the status of its check, and a check with all machines of its cluster.
The list of 5000 Machines alone, 40 MB of JSON, takes an API server about 1.8 s here, whoever asks for it, and however it is asked.
`
