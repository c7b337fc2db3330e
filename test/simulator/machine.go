package simulator

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/test/partners/bmo"
)

// KubernetesVersion is the version that the simulated nodes report.
const KubernetesVersion = "v1.36.3"

// Infrastructure simulates CAPM3: it provisions the Metal3Clusters and Metal3Machines of a management cluster, and puts the kubelet of
// every machine on a free BareMetalHost of its namespace. A machine waits until there is one.
type Infrastructure struct {
	player
	pool *pool

	mu      sync.Mutex
	sites   map[client.ObjectKey]*site
	tenants map[client.ObjectKey]tenancy
}

// site is the workload cluster of one Cluster, where its nodes are.
type site struct {
	client   client.Client
	endpoint clusterv1.APIEndpoint
}

// tenancy is the kubelet and the host of one Metal3Machine.
type tenancy struct {
	kubelet *Kubelet
	host    *Host // the host of the kubelet
}

// NewInfrastructure creates a provider for the management cluster; Start starts it. Its kubelets end with their hosts.
func NewInfrastructure(management *rest.Config, hosts *Hosts) (*Infrastructure, error) {
	player, err := newPlayer(management, "infrastructure")
	if err != nil {
		return nil, err
	}
	i := &Infrastructure{
		player:  player,
		pool:    &pool{client: player.client, hosts: hosts},
		sites:   map[client.ObjectKey]*site{},
		tenants: map[client.ObjectKey]tenancy{},
	}
	if err := (&clusterProvisioner{i}).setUp(player.manager); err != nil {
		return nil, err
	}
	if err := (&machineProvisioner{i}).setUp(player.manager); err != nil {
		return nil, err
	}
	return i, nil
}

// Serve sets the workload cluster of a Cluster. Without it the Cluster's infrastructure is never provisioned.
func (i *Infrastructure) Serve(cluster client.ObjectKey, workload *rest.Config) error {
	host, err := url.Parse(workload.Host)
	if err != nil {
		return fmt.Errorf("read the address of cluster %s: %w", cluster, err)
	}
	port, err := strconv.ParseInt(host.Port(), 10, 32)
	if err != nil {
		return fmt.Errorf("read the port of cluster %s: %w", cluster, err)
	}
	workload = rest.CopyConfig(workload)
	workload.Timeout = requestPatience
	direct, err := client.New(workload, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client for cluster %s: %w", cluster, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sites[cluster] = &site{
		client:   direct,
		endpoint: clusterv1.APIEndpoint{Host: host.Hostname(), Port: int32(port)},
	}
	return nil
}

// Kubelet returns the kubelet of a machine, or nil before the machine is provisioned. Machine, Metal3Machine and Node have the same name.
func (i *Infrastructure) Kubelet(machine client.ObjectKey) *Kubelet { return i.tenant(machine).kubelet }

// Host returns the host of a machine, or nil if it has none yet.
func (i *Infrastructure) Host(machine client.ObjectKey) *Host { return i.tenant(machine).host }

func (i *Infrastructure) tenant(machine client.ObjectKey) tenancy {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tenants[machine]
}

func (i *Infrastructure) site(cluster client.ObjectKey) *site {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sites[cluster]
}

// machineWorkers is how many machines are provisioned at the same time, so that those of a rack do not queue.
const machineWorkers = 20

// hostLost is how soon another host is chosen if another client took the first one.
const hostLost = 20 * time.Millisecond

// machineProvisioner gives every Metal3Machine a host, and the host a kubelet.
type machineProvisioner struct{ *Infrastructure }

func (p *machineProvisioner) setUp(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named("metal3machine").
		For(empty(metal3Machine)).
		Watches(&bmov1alpha1.BareMetalHost{}, handler.EnqueueRequestsFromMapFunc(p.pool.tenantsOf)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(metal3Machine))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(p.machinesOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: machineWorkers}).
		Complete(p)
	if err != nil {
		return fmt.Errorf("set up the simulated provisioning of machines: %w", err)
	}
	return nil
}

// machinesOf returns the Metal3Machines of a Cluster, which wait for its infrastructure or the end of its pause.
func (p *machineProvisioner) machinesOf(ctx context.Context, cluster client.Object) []reconcile.Request {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metal3Machine)
	err := p.client.List(ctx, list, client.InNamespace(cluster.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
	if err != nil {
		return nil // only a stopping cache returns an error
	}
	var requests []reconcile.Request
	for _, item := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&item)})
	}
	return requests
}

// Reconcile provisions a Metal3Machine, or releases its host.
func (p *machineProvisioner) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	infra := empty(metal3Machine)
	if err := p.client.Get(ctx, request.NamespacedName, infra); err != nil {
		// the host stays as it is, because the object may come back: clusterctl move deletes it here and creates it elsewhere
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, cluster, err := p.owners(ctx, infra)
	if err != nil || movedAway(infra) {
		return ctrl.Result{}, err
	}
	paused := cluster != nil && annotations.IsPaused(cluster, infra)
	if cluster != nil {
		if err := p.pool.pause(ctx, infra, paused); err != nil {
			return ctrl.Result{}, err
		}
	}
	switch {
	case paused:
		return ctrl.Result{}, nil // a change of the Cluster or the Metal3Machine enqueues it
	case !infra.GetDeletionTimestamp().IsZero():
		return ctrl.Result{}, p.leave(ctx, infra)
	case machine == nil || cluster == nil,
		!ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false),
		machine.Spec.Bootstrap.DataSecretName == nil:
		return ctrl.Result{}, nil // the missing object will enqueue the machine
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

// leave releases the host of a Metal3Machine, and then removes its finalizer.
func (p *machineProvisioner) leave(ctx context.Context, infra *unstructured.Unstructured) error {
	if vacated, err := p.pool.vacate(ctx, infra); err != nil || !vacated {
		return err // the next change of the host enqueues the machine
	}
	p.wipe(client.ObjectKeyFromObject(infra))
	return p.release(ctx, infra, machineFinalizer)
}

// provision waits for the host, and then lets it boot.
func (p *machineProvisioner) provision(ctx context.Context, infra *unstructured.Unstructured, machine *clusterv1.Machine,
	site *site) (ctrl.Result, error) {
	now := time.Now()
	key := client.ObjectKeyFromObject(infra)
	// The finalizer comes first: without it the object could be deleted without releasing its host.
	if err := p.change(ctx, infra, machineFinalizer, nil, nil); err != nil {
		return ctrl.Result{}, err
	}
	done, _, _ := unstructured.NestedBool(infra.Object, "status", "initialization", "provisioned") // absent means no
	bmh, err := p.pool.place(ctx, infra)
	if apierrors.IsConflict(err) { // another client took the host
		return ctrl.Result{RequeueAfter: hostLost}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if bmh == nil || !done && !bmo.Deployed(bmh.Status.Provisioning.State) {
		return ctrl.Result{}, p.change(ctx, infra, machineFinalizer, nil,
			map[string]any{"conditions": ready(infra, metav1.ConditionFalse, "Provisioning", now)})
	}
	providerID := fmt.Sprintf("metal3://%s/%s/%s", key.Namespace, bmh.Name, key.Name)
	status := provisioned(infra, now)
	status["addresses"] = []any{map[string]any{"type": string(clusterv1.MachineHostName), "address": key.Name}}
	err = p.change(ctx, infra, machineFinalizer, map[string]any{"providerID": providerID}, status)
	if err != nil {
		return ctrl.Result{}, err
	}
	labels, taints := role(machine)
	host := p.pool.hosts.Host(client.ObjectKeyFromObject(bmh))
	p.moveIn(key, host, KubeletOptions{Node: key.Name, ProviderID: providerID, Labels: labels, Taints: taints}, site)
	return ctrl.Result{}, nil
}

// moveIn puts the kubelet of a machine on a host of the pool, which starts it with each boot.
func (i *Infrastructure) moveIn(machine client.ObjectKey, host *Host, o KubeletOptions, site *site) {
	carried := host.Kubelet()
	i.mu.Lock()
	if i.tenants[machine] == (tenancy{carried, host}) {
		i.mu.Unlock()
		return
	}
	if carried != nil && carried.Node() == o.Node {
		// The machine got this host in another management cluster, and was moved here.
		i.tenants[machine] = tenancy{carried, host}
		i.mu.Unlock()
		return
	}
	kubelet := NewKubelet(site.client, o)
	i.tenants[machine] = tenancy{kubelet, host}
	i.mu.Unlock()
	host.Carry(kubelet)
}

// wipe stops the kubelet of a machine for good.
func (i *Infrastructure) wipe(machine client.ObjectKey) {
	i.mu.Lock()
	t := i.tenants[machine]
	delete(i.tenants, machine)
	i.mu.Unlock()
	if t.kubelet != nil {
		t.kubelet.Retire()
	}
}

// role returns the labels and taints of the node of a machine.
func role(machine *clusterv1.Machine) (map[string]string, []corev1.Taint) {
	const controlPlane = "node-role.kubernetes.io/control-plane"
	if util.IsControlPlaneMachine(machine) {
		return map[string]string{controlPlane: ""}, []corev1.Taint{{Key: controlPlane, Effect: corev1.TaintEffectNoSchedule}}
	}
	return nil, nil
}
