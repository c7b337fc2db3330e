package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Kubemend is kubemend's own manager as a process of its own, built by `make build`.
type Kubemend = Manager

// Kubemend starts the manager against this control plane with the given kubeconfig (the administrator's if it is nil) and returns when its
// caches are filled. It ends with the control plane, at the latest. Names distinguish several managers. Where there is Namespace it announces
// itself there, as it does where it is installed.
func (c *ControlPlane) Kubemend(ctx context.Context, name string, kubeconfig []byte, args ...string) (*Kubemend, error) {
	return c.kubemend(ctx, ManagerOptions{Name: name, Kubeconfig: kubeconfig, Args: args})
}

// Leaving starts the manager as Kubemend does, to take everything back. It returns at once: the manager is ready when it has.
func (c *ControlPlane) Leaving(ctx context.Context, name string, kubeconfig []byte, args ...string) (*Kubemend, error) {
	return c.kubemend(ctx, ManagerOptions{Name: name, Kubeconfig: kubeconfig, Args: append([]string{"--teardown"}, args...), Unready: true})
}

func (c *ControlPlane) kubemend(ctx context.Context, o ManagerOptions) (*Kubemend, error) {
	o.Name, o.Binary = "kubemend-"+o.Name, filepath.Join(c.rig.root, "bin", "manager")
	if err := built(ctx); err != nil {
		return nil, fmt.Errorf("start kubemend: %w", err)
	}
	if _, err := os.Stat(o.Binary); err != nil {
		return nil, fmt.Errorf("start kubemend: %w: run make build", err)
	}
	installed, err := c.hasNamespace(ctx)
	if err != nil {
		return nil, fmt.Errorf("start kubemend: %w", err)
	}
	// In front: who says another one means that. Simulated kubelets report at once.
	args := []string{"--node-monitor-grace-period=0s"}
	if installed {
		args = append(args, "--leader-elect-namespace="+Namespace)
	}
	o.Args = append(args, o.Args...)
	return c.Manager(ctx, o)
}

// hasNamespace reports whether there is Namespace.
func (c *ControlPlane) hasNamespace(ctx context.Context) (bool, error) {
	clientset, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return false, fmt.Errorf("make a client for %s: %w", c.name, err)
	}
	_, err = clientset.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the namespace %s: %w", Namespace, err)
	}
	return true, nil
}

// WebhookFlags are the flags of the one manager that answers the API server's webhooks; none without webhooks. See ManagementOptions.Webhooks
// and Trust.
func (c *ControlPlane) WebhookFlags() []string {
	if c.ours == nil {
		return nil
	}
	return append(c.ours.flags(c), "--webhook-host=127.0.0.1")
}
