package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// hostEnvironment is an environment whose machines are on simulated hosts. The hosts do at once what they are asked for.
type hostEnvironment struct {
	*environment
	workloadWatcher client.WithWatch // the cluster of the nodes
	hosts           *simulator.Hosts
	end             context.CancelFunc
	ended           chan error
}

// fillHosts creates the cluster and a machine on each of the hosts, all powered on.
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
	waits.Poll = time.Hour // idle hosts cause no work during the measurement
	if e.hosts, err = simulator.NewHosts(e.management.Config(), waits); err != nil {
		return err
	}
	playing, end := context.WithCancel(context.Background())
	e.end, e.ended = end, make(chan error, 1)
	go func() { e.ended <- e.hosts.Start(playing) }()
	return nil
}

func (e *hostEnvironment) tearDown() error {
	var err error
	if e.end != nil {
		e.end()
		err = <-e.ended
	}
	return errors.Join(err, e.environment.tearDown())
}

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

// inspect writes the hardware details of a host, which are the largest part of a BareMetalHost.
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

// cycle makes the node of a machine Unknown. A kubelet reports again when the host has booted. It returns how long it took until the
// machine was healthy.
func (e *hostEnvironment) cycle(ctx context.Context, i int) (time.Duration, error) {
	name := machineName(i)
	e.host(i).Mute(1) // otherwise the kubelet would report at once, because the host is on
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

const cycleMethod = `Hosts, the Bare Metal Operator and kubelets are simulated and obey at once, and no pods run: this is
what kubemend and the API servers add, and not how long a power cycle takes. Calls are those of the
manager, with the ones for the MachineHealthCheck and the RemediationRecord. CAPM3's controller took
25.6 s from Unknown to healthy in an environment like this one: it polls every 5 s.
`

// measureCycles measures power cycles with few hosts and with many.
func measureCycles(ctx context.Context, b bench) (section, error) {
	sizes := []int{100, 1000}
	if b.quick {
		sizes = []int{50, 100}
	}
	return section{title: "Power cycles of hosts", method: cycleMethod}.columnsOf(sizes, "%d hosts", func(n int) (figures, error) {
		return measureHosts(ctx, n, b)
	})
}

// measureHosts sets up hosts and power-cycles some of them.
func measureHosts(ctx context.Context, hosts int, b bench) (_ figures, err error) {
	e := &hostEnvironment{environment: &environment{count: hosts, ownKinds: true}}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	if err := e.setUp(ctx, e.fillHosts); err != nil {
		return nil, err
	}
	t := &trial{environment: e.environment, scale: scaleOf(hosts, b.quick), controller: checkController}
	if err := t.firstPass(ctx); err != nil {
		return nil, fmt.Errorf("first full pass: %w", err)
	}
	t.figures = nil // measureChecks measures that
	return t.run(ctx, []phase{
		{"idle", t.measureIdle},
		{"cycles one by one", func(ctx context.Context) error { return e.alone(ctx, t) }},
		{"cycles at once", func(ctx context.Context) error { return e.mass(ctx, t) }},
	})
}

// alone power-cycles one host after another. The aims for reads allow for watches that break and start again.
func (e *hostEnvironment) alone(ctx context.Context, t *trial) error {
	machines, seen, d, err := t.changes(ctx, t.scale.alone, func(machines []int, seen *delays) error {
		return t.oneByOne(ctx, machines, seen, e.cycle)
	})
	if err != nil {
		return err
	}
	n := float64(len(machines))
	t.addDelays("From the node Unknown to the machine healthy", seen, 1, noAim)
	t.add("One cycle: writes to the management cluster", d.writes()/n, count, 30)
	t.add("One cycle: reads from the management cluster", d.reads/n, count, 25)
	t.add("One cycle: calls to the workload cluster", max(d.workloadCalls, 0)/n, count, 14)
	t.add("One cycle: processor time", d.cpu/n, seconds, noAim)
	return nil
}

// mass power-cycles a tenth of the hosts at once.
func (e *hostEnvironment) mass(ctx context.Context, t *trial) error {
	defer t.watchMemory(ctx)()
	began := time.Now()
	machines, seen, d, err := t.changes(ctx, t.scale.mass, func(machines []int, seen *delays) error {
		group, working := errgroup.WithContext(ctx)
		for _, i := range machines {
			group.Go(func() error { return seen.add(e.cycle(working, i)) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	changes := 0
	for i := range e.count {
		changes += len(e.host(i).History().Since(began))
	}
	n := float64(len(machines))
	t.addDelays("A tenth at once: node Unknown to machine healthy", seen, noAim, 15)
	t.add("A tenth at once: writes for each, to the management cluster", d.writes()/n, count, 30)
	t.add("A tenth at once: reads for each, from the management cluster", d.reads/n, count, 30)
	t.add("A tenth at once: calls for each, to the workload cluster", max(d.workloadCalls, 0)/n, count, 13)
	t.add("A tenth at once: power changes but two of each host that fails", math.Abs(float64(changes)-2*n), count, 0)
	return nil
}
