package rig

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// ManagementOptions are the options of a management control plane.
type ManagementOptions struct {
	// Name is the name of the control plane; the default is "management".
	Name string
	// Core runs Cluster API's core controllers and webhooks, which convert v1beta1 and validate all objects. Without Core only the CRDs are
	// installed.
	Core bool
	// CoreArgs are flags for core, for example --leave-out=MachineHealthCheck; see test/rig/capi.
	CoreArgs []string
	// Providers runs Cluster API's kubeadm providers and its in-memory infrastructure, and lets core create clusters from ClusterClasses.
	// It implies Core.
	Providers bool
	// Controllers are controllers of kube-controller-manager in addition to OwnerControllers, such as NodeControllers if the cluster's own
	// nodes are watched. Without any, kube-controller-manager does not run.
	Controllers []string
	// Own installs kubemend's CRDs.
	Own bool
	// CRDs are further files or folders of CRDs. A CRD replaces the rig's CRD of the same name.
	CRDs []string
	// Webhooks makes the API server call kubemend's manager for defaults, and for the conversion of kinds in Own and CRDs with several
	// versions. The calls fail until a manager is started with WebhookFlags.
	Webhooks bool
	// Audit makes the API server record kubemend's requests; see Audited.
	Audit bool
}

// OwnerControllers are the controllers that delete objects without their owner or namespace.
func OwnerControllers() []string {
	return []string{"garbage-collector-controller", "namespace-controller"}
}

// RoleControllers are the controllers that fill aggregated ClusterRoles.
func RoleControllers() []string { return []string{"clusterrole-aggregation-controller"} }

// Management starts a management control plane and returns when it is ready.
func (r *Rig) Management(ctx context.Context, o ManagementOptions) (*ControlPlane, error) {
	if o.Name == "" {
		o.Name = "management"
	}
	c, err := r.newControlPlane(o.Name, o.Audit)
	if err != nil {
		return nil, err
	}
	if err := c.bootManagement(ctx, o); err != nil {
		r.leave(c)
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) bootManagement(ctx context.Context, o ManagementOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if o.Providers {
		o.Core, o.CoreArgs = true, append([]string{"--feature-gates=ClusterTopology=true"}, o.CoreArgs...)
	}
	hooks, err := c.reserveWebhooks(o)
	if err != nil {
		return err
	}
	more := o.CRDs
	if o.Own {
		more = append([]string{filepath.Join(c.rig.root, ourCRDs)}, more...)
	}
	var kinds catalogue
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() error { return c.boot(booting) })
	group.Go(func() (err error) {
		if kinds, err = c.rig.readCatalogue(hooks, c.ours, more); err == nil && o.Providers {
			err = kinds.addProviders()
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}

	since := time.Now()
	if err := kinds.install(ctx, c.Config()); err != nil {
		return err
	}
	c.rig.progress(since, "%s: %d kinds are served", c.name, len(kinds))
	if c.ours != nil {
		if err := c.ours.install(ctx, c.Config(), filepath.Join(c.rig.root, ourWebhooks)); err != nil {
			return err
		}
	}

	group, booting = errgroup.WithContext(ctx)
	if len(o.Controllers) > 0 {
		// The kinds are installed before: the garbage collector looks for new kinds only every 30 s.
		group.Go(func() error {
			return c.bootControllerManager(booting, slices.Concat(OwnerControllers(), o.Controllers))
		})
	}
	if o.Core {
		group.Go(func() error { return c.bootCore(booting, hooks, o.CoreArgs) })
	}
	for _, p := range kubeadmProviders {
		if o.Providers {
			group.Go(func() error { return c.bootProvider(booting, p) })
		}
	}
	return group.Wait()
}

// reserveWebhooks reserves a port for each manager whose webhooks the API server calls, and returns core's. CRDs contain the port, so it is
// needed before the manager runs.
func (c *ControlPlane) reserveWebhooks(o ManagementOptions) (ofCore *webhooks, err error) {
	if o.Webhooks {
		if c.ours, err = c.newWebhooks("kubemend"); err != nil {
			return nil, err
		}
	}
	if o.Core {
		return c.newWebhooks("core")
	}
	return nil, nil
}

func (c *ControlPlane) bootCore(ctx context.Context, hooks *webhooks, args []string) error {
	since := time.Now()
	upstream, err := clusterAPI()
	if err != nil {
		return err
	}
	if err := hooks.install(ctx, c.Config(), filepath.Join(upstream, coreWebhooks)); err != nil {
		return err
	}
	if err := c.startCore(ctx, hooks, args); err != nil {
		return fmt.Errorf("start Cluster API core of %s: %w", c.name, err)
	}
	c.rig.progress(since, "%s: Cluster API core is ready", c.name)
	return nil
}

// startCore does not try another port, because the CRDs contain this one.
func (c *ControlPlane) startCore(ctx context.Context, hooks *webhooks, args []string) error {
	health, err := c.reservePort()
	if err != nil {
		return err
	}
	flags := append([]string{"--kubeconfig=" + c.KubeconfigFile(), "--health-port=" + health.String()}, hooks.flags(c)...)
	p, err := c.run(core, append(flags, args...)...)
	if err != nil {
		return err
	}
	if err := p.await(ctx, answersOK(http.DefaultClient, "http://"+health.address()+"/readyz")); err != nil {
		return err
	}
	return p.await(ctx, hooks.asked(c.Config()))
}

// nodeGrace is short enough for tests. It is long enough that on a busy machine a kubelet which renews its lease every second does not seem
// dead.
const nodeGrace = 6 * time.Second

// WorkloadOptions are the options of a workload control plane. The zero value is usable.
type WorkloadOptions struct {
	// Controllers are the controllers of kube-controller-manager; NodeControllers if nil. PodControllers can be added.
	Controllers []string
	// Bare runs no kube-controller-manager.
	Bare bool
	// Kinds installs the CRDs of a management cluster except kubemend's, and those of the named files or folders. kubemend can then be
	// installed.
	Kinds []string
	// Audit makes the API server record kubemend's requests; see Audited.
	Audit bool
}

// NodeControllers are the controllers of nodes, of the pods on dead nodes and of their volumes.
func NodeControllers() []string {
	return []string{
		"node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
		"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller",
	}
}

// PodControllers are the controllers of Deployments, ReplicaSets and StatefulSets. The rig has no scheduler and no kubelets; see
// test/simulator.
func PodControllers() []string {
	return []string{"deployment-controller", "replicaset-controller", "statefulset-controller"}
}

// Workload starts the control plane of a workload cluster and returns when it is ready.
func (r *Rig) Workload(ctx context.Context, name string, o WorkloadOptions) (*ControlPlane, error) {
	c, err := r.newControlPlane(name, o.Audit)
	if err != nil {
		return nil, err
	}
	if err := c.bootWorkload(ctx, o); err != nil {
		r.leave(c)
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) bootWorkload(ctx context.Context, o WorkloadOptions) error {
	if err := c.boot(ctx); err != nil {
		return err
	}
	if len(o.Kinds) > 0 {
		kinds, err := c.rig.readCatalogue(nil, nil, o.Kinds)
		if err != nil {
			return err
		}
		if err := kinds.install(ctx, c.Config()); err != nil {
			return err
		}
	}
	if o.Bare {
		return nil
	}
	if o.Controllers == nil {
		o.Controllers = NodeControllers()
	}
	return c.bootControllerManager(ctx, o.Controllers)
}

func (c *ControlPlane) bootControllerManager(ctx context.Context, controllers []string) error {
	since := time.Now()
	err := c.retryPorts(ctx, func(ctx context.Context) error {
		return c.startControllerManager(ctx, controllers)
	}, controllerManager)
	if err != nil {
		return fmt.Errorf("start the controllers of %s: %w", c.name, err)
	}
	c.rig.progress(since, "%s: kube-controller-manager is ready", c.name)
	return nil
}

func (c *ControlPlane) startControllerManager(ctx context.Context, controllers []string) error {
	health, err := c.reservePort()
	if err != nil {
		return err
	}
	p, err := c.run(controllerManager,
		"--kubeconfig="+c.KubeconfigFile(),
		"--authentication-kubeconfig="+c.KubeconfigFile(),
		"--authorization-kubeconfig="+c.KubeconfigFile(),
		"--authentication-skip-lookup",
		"--bind-address=127.0.0.1",
		"--secure-port="+health.String(),
		"--cert-dir="+c.folder,
		"--tls-cert-file="+c.path("tls.crt"),
		"--tls-private-key-file="+c.path("tls.key"),
		"--leader-elect=false",
		"--controllers="+strings.Join(controllers, ","),
		"--node-monitor-period=1s",
		"--node-monitor-grace-period="+nodeGrace.String(),
		"--kube-api-qps=200", "--kube-api-burst=400", // the defaults are for a cluster that it shares
	)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem}})
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", p.name, err)
	}
	return p.await(ctx, answersOK(client, "https://"+health.address()+"/healthz"))
}
