// Package simulator plays what this machine cannot have: bare-metal hosts and what manages them, an infrastructure
// provider, the kubelets that run on the hosts, and the parts of a workload cluster that a rig has no real ones of.
//
// The players do what the real ones do towards the API servers, and no more. What follows from it is left to the real
// controllers: that a silent node is Unknown and that its pods are moved is found out by kube-controller-manager, that
// a Machine runs by Cluster API. The knobs are those of the real things: a kubelet can be stopped, slowed, or made to
// report a condition; a host can take its time, or come up without a kubelet; a BMC can fail, or die.
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

// requestPatience bounds every request of a player: an API server that is stopped must not hold one for ever.
const requestPatience = 10 * time.Second

// player plays a part towards an API server, in a manager of its own, which logs nothing.
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
		Logger:  logr.New(logf.NullLogSink{}), // a manager takes a logger without a sink for one that is not set
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		// Tests start one after another in the same process, and the check is about metrics, which are off.
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

// The kinds of the provider, in the version of the contract that Cluster API v1.14 prefers.
var (
	metal3Group   = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}
	metal3Cluster = metal3Group.WithKind("Metal3Cluster")
	metal3Machine = metal3Group.WithKind("Metal3Machine")
)

const (
	clusterFinalizer = "metal3cluster.infrastructure.cluster.x-k8s.io"
	machineFinalizer = "metal3machine.infrastructure.cluster.x-k8s.io"

	// siteMissing is the interval of reading a cluster without a site; there is no event when it gets one.
	siteMissing = 500 * time.Millisecond
)

// empty is an object of a kind that has no Go type here.
func empty(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// clusterProvisioner gives every Metal3Cluster the address of its API server.
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

// ownerCluster is the Cluster that owns the object, or nil if Cluster API has not said so yet.
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

// provisioned is a status that fulfils the contract of a provider: done, and Ready.
func provisioned(was *unstructured.Unstructured, now time.Time) map[string]any {
	return map[string]any{
		"initialization": map[string]any{"provisioned": true},
		"conditions":     ready(was, metav1.ConditionTrue, "Provisioned", now),
	}
}

// ready is a list with the one condition Ready. The list as a whole is the provider's, so nothing else is in it.
func ready(was *unstructured.Unstructured, status metav1.ConditionStatus, reason string, now time.Time) []any {
	since := now.UTC().Format(time.RFC3339)
	conditions, _, _ := unstructured.NestedSlice(was.Object, "status", "conditions") // what is not a list is replaced
	for _, condition := range conditions {
		if before, ok := condition.(map[string]any); ok && before["type"] == "Ready" && before["status"] == string(status) {
			since, _ = before["lastTransitionTime"].(string)
		}
	}
	return []any{map[string]any{
		"type": "Ready", "status": string(status), "reason": reason, "message": "", "lastTransitionTime": since,
	}}
}

// change writes fields of the spec and of the status, and nothing if they are as they should be.
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

// difference writes what has changed, if anything has.
func difference(object, before *unstructured.Unstructured, write func(client.Patch) error) error {
	if equality.Semantic.DeepEqual(object.Object, before.Object) {
		return nil
	}
	if err := write(client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// release takes the finalizer off, so that the object can go.
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
