package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// clients is the number of concurrent requests of this program.
const clients = 24

// environment is a management and a workload cluster on new control planes, with objects for count machines.
type environment struct {
	count            int // the number of machines
	rig              *rig.Rig
	management       *rig.ControlPlane
	workload         *rig.ControlPlane
	managementClient client.Client  // of the management cluster
	nodesAPI         rest.Interface // of the API server with the nodes
	machineWatch     *machineWatch
	owner            *clusterv1.MachineSet // of all machines; nil if they have none
	ownKinds         bool                  // kubemend's CRDs are installed besides those of Cluster API
	nodesOnly        bool                  // the nodes are in the management cluster
	// nextUnused is the first machine whose node was never Unknown. A second failure is less work: owner remediation is already requested.
	nextUnused int
}

// setUp starts the control planes, fills them, and watches the machines.
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

// watch starts a watch on Machines, or on the remediations of nodes.
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

// fillCluster creates the cluster, its check, and the template that the check refers to, if any.
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

// takeUnused returns n machines whose nodes have never been Unknown.
func (e *environment) takeUnused(n int) ([]int, error) {
	if e.nextUnused+n > e.count {
		return nil, fmt.Errorf("take %d machines whose nodes never became Unknown: %d of %d are left", n, e.count-e.nextUnused, e.count)
	}
	taken := e.machines(e.nextUnused, n)
	e.nextUnused += n
	return taken, nil
}

// each calls do for every machine, for many machines at the same time.
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

const (
	namespace = "bench"
	// checkTimeout is the timeout of every check. longSince is how long nodes have been Unknown already: more than the timeout, but not so
	// long that kubemend suspects a wrong clock.
	checkTimeout = 5 * time.Second
	longSince    = 6 * time.Second
	// touchLabel on a node makes a NodeHealthCheck reconcile.
	touchLabel = "bench.kubemend.io/touched"
)

// since is the last transition of all conditions of healthy objects.
var since = metav1.NewTime(time.Now().Add(-24 * time.Hour).Truncate(time.Second))

// checkOf returns a check of all machines of a cluster, with the defaults of Cluster API's webhook.
func checkOf(cluster *clusterv1.Cluster) *clusterv1.MachineHealthCheck {
	return builders.MachineHealthCheck(cluster, cluster.Name, builders.Patience(checkTimeout), func(check *clusterv1.MachineHealthCheck) {
		check.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster.Name}
		check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](600)
	})
}

// padding returns an annotation that makes an object as large as in production, where many tools add labels and annotations.
func padding(bytes int) map[string]string {
	return map[string]string{"bench.kubemend.io/padding": strings.Repeat("x", bytes)}
}

// machineOf returns a Machine of about 4 KiB, without the conditions that checks write.
func machineOf(i int) (*clusterv1.Machine, clusterv1.MachineStatus) {
	name := machineName(i)
	return &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{clusterv1.MachineFinalizer},
			Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName,
				clusterv1.MachineDeploymentNameLabel: clusterName + "-md-0"},
			Annotations: padding(1300),
		},
		Spec: clusterv1.MachineSpec{
			ClusterName: clusterName, Version: builders.KubernetesVersion, ProviderID: providerID(name),
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: name,
			},
		},
	}, machineStatus(name)
}

func machineStatus(name string) clusterv1.MachineStatus {
	status := clusterv1.MachineStatus{
		Phase: string(clusterv1.MachinePhaseRunning), ObservedGeneration: 1, LastUpdated: since,
		NodeRef:  clusterv1.MachineNodeReference{Name: name},
		NodeInfo: ptr.To(systemInfo(name)),
		Initialization: clusterv1.MachineInitializationStatus{InfrastructureProvisioned: ptr.To(true),
			BootstrapDataSecretCreated: ptr.To(true)},
		Conditions: []metav1.Condition{bad(clusterv1.MachineDeletingCondition), bad(clusterv1.PausedCondition)},
	}
	for _, kind := range []string{
		clusterv1.MachineAvailableCondition, clusterv1.MachineReadyCondition, clusterv1.MachineUpToDateCondition,
		clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition,
		clusterv1.MachineNodeHealthyCondition, clusterv1.MachineNodeReadyCondition,
	} {
		status.Conditions = append(status.Conditions, good(kind))
	}
	return status
}

func good(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: since, ObservedGeneration: 1}
}

func bad(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Not" + kind, LastTransitionTime: since,
		ObservedGeneration: 1}
}

func providerID(name string) string { return "metal3://bench/" + name + "/" + name }

// nodeOf returns a Node of about 8 KiB, most of it images.
func nodeOf(i int) *corev1.Node {
	name := machineName(i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("263856792Ki"),
		corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: padding(850),
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "node-role.kubernetes.io/worker": ""},
		},
		Spec: corev1.NodeSpec{ProviderID: providerID(name)},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, NodeInfo: systemInfo(name), Images: images(),
			Conditions: append(nodeConditions(since), ready),
		},
	}
}

func systemInfo(name string) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: name, SystemUUID: name, BootID: name, KernelVersion: "6.12.9-talos", OSImage: "Talos (v1.11.2)",
		ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: builders.KubernetesVersion, OperatingSystem: "linux",
		Architecture: "amd64",
	}
}

func images() []corev1.ContainerImage {
	all := make([]corev1.ContainerImage, 28) // a kubelet reports up to 50
	for i := range all {
		image := fmt.Sprintf("platform.example/systems/component-%02d", i)
		all[i] = corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", image, i+1), image + ":v1.2.3"},
			SizeBytes: int64(20_000_000 + i),
		}
	}
	return all
}

// ready is the condition of a healthy node that the checks evaluate.
var ready = corev1.NodeCondition{
	Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
	LastTransitionTime: since, LastHeartbeatTime: since,
}

// nodeConditions returns the other conditions after a heartbeat. Their order must not change, because a strategic merge patch reorders the
// list to match.
func nodeConditions(beat metav1.Time) []corev1.NodeCondition {
	others := []corev1.NodeCondition{
		{Type: corev1.NodeNetworkUnavailable, Reason: "CiliumIsUp"},
		{Type: corev1.NodeMemoryPressure, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Reason: "KubeletHasSufficientPID"},
	}
	for i := range others {
		c := &others[i]
		c.Status, c.Message = corev1.ConditionFalse, "the kubelet reports this in a sentence of about this length"
		c.LastTransitionTime, c.LastHeartbeatTime = since, beat
	}
	return others
}

// longUnknown returns a patch that makes a node Unknown for longer than the timeout.
func longUnknown(now time.Time) []byte { return unknownSince(now.Add(-longSince)) }

// unknownSince returns a patch that makes a node Unknown since that moment.
func unknownSince(fell time.Time) []byte {
	silent := ready
	silent.Status, silent.Reason, silent.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	silent.LastTransitionTime = metav1.NewTime(fell)
	return statusPatch(silent)
}

// readyAgain returns a patch that makes a node Ready.
func readyAgain(now time.Time) []byte {
	back := ready
	back.LastTransitionTime, back.LastHeartbeatTime = metav1.NewTime(now), metav1.NewTime(now)
	return statusPatch(back)
}

// heartbeat returns the n-th patch that changes only the time of the last heartbeat. Times in the API are whole seconds, so each patch adds
// a second; otherwise two patches within a second would be equal.
func heartbeat(n int) []byte {
	beat := metav1.NewTime(since.Add(time.Duration(n+1) * time.Second))
	alive := ready
	alive.LastHeartbeatTime = beat
	return statusPatch(append(nodeConditions(beat), alive)...)
}

// statusPatch returns a strategic merge patch, which merges conditions by type.
func statusPatch(conditions ...corev1.NodeCondition) []byte {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		panic(err) // conditions always marshal
	}
	return patch
}
