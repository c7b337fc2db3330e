// Package rig starts real control planes on this machine, and removes them completely.
//
// A rig has a management control plane with Cluster API's CRDs, and optionally Cluster API's core controllers and webhooks. It has any
// number of workload control planes with the controllers of nodes. etcd, kube-apiserver, kube-controller-manager and core are the real
// programs; test/rig/build says where they come from. Package test/simulator simulates hosts and kubelets.
//
// Everything listens only on 127.0.0.1, on ports chosen by the kernel. A reaper (see test/rig/reaper) ends every program and removes the
// rig's folder, however the process that started them ends.
package rig

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Options are the options of a rig. The zero value is usable.
type Options struct {
	// Log receives one line for each step of the start; nil writes none.
	Log io.Writer
}

// Rig is a set of control planes that are stopped together.
type Rig struct {
	root     string
	folder   string
	logs     string
	binaries binaries
	guard    *process

	// mu guards the fields below, which control planes use concurrently.
	mu      sync.Mutex
	log     io.Writer
	planes  map[string]*ControlPlane
	stopped bool
}

// Start finds the programs and creates the rig's folder. Management and Workload start control planes, also concurrently. The caller has to
// call Stop; otherwise the programs end with this process.
func Start(_ context.Context, o Options) (*Rig, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	found := binariesOf(root)
	guard, err := found.find(reaper)
	if err != nil {
		return nil, err
	}
	r := &Rig{
		root:     root,
		binaries: found,
		log:      o.Log,
		planes:   map[string]*ControlPlane{},
		folder:   filepath.Join(os.TempDir(), "kubemend-rig-"+rand.Text()),
	}
	// The guard is started before the folder is created, because a folder without a guard could stay on the disk.
	r.guard, err = launch("the guard of "+r.folder, nil, guard, []string{"--remove", r.folder})
	if err != nil {
		return nil, err
	}
	if err := r.makeFolders(); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func (r *Rig) makeFolders() error {
	if err := os.Mkdir(r.folder, 0o700); err != nil {
		return fmt.Errorf("make the folder of the rig: %w", err)
	}
	r.logs = filepath.Join(r.folder, "logs")
	if err := os.MkdirAll(r.logs, 0o700); err != nil {
		return fmt.Errorf("make the folder for logs: %w", err)
	}
	return nil
}

// Stop ends all programs and removes the rig's folder. It returns when they are gone, and may be called again. It returns an error for each
// program that had ended by itself before.
func (r *Rig) Stop() error {
	r.mu.Lock()
	r.stopped = true
	planes := r.planes
	r.planes = map[string]*ControlPlane{}
	r.mu.Unlock()

	ends := make(chan error, len(planes))
	for _, plane := range planes {
		go func() { ends <- plane.stop() }()
	}
	var err error
	for range planes {
		err = errors.Join(err, <-ends)
	}
	r.guard.stop()
	if _, gone := os.Stat(r.folder); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove the folder of the rig: %s is still there", r.folder))
	}
	return err
}

// enter adds a control plane to the rig before its start, so that Stop also ends a half-started one.
func (r *Rig) enter(plane *ControlPlane) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return fmt.Errorf("start control plane %q: the rig is stopped", plane.name)
	}
	if _, taken := r.planes[plane.name]; taken {
		return fmt.Errorf("start control plane %q: there is one of that name", plane.name)
	}
	r.planes[plane.name] = plane
	return nil
}

func (r *Rig) leave(plane *ControlPlane) {
	r.mu.Lock()
	delete(r.planes, plane.name)
	r.mu.Unlock()
	_ = plane.stop() // the caller reports why the start failed
}

func (r *Rig) progress(since time.Time, format string, args ...any) {
	if r.log == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// An error here is no reason to fail.
	_, _ = fmt.Fprintf(r.log, "rig: %s (%.1fs)\n", fmt.Sprintf(format, args...), time.Since(since).Seconds())
}

// provider is one of Cluster API's managers besides core, by its name for capi-kubeadm. Each runs in its own process.
type provider string

const (
	bootstrap           provider = "bootstrap"
	kubeadmControlPlane provider = "control-plane"
	inMemory            provider = "in-memory"
)

var kubeadmProviders = []provider{bootstrap, kubeadmControlPlane, inMemory}

// apiServers is the maximal number of clusters of a rig on the in-memory infrastructure.
const apiServers = 8

// config returns the folder with the provider's manifests.
func (p provider) config() (string, error) {
	folder, within := clusterAPI, ""
	switch p {
	case bootstrap:
		within = "bootstrap/kubeadm"
	case kubeadmControlPlane:
		within = "controlplane/kubeadm"
	case inMemory:
		folder, within = providers, "infrastructure/docker"
	}
	found, err := folder()
	return filepath.Join(found, filepath.FromSlash(within), "config"), err
}

// addProviders adds the CRDs of the providers, without conversion: nothing uses their older versions.
func (all catalogue) addProviders() error {
	for _, p := range kubeadmProviders {
		config, err := p.config()
		if err != nil {
			return err
		}
		added, err := all.add(filepath.Join(config, "crd", "bases"))
		if err != nil {
			return err
		}
		for _, crd := range added {
			label(crd)
		}
	}
	return nil
}

func (c *ControlPlane) bootProvider(ctx context.Context, p provider) error {
	since := time.Now()
	config, err := p.config()
	if err != nil {
		return err
	}
	hooks, err := c.newWebhooks(string(p))
	if err != nil {
		return err
	}
	if err := hooks.install(ctx, c.Config(), filepath.Join(config, "webhook", "manifests.yaml")); err != nil {
		return err
	}
	health, err := c.reservePort()
	if err != nil {
		return err
	}
	args := append([]string{
		string(p), "--kubeconfig=" + c.KubeconfigFile(), "--health-port=" + health.String(), "--feature-gates=ClusterTopology=true",
	}, hooks.flags(c)...)
	if p == inMemory {
		row, err := reserveRow(apiServers + 1)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.ports = append(c.ports, row...)
		c.mu.Unlock()
		args = append(args, "--first-port="+row[1].String(), "--ports="+strconv.Itoa(apiServers))
	}
	started, err := c.runAs(kubeadm+"-"+program(p), kubeadm, args...)
	if err == nil {
		err = started.await(ctx, answersOK(http.DefaultClient, "http://"+health.address()+"/readyz"))
	}
	if err != nil {
		return fmt.Errorf("start provider %s of %s: %w", p, c.name, err)
	}
	c.rig.progress(since, "%s: provider %s is ready", c.name, p)
	return nil
}

// Kubectl returns a command of kubectl in the version of the control planes. It finds plugins only in the project's folder bin, and no
// configuration of the user.
func Kubectl(ctx context.Context, kubeconfig string, args ...string) (*exec.Cmd, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	program, err := binariesOf(root).find(kubectl)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program, args...)
	command.Env = []string{
		"PATH=" + filepath.Join(root, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig,
		"HOME=" + os.TempDir(),
	}
	return command, nil
}
