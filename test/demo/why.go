package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// logLines is how many lines of the manager's log are shown.
const logLines = 25

// showWhy shows the state of the objects, and the last lines of the manager's log.
func (s *environment) showWhy() {
	if s.manager == nil {
		return
	}
	// The demo's own context may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.narrator.note("\nCurrent state:\n")
	if err := s.showState(ctx); err != nil {
		s.narrator.note("%v", err)
	}
	content, err := os.ReadFile(s.manager.Log)
	if err != nil {
		s.narrator.note("The manager's log cannot be read: %v", err)
		return
	}
	last := strings.Split(strings.TrimSpace(string(content)), "\n")
	s.narrator.note("\nThe last lines of the manager's log:\n\n%s", strings.Join(last[max(0, len(last)-logLines):], "\n"))
}

// showState prints the conditions of the check, of the machines and of the remediations, and what the simulated hosts really do.
func (s *environment) showState(ctx context.Context) error {
	check := &clusterv1.MachineHealthCheck{}
	if err := s.here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: checkName}, check); err != nil {
		return fmt.Errorf("read the check: %w", err)
	}
	s.showConditions("MachineHealthCheck", check)
	machines, err := s.machines(ctx)
	if err != nil {
		return err
	}
	for i := range machines {
		machine := &machines[i]
		s.showConditions("Machine", machine)
		if host, err := s.host(machine.Name); err == nil {
			s.narrator.note("  on host %s, powered on: %t", host.Key().Name, host.Powered())
		}
		if kubelet := s.kubelet(machine.Name); kubelet != nil {
			s.narrator.note("  its kubelet runs: %t", kubelet.Running())
		}
	}
	remediations := &mendv1.HostRemediationList{}
	if err := s.here.List(ctx, remediations, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list HostRemediations: %w", err)
	}
	for i := range remediations.Items {
		rem := &remediations.Items[i]
		s.narrator.note("HostRemediation %s: %s: %s", rem.Name, rem.Status.Step, rem.Status.Message)
	}
	return nil
}

func (s *environment) showConditions(kind string, object interface {
	client.Object
	conditions.Getter
}) {
	s.narrator.note("%s %s", kind, object.GetName())
	for _, cond := range object.GetConditions() {
		s.narrator.note("  %s=%s (%s) %s", cond.Type, cond.Status, cond.Reason, cond.Message)
	}
}
