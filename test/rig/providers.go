package rig

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Provider is one of Cluster API's managers. Each runs as a process of its own.
type Provider string

// The providers. All but Core need ManagementOptions.Providers.
const (
	Core                Provider = "core"
	Bootstrap           Provider = "bootstrap"
	KubeadmControlPlane Provider = "control-plane"
	InMemory            Provider = "in-memory"
)

// kubeadmProviders are those of capi-kubeadm, by the names that it gives them.
var kubeadmProviders = []Provider{Bootstrap, KubeadmControlPlane, InMemory}

// apiServers is how many clusters a rig can have on its in-memory infrastructure, at most.
const apiServers = 8

// config is the folder with the provider's manifests.
func (p Provider) config() (string, error) {
	folder, within := clusterAPI, ""
	switch p {
	case Core:
		within = "core"
	case Bootstrap:
		within = "bootstrap/kubeadm"
	case KubeadmControlPlane:
		within = "controlplane/kubeadm"
	case InMemory:
		folder, within = providers, "infrastructure/docker"
	}
	found, err := folder()
	return filepath.Join(found, filepath.FromSlash(within), "config"), err
}

// addProviders adds the kinds of the providers. They are not converted: nothing asks for an older version of them.
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

// bootProvider registers the webhooks of a provider and starts it.
func (c *ControlPlane) bootProvider(ctx context.Context, p Provider) error {
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
	if p == InMemory {
		row, err := reserveRow(apiServers + 1)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.ports = append(c.ports, row...)
		c.mu.Unlock()
		args = append(args, "--first-port="+row[1].String(), "--ports="+strconv.Itoa(apiServers))
	}
	err = c.keep(ctx, p, func(ctx context.Context) error {
		started, err := c.runAs(p.program(), kubeadm, args...)
		if err != nil {
			return err
		}
		return started.await(ctx, answersOK(http.DefaultClient, "http://"+health.address()+"/readyz"))
	})
	if err != nil {
		return fmt.Errorf("start provider %s of %s: %w", p, c.name, err)
	}
	c.rig.progress(since, "%s: provider %s is ready", c.name, p)
	return nil
}

// program is the name of the process.
func (p Provider) program() program {
	if p == Core {
		return core
	}
	return kubeadm + "-" + program(p)
}

// keep remembers how a provider is started, and starts it.
func (c *ControlPlane) keep(ctx context.Context, p Provider, start func(context.Context) error) error {
	c.mu.Lock()
	c.starts[p] = start
	c.mu.Unlock()
	return start(ctx)
}

// StopProvider kills a provider, as a crash would. The in-memory infrastructure forgets all machines then.
func (c *ControlPlane) StopProvider(p Provider) error {
	if !c.end(p.program()) {
		return fmt.Errorf("stop provider %s of %s: it does not run", p, c.name)
	}
	return nil
}

// StartProvider starts a provider again, as it was started before, and returns when it is ready.
func (c *ControlPlane) StartProvider(ctx context.Context, p Provider) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c.mu.Lock()
	start := c.starts[p]
	c.mu.Unlock()
	if start == nil {
		return fmt.Errorf("start provider %s of %s: it never ran", p, c.name)
	}
	if err := start(ctx); err != nil {
		return fmt.Errorf("start provider %s of %s again: %w", p, c.name, err)
	}
	return nil
}

// Kubectl makes a command of kubectl, of the version of the control planes. It finds plugins in the folder bin of the project, and nothing
// of the user's.
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
		"PATH=" + filepath.Join(root, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "HOME=" + os.TempDir(),
	}
	return command, nil
}
