// Package faults makes one chosen write of a program fail, or lets the program crash after it. The API server is that of package inmemory,
// so a campaign can try every write of a remediation within milliseconds. test/api tests what needs a real API server, such as schemas and
// watches.
package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Fate is what happens to the chosen write.
type Fate string

// The fates of a write.
const (
	// Refused: the API server answers with an internal error and changes nothing.
	Refused Fate = "refused"
	// Lost: the write is carried out, but the answer does not arrive.
	Lost Fate = "carried out, answer lost"
	// Crash: the write is carried out, and then the program crashes. Every later call fails with ErrCrashed until Restart.
	Crash Fate = "the last one before a crash"
)

// Fates are all fates.
var Fates = []Fate{Refused, Lost, Crash}

// ErrCrashed is the answer to all calls of a crashed program.
var ErrCrashed = errors.New("the program has crashed")

var errLost = errors.New("the connection broke before the answer came")

// Write is a write that was carried out.
type Write struct {
	Verb        string // create, update, patch or delete
	Kind        string
	Name        string
	Subresource string // empty for the object itself
}

// String returns the write, for example "patch Machine/m status".
func (w Write) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s/%s %s", w.Verb, w.Kind, w.Name, w.Subresource), " ")
}

// Writes controls the writes of one program. The zero value lets all of them pass. It is safe for concurrent use.
type Writes struct {
	// Before is called before every write, with the number of writes that were tried before it. It must not use the Writes.
	Before func(n int)
	// Then is called after every write that was carried out, with their number since Choose. It must not use the Writes.
	Then func(n int)

	mu      sync.Mutex
	nth     int
	only    Write // only writes like this one count; the zero value counts all
	fate    Fate
	tried   int
	struck  bool
	crashed bool
	done    []Write
}

// Choose starts to count again, and sets the fate of the nth write, counted from 1; 0 chooses none.
func (w *Writes) Choose(nth int, fate Fate) { w.ChooseOf(Write{}, nth, fate) }

// ChooseOf is Choose that counts only writes equal to only. So a test can choose any of several concurrent writes, which have no fixed
// order.
func (w *Writes) ChooseOf(only Write, nth int, fate Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nth, w.only, w.fate, w.tried, w.struck, w.crashed, w.done = nth, only, fate, 0, false, false, nil
}

// Done returns the writes that were carried out since Choose, and whether the chosen one was tried.
func (w *Writes) Done() (done []Write, struck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Write(nil), w.done...), w.struck
}

// Crashed reports whether the program has crashed and was not restarted.
func (w *Writes) Crashed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crashed
}

// Restart lets a new instance of the program continue after a crash.
func (w *Writes) Restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crashed = false
}

// Client returns the program's client for the API server of c. The test and the simulators use c itself.
func (w *Writes) Client(c client.WithWatch) client.WithWatch {
	scheme := c.Scheme()
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return w.read(func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return w.read(func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return w.write(scheme, "create", obj, "", func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return w.write(scheme, "delete", obj, "", func() error { return c.Delete(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return w.write(scheme, "update", obj, "", func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return w.write(scheme, "patch", obj, "", func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object,
			opts ...client.SubResourceUpdateOption) error {
			return w.write(scheme, "update", obj, sub, func() error { return c.SubResource(sub).Update(ctx, obj, opts...) })
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return w.write(scheme, "patch", obj, sub, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
	})
}

func (w *Writes) read(ask func() error) error {
	if w.Crashed() {
		return ErrCrashed
	}
	return ask()
}

// write carries out one write with its fate. A lock allows only one write at a time, so that no write follows a crash.
func (w *Writes) write(scheme *runtime.Scheme, verb string, obj client.Object, sub string, carryOut func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashed {
		return ErrCrashed
	}
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return err
	}
	is := Write{Verb: verb, Kind: gvk.Kind, Name: obj.GetName(), Subresource: sub}
	if w.Before != nil {
		w.Before(w.tried)
	}
	counted := w.only == Write{} || w.only == is
	if counted {
		w.tried++
	}
	chosen := counted && w.tried == w.nth && !w.struck
	if chosen && w.fate == Refused {
		w.struck = true
		return apierrors.NewInternalError(errors.New("the test lets this fail"))
	}
	if err := carryOut(); err != nil {
		if chosen { // a write that the API server refused, for example because of a conflict, does not count
			w.tried--
		}
		return err
	}
	is.Name = obj.GetName() // the API server may have generated it
	w.done = append(w.done, is)
	if w.Then != nil {
		w.Then(len(w.done))
	}
	if !chosen {
		return nil
	}
	return w.strike()
}

// strike returns the program's answer to the chosen write, which was carried out.
func (w *Writes) strike() error {
	w.struck = true
	if w.fate == Crash {
		w.crashed = true
		return ErrCrashed
	}
	return errLost
}
