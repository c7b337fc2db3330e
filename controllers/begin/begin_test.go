package begin

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

var errLost = errors.New("EOF")

func conflict() error { return apierrors.NewConflict(schema.GroupResource{}, "a", errLost) }

func TestABeginningWaitsForThoseBeforeItAndNoLongerThanItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, start := &Gate{Clock: clock.RealClock{}}, time.Now()
		hangs := func(ctx context.Context) error {
			<-ctx.Done() // a webhook that does not answer
			return conflict()
		}
		go func() { _ = gate.Begin(t.Context(), "a", []string{"x", "y"}, hangs) }()
		synctest.Wait()
		never := func(context.Context) error { return errors.New("it was begun") }
		if err := gate.Begin(t.Context(), "b", []string{"z"}, func(context.Context) error { return nil }); err != nil || time.Since(start) > 0 {
			t.Errorf("another scope: %v after %s", err, time.Since(start))
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := gate.Begin(soon, "b", []string{"y"}, never); !errors.Is(err, ErrBusy) || time.Since(start) != time.Second {
			t.Errorf("one that gives up: %v after %s", err, time.Since(start))
		}
		err := gate.Begin(t.Context(), "b", []string{"x"}, func(context.Context) error { return nil })
		if err != nil || time.Since(start) != Within {
			t.Errorf("one that waits: %v after %s", err, time.Since(start))
		}
		if len(gate.scopes) > 0 {
			t.Errorf("%d scopes are remembered that nobody uses", len(gate.scopes))
		}
	})
}

func TestWhatMayHaveBegunIsWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		by    string
		after time.Duration
		busy  bool
	}{
		"the answer was lost":               {errLost, "b", Settles - 1, true},
		"and is believed not to come later": {errLost, "b", Settles, false},
		"its own may be repeated":           {errLost, "a", 0, false},
		"the write was refused":             {conflict(), "b", 0, false},
		"the write was made":                {nil, "b", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := &Gate{Clock: clock.RealClock{}}
				if err := gate.Begin(t.Context(), "a", []string{"x", "y"}, func(context.Context) error { return tc.err }); !errors.Is(err, tc.err) {
					t.Error(err)
				}
				time.Sleep(tc.after)
				err := gate.Begin(t.Context(), tc.by, []string{"y", "z"}, func(context.Context) error { return nil })
				if errors.Is(err, ErrBusy) != tc.busy {
					t.Errorf("%v, want busy: %t", err, tc.busy)
				}
			})
		})
	}
}

const (
	members, limit = 5, 2 // of members the first two are of one control plane, and limit may be under way at once
	troubled       = 5 * time.Minute
)

// cluster is an API server with a cache that is behind. A write may be slow, may be lost, or may be carried out after its caller has given
// up.
type cluster struct {
	t              *testing.T
	random         *rand.Rand
	start          time.Time
	stored, cached [members]bool
	began, begun   [members]int // how often each member began, and how often the response arrived
}

func (c *cluster) check() {
	underWay := 0
	for _, is := range c.stored {
		if is {
			underWay++
		}
	}
	if underWay > limit || c.stored[0] && c.stored[1] {
		c.t.Errorf("after %s there are under way: %v", time.Since(c.start), c.stored)
	}
}

// allows is the decision, which is made on the state in the cache and again on the stored state.
func allows(state [members]bool, member int) bool {
	underWay := 0
	for _, is := range state {
		if is {
			underWay++
		}
	}
	return !state[member] && underWay < limit && (member > 1 || !state[1-member])
}

func (c *cluster) write(ctx context.Context, member int) error {
	fate, takes := 9, time.Millisecond
	if time.Since(c.start) < troubled {
		fate, takes = c.random.IntN(10), time.Duration(c.random.Int64N(int64(5*time.Second)))
	}
	version := c.began[member]
	carryOut := func() {
		if c.stored[member] || c.began[member] != version { // the name, or the version, is taken
			return
		}
		c.stored[member] = true
		c.began[member]++
		c.check()
		time.AfterFunc(time.Duration(c.random.Int64N(int64(time.Minute))), func() { c.stored[member] = false })
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		time.AfterFunc(time.Duration(c.random.Int64N(int64(Settles))), carryOut)
		return ctx.Err()
	}
	switch fate {
	case 0:
		return errLost
	case 1:
		time.AfterFunc(time.Duration(c.random.Int64N(int64(Settles))), carryOut)
		return errLost
	case 2:
		return conflict()
	case 3:
		carryOut()
		return errLost
	}
	carryOut()
	return nil
}

// This holds whatever two workers read and write, and whichever responses are lost.
func TestNeverMoreThanALimitBeginsAndNothingIsBlockedForEver(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{t: t, random: rand.New(rand.NewPCG(seed, 1)), start: time.Now()}
			gate, ctx := &Gate{Clock: clock.RealClock{}}, t.Context()
			work := func() {
				for time.Since(c.start) < 8*troubled {
					member := c.random.IntN(members)
					scopes := []string{"limit of the check"}
					if member < 2 {
						scopes = append(scopes, "control plane")
					}
					if allows(c.cached, member) {
						_ = gate.Begin(ctx, string(rune('a'+member)), scopes, func(ctx context.Context) error {
							if !allows(c.stored, member) {
								return nil
							}
							err := c.write(ctx, member)
							if err == nil && time.Since(c.start) > troubled {
								c.begun[member]++
							}
							return err
						})
					}
					time.Sleep(time.Duration(c.random.Int64N(int64(time.Second))) + 1)
				}
			}
			done := make(chan struct{}, 3)
			for range 2 {
				go func() { work(); done <- struct{}{} }()
			}
			go func() {
				for time.Since(c.start) < 8*troubled {
					c.cached = c.stored
					time.Sleep(time.Duration(c.random.Int64N(int64(20 * time.Second))))
				}
				done <- struct{}{}
			}()
			for range cap(done) {
				<-done
			}
			for member, times := range c.begun {
				if times == 0 {
					t.Errorf("seed %d: member %d never begins after the trouble is over", seed, member)
				}
			}
		})
	}
}
