package remediationrecord

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A cache may show a record as open after it was closed: the next remediation of the machine is another one.
func TestWhatALateCacheShowsAsOpenIsNoRecordOfTheNextRemediation(t *testing.T) {
	for name, tc := range map[string]struct {
		begun     bool
		meanwhile func(context.Context, *testing.T, *shelf)
		open, all int
	}{
		"one that has begun, and was closed":  {true, func(ctx context.Context, t *testing.T, s *shelf) { s.close(ctx, t) }, 1, 2},
		"one that has begun, and was deleted": {true, isDeleted, 1, 1},
		"one that was to begin, and was closed": {false, func(ctx context.Context, t *testing.T, s *shelf) {
			t.Helper()
			s.close(ctx, t)
			s.clock.SetTime(noon.Add(Unbegun + time.Second))
		}, 1, 2},
		"one that was to begin, and was deleted":     {false, isDeleted, 1, 1},
		"but one that is open is still that of this": {true, func(context.Context, *testing.T, *shelf) {}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, s := t.Context(), newShelf(t)
			if _, err := s.Begin(ctx, about("m", "1"), "noon"); err != nil {
				t.Fatal(err)
			}
			if tc.begun {
				is := &s.all(ctx, t)[0]
				is.Status.Begun = new(metav1.NewTime(noon))
				if err := s.server.Update(ctx, is); err != nil {
					t.Fatal(err)
				}
			}
			seen := s.all(ctx, t)
			tc.meanwhile(ctx, t, s)
			s.Client = interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					list.(*mendv1.RemediationRecordList).Items = seen
					return nil
				},
			})

			named, err := s.Begin(ctx, about("m", "1"), "noon")
			if err != nil {
				t.Fatal(err)
			}
			all, open := s.all(ctx, t), 0
			for i := range all {
				if all[i].Open() {
					open++
					if all[i].Name != named {
						t.Errorf("%s is open, and not %s", all[i].Name, named)
					}
				}
			}
			if open != tc.open || len(all) != tc.all {
				t.Errorf("%d of %d records are open", open, len(all))
			}
		})
	}
}

func isDeleted(ctx context.Context, t *testing.T, s *shelf) {
	t.Helper()
	if err := s.server.Delete(ctx, &s.all(ctx, t)[0]); err != nil {
		t.Fatal(err)
	}
}

func TestARecordThatCannotBeWrittenHoldsUpNothing(t *testing.T) {
	for name, create := range map[string]func(context.Context) error{
		"it is refused": func(context.Context) error { return errors.New("a webhook says no") },
		"no answer comes": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t)
				s.Client = interceptor.NewClient(s.server, interceptor.Funcs{
					Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
						return create(ctx)
					},
				})
				before, began := testutil.ToFloat64(failed.WithLabelValues("Test")), time.Now() //nolint:forbidigo // of the bubble
				if is := s.Ahead(t.Context(), "Test", about("w1", "1"), "a"); is != "" {
					t.Errorf("there is a record %q", is)
				}
				if took := time.Since(began); took > AheadWithin { //nolint:forbidigo // of the bubble
					t.Errorf("the remediation waits for %s", took)
				}
				if counted := testutil.ToFloat64(failed.WithLabelValues("Test")) - before; counted != 1 {
					t.Errorf("it is counted %v times", counted)
				}
			})
		})
	}
}

// The cache does not show yet what was written, and the process does not know either that it was.
func TestARecordWhoseAnswerWasLostIsFound(t *testing.T) {
	s := newShelf(t)
	s.lags = true
	answers := s.Client.(client.WithWatch)
	lost := errors.New("the connection broke")
	s.Client = interceptor.NewClient(answers, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			err := answers.Create(ctx, o, opts...)
			if err == nil {
				return lost
			}
			return err
		},
	})
	before := testutil.ToFloat64(failed.WithLabelValues("Test"))
	is := s.Ahead(t.Context(), "Test", about("w1", "1"), "a")
	if all := s.all(t.Context(), t); len(all) != 1 || all[0].Name != is || testutil.ToFloat64(failed.WithLabelValues("Test")) != before {
		t.Errorf("of %d records it has %q", len(all), is)
	}
}

func TestWithoutRecordsNoneIsMissed(t *testing.T) {
	before := testutil.ToFloat64(failed.WithLabelValues("Test"))
	s := newShelf(t)
	s.absent = true
	for _, r := range []*Records{nil, s.Records} {
		if is := r.Ahead(t.Context(), "Test", about("w1", "1"), "a"); is != "" {
			t.Errorf("there is a record %q", is)
		}
	}
	if testutil.ToFloat64(failed.WithLabelValues("Test")) != before {
		t.Error("a record is counted that is not to be written")
	}
}
