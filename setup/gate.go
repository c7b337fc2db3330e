package setup

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Add adds a runnable to the manager. A service that the CRD gate starts adds its controllers when it is complete: a controller that is
// already filling its caches has the lock that its other watches need, and would then reconcile before their caches are filled.
// (controller-runtime, Controller.Watch)
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
		start := s.Start
		s.Start = func(ctx context.Context) error {
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
	return p.services.SetupWithManager(p)
}
