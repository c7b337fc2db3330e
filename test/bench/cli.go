package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// cliSizes are the sizes at which the command line is measured, and how often each command runs.
func cliSizes(quick bool) ([]size, int) {
	if quick {
		return []size{{200, 4}, {100, 1}}, 3
	}
	return []size{{5000, 50}, {5000, 1}, {1000, 1}}, 10
}

// cliCommand is a command that is measured, and how long it may take.
type cliCommand struct {
	args []string
	aim  time.Duration
}

// String names the command in a table, where the name of an object would be too long.
func (q cliCommand) String() string {
	words := make([]string, 0, len(q.args))
	for _, arg := range q.args {
		switch kind, _, named := strings.Cut(arg, "/"); {
		case arg == unpacked:
			words = append(words, "(unpacked)")
		case named:
			words = append(words, kind)
		default:
			words = append(words, arg)
		}
	}
	return strings.Join(words, " ")
}

// cliCommands are the commands; the names in them are those of the machines at this size.
func cliCommands(w size) []cliCommand {
	machine := "machine/" + w.machine(0)
	return []cliCommand{
		{[]string{"status"}, 2 * time.Second},
		{[]string{"status", unpacked}, 2 * time.Second},
		{[]string{"status", "--full"}, 2 * time.Second},
		{[]string{"explain", machine}, time.Second},
		{[]string{"explain", machine, unpacked}, time.Second},
		{[]string{"explain", "mhc/" + w.cluster(0)}, time.Second},
	}
}

// unpacked has the API server send lists without compression, which takes longer than sending them where, as here, there is no network in between.
const unpacked = "--disable-compression"

// cliFigures are what was measured of one command.
type cliFigures struct {
	cliCommand
	// cold is how long the first run took.
	cold     time.Duration
	took     []time.Duration
	cpu      []time.Duration
	resident float64 // bytes, the highest of all
}

// cliResults are what was measured of the command line at one size.
type cliResults struct {
	size
	all []cliFigures
}

// measureCommands runs the commands against a cluster whose machines were all judged by a manager that still runs, after one node has become Unknown.
func measureCommands(ctx context.Context, s settings, w size, runs int, binaries map[string]string) (_ cliResults, err error) {
	results := cliResults{size: w}
	crds, err := ownCRDs(ctx)
	if err != nil {
		return results, err
	}
	e, err := setUp(ctx, &environment{size: w, crds: crds})
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	// Without a manager lease that it believes the command cannot know that a manager keeps the status of checks up to date, and reads all machines.
	if err := e.managementClient.Create(ctx, managerBinding()); err != nil {
		return results, fmt.Errorf("bind the manager: %w", err)
	}
	c := s.kubemend("--leader-elect-namespace=" + namespace)
	t := &trial{environment: e, figures: figures{}}
	if err := t.firstPass(ctx, c, binaries[c.source]); err != nil {
		return results, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	if err := e.patchNode(ctx, 0, unknownSince(time.Now())); err != nil {
		return results, err
	}
	if _, err := t.settle(ctx); err != nil {
		return results, err
	}
	p := plugin{binary: binaries[pluginSource], kubeconfig: e.management.KubeconfigFile()}
	if err := p.awaitCounted(ctx, w); err != nil {
		return results, err
	}
	for _, q := range cliCommands(w) {
		of, err := p.measure(ctx, q, runs)
		if err != nil {
			return results, err
		}
		results.all = append(results.all, of)
		progress("%s %s: %s, at the worst %s, the first time %s", w, q, percentile(of.took, 50), slices.Max(of.took), of.cold)
	}
	return results, nil
}

// managerBinding is the binding by which the command recognizes that the manager lease in the namespace is kubemend's.
func managerBinding() *rbacv1.ClusterRoleBinding {
	of := managerlease.OfKubemend
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: of.Account, Labels: of.Labelled},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: of.Roles[0]},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: of.Account}},
	}
}

// plugin is kubectl mend and the management cluster that it reads.
type plugin struct{ binary, kubeconfig string }

// run runs a command in a home of its own, so that it finds nothing which an earlier one has kept.
func (p plugin) run(ctx context.Context, args ...string) (out string, state *os.ProcessState, took time.Duration, err error) {
	home, err := os.MkdirTemp("", "kubemend-bench-")
	if err != nil {
		return "", nil, 0, fmt.Errorf("make a home for the user: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	cmd := exec.CommandContext(ctx, p.binary, append([]string{"--kubeconfig", p.kubeconfig, "-n", namespace}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	since := time.Now()
	err = cmd.Run()
	took = time.Since(since)
	switch {
	case err != nil:
		err = fmt.Errorf("kubectl mend %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	case stdout.Len() == 0:
		err = fmt.Errorf("kubectl mend %s: it printed nothing", strings.Join(args, " "))
	}
	return stdout.String(), cmd.ProcessState, took, err
}

// counted is what the JSON has of a check whose machines were not all read.
const counted = `"countedByStatus": true`

// awaitCounted waits until the command uses the status of checks, which it does from two minutes after the start of the manager (ADR 66). Then it reads
// no machines of clusters whose machines are all healthy, and explains a machine without reading the others. If it did not, the figures would be of
// something else.
func (p plugin) awaitCounted(ctx context.Context, w size) error {
	var status, machine string
	err := wait.PollUntilContextTimeout(ctx, 5*time.Second, contenderTimeout, true, func(ctx context.Context) (_ bool, err error) {
		if status, _, _, err = p.run(ctx, "status", "-o", "json"); err != nil {
			return false, err
		}
		machine, _, _, err = p.run(ctx, "explain", "machine/"+w.machine(0), "-o", "json")
		return strings.Count(status, counted) == w.clusters-1 && strings.Count(machine, counted) == 1, err
	})
	if err != nil {
		return fmt.Errorf("wait until %d of %d checks are counted by their status, of which %d are (and %d of the explained machine): %w",
			w.clusters-1, w.clusters, strings.Count(status, counted), strings.Count(machine, counted), err)
	}
	return nil
}

// measure runs a command once, and then as often as is asked for.
func (p plugin) measure(ctx context.Context, q cliCommand, runs int) (cliFigures, error) {
	of := cliFigures{cliCommand: q}
	for i := range runs + 1 {
		_, state, took, err := p.run(ctx, q.args...)
		if err != nil {
			return of, err
		}
		if usage, known := state.SysUsage().(*syscall.Rusage); known {
			of.resident = max(of.resident, float64(usage.Maxrss)*1024)
		}
		if i == 0 {
			of.cold = took
			continue
		}
		of.took = append(of.took, took)
		of.cpu = append(of.cpu, state.UserTime()+state.SystemTime())
	}
	slices.Sort(of.took)
	slices.Sort(of.cpu)
	return of, nil
}

// measureCommandLine measures how long the command line takes.
func (r *report) measureCommandLine(ctx context.Context, binaries map[string]string) error {
	sizes, runs := cliSizes(r.settings.quick)
	for _, w := range sizes {
		results, err := measureCommands(ctx, r.settings, w, runs, binaries)
		if err != nil {
			return fmt.Errorf("measure the command line with %s: %w", w.title(), err)
		}
		r.cli = append(r.cli, results)
	}
	return nil
}

// cliSection is the part of the report about the command line.
func (r *report) cliSection() string {
	if len(r.cli) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(r.heading(cliPart, "The command line", cliMethod))
	for _, results := range r.cli {
		fmt.Fprintf(&b, "\n### %s\n\n| kubectl mend ... | first run | median | worst of %d | CPU time | memory | aim |\n"+
			"|---|---:|---:|---:|---:|---:|---|\n", results.title(), len(results.all[0].took))
		for _, a := range results.all {
			worst, verdict := slices.Max(a.took), "met"
			if worst > a.aim {
				verdict = "**missed**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | ≤ %s: %s |\n", a.cliCommand, seconds(a.cold.Seconds()),
				seconds(percentile(a.took, 50).Seconds()), seconds(worst.Seconds()), seconds(percentile(a.cpu, 50).Seconds()),
				mebibytes(a.resident/mebibyte), a.aim, verdict)
		}
	}
	return b.String()
}

// cliMethod says how the figures of the command line are taken, and what distorts them.
const cliMethod = `One management and one workload API server of their own, with Machines of about 4 KiB and what a manager has written on them, Nodes of
about 8 KiB and one MachineHealthCheck for each cluster. The manager runs, and keeps its manager lease. One node, that of the machine which is explained, has
just become Unknown. Each run of a command is a process of its own and is measured from its start to its end, as its user would; no run finds anything
that another one has kept. CPU time (the median) and resident memory (the highest) are what the system has counted for the process. The aim is for the
worst run after the first, which may have to wait until the program is read from the disk.

- **status** reads machines and nodes only of the cluster with the Unknown node: the others are counted by the status of their checks
  ([ADR 66](adr/0066-status-reads-where-something-is-wrong.md)). With **--full** it reads all.
- **(unpacked)**: with --disable-compression, so that the API server sends lists as they are.
- **explain machine** reads no machines but that one, and counts the others by the status of the check
  ([ADR 65](adr/0065-one-machine-is-explained-from-the-status.md)); **explain mhc** reads all machines of the cluster.

That both of this is so is read from the JSON of the commands before they are measured. The API servers, etcd and the manager share the cores with the
command. A list of 5000 Machines, 40 MB of JSON, takes an API server about 1.8 s here, with any client and any parameters.
`
