package records

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
				if is := s.Ahead(t.Context(), "Test", about("w1", "1", mendv1.RecordActive), "a"); is != "" {
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
	is := s.Ahead(t.Context(), "Test", about("w1", "1", mendv1.RecordActive), "a")
	if all := s.all(t.Context(), t); len(all) != 1 || all[0].Name != is || testutil.ToFloat64(failed.WithLabelValues("Test")) != before {
		t.Errorf("of %d records it has %q", len(all), is)
	}
}

func TestWithoutRecordsNoneIsMissed(t *testing.T) {
	before := testutil.ToFloat64(failed.WithLabelValues("Test"))
	s := newShelf(t)
	s.absent = true
	for _, r := range []*Records{nil, s.Records} {
		if is := r.Ahead(t.Context(), "Test", about("w1", "1", mendv1.RecordActive), "a"); is != "" {
			t.Errorf("there is a record %q", is)
		}
	}
	if testutil.ToFloat64(failed.WithLabelValues("Test")) != before {
		t.Error("a record is counted that is not to be written")
	}
}
