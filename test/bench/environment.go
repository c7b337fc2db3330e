package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// clients is how many objects are written at the same time.
const clients = 24

// environment is a management and a workload cluster, each with new control planes, and the objects of one size in them.
type environment struct {
	count            int // of machines
	rig              *rig.Rig
	management       *rig.ControlPlane
	workload         *rig.ControlPlane
	managementClient client.Client  // the management cluster
	nodesAPI         rest.Interface // the API server with all nodes
	machineWatch     *machineWatch
	owner            *clusterv1.MachineSet // of all machines; nil if they have none
	ownKinds         bool                  // kubemend's are installed besides those of Cluster API
	nodesOnly        bool                  // the nodes are in the management cluster
	// nextUnused is the first machine whose node never became Unknown. A second time is less work: remediation by its owner was
	// requested before.
	nextUnused int
}

// setUp starts the control planes of e, fills them, and watches the machines in them.
func (e *environment) setUp(ctx context.Context, fill func(context.Context) error) error {
	if err := e.startControlPlanes(ctx); err != nil {
		return err
	}
	since := time.Now()
	if err := fill(ctx); err != nil {
		return fmt.Errorf("create the objects: %w", err)
	}
	if err := e.watch(&clusterv1.Machine{}); err != nil {
		return err
	}
	if _, err := e.machineWatch.await(ctx, e.machineWatch.all(e.count, "")); err != nil {
		return err
	}
	progress("%d machines and nodes created in %.1fs", e.count, time.Since(since).Seconds())
	return nil
}

// watch begins to watch the statuses of machines, or of remediations.
func (e *environment) watch(object client.Object) (err error) {
	e.machineWatch, err = watchStatuses(unlimited(e.management.Config()), e.managementClient.Scheme(), object)
	return err
}

func (e *environment) startControlPlanes(ctx context.Context) (err error) {
	if e.rig, err = rig.Start(ctx, rig.Options{}); err != nil {
		return err
	}
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		e.management, err = e.rig.Management(starting, rig.ManagementOptions{Own: e.ownKinds})
		return err
	})
	group.Go(func() (err error) {
		if e.nodesOnly {
			return nil
		}
		e.workload, err = e.rig.Workload(starting, "workload", rig.WorkloadOptions{Bare: true})
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if e.nodesOnly {
		e.workload = e.management
	}
	scheme := runtime.NewScheme()
	err = errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme),
		mendv1.AddToScheme(scheme), nhcv1.AddToScheme(scheme))
	if err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	if e.managementClient, err = client.New(unlimited(e.management.Config()), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	nodesAPI, err := kubernetes.NewForConfig(unlimited(e.workload.Config()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	e.nodesAPI = nodesAPI.CoreV1().RESTClient()
	return nil
}

// unlimited removes the rate limit of a client.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

func (e *environment) tearDown() error {
	if e.machineWatch != nil {
		e.machineWatch.close()
	}
	if e.rig == nil {
		return nil
	}
	return e.rig.Stop()
}

// fill creates all objects. No manager runs yet, so their order does not matter.
func (e *environment) fill(ctx context.Context) error {
	if err := e.managementClient.Create(ctx, builders.Namespace(namespace)); err != nil {
		return err
	}
	if err := e.fillCluster(ctx); err != nil {
		return err
	}
	e.owner = &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: clusterName + "-md-0-x7kq2",
		Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: clusterName + "-md-0"},
	}}
	e.owner.Spec.ClusterName, e.owner.Spec.Replicas = clusterName, ptr.To(int32(e.count))
	e.owner.Spec.Selector.MatchLabels = e.owner.Labels
	e.owner.Spec.Template.Labels, e.owner.Spec.Template.Spec.ClusterName = e.owner.Labels, clusterName
	e.owner.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To("boot")
	e.owner.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3MachineTemplate", Name: clusterName,
	}
	if err := e.managementClient.Create(ctx, e.owner); err != nil {
		return err
	}
	return e.each(ctx, e.machines(0, e.count), e.fillMachine)
}

// fillCluster creates the cluster with its check, and the template that the check names, if any.
func (e *environment) fillCluster(ctx context.Context, template ...client.Object) error {
	cluster := builders.Cluster(namespace, clusterName)
	check := checkOf(cluster)
	for _, object := range template {
		builders.RemediatedBy(mendv1.GroupVersion.String(), "HostRemediationTemplate", object.GetName())(check)
	}
	kubeconfig := rig.KubeconfigSecret(client.ObjectKeyFromObject(cluster), e.workload)
	for _, object := range append(template, cluster, kubeconfig, check) {
		if err := e.managementClient.Create(ctx, object); err != nil {
			return err
		}
	}
	cluster.Status = builders.Standing()
	cluster.Status.Phase = string(clusterv1.ClusterPhaseProvisioned)
	return e.managementClient.Status().Update(ctx, cluster)
}

func (e *environment) fillMachine(ctx context.Context, i int) error {
	machine, status := machineOf(i)
	if e.owner != nil {
		machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(e.owner, clusterv1.GroupVersion.WithKind("MachineSet"))}
	}
	if err := e.managementClient.Create(ctx, machine); err != nil {
		return err
	}
	machine.Status = status
	if err := e.managementClient.Status().Update(ctx, machine); err != nil {
		return err
	}
	return e.nodesAPI.Post().Resource("nodes").Body(nodeOf(i)).Do(ctx).Error()
}

func (e *environment) machines(first, n int) []int {
	indexes := make([]int, n)
	for i := range indexes {
		indexes[i] = first + i
	}
	return indexes
}

// takeUnused takes n machines whose nodes never became Unknown.
func (e *environment) takeUnused(n int) ([]int, error) {
	if e.nextUnused+n > e.count {
		return nil, fmt.Errorf("take %d machines whose nodes never became Unknown: %d of %d are left", n, e.count-e.nextUnused, e.count)
	}
	taken := e.machines(e.nextUnused, n)
	e.nextUnused += n
	return taken, nil
}

// each does something for every machine, many at the same time.
func (e *environment) each(ctx context.Context, machines []int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for _, i := range machines {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func (e *environment) patchNode(ctx context.Context, i int, patch []byte) error {
	err := e.nodesAPI.Patch(types.StrategicMergePatchType).Resource("nodes").Name(machineName(i)).
		SubResource("status").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write the status of node %s: %w", machineName(i), err)
	}
	return nil
}
