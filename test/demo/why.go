package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	asking   = 10 * time.Second
	logLines = 25
)

// showWhy shows the state of the objects, and the last lines of the manager's log.
func (s *environment) showWhy() {
	if s.manager == nil {
		return
	}
	n := s.narrator
	// The demo's own context may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	n.note("\nCurrent state:\n\n%s", s.state(ctx))
	content, err := os.ReadFile(s.manager.Log)
	if err != nil {
		n.note("The manager's log cannot be read: %v", err)
		return
	}
	last := strings.Split(strings.TrimSpace(string(content)), "\n")
	n.note("The last lines of the manager's log:\n\n%s", strings.Join(last[max(0, len(last)-logLines):], "\n"))
}

// state is a table of all machines, and the conditions of the check.
func (s *environment) state(ctx context.Context) string {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(cells ...any) { _, _ = fmt.Fprintf(table, strings.Repeat("%v\t", len(cells))+"\n", cells...) }
	row("MACHINE", "PHASE", "HOST", "POWER", "KUBELET", "NODE READY", "HEALTH CHECK", "OWNER REMEDIATED")
	machines, err := s.machines(ctx)
	if err != nil {
		return err.Error()
	}
	for i := range machines {
		m := &machines[i]
		kubelet := "-"
		if k := s.kubelet(m.Name); k != nil {
			kubelet = map[bool]string{true: "runs", false: "stopped"}[k.Running()]
		}
		host, power := s.hostOf(m.Name)
		row(m.Name, m.Status.Phase, host, power, kubelet, s.nodeReady(ctx, m.Status.NodeRef.Name),
			said(m, clusterv1.MachineHealthCheckSucceededCondition), said(m, clusterv1.MachineOwnerRemediatedCondition))
	}
	s.checkState(ctx, table)
	remediations := &mendv1.HostRemediationList{}
	if err := s.here.List(ctx, remediations, client.InNamespace(namespace)); err != nil {
		_, _ = fmt.Fprintf(table, "\n%v\n", err)
	}
	for i := range remediations.Items {
		rem := &remediations.Items[i]
		_, _ = fmt.Fprintf(table, "\nHostRemediation %s: %s: %s\n", rem.Name, rem.Status.Step, rem.Status.Message)
	}
	_ = table.Flush() // a buffer takes everything
	return out.String()
}

// checkState prints the status of the check.
func (s *environment) checkState(ctx context.Context, out io.Writer) {
	check := &clusterv1.MachineHealthCheck{}
	if err := s.here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: checkName}, check); err != nil {
		_, _ = fmt.Fprintf(out, "\n%v\n", err)
		return
	}
	_, _ = fmt.Fprintf(out, "\nMachineHealthCheck %s: %d of %d healthy\n", checkName,
		ptr.Deref(check.Status.CurrentHealthy, 0), ptr.Deref(check.Status.ExpectedMachines, 0))
	for _, c := range check.Status.Conditions {
		_, _ = fmt.Fprintf(out, "  %s=%s (%s) %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}

// hostOf is the host of a machine, and its power as it really is.
func (s *environment) hostOf(machine string) (name, power string) {
	host, err := s.host(machine)
	if err != nil {
		return "-", "-"
	}
	return host.Key().Name, map[bool]string{true: "on", false: "off"}[host.Powered()]
}

func said(m *clusterv1.Machine, kind string) string {
	if c := conditions.Get(m, kind); c != nil {
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
	return "-"
}

func (s *environment) nodeReady(ctx context.Context, name string) string {
	node := &corev1.Node{}
	if name == "" {
		return "-"
	}
	if err := s.here.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return "?"
	}
	if ready := nodeCondition(node, corev1.NodeReady); ready != nil {
		return string(ready.Status)
	}
	return "-"
}
