package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

const (
	// startPatience is the timeout of a start whose caller set no deadline. A start takes seconds, on a busy machine minutes.
	startPatience = 5 * time.Minute
	// portAttempts is how often a start is tried if another program takes its port. See port.
	portAttempts = 5
)

// ControlPlane is an etcd with a kube-apiserver and their controllers.
type ControlPlane struct {
	rig    *Rig
	name   string
	folder string

	ca       *authority
	serving  identity
	admin    identity
	etcdPort *port
	apiPort  *port
	kube     []byte
	ours     *webhooks // nil unless ManagementOptions.Webhooks
	audit    bool

	mu      sync.Mutex
	running map[program]*process
	ports   []*port
	stopped bool
}

// newControlPlane creates the folder and the certificates. It starts no program.
func (r *Rig) newControlPlane(name string, audit bool) (*ControlPlane, error) {
	c := &ControlPlane{
		rig: r, name: name, folder: filepath.Join(r.folder, name), audit: audit, running: map[program]*process{},
	}
	if err := r.enter(c); err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil {
		r.leave(c)
		return nil, fmt.Errorf("prepare control plane %s: %w", name, err)
	}
	return c, nil
}

// noteStart appends a line to the file in which make test counts the control planes of a run, if there is one.
func noteStart(name string) error {
	notes := os.Getenv("KUBEMEND_RIG_STARTED")
	if notes == "" {
		return nil
	}
	file, err := os.OpenFile(notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s of %s\n", name, filepath.Base(os.Args[0]))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("note the start of control plane %s: %w", name, err)
	}
	return nil
}

func (c *ControlPlane) prepare() error {
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		return fmt.Errorf("make its folder: %w", err)
	}
	var err error
	if c.ca, err = newAuthority(c.name); err != nil {
		return err
	}
	if c.serving, err = c.ca.server(); err != nil {
		return err
	}
	// RBAC rules do not apply to this group: it may do everything.
	if c.admin, err = c.ca.client("rig", []string{"system:masters"}); err != nil {
		return err
	}
	tokens, err := c.ca.client("service accounts", nil) // the API server uses only its key, to sign tokens
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.ca.pem, "tls.crt": c.serving.certificate, "tls.key": c.serving.key, "tokens.key": tokens.key,
	} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.folder, name) }

// boot starts etcd and kube-apiserver at the same time: kube-apiserver waits for etcd by itself, so nothing has to wait here.
func (c *ControlPlane) boot(ctx context.Context) error {
	if err := noteStart(c.name); err != nil {
		return err
	}
	since := time.Now()
	err := c.retryPorts(ctx, func(ctx context.Context) error {
		if err := c.reservePorts(); err != nil {
			return err
		}
		if err := c.writeKubeconfig(); err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return c.startEtcd(ctx) })
		group.Go(func() error { return c.startAPIServer(ctx) })
		return group.Wait()
	}, etcd, apiServer)
	if err != nil {
		return fmt.Errorf("start control plane %s: %w", c.name, err)
	}
	c.rig.progress(since, "%s: etcd and kube-apiserver are ready on %s", c.name, c.apiPort.address())
	return nil
}

// retryPorts starts programs again if one of them finds its port taken. See port.
func (c *ControlPlane) retryPorts(ctx context.Context, start func(context.Context) error, programs ...program) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := start(ctx)
		if attempt == portAttempts || !portTaken(err) {
			return err
		}
		for _, p := range programs {
			c.end(p)
		}
	}
}

func (c *ControlPlane) reservePorts() (err error) {
	if c.etcdPort, err = c.reservePort(); err != nil {
		return err
	}
	c.apiPort, err = c.reservePort()
	return err
}

func (c *ControlPlane) reservePort() (*port, error) {
	p, err := reservePort()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(c.ports, p)
	return p, nil
}

func (c *ControlPlane) writeKubeconfig() (err error) {
	if c.kube, err = kubeconfig(c.name, c.apiPort.address(), c.ca, c.admin.authInfo()); err != nil {
		return err
	}
	if err := os.WriteFile(c.KubeconfigFile(), c.kube, 0o600); err != nil {
		return fmt.Errorf("write its kubeconfig: %w", err)
	}
	return nil
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	url := "http://" + c.etcdPort.address()
	p, err := c.run(etcd,
		"--data-dir="+c.path("etcd"),
		"--listen-client-urls="+url,
		"--advertise-client-urls="+url,
		"--listen-peer-urls=http://127.0.0.1:0", // there are no peers
		"--unsafe-no-fsync",                     // the data is deleted with the rig, and a slow disk must not slow down a test
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	return p.await(ctx, answersOK(http.DefaultClient, url+"/health"))
}

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	flags, err := c.auditFlags()
	if err != nil {
		return err
	}
	p, err := c.run(apiServer, append(flags,
		"--etcd-servers=http://"+c.etcdPort.address(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port="+c.apiPort.String(),
		"--cert-dir="+c.folder,
		"--tls-cert-file="+c.path("tls.crt"),
		"--tls-private-key-file="+c.path("tls.key"),
		"--client-ca-file="+c.path("ca.crt"),
		"--authorization-mode=RBAC",
		// This admission plugin requires a ServiceAccount for every Pod, but no controller of the rig creates ServiceAccounts.
		"--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path("tokens.key"),
		"--service-account-signing-key-file="+c.path("tokens.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		// Nothing in the cluster can reach loopback. Without endpoints a killed API server leaves nothing behind.
		"--endpoint-reconciler-type=none",
		"--allow-privileged",
	)...)
	if err != nil {
		return err
	}
	asAdmin, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", p.name, err)
	}
	return p.await(ctx, answersOK(asAdmin, c.Config().Host+"/readyz"))
}

func answersOK(c *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := fetch(ctx, c, url)
		return err
	}
}

// Config returns a new configuration for an administrator without rate limits.
func (c *ControlPlane) Config() *rest.Config {
	return restConfig(c.apiPort.address(), c.ca, c.admin)
}

// Kubeconfig is Config as the content of a kubeconfig file with embedded certificates.
func (c *ControlPlane) Kubeconfig() []byte { return c.kube }

// KubeconfigFile is the path of a file with Kubeconfig; it is deleted with the rig.
func (c *ControlPlane) KubeconfigFile() string { return c.path("kubeconfig") }

// User creates a client certificate for a user and groups, who have the rights that RBAC grants them. A program can so run with the rights
// that it ships with.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, []byte, error) {
	id, err := c.ca.client(name, groups)
	if err != nil {
		return nil, nil, err
	}
	content, err := kubeconfig(c.name, c.apiPort.address(), c.ca, id.authInfo())
	if err != nil {
		return nil, nil, err
	}
	return restConfig(c.apiPort.address(), c.ca, id), content, nil
}

func (c *ControlPlane) run(p program, args ...string) (*process, error) {
	return c.runAs(p, p, args...)
}

// runAs starts a program that runs several times; each run needs its own name.
func (c *ControlPlane) runAs(name, p program, args ...string) (*process, error) {
	path, err := c.rig.binaries.find(p)
	if err != nil {
		return nil, err
	}
	return c.launch(name, path, args)
}

// launch starts a program at any path as a part of this control plane.
func (c *ControlPlane) launch(name program, path string, args []string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, runs := c.running[name]; runs || c.stopped {
		return nil, fmt.Errorf("start %s of %s: one of that name runs already, or the rig is stopped", name, c.name)
	}
	started, err := c.rig.launch(c.name+"-"+string(name), path, args)
	if err != nil {
		return nil, err
	}
	c.running[name] = started
	return started, nil
}

func (c *ControlPlane) end(p program) {
	c.mu.Lock()
	started := c.running[p]
	delete(c.running, p)
	c.mu.Unlock()
	started.stop()
}

// stop kills all programs at once, because none has to save anything. It returns an error for each program that had ended by itself before:
// a test may have passed only because that program was missing.
func (c *ControlPlane) stop() error {
	c.mu.Lock()
	c.stopped = true
	running, ports := c.running, c.ports
	c.running, c.ports = map[program]*process{}, nil
	c.mu.Unlock()
	var errs []error
	for _, p := range running {
		select {
		case <-p.ended:
			errs = append(errs, &endedError{p})
		default:
			_ = p.reaper.Close() // an error means that it is closed already
		}
	}
	for _, p := range running {
		p.stop()
	}
	for _, p := range ports {
		p.release()
	}
	return errors.Join(errs...)
}
