package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// hostEnvironment is an environment whose machines are on simulated hosts, which do at once what they are asked for.
type hostEnvironment struct {
	*environment
	workloadWatcher client.WithWatch // the cluster of the nodes
	hosts           *simulator.Hosts
	end             context.CancelFunc
	ended           chan error
}

// fillHosts creates the cluster, and a machine on each of that many hosts, which are all powered on.
func (e *hostEnvironment) fillHosts(ctx context.Context) error {
	if err := e.startHosts(); err != nil {
		return err
	}
	if err := e.managementClient.Create(ctx, builders.Namespace(namespace)); err != nil {
		return err
	}
	template := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	template.Spec.Template.Spec.Strategy = builders.HostStrategy(infrav1.RemediationStrategy{
		Type: infrav1.RebootRemediationStrategy, RetryLimit: infrav1.DefaultRetryLimit, TimeoutSeconds: infrav1.DefaultTimeoutSeconds,
	})
	if err := e.fillCluster(ctx, template); err != nil {
		return err
	}
	hosts := e.machines(0, e.count)
	if err := e.each(ctx, hosts, e.fillHost); err != nil {
		return err
	}
	if err := e.awaitPower(ctx); err != nil {
		return err
	}
	return e.each(ctx, hosts, e.inspect)
}

func (e *hostEnvironment) startHosts() (err error) {
	scheme := e.managementClient.Scheme()
	if e.workloadWatcher, err = client.NewWithWatch(unlimited(e.workload.Config()), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	waits := simulator.Hurried()
	waits.Poll = time.Hour // idle hosts cause no work while kubemend is measured
	if e.hosts, err = simulator.NewHosts(e.management.Config(), waits); err != nil {
		return err
	}
	playing, end := context.WithCancel(context.Background())
	e.end, e.ended = end, make(chan error, 1)
	go func() { e.ended <- e.hosts.Start(playing) }()
	return nil
}

// tearDown ends all of it.
func (e *hostEnvironment) tearDown() error {
	var err error
	if e.end != nil {
		e.end()
		err = <-e.ended
	}
	return errors.Join(err, e.environment.tearDown())
}

// fillHost creates a machine together with its host.
func (e *hostEnvironment) fillHost(ctx context.Context, i int) error {
	name := machineName(i)
	machine, _ := machineOf(i)
	between := builders.Metal3Machine(machine)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: namespace + "/" + name})
	host := builders.BareMetalHost(namespace, name, builders.Deployed, builders.ConsumedBy(name))
	for _, object := range []client.Object{between, host} {
		if err := e.managementClient.Create(ctx, object); err != nil {
			return err
		}
	}
	return e.fillMachine(ctx, i)
}

// awaitPower waits until all hosts are powered on.
func (e *hostEnvironment) awaitPower(ctx context.Context) error {
	powered := 0
	err := wait.PollUntilContextCancel(ctx, readEvery, true, func(context.Context) (bool, error) {
		for powered < e.count && e.host(powered).Powered() {
			powered++
		}
		return powered == e.count, nil
	})
	if err != nil {
		return fmt.Errorf("wait for hosts: %s is not on: %w", machineName(powered), err)
	}
	return nil
}

func (e *hostEnvironment) host(i int) *simulator.Host {
	return e.hosts.Host(client.ObjectKey{Namespace: namespace, Name: machineName(i)})
}

// inspect writes the hardware details of a host, which are most of a BareMetalHost.
func (e *hostEnvironment) inspect(ctx context.Context, i int) error {
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name = namespace, machineName(i)
	before := host.DeepCopy()
	host.Status.HardwareDetails = hardwareOf(i, host.Name)
	if err := e.managementClient.Status().Patch(ctx, host, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the hardware of host %s: %w", host.Name, err)
	}
	return nil
}

func hardwareOf(i int, name string) *bmov1alpha1.HardwareDetails {
	details := &bmov1alpha1.HardwareDetails{Hostname: name, RAMMebibytes: 512 << 10, CPU: bmov1alpha1.CPU{Arch: "x86_64", Count: 128}}
	for n := range 128 {
		details.CPU.Flags = append(details.CPU.Flags, fmt.Sprintf("flag-%03d", n))
	}
	for n := range 36 {
		details.Storage = append(details.Storage, bmov1alpha1.Storage{
			Name: fmt.Sprintf("/dev/disk/by-path/pci-0000:18:00.0-scsi-0:0:%d:0", n), Type: bmov1alpha1.NVME, SizeBytes: 3 << 40,
			Vendor: "vendor", Model: "a model of a disk", SerialNumber: fmt.Sprintf("SERIAL-%08d-%04d", i, n),
		})
	}
	return details
}

// cycle makes the node of a machine Unknown, whose kubelet reports again when its host has booted, and returns how long it took until
// the machine was healthy again.
func (e *hostEnvironment) cycle(ctx context.Context, i int) (time.Duration, error) {
	name := machineName(i)
	e.host(i).Mute(1) // a kubelet on a host that is on would report at once
	e.host(i).Carry(simulator.NewKubelet(e.workloadWatcher, simulator.KubeletOptions{Node: name, Every: time.Hour}))
	isHealthy := e.machineWatch.becomes(name, succeeded)
	if err := e.patchNode(ctx, i, longUnknown(time.Now())); err != nil {
		return 0, err
	}
	at := time.Now()
	healthyAt, err := e.machineWatch.await(ctx, isHealthy)
	if err != nil {
		return 0, fmt.Errorf("wait for the power cycle of %s: %w", name, err)
	}
	return healthyAt.Sub(at), nil
}
