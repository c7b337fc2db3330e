package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/simulator"
)

// hostTimes are how long the simulated hosts take once the cluster stands; real ones take minutes. Until then they answer at
// once: Cluster API core watches nodes only when it has seen that of a first control-plane machine, and it looks for that one
// only when something else about the machine changes.
var hostTimes = simulator.Times{PowerOff: 2 * time.Second, PowerOn: 2 * time.Second, Boot: time.Second, Deprovisioning: time.Second}

// startSimulation starts the simulators of what this computer cannot have: hosts, and what needs a container runtime. They run
// until the environment is stopped. If one ends early, what it should do is not observed, and a scene says so.
func (s *environment) startSimulation(background context.Context) error {
	var err error
	if s.hosts, err = simulator.NewHosts(s.plane.Config(), simulator.Hurried()); err != nil {
		return err
	}
	if s.provider, err = simulator.NewInfrastructure(s.plane.Config(), s.hosts); err != nil {
		return err
	}
	scheduler, err := simulator.NewScheduler(s.plane.Config())
	if err != nil {
		return err
	}
	volumes, err := simulator.NewAttacher(s.plane.Config())
	if err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{s.hosts.Start, s.provider.Start, scheduler.Start, volumes.Start} {
		s.background.Go(func() { _ = start(background) })
	}
	return nil
}

// slowDown makes every host take its time from now on.
func (s *environment) slowDown(hosts []client.Object) {
	for _, host := range hosts {
		s.hosts.Host(client.ObjectKeyFromObject(host)).Take(hostTimes)
	}
}

func (s *environment) kubelet(machine string) *simulator.Kubelet {
	return s.provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: machine})
}

// host is the host that a machine is on.
func (s *environment) host(machine string) (*simulator.Host, error) {
	if host := s.provider.Host(client.ObjectKey{Namespace: namespace, Name: machine}); host != nil {
		return host, nil
	}
	return nil, fmt.Errorf("machine %s has no host", machine)
}

func (s *environment) eachHost(machines []string, do func(*simulator.Host)) error {
	for _, machine := range machines {
		host, err := s.host(machine)
		if err != nil {
			return err
		}
		do(host)
	}
	return nil
}

// eachKubelet does something to the kubelets of several machines at the same moment.
func (s *environment) eachKubelet(machines []string, do func(*simulator.Kubelet)) error {
	var group errgroup.Group
	for _, machine := range machines {
		kubelet := s.kubelet(machine)
		if kubelet == nil {
			return fmt.Errorf("machine %s has no kubelet", machine)
		}
		group.Go(func() error {
			do(kubelet)
			return nil
		})
	}
	return group.Wait()
}
