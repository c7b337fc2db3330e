package setup

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Add adds a runnable to the manager. While a service starts, its runnables are kept until it is complete. (together)
func (p *program) Add(r manager.Runnable) error {
	if p.starting == nil {
		return p.Manager.Add(r)
	}
	*p.starting = append(*p.starting, r)
	return nil
}

// addGate adds the controller that starts the services one after the other.
func (p *program) addGate() error {
	for _, s := range p.services.Services {
		s.Start = p.together(s.Start)
	}
	return p.services.SetupWithManager(p)
}

// together returns start, after which all controllers of a service run at once. A controller that runs before all its watches were added
// may reconcile before their caches are filled, and its other watches wait for a lock that it holds while it fills the first caches.
// (controller-runtime, Controller.Watch)
func (p *program) together(start func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		var added []manager.Runnable
		p.starting = &added
		err := start(ctx)
		p.starting = nil
		for i := 0; err == nil && i < len(added); i++ {
			err = p.Manager.Add(added[i])
		}
		return err
	}
}
