package setup

import (
	"context"
	"errors"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// running is a manager that starts what is added to it at once.
type running struct {
	ctrl.Manager
	started int
}

func (r *running) Add(manager.Runnable) error {
	r.started++
	return nil
}

func TestTheControllersOfAServiceStartWhenItIsComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		failed error
		want   int
	}{
		"all of them": {nil, 2}, "none if one cannot be set up": {errors.New("no such kind"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := &running{}
			p := &program{Manager: r}
			start := p.together(func(context.Context) error {
				for range 2 {
					if err := p.Add(manager.RunnableFunc(nil)); err != nil {
						t.Fatal(err)
					}
				}
				if r.started != 0 {
					t.Errorf("%d controllers run while the service starts", r.started)
				}
				return tc.failed
			})
			if err := start(t.Context()); !errors.Is(err, tc.failed) || r.started != tc.want {
				t.Errorf("%d controllers run, want %d: %v", r.started, tc.want, err)
			}
			if err := p.Add(manager.RunnableFunc(nil)); err != nil || r.started != tc.want+1 {
				t.Errorf("what is added later does not start: %v", err)
			}
		})
	}
}
