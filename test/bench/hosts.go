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

// setUpHosts starts control planes with that many hosts, all powered on.
func setUpHosts(ctx context.Context, hosts int, crds []string) (*hostEnvironment, error) {
	e := &hostEnvironment{environment: &environment{count: hosts, crds: crds}}
	since := time.Now()
	if err := e.fillHosts(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("set up %d hosts: %w", hosts, err), e.tearDown())
	}
	progress("%d hosts with machines and nodes created in %.1fs", hosts, time.Since(since).Seconds())
	return e, nil
}

func (e *hostEnvironment) fillHosts(ctx context.Context) error {
	if err := e.startControlPlanes(ctx); err != nil {
		return err
	}
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
	all := e.machines(0, e.count)
	if err := e.each(ctx, all, e.fillHost); err != nil {
		return err
	}
	if err := e.awaitPower(ctx); err != nil {
		return err
	}
	if err := e.each(ctx, all, e.inspect); err != nil {
		return err
	}
	var err error
	if e.machineWatch, err = watchStatuses(ctx, unlimited(e.management.Config()), machinesPath); err != nil {
		return err
	}
	_, err = e.machineWatch.await(ctx, e.machineWatch.all(e.count, ""))
	return err
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
		powered = 0
		for i := range e.count {
			if e.host(i).Powered() {
				powered++
			}
		}
		return powered == e.count, nil
	})
	if err != nil {
		return fmt.Errorf("wait for hosts: %d of %d are on: %w", powered, e.count, err)
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
	details := &bmov1alpha1.HardwareDetails{Hostname: name, RAMMebibytes: 512 << 10, CPU: bmov1alpha1.CPU{Arch: "x86_64", Model: "a model", Count: 128}}
	for n := range 128 {
		details.CPU.Flags = append(details.CPU.Flags, fmt.Sprintf("flag-%03d", n))
	}
	for n := range 24 {
		details.Storage = append(details.Storage, bmov1alpha1.Storage{
			Name: fmt.Sprintf("/dev/disk/by-path/pci-0000:18:00.0-scsi-0:0:%d:0", n), Type: bmov1alpha1.NVME, SizeBytes: 3 << 40,
			Vendor: "vendor", Model: "a model of a disk", SerialNumber: fmt.Sprintf("SERIAL-%08d-%04d", i, n), WWN: fmt.Sprintf("0x5000c500%08x", n),
		})
	}
	for n := range 12 {
		details.NIC = append(details.NIC, bmov1alpha1.NIC{
			Name: fmt.Sprintf("ens%df%d", n/2, n%2), Model: "0x8086 0x1572", IP: "10.20.30.40", SpeedGbps: 25,
			MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i%256, n),
		})
	}
	return details
}

// attachKubelet starts a kubelet on the host of a machine. It reports when the host has booted.
func (e *hostEnvironment) attachKubelet(i int) {
	e.host(i).Mute(1) // a kubelet on a host that is on would report at once
	e.host(i).Carry(simulator.NewKubelet(e.workloadWatcher, simulator.KubeletOptions{Node: machineName(i), Every: time.Hour}))
}

// cycle makes the node of a machine Unknown, whose kubelet reports again when its host has booted, and returns how long it took until
// the machine was healthy again.
func (e *hostEnvironment) cycle(ctx context.Context, i int) (time.Duration, error) {
	name := machineName(i)
	e.attachKubelet(i)
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
