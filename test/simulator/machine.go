package simulator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// machineWorkers is how many machines are provisioned at the same time: a rack of hosts does not queue up.
const machineWorkers = 20

// machineProvisioner gives every Metal3Machine a host, and the host a kubelet.
type machineProvisioner struct{ *Infrastructure }

func (p *machineProvisioner) setUp(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named("metal3machine").
		For(empty(metal3Machine)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(metal3Machine))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(p.machinesOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: machineWorkers}).
		Complete(p)
	if err != nil {
		return fmt.Errorf("set up the simulated provisioning of machines: %w", err)
	}
	return nil
}

// machinesOf are the Metal3Machines of a Cluster: they wait for its infrastructure and its pause.
func (p *machineProvisioner) machinesOf(ctx context.Context, cluster client.Object) []reconcile.Request {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metal3Machine)
	err := p.client.List(ctx, list, client.InNamespace(cluster.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
	if err != nil {
		return nil // only a cache that is stopping fails here
	}
	var requests []reconcile.Request
	for _, item := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&item)})
	}
	return requests
}

// Reconcile brings a Metal3Machine one step on, or wipes its host.
func (p *machineProvisioner) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	infra := empty(metal3Machine)
	if err := p.client.Get(ctx, request.NamespacedName, infra); err != nil {
		if client.IgnoreNotFound(err) == nil {
			p.wipe(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !infra.GetDeletionTimestamp().IsZero() {
		p.wipe(request.NamespacedName)
		return ctrl.Result{}, p.release(ctx, infra, machineFinalizer)
	}
	machine, cluster, err := p.owners(ctx, infra)
	if err != nil || machine == nil || cluster == nil {
		return ctrl.Result{}, err
	}
	waits := !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) ||
		machine.Spec.Bootstrap.DataSecretName == nil
	if waits || annotations.IsPaused(cluster, infra) {
		return ctrl.Result{}, nil // a change of either wakes us
	}
	site := p.site(client.ObjectKeyFromObject(cluster))
	if site == nil {
		return ctrl.Result{RequeueAfter: siteMissing}, nil
	}
	return p.provision(ctx, infra, machine, site)
}

func (p *machineProvisioner) owners(ctx context.Context, infra *unstructured.Unstructured) (*clusterv1.Machine, *clusterv1.Cluster, error) {
	meta := metav1.ObjectMeta{Namespace: infra.GetNamespace(), OwnerReferences: infra.GetOwnerReferences()}
	machine, err := util.GetOwnerMachine(ctx, p.client, meta)
	if err != nil || machine == nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	cluster, err = present(cluster, p.client.Get(ctx, key, cluster))
	return machine, cluster, err
}

// provision waits for as long as a host takes, and then lets it boot.
func (p *machineProvisioner) provision(ctx context.Context, infra *unstructured.Unstructured, machine *clusterv1.Machine, site *site) (ctrl.Result, error) {
	now := time.Now()
	key := client.ObjectKeyFromObject(infra)
	done, _, _ := unstructured.NestedBool(infra.Object, "status", "initialization", "provisioned") // absent means no
	if left := p.begin(key, infra.GetUID(), now).Sub(now); left > 0 && !done {
		err := p.change(ctx, infra, machineFinalizer, nil,
			map[string]any{"conditions": ready(infra, metav1.ConditionFalse, "Provisioning", now)})
		return ctrl.Result{RequeueAfter: left}, err
	}
	providerID := fmt.Sprintf("metal3://%s/%s/%s", key.Namespace, key.Name, key.Name)
	status := provisioned(infra, now)
	status["addresses"] = []any{map[string]any{"type": string(clusterv1.MachineHostName), "address": key.Name}}
	err := p.change(ctx, infra, machineFinalizer, map[string]any{"providerID": providerID}, status)
	if err != nil {
		return ctrl.Result{}, err
	}
	p.switchOn(key, KubeletOptions{
		Node: key.Name, ProviderID: providerID, Every: p.options.Every, Heartbeat: p.options.Heartbeat,
		Labels: roleLabels(machine), Taints: roleTaints(machine), Logger: p.options.Logger,
	}, site)
	return ctrl.Result{}, nil
}

// begin remembers when work on a machine began, and tells when it is done.
func (i *Infrastructure) begin(machine client.ObjectKey, uid types.UID, now time.Time) time.Time {
	i.mu.Lock()
	h := i.hosts[machine]
	stale := h != nil && h.uid != uid
	i.mu.Unlock()
	if stale {
		i.wipe(machine) // another machine of that name, whose deletion went unseen
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.hosts[machine] == nil {
		i.hosts[machine] = &host{uid: uid, begun: now}
	}
	return i.hosts[machine].begun.Add(i.delay)
}

// switchOn boots the host for the first time. Later boots are the business of whoever switches its power.
func (i *Infrastructure) switchOn(machine client.ObjectKey, o KubeletOptions, site *site) {
	i.mu.Lock()
	defer i.mu.Unlock()
	h := i.hosts[machine]
	if h == nil || h.kubelet != nil {
		return
	}
	h.kubelet = NewKubelet(site.client, o)
	if i.refuses == nil || !i.refuses(machine) {
		h.kubelet.Start()
	}
}

// wipe switches the host of a machine off for good.
func (i *Infrastructure) wipe(machine client.ObjectKey) {
	i.mu.Lock()
	h := i.hosts[machine]
	delete(i.hosts, machine)
	i.mu.Unlock()
	if h != nil && h.kubelet != nil {
		h.kubelet.Retire()
	}
}

const controlPlaneRole = "node-role.kubernetes.io/control-plane"

func roleLabels(machine *clusterv1.Machine) map[string]string {
	if util.IsControlPlaneMachine(machine) {
		return map[string]string{controlPlaneRole: ""}
	}
	return nil
}

func roleTaints(machine *clusterv1.Machine) []corev1.Taint {
	if util.IsControlPlaneMachine(machine) {
		return []corev1.Taint{{Key: controlPlaneRole, Effect: corev1.TaintEffectNoSchedule}}
	}
	return nil
}
