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
)

// Kubemend is kubemend's own manager as a process of its own, built by `make build`.
type Kubemend struct {
	plane *ControlPlane
	key   program
	// Metrics is the URL of its metrics.
	Metrics string
	// PID is its leash's process, and Log the file that it logs to.
	Log string
}

// managerReady bounds how long a manager may take until its caches are filled.
const managerReady = time.Minute

// Kubemend starts the manager against this control plane with the given kubeconfig (the administrator's if it is nil) and returns when its
// caches are filled. It ends with the control plane, at the latest. Names tell several managers apart.
func (c *ControlPlane) Kubemend(ctx context.Context, name string, kubeconfig []byte, args ...string) (*Kubemend, error) {
	binary := filepath.Join(c.rig.root, "bin", "manager")
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("start kubemend: %w: run make build", err)
	}
	if kubeconfig == nil {
		kubeconfig = c.Kubeconfig()
	}
	file := c.path(name + ".kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return nil, fmt.Errorf("start kubemend: %w", err)
	}
	health, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	diagnostics, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	args = append([]string{
		"--kubeconfig=" + file, "--health-addr=" + health.address(),
		"--diagnostics-address=" + diagnostics.address(), "--insecure-diagnostics",
	}, args...)
	k := &Kubemend{plane: c, key: program("kubemend-" + name), Metrics: "http://" + diagnostics.address() + "/metrics"}
	p, err := k.launch(binary, args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, managerReady)
	defer cancel()
	if err := p.await(ctx, func(ctx context.Context) error { return answers(ctx, "http://"+health.address()+"/readyz") }); err != nil {
		k.Kill()
		return nil, fmt.Errorf("start kubemend: %w", err)
	}
	return k, nil
}

func (k *Kubemend) launch(binary string, args []string) (*process, error) {
	c := k.plane
	k.Log = filepath.Join(c.rig.logs, c.name+"-"+string(k.key)+".log")
	log, err := os.OpenFile(k.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of kubemend: %w", err)
	}
	defer func() { _ = log.Close() }() // the program has its own handle of it
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, runs := c.running[k.key]; runs || c.stopped {
		return nil, fmt.Errorf("start %s: one of that name runs already, or the rig is stopped", k.key)
	}
	p, err := launch(string(k.key), log, c.rig.binaries[leash], append([]string{"--grace", "0s", "--", binary}, args...))
	if err != nil {
		return nil, err
	}
	c.running[k.key] = p
	return p, nil
}

// Kill ends the manager at once, as a crash would.
func (k *Kubemend) Kill() { k.plane.end(k.key) }

func answers(ctx context.Context, url string) error {
	_, err := fetch(ctx, url)
	return err
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: %s", url, response.Status)
	}
	return body, nil
}

// Scrape returns the manager's metrics in the text format.
func (k *Kubemend) Scrape(ctx context.Context) (string, error) {
	body, err := fetch(ctx, k.Metrics)
	return string(body), err
}
