// Package simulator simulates what this machine cannot have: bare-metal hosts and the Bare Metal Operator, an infrastructure provider, the
// kubelets on the hosts, and parts of a workload cluster that a rig does not run.
//
// The simulators do towards the API servers what the real programs do, and no more. Real controllers do the rest: kube-controller-manager
// makes a silent node Unknown and moves its pods, Cluster API makes a Machine Running. Tests can stop or slow a kubelet or make it report a
// condition, make a host slow or boot it without a kubelet, and make a BMC fail or die.
package simulator

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// requestPatience is the timeout of every request of a simulator, so that a stopped API server cannot block it for ever.
const requestPatience = 10 * time.Second

// player is a simulator of one program, in its own manager, which logs nothing.
type player struct {
	part    string
	manager ctrl.Manager
	client  client.Client
}

func newPlayer(cluster *rest.Config, part string) (player, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))
	manager, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:  scheme,
		Logger:  logr.New(logf.NullLogSink{}), // a manager would treat a logger without a sink as not set
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		// Tests start several managers in one process. The check is about metrics, which are off.
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(requestPatience),
	})
	if err != nil {
		return player{}, fmt.Errorf("make the manager of the simulated %s: %w", part, err)
	}
	return player{part, manager, manager.GetClient()}, nil
}

// Start runs the player until the context ends.
func (p *player) Start(ctx context.Context) error {
	if err := p.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the simulated %s: %w", p.part, err)
	}
	return nil
}

// The kinds of the provider, in the contract version that Cluster API v1.14 prefers.
var (
	metal3Group   = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}
	metal3Cluster = metal3Group.WithKind("Metal3Cluster")
	metal3Machine = metal3Group.WithKind("Metal3Machine")
)

const (
	clusterFinalizer = "metal3cluster.infrastructure.cluster.x-k8s.io"
	machineFinalizer = "metal3machine.infrastructure.cluster.x-k8s.io"

	// siteMissing is how often a cluster without a site is read again: Serve causes no event.
	siteMissing = 500 * time.Millisecond
)

// empty returns an object of a kind that has no Go type here.
func empty(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// clusterProvisioner sets the API server's address in every Metal3Cluster.
type clusterProvisioner struct{ *Infrastructure }

func (p *clusterProvisioner) setUp(manager ctrl.Manager) error {
	toInfrastructure := util.ClusterToInfrastructureMapFunc(
		context.Background(), metal3Cluster, manager.GetClient(), empty(metal3Cluster))
	err := ctrl.NewControllerManagedBy(manager).
		Named("metal3cluster").
		For(empty(metal3Cluster)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(toInfrastructure)).
		Complete(p)
	if err != nil {
		return fmt.Errorf("set up the simulated provisioning of clusters: %w", err)
	}
	return nil
}

// Reconcile provisions a Metal3Cluster, or removes its finalizer.
func (p *clusterProvisioner) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	infra := empty(metal3Cluster)
	if err := p.client.Get(ctx, request.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !infra.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, p.release(ctx, infra, clusterFinalizer)
	}
	cluster, err := p.ownerCluster(ctx, infra)
	if err != nil || cluster == nil || annotations.IsPaused(cluster, infra) {
		return ctrl.Result{}, err
	}
	site := p.site(client.ObjectKeyFromObject(cluster))
	if site == nil {
		return ctrl.Result{RequeueAfter: siteMissing}, nil
	}
	return ctrl.Result{}, p.change(ctx, infra, clusterFinalizer,
		map[string]any{"controlPlaneEndpoint": map[string]any{"host": site.endpoint.Host, "port": int64(site.endpoint.Port)}},
		provisioned(infra, time.Now()))
}

// ownerCluster returns the Cluster that owns the object, or nil if Cluster API has not set the owner yet.
func (i *Infrastructure) ownerCluster(ctx context.Context, object client.Object) (*clusterv1.Cluster, error) {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "Cluster" {
			cluster := &clusterv1.Cluster{}
			err := i.client.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: owner.Name}, cluster)
			return present(cluster, err)
		}
	}
	return nil, nil
}

func present[T any](object *T, err error) (*T, error) {
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// provisioned returns a status that fulfils the provider contract: provisioned, and Ready.
func provisioned(was *unstructured.Unstructured, now time.Time) map[string]any {
	return map[string]any{
		"initialization": map[string]any{"provisioned": true},
		"conditions":     ready(was, metav1.ConditionTrue, "Provisioned", now),
	}
}

// ready returns a list with the condition Ready only: the whole list belongs to the provider.
func ready(was *unstructured.Unstructured, status metav1.ConditionStatus, reason string, now time.Time) []any {
	since := now.UTC().Format(time.RFC3339)
	conditions, _, _ := unstructured.NestedSlice(was.Object, "status", "conditions") // anything but a list is replaced
	for _, condition := range conditions {
		if before, ok := condition.(map[string]any); ok && before["type"] == "Ready" && before["status"] == string(status) {
			since, _ = before["lastTransitionTime"].(string)
		}
	}
	return []any{map[string]any{
		"type": "Ready", "status": string(status), "reason": reason, "message": "", "lastTransitionTime": since,
	}}
}

// change writes fields of the spec and the status if they differ.
func (i *Infrastructure) change(ctx context.Context, object *unstructured.Unstructured, finalizer string, spec,
	status map[string]any) error {
	before := object.DeepCopy()
	controllerutil.AddFinalizer(object, finalizer)
	if err := set(object, "spec", spec); err != nil {
		return err
	}
	err := difference(object, before, func(patch client.Patch) error { return i.client.Patch(ctx, object, patch) })
	if err != nil {
		return err
	}
	before = object.DeepCopy()
	if err := set(object, "status", status); err != nil {
		return err
	}
	return difference(object, before, func(patch client.Patch) error { return i.client.Status().Patch(ctx, object, patch) })
}

func set(object *unstructured.Unstructured, part string, fields map[string]any) error {
	for name, value := range fields {
		if err := unstructured.SetNestedField(object.Object, value, part, name); err != nil {
			return fmt.Errorf("set %s.%s of %s: %w", part, name, object.GetName(), err)
		}
	}
	return nil
}

// difference writes the changes of an object, if there are any.
func difference(object, before *unstructured.Unstructured, write func(client.Patch) error) error {
	if equality.Semantic.DeepEqual(object.Object, before.Object) {
		return nil
	}
	if err := write(client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// release removes the finalizer, so that the object can be deleted.
func (i *Infrastructure) release(ctx context.Context, object *unstructured.Unstructured, finalizer string) error {
	before := object.DeepCopy()
	if !controllerutil.RemoveFinalizer(object, finalizer) {
		return nil
	}
	if err := i.client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("release %s %s: %w", object.GetKind(), object.GetName(), err))
	}
	return nil
}
