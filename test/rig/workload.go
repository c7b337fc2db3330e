package rig

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// nodeGrace is short enough to test with, and long enough that a kubelet which renews every second is not taken
// for dead on a busy machine.
const nodeGrace = 6 * time.Second

// WorkloadOptions are the options of a workload control plane; the zero value is a good one.
type WorkloadOptions struct {
	// Controllers are those that kube-controller-manager runs; NodeControllers if nil. PodControllers may be added to them.
	Controllers []string
	// Bare leaves kube-controller-manager out.
	Bare bool
	// Kinds adds the kinds that a management cluster has, without kubemend's own, and those of more files or folders: kubemend can be installed then.
	Kinds []string
	// Audit has the API server note what kubemend asks of it; see Audited.
	Audit bool
}

// NodeControllers are the controllers of nodes, of the pods of dead nodes and of their volumes.
func NodeControllers() []string {
	return []string{
		"node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
		"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller",
	}
}

// PodControllers keep as many pods as Deployments, ReplicaSets and StatefulSets ask for. Nothing in a rig binds pods to
// nodes or runs them; see test/simulator.
func PodControllers() []string {
	return []string{"deployment-controller", "replicaset-controller", "statefulset-controller"}
}

// Workload starts the control plane of a workload cluster, and returns when it is ready.
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
