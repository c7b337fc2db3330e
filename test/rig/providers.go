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

// provider is one of Cluster API's managers besides core, by the name that capi-kubeadm gives it. Each runs as a process of its own.
type provider string

const (
	bootstrap           provider = "bootstrap"
	kubeadmControlPlane provider = "control-plane"
	inMemory            provider = "in-memory"
)

// kubeadmProviders are all of them.
var kubeadmProviders = []provider{bootstrap, kubeadmControlPlane, inMemory}

// apiServers is how many clusters a rig can have on its in-memory infrastructure, at most.
const apiServers = 8

// config is the folder with the provider's manifests.
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
