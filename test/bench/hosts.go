package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// hostEnvironment is an environment whose machines are on simulated hosts, which do at once what they are asked for.
type hostEnvironment struct {
	*environment
	managementWatcher, workloadWatcher client.WithWatch // the clusters of the hosts, and of the nodes
	hosts                              *simulator.Hosts
	end                                context.CancelFunc
	ended                              chan error
	witness                            *witness
}

// setUpHosts starts control planes with that many hosts, all powered on.
func setUpHosts(ctx context.Context, hosts int) (*hostEnvironment, error) {
	r := &hostEnvironment{environment: &environment{size: size{machines: hosts, clusters: 1}}}
	since := time.Now()
	if err := r.fillHosts(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("set up %d hosts: %w", hosts, err), r.tearDown())
	}
	progress("%d hosts with machines and nodes created in %.1fs", hosts, time.Since(since).Seconds())
	return r, nil
}

func (r *hostEnvironment) fillHosts(ctx context.Context) error {
	crds, err := ownCRDs(ctx)
	if err != nil {
		return err
	}
	r.crds = crds
	if err := r.startControlPlanes(ctx); err != nil {
		return err
	}
	if err := r.startHosts(); err != nil {
		return err
	}
	if err := r.managementClient.Create(ctx, builders.Namespace(namespace)); err != nil {
		return err
	}
	if err := r.fillHostCluster(ctx); err != nil {
		return err
	}
	all := r.machines(0, r.size.machines)
	if err := r.each(ctx, all, r.fillHost); err != nil {
		return err
	}
	if err := r.awaitPower(ctx); err != nil {
		return err
	}
	if err := r.each(ctx, all, r.inspect); err != nil {
		return err
	}
	if r.machineWatch, err = watchStatuses(ctx, unlimited(r.management.Config())); err != nil {
		return err
	}
	_, err = r.machineWatch.await(ctx, r.machineWatch.all(r.size.machines, ""))
	return err
}

func (r *hostEnvironment) startHosts() (err error) {
	scheme := r.managementClient.Scheme()
	if r.managementWatcher, err = client.NewWithWatch(unlimited(r.management.Config()), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if r.workloadWatcher, err = client.NewWithWatch(unlimited(r.workload.Config()), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	waits := simulator.Hurried()
	waits.Poll = time.Hour // idle hosts cause no work while kubemend is measured
	if r.hosts, err = simulator.NewHosts(r.management.Config(), simulator.HostsOptions{Waits: waits}); err != nil {
		return err
	}
	playing, end := context.WithCancel(context.Background())
	r.end, r.ended = end, make(chan error, 1)
	go func() { r.ended <- r.hosts.Start(playing) }()
	return nil
}

// tearDown ends all of it.
func (r *hostEnvironment) tearDown() error {
	if r.witness != nil {
		r.witness.close()
	}
	var err error
	if r.end != nil {
		r.end()
		err = <-r.ended
	}
	return errors.Join(err, r.environment.tearDown())
}

var defaultStrategy = infrav1.RemediationStrategy{
	Type: infrav1.RebootRemediationStrategy, RetryLimit: infrav1.DefaultRetryLimit, TimeoutSeconds: infrav1.DefaultTimeoutSeconds,
}

// fillHostCluster creates the cluster with its check, whose template has hosts power-cycled.
func (r *hostEnvironment) fillHostCluster(ctx context.Context) error {
	cluster, status := clusterOf(r.size.cluster(0))
	template := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.Name}}
	template.Spec.Template.Spec.Strategy = builders.HostStrategy(defaultStrategy)
	check := checkOf(cluster)
	builders.RemediatedBy(mendv1.GroupVersion.String(), "HostRemediationTemplate", template.Name)(check)
	for _, object := range []client.Object{cluster, rig.KubeconfigSecret(client.ObjectKeyFromObject(cluster), r.workload), template, check} {
		if err := r.managementClient.Create(ctx, object); err != nil {
			return err
		}
	}
	cluster.Status = status
	return r.managementClient.Status().Update(ctx, cluster)
}

// fillHost creates a machine together with its host.
func (r *hostEnvironment) fillHost(ctx context.Context, i int) error {
	name := r.size.machine(i)
	machine, _ := machineOf(r.size, i)
	between := builders.Metal3Machine(machine)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: namespace + "/" + name})
	host := builders.BareMetalHost(namespace, name, builders.Deployed, builders.ConsumedBy(name))
	for _, object := range []client.Object{between, host} {
		if err := r.managementClient.Create(ctx, object); err != nil {
			return err
		}
	}
	return r.fillMachine(ctx, i)
}

// awaitPower waits until all hosts are powered on.
func (r *hostEnvironment) awaitPower(ctx context.Context) error {
	powered := 0
	err := wait.PollUntilContextCancel(ctx, readEvery, true, func(context.Context) (bool, error) {
		powered = 0
		for i := range r.size.machines {
			if r.host(i).Powered() {
				powered++
			}
		}
		return powered == r.size.machines, nil
	})
	if err != nil {
		return fmt.Errorf("wait for hosts: %d of %d are on: %w", powered, r.size.machines, err)
	}
	return nil
}

func (r *hostEnvironment) host(i int) *simulator.Host {
	return r.hosts.Host(client.ObjectKey{Namespace: namespace, Name: r.size.machine(i)})
}

// inspect writes the hardware details of a host, which are most of a BareMetalHost.
func (r *hostEnvironment) inspect(ctx context.Context, i int) error {
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name = namespace, r.size.machine(i)
	before := host.DeepCopy()
	host.Status.HardwareDetails = hardwareOf(i, host.Name)
	if err := r.managementClient.Status().Patch(ctx, host, client.MergeFrom(before)); err != nil {
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
func (r *hostEnvironment) attachKubelet(i int) {
	r.host(i).Mute(1) // a kubelet on a host that is on would report at once
	r.host(i).Carry(simulator.NewKubelet(r.workloadWatcher, simulator.KubeletOptions{Node: r.size.machine(i), Every: time.Hour}))
}

// cycleByHand has the host of a healthy machine power-cycled, and returns when the remediation is deleted.
func (r *hostEnvironment) cycleByHand(ctx context.Context, i int) error {
	name := r.size.machine(i)
	r.attachKubelet(i)
	machine, request := &clusterv1.Machine{}, &mendv1.HostRemediation{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := r.managementWatcher.Get(ctx, key, machine); err != nil {
		return err
	}
	seen := r.witness.await(name)
	request.Namespace, request.Name = namespace, name
	request.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	request.Spec.Strategy = builders.HostStrategy(defaultStrategy)
	if err := r.managementWatcher.Create(ctx, request); err != nil {
		return err
	}
	late := time.After(contenderTimeout)
	err := wait.PollUntilContextTimeout(ctx, readEvery, contenderTimeout, true, func(ctx context.Context) (bool, error) {
		err := r.managementWatcher.Get(ctx, key, request)
		return conditions.IsTrue(request, nhcv1.SucceededCondition), err
	})
	if err != nil {
		return fmt.Errorf("wait for the power cycle of %s: %w; its message is %q", name, err, request.Status.Message)
	}
	if err := r.managementWatcher.Delete(ctx, request); err != nil {
		return err
	}
	select {
	case <-seen:
		return nil
	case <-late:
		return fmt.Errorf("wait for the end of the power cycle of %s: seen so far: %v", name, r.witness.seen(name))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cycle makes the node of a machine Unknown, whose kubelet reports again when its host has booted, and returns when each milestone was seen.
func (r *hostEnvironment) cycle(ctx context.Context, i int) (cycle, error) {
	name := r.size.machine(i)
	r.attachKubelet(i)
	seen, isHealthy := r.witness.await(name), r.machineWatch.becomes(name, succeeded)
	if err := r.patchNode(ctx, i, longUnknown(time.Now())); err != nil {
		return nil, err
	}
	at := time.Now()
	healthyAt, err := r.machineWatch.await(ctx, isHealthy)
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(contenderTimeout)
	defer late.Stop()
	select {
	case c := <-seen:
		c[nodeFailed], c[healthy] = at, healthyAt
		return c, nil
	case <-late.C:
		return nil, fmt.Errorf("wait for the power cycle of %s: not over within %s; seen so far: %v", name, contenderTimeout, r.witness.seen(name))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
