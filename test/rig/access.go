package rig

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
)

// Config is how an administrator without limits reaches the API server. Every call returns a new one.
func (c *ControlPlane) Config() *rest.Config {
	return restConfig(c.apiPort.address(), c.ca, c.admin)
}

// Kubeconfig is the same as Config, as the content of a kubeconfig file with everything embedded.
func (c *ControlPlane) Kubeconfig() []byte { return c.kube }

// KubeconfigFile is a file with Kubeconfig; it goes when the rig goes.
func (c *ControlPlane) KubeconfigFile() string { return c.path("kubeconfig") }

// User makes a client certificate for a user with the rights that RBAC grants to that name and those groups: this is how a
// program is run under the rights that it ships with.
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

// run starts a program that belongs to this control plane.
func (c *ControlPlane) run(p program, args ...string) (*process, error) {
	return c.runAs(p, p, args...)
}

// runAs starts a program that runs several times, by a name of each.
func (c *ControlPlane) runAs(name, p program, args ...string) (*process, error) {
	path, err := c.rig.binaries.find(p)
	if err != nil {
		return nil, err
	}
	return c.launch(name, path, args)
}

// launch starts a program that belongs to this control plane from any path.
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

// end ends a program, and reports whether there was one.
func (c *ControlPlane) end(p program) bool {
	c.mu.Lock()
	started := c.running[p]
	delete(c.running, p)
	c.mu.Unlock()
	started.stop()
	return started != nil
}

// stop ends everything at once: nothing that one program could still send to another is of use. It reports programs that
// had ended by themselves before, since whatever was tested with them was tested without them.
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
			_ = p.reaper.Close() // it fails only if it is closed
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
