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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// cliCommand is a command that is measured, and the longest time it may take.
type cliCommand struct {
	name string
	args []string
	aim  time.Duration
}

// cliCommands are the measured commands. To explain a check, kubectl mend lists its 5000 machines, which takes 1.8 s.
var cliCommands = []cliCommand{
	{"status", []string{"status"}, 2 * time.Second},
	{"explain machine", []string{"explain", "machine/" + machineName(0)}, time.Second},
	{"explain mhc", []string{"explain", "mhc/" + clusterName}, 4 * time.Second},
	{"history machine", []string{"history", "machine/" + machineName(0)}, 2 * time.Second},
}

const cliMethod = `Machines of about 4 KiB, Nodes of about 8 KiB, one MachineHealthCheck and one RemediationRecord for each
Machine; the node of the explained machine has just become Unknown. Each run is a process of its own.
CPU time is the median, memory the highest; the aim is for the median. A list of 5000 Machines, 40 MB
of JSON, takes an API server about 1.8 s here, with any client.
`

// measureCommandLine runs the commands against a cluster whose manager has judged all machines and is still running. One node is Unknown.
func measureCommandLine(ctx context.Context, b bench) (s section, err error) {
	machines, runs := 5000, 10
	if b.quick {
		machines, runs = 100, 3
	}
	s = section{title: "The command line", method: cliMethod}
	s.columns = []string{"first run", "median", fmt.Sprintf("worst of %d", runs), "CPU time", "memory"}
	e := &environment{count: machines, ownKinds: true}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	if err := e.setUp(ctx, e.fill); err != nil {
		return s, err
	}
	if err := e.each(ctx, e.machines(0, machines), e.fillRecord); err != nil {
		return s, err
	}
	// Without a manager lease that it trusts, the command cannot rely on the status of checks, and reads all machines.
	if err := e.managementClient.Create(ctx, builders.ManagerBinding(namespace)); err != nil {
		return s, fmt.Errorf("bind the manager: %w", err)
	}
	t := &trial{environment: e, controller: checkController}
	if err := t.firstPass(ctx, "--leader-elect-namespace="+namespace); err != nil {
		return s, fmt.Errorf("first full pass: %w", err)
	}
	defer t.end()
	if err := e.patchNode(ctx, 0, unknownSince(time.Now())); err != nil {
		return s, err
	}
	if _, err := t.quiet(ctx, quietFor); err != nil {
		return s, err
	}
	p := plugin{kubeconfig: e.management.KubeconfigFile()}
	if err := p.awaitCounted(ctx); err != nil {
		return s, err
	}
	for _, c := range cliCommands {
		l, err := p.measure(ctx, c, runs)
		if err != nil {
			return s, err
		}
		s.lines = append(s.lines, l)
		progress("%s: %v", c.name, l.cells)
	}
	return s, nil
}

// fillRecord creates a record of a remediation of a machine that ended long ago.
func (e *environment) fillRecord(ctx context.Context, i int) error {
	name, at := machineName(i), metav1.NewTime(since.Add(time.Hour))
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	check := mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineHealthCheck", Namespace: namespace}
	check.Name = clusterName
	machine, node := check, mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: name}
	machine.Kind, machine.Name = "Machine", name
	record.Spec = mendv1.RemediationRecordSpec{
		Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown",
		UnhealthySince: &since, Due: &since, Decided: since,
		Target:    mendv1.RecordTarget{ClusterName: clusterName, Machine: &machine, Node: &node},
		Requester: mendv1.RecordRequester{Check: &check},
		Evidence:  []mendv1.RecordEvidence{{Type: "Ready", Status: "Unknown", Since: &since, TimeoutSeconds: 60}},
	}
	record.Status = mendv1.RemediationRecordStatus{Begun: &since, Ended: &at, EndedBy: "owner",
		Outcome: mendv1.RecordHealed}
	for n := range 8 {
		record.Status.Steps = append(record.Status.Steps, mendv1.RecordStep{
			Time: metav1.NewMicroTime(at.Time), Reason: fmt.Sprintf("Step%d", n), Object: &machine,
			Message: "what happened, in a sentence of about this length",
		})
	}
	if err := e.managementClient.Create(ctx, record); err != nil { // the CRD has no status subresource
		return fmt.Errorf("create the record of machine %s: %w", name, err)
	}
	return nil
}

// plugin runs kubectl mend against a management cluster.
type plugin struct{ kubeconfig string }

// run runs a command with an empty home directory, so that it finds no cache of an earlier run.
func (p plugin) run(ctx context.Context, args ...string) (out string, state *os.ProcessState, took time.Duration, err error) {
	home, err := os.MkdirTemp("", "kubemend-bench-")
	if err != nil {
		return "", nil, 0, fmt.Errorf("make a home for the user: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "kubectl-mend"),
		append([]string{"--kubeconfig", p.kubeconfig, "-n", namespace}, args...)...)
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

// counted is the part of the JSON that says that the numbers come from the status of the check.
const counted = `"countedByStatus": true`

// awaitCounted waits until the command uses the status of checks, which it does two minutes after the start of the manager. Before that,
// explaining a machine reads all other machines too, and the figures would be wrong.
func (p plugin) awaitCounted(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Second, managerTimeout, true, func(ctx context.Context) (bool, error) {
		machine, _, _, err := p.run(ctx, "explain", "machine/"+machineName(0), "-o", "json")
		return strings.Contains(machine, counted), err
	})
	if err != nil {
		return fmt.Errorf("wait until the machines are counted by the status of the check: %w", err)
	}
	return nil
}

// measure runs a command once as a warm-up, and then runs times.
func (p plugin) measure(ctx context.Context, c cliCommand, runs int) (line, error) {
	var first time.Duration
	var times, cpu []time.Duration
	resident := 0.0
	for i := range runs + 1 {
		_, state, took, err := p.run(ctx, c.args...)
		if err != nil {
			return line{}, err
		}
		if usage, known := state.SysUsage().(*syscall.Rusage); known {
			resident = max(resident, float64(usage.Maxrss)*1024)
		}
		if i == 0 {
			first = took // the first run may have to load the program from disk
			continue
		}
		times, cpu = append(times, took), append(cpu, state.UserTime()+state.SystemTime())
	}
	slices.Sort(times)
	slices.Sort(cpu)
	median := percentile(times, 50)
	return line{name: c.name, aim: "≤ " + c.aim.String(), ok: median <= c.aim, cells: []string{
		seconds(first.Seconds()), seconds(median.Seconds()), seconds(slices.Max(times).Seconds()), seconds(percentile(cpu, 50).Seconds()),
		mebibytes(resident / mebibyte),
	}}, nil
}
