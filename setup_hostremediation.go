package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/hostremediation/admission"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/workload"
)

// hostRemediationServices are the controllers that power-cycle hosts, to be started when the kinds that they need are there and free.
func hostRemediationServices(mgr ctrl.Manager, cc clustercache.ClusterCache, clusters *workload.Clusters, o *options) ([]*crdgate.Service, error) {
	writer := client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner)
	r := remediations{
		mgr: mgr, cc: cc, clusters: clusters, o: o, writer: writer, recorder: mgr.GetEventRecorder("kubemend"),
		hosts: &host.Hosts{Client: writer, Live: mgr.GetAPIReader()},
		turns: &hostremediation.Turns{}, wakeups: &hostremediation.Wakeups{},
	}
	r.nodes = fence.NewNodes(cc, r.wakeups.Wake)
	if err := mgr.Add(closing{r.nodes}); err != nil {
		return nil, fmt.Errorf("set up the watches on nodes: %w", err)
	}
	if err := r.findSelf(); err != nil {
		return nil, err
	}
	if o.webhookCertDir != "" {
		if err := admission.SetUp(mgr); err != nil {
			return nil, err
		}
	}
	metal3, own, sweeper := crdgate.Metal3Remediations(o.metal3Remediations), crdgate.HostRemediations(), crdgate.Hosts()
	open := o.gates.Enabled(hostRemediation) || o.leave
	for _, s := range []*crdgate.Service{metal3, own, sweeper} {
		s.Role, s.Rights = crdgate.HostRights(o.namespace)
		if !open {
			s.Releases, s.Choice = s.Choice, crdgate.Off
		}
	}
	if o.metal3Remediations == crdgate.Off {
		metal3.Releases = crdgate.Auto
	}
	theirs, ours := r.reconciler(hostremediation.Metal3, metal3), r.reconciler(hostremediation.Own, own)
	metal3.Start, metal3.Serve = r.start(theirs), theirs.Serve
	own.Start, sweeper.Start = r.start(ours), r.sweep
	return []*crdgate.Service{metal3, own, sweeper}, nil
}

// remediations is what the controllers of both kinds share.
type remediations struct {
	mgr      ctrl.Manager
	cc       clustercache.ClusterCache
	clusters *workload.Clusters
	o        *options
	writer   client.Client
	recorder events.EventRecorder
	hosts    *host.Hosts
	nodes    *fence.Nodes
	wakeups  *hostremediation.Wakeups
	turns    *hostremediation.Turns
	self     hostremediation.Self
}

func (r remediations) installed() ([]hostremediation.Kind, error) {
	return hostremediation.InstalledKinds(r.mgr.GetRESTMapper())
}

// reconciler ends what was begun, and begins nothing, if its service is switched off.
func (r remediations) reconciler(kind hostremediation.Kind, s *crdgate.Service) *hostremediation.Reconciler {
	return &hostremediation.Reconciler{
		Kind: kind, Installed: r.installed, Client: r.writer, Live: r.mgr.GetAPIReader(),
		Hosts: r.hosts, Clusters: r.clusters, Nodes: r.nodes, Wakeups: r.wakeups, Turns: r.turns,
		Fencing:  r.o.fencing,
		Recorder: r.recorder, Clock: clock.RealClock{}, WatchFilterValue: r.o.watchFilter,
		Reader: func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
			return r.cc.GetUncachedClient(ctx, cluster)
		},
		Self:    r.self,
		Leaving: r.o.leave || s.Choice == crdgate.Off, Off: s.Choice == crdgate.Off,
	}
}

func (r remediations) start(c *hostremediation.Reconciler) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := r.mgr.GetRESTMapper().RESTMapping(c.Kind.GroupKind(), c.Kind.Version); err != nil {
			return fmt.Errorf("find version %s of %s: %w", c.Kind.Version, c.Kind.Kind, err)
		}
		return c.SetupWithManager(ctx, r.mgr, r.cc, controller.Options{MaxConcurrentReconciles: r.o.remediationConcurrency})
	}
}

func (r remediations) sweep(context.Context) error {
	if !r.o.leave { // who leaves looks at the nodes of all clusters anyway
		nodes := &hostremediation.NodeSweeper{
			Installed: r.installed, Client: r.writer, Live: r.mgr.GetAPIReader(), Fenced: r.clusters.Fenced, Nodes: r.nodes,
			Recorder: r.recorder, Clock: clock.RealClock{}, Grace: r.o.orphanGrace,
		}
		if err := nodes.SetupWithManager(r.mgr, controller.Options{MaxConcurrentReconciles: 1}); err != nil {
			return err
		}
		r.clusters.OnFenced(nodes.Wake)
	}
	return (&hostremediation.Sweeper{
		Installed: r.installed, Client: r.writer, Live: r.mgr.GetAPIReader(), Hosts: r.hosts,
		Recorder: r.recorder, Clock: clock.RealClock{}, Grace: r.o.orphanGrace, Leaving: r.o.leave,
	}).SetupWithManager(r.mgr, controller.Options{MaxConcurrentReconciles: 1})
}

// bootID is where Linux says which boot of the host this is, in a container as well; the kubelet has it from there.
const bootID = "/proc/sys/kernel/random/boot_id"

// RBAC to find another replica, which is in the manager's own namespace.
// +kubebuilder:rbac:groups=core,resources=pods,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=list

// findSelf finds out on which node the manager runs, where it is told (NODE_NAME), and has it make way for another replica, where there may be
// one.
func (r *remediations) findSelf() error {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil //nolint:nilerr // not Linux: then it runs on no node
	}
	r.self = hostremediation.Self{Node: os.Getenv("NODE_NAME"), BootID: strings.TrimSpace(string(boot))}
	namespace, pod := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	if !r.o.leaderElection || namespace == "" || pod == "" {
		return nil
	}
	asked := make(standDown, 1)
	r.self.StandDown = asked.ask
	r.self.Elsewhere = func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		if err := r.mgr.GetAPIReader().List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return false, fmt.Errorf("list the pods in %s: %w", namespace, err)
		}
		return readyElsewhere(pods.Items, pod), nil
	}
	if err := r.mgr.Add(asked); err != nil {
		return fmt.Errorf("set up the end of the manager: %w", err)
	}
	return nil
}

// readyElsewhere reports whether there is a replica of the pod called name that is ready, on another node.
func readyElsewhere(pods []corev1.Pod, name string) bool {
	own := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
	if own < 0 {
		return false
	}
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"} {
			if p.Labels[key] != pods[own].Labels[key] {
				return false
			}
		}
		return p.DeletionTimestamp.IsZero() && p.Spec.NodeName != "" && p.Spec.NodeName != pods[own].Spec.NodeName &&
			slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	})
}

// standDown ends the manager when it is asked to: leader election gives the lease back, and another replica takes it.
type standDown chan struct{}

var errStoodDown = errors.New("another replica is to power-cycle the host that this one runs on")

func (s standDown) ask() {
	select {
	case s <- struct{}{}:
	default: // it was asked to already
	}
}

// Start implements manager.Runnable. What it returns ends the manager.
func (s standDown) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s:
		return errStoodDown
	}
}

// closing ends the watches on nodes with the manager.
type closing struct{ nodes *fence.Nodes }

// Start implements manager.Runnable.
func (c closing) Start(ctx context.Context) error {
	<-ctx.Done()
	c.nodes.Close()
	return nil
}

// remediationKinds makes a scheme know hosts and their remediations.
func remediationKinds(scheme *runtime.Scheme) error {
	return errors.Join(bmov1alpha1.AddToScheme(scheme), infrav1beta1.AddToScheme(scheme), infrav1.AddToScheme(scheme), mendv1.AddToScheme(scheme))
}

// slim is the transform of all caches that have none of their own. Of hosts it keeps what is read; their kind may be installed later
// than the manager, and a cache cannot be told about kinds that are not there.
func slim(obj any) (any, error) {
	if _, isHost := obj.(*bmov1alpha1.BareMetalHost); isHost {
		return host.SlimHost(obj)
	}
	obj, err := machinehealthcheck.SlimMetadata(obj)
	if err != nil {
		return nil, fmt.Errorf("slim a %T: %w", obj, err)
	}
	return obj, nil
}
