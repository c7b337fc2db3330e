package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// managerReady bounds how long a manager may take until it says that it is ready.
const managerReady = 3 * time.Minute

// ManagerOptions say which manager is started.
type ManagerOptions struct {
	// Name distinguishes the managers of a control plane.
	Name string
	// Binary is the path of the program. It takes the flags that the managers of Cluster API have in common:
	// --kubeconfig, --health-addr, --diagnostics-address and --insecure-diagnostics.
	Binary string
	// Kubeconfig is the administrator's if it is nil.
	Kubeconfig []byte
	// Args are more flags.
	Args []string
	// Unready does not wait until the program is ready: it may never be.
	Unready bool
}

// Manager is a controller manager as a process of its own.
type Manager struct {
	plane *ControlPlane
	key   program
	// Metrics is the URL of its metrics, Health that of its health endpoints without their paths.
	Metrics, Health string
	// Log is the file that it logs to.
	Log string
}

// Manager starts a manager against this control plane and returns when it is ready. It ends with the control plane, at
// the latest.
func (c *ControlPlane) Manager(ctx context.Context, o ManagerOptions) (*Manager, error) {
	if o.Kubeconfig == nil {
		o.Kubeconfig = c.Kubeconfig()
	}
	file := c.path(o.Name + ".kubeconfig")
	if err := os.WriteFile(file, o.Kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	health, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	diagnostics, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + file, "--health-addr=" + health.address(),
		"--diagnostics-address=" + diagnostics.address(), "--insecure-diagnostics",
	}, o.Args...)
	m := &Manager{plane: c, key: program(o.Name), Metrics: "http://" + diagnostics.address() + "/metrics", Health: "http://" + health.address()}
	p, err := c.launch(m.key, o.Binary, args)
	if err != nil {
		return nil, err
	}
	m.Log = p.log
	if o.Unready {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, managerReady)
	defer cancel()
	if err := p.await(ctx, m.Ready); err != nil {
		m.Kill()
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	return m, nil
}

// Kill ends the manager at once, as a crash would.
func (m *Manager) Kill() { m.plane.end(m.key) }

// Ready is nil if the manager says that it is ready; the error has its answer.
func (m *Manager) Ready(ctx context.Context) error {
	return answersOK(http.DefaultClient, m.Health+"/readyz")(ctx)
}

// Scrape returns the manager's metrics in the text format.
func (m *Manager) Scrape(ctx context.Context) (string, error) {
	body, err := fetch(ctx, http.DefaultClient, m.Metrics)
	return string(body), err
}

func fetch(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	// Compressing a page of metrics takes the server longer than making it.
	request.Header.Set("Accept-Encoding", "identity")
	return answered(c, request)
}

// answered is the body of the answer to a request.
func answered(c *http.Client, request *http.Request) ([]byte, error) {
	url := request.URL
	response, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s: %s", url, response.Status, body[:min(len(body), logTail)])
	}
	return body, nil
}

// Kubemend is kubemend's own manager as a process of its own, built by `make build`.
type Kubemend = Manager

// Kubemend starts the manager against this control plane with the given kubeconfig (the administrator's if it is nil) and returns when its
// caches are filled. It ends with the control plane, at the latest. Names distinguish several managers. Where there is Namespace it
// announces itself there, as it does where it is installed.
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

// WebhookFlags are the flags of the one manager that answers the API server's webhooks; none without webhooks. See
// ManagementOptions.Webhooks and Trust.
func (c *ControlPlane) WebhookFlags() []string {
	if c.ours == nil {
		return nil
	}
	return append(c.ours.flags(c), "--webhook-host=127.0.0.1")
}
