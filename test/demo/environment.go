package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

const (
	namespace       = "default" // so that kubectl needs no -n
	clusterName     = "demo"
	pool            = "workers"
	controlPlanes   = 3
	workers         = 5
	spareHosts      = 3 // one for each machine that a scene replaces, and one more
	workerTemplate  = "machine-health-check-workers.yaml"
	checkName       = clusterName + "-node-unhealthy-5m"
	nodeTimeout     = 5 * time.Second
	machinesRunning = time.Minute
)

// environment is the simulated cluster, which is its own management cluster, the manager, and the record of observations.
type environment struct {
	*record
	narrator *narrator

	rig      *rig.Rig
	plane    *rig.ControlPlane
	manager  *rig.Kubemend
	hosts    *simulator.Hosts
	provider *simulator.Infrastructure
	scheme   *runtime.Scheme
	here     client.Client
	cluster  *clusterv1.Cluster

	background sync.WaitGroup
	end        context.CancelFunc
}

// start sets up the environment. Call stop on the result even if start returns an error.
func start(ctx context.Context, n *narrator) (*environment, error) {
	background, end := context.WithCancel(context.Background())
	s := &environment{narrator: n, record: newRecord(n), end: end}
	n.heading("Environment: a cluster of 3 + 5 machines on bare-metal hosts that manages itself, kubemend", "")
	for _, step := range []func(context.Context) error{
		s.startControlPlane,
		func(context.Context) error { return s.startSimulation(background) },
		s.startManager,
		s.buildCluster,
		func(context.Context) error { return s.watch(background) },
	} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// stop ends everything, clients before their servers.
func (s *environment) stop() error {
	s.end()
	s.background.Wait()
	if s.rig == nil {
		return nil
	}
	return s.rig.Stop()
}

func (s *environment) startControlPlane(ctx context.Context) error {
	var err error
	if s.rig, err = rig.Start(ctx, rig.Options{Log: s.narrator.plain()}); err != nil {
		return err
	}
	s.plane, err = s.rig.Management(ctx, rig.ManagementOptions{
		Core: true, Controllers: slices.Concat(rig.NodeControllers(), rig.PodControllers()), Own: true,
	})
	if err != nil {
		return err
	}
	s.scheme = runtime.NewScheme()
	err = errors.Join(clientgoscheme.AddToScheme(s.scheme), clusterv1.AddToScheme(s.scheme), bmov1alpha1.AddToScheme(s.scheme),
		mendv1.AddToScheme(s.scheme))
	if err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	if s.here, err = client.New(s.plane.Config(), client.Options{Scheme: s.scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return nil
}

func (s *environment) startManager(ctx context.Context) (err error) {
	began := time.Now()
	// The namespace of the manager's lease, and the RoleBinding without which other programs ignore the lease.
	err = builders.Apply(ctx, s.here, builders.Namespace(rig.Namespace), builders.ManagerBinding(rig.Namespace))
	if err != nil {
		return err
	}
	if s.manager, err = s.plane.Kubemend(ctx, "demo", nil); err != nil {
		return err
	}
	s.narrator.note("kubemend's manager is ready: bin/manager with its default flags (%.1fs)", time.Since(began).Seconds())
	return nil
}

// buildCluster creates the cluster and returns when all its machines run.
func (s *environment) buildCluster(ctx context.Context) error {
	began := time.Now()
	s.cluster = builders.Cluster(namespace, clusterName)
	key := client.ObjectKeyFromObject(s.cluster)
	if err := s.provider.Serve(key, s.plane.Config()); err != nil {
		return err
	}
	deployment := builders.MachineDeployment(s.cluster, pool, workers)
	objects := append([]client.Object{
		rig.KubeconfigSecret(key, s.plane), builders.Metal3Cluster(s.cluster), s.cluster,
		builders.Metal3MachineTemplate(s.cluster, pool), deployment,
	}, builders.ControlPlane(s.cluster, controlPlanes)...)
	hosts := builders.BareMetalHosts(namespace, "host", controlPlanes+workers+spareHosts)
	if err := builders.Apply(ctx, s.here, append(objects, hosts...)...); err != nil {
		return err
	}
	var running int
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, machinesRunning, true, func(ctx context.Context) (bool, error) {
		machines, err := s.machines(ctx)
		running = 0
		for i := range machines {
			if machines[i].Status.Phase == string(clusterv1.MachinePhaseRunning) {
				running++
			}
		}
		return running == controlPlanes+workers, err
	})
	if err != nil {
		return fmt.Errorf("build the cluster: %d of %d machines run: %w", running, controlPlanes+workers, err)
	}
	s.slowDown(hosts)
	s.narrator.note("cluster %s: %d machines run on BareMetalHosts, %d of them workers; %d hosts are spare (%.1fs)",
		clusterName, running, workers, spareHosts, time.Since(began).Seconds())
	return nil
}

func (s *environment) machines(ctx context.Context) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := s.here.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

func (s *environment) machine(ctx context.Context, name string) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	if err := s.here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
		return nil, fmt.Errorf("read machine %s: %w", name, err)
	}
	return machine, nil
}

func (s *environment) workerNames(ctx context.Context, number int) ([]string, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range machines {
		if machines[i].Labels[clusterv1.MachineDeploymentNameLabel] != "" && machines[i].DeletionTimestamp.IsZero() {
			names = append(names, machines[i].Name)
		}
	}
	if len(names) < number {
		return nil, fmt.Errorf("%d workers are needed, there are %d", number, len(names))
	}
	return names[:number], nil
}

// hostTimes are the delays of the simulated hosts once the cluster runs; real hosts take minutes. Before that the hosts answer at once:
// Cluster API core watches nodes only after it has seen the node of a first control-plane machine, and it looks for that node only when the
// Machine changes.
var hostTimes = simulator.Times{PowerOff: 2 * time.Second, PowerOn: 2 * time.Second, Boot: time.Second, Deprovisioning: time.Second}

// startSimulation starts the simulators of hosts and of everything that needs a container runtime. They run until the environment stops. If
// a simulator ends early, a scene fails because it misses an observation.
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

// slowDown gives every host the delays above from now on.
func (s *environment) slowDown(hosts []client.Object) {
	for _, host := range hosts {
		s.hosts.Host(client.ObjectKeyFromObject(host)).Take(hostTimes)
	}
}

func (s *environment) kubelet(machine string) *simulator.Kubelet {
	return s.provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: machine})
}

func (s *environment) host(machine string) (*simulator.Host, error) {
	if host := s.provider.Host(client.ObjectKey{Namespace: namespace, Name: machine}); host != nil {
		return host, nil
	}
	return nil, fmt.Errorf("machine %s has no host", machine)
}

// eachKubelet calls do for the kubelets of several machines at the same time.
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
