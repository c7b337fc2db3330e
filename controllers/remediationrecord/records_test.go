package remediationrecord

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// shelf is an API server with records.
type shelf struct {
	*Records
	server client.WithWatch
	clock  *clocktesting.FakePassiveClock
	// breaks is how many writes of the process succeed before it is killed.
	breaks int
	absent bool
}

var errKilled = errors.New("the manager is killed")

func newShelf(t *testing.T, objects ...client.Object) *shelf {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Do(t, mendv1.AddToScheme(scheme))
	s := &shelf{clock: clocktesting.NewFakePassiveClock(noon), breaks: -1}
	s.server = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().Build()
	s.restart()
	return s
}

// restart starts the manager again.
func (s *shelf) restart() {
	write := func() error {
		if s.breaks == 0 {
			return errKilled
		}
		s.breaks--
		return nil
	}
	cached := interceptor.NewClient(s.server, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(); err != nil {
				return err
			}
			o.SetUID(types.UID("of " + o.GetName())) // the fake client does not do this
			return c.Create(ctx, o, append(opts, client.FieldOwner(mendv1.FieldOwner))...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	s.Records = &Records{
		Client: cached, Live: s.server, Clock: s.clock,
		Installed: func(context.Context, string) (bool, error) { return !s.absent, nil },
	}
}

func (s *shelf) all(ctx context.Context, t *testing.T) []mendv1.RemediationRecord {
	t.Helper()
	list := &mendv1.RemediationRecordList{}
	must.Do(t, s.server.List(ctx, list))
	return list.Items
}

// close ends the last record.
func (s *shelf) close(ctx context.Context, t *testing.T) {
	t.Helper()
	all := s.all(ctx, t)
	is := &all[len(all)-1]
	is.Status.Ended, is.Status.Outcome = new(metav1.NewTime(s.clock.Now())), mendv1.RecordCancelled
	delete(is.Labels, mendv1.RecordOpenLabel)
	must.Do(t, s.server.Update(ctx, is))
}

func about(machine, uid string) *mendv1.RemediationRecord {
	return &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal"},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Decided: metav1.NewTime(noon),
			Target: mendv1.RecordTarget{Machine: &mendv1.RecordRef{Kind: "Machine", Name: machine, UID: uid}},
		},
	}
}

// begins begins a remediation, and returns its record.
func (s *shelf) begins(ctx context.Context, record *mendv1.RemediationRecord, since string) *mendv1.RemediationRecord {
	return s.Begin(ctx, "Test", record, since)
}

// Users find the records of a host by its name, such as those of a host that boots slowly.
func TestARecordIsFoundByItsHost(t *testing.T) {
	s, record := newShelf(t), about("w1", "1")
	record.Spec.Target.Host = &mendv1.RecordRef{Kind: hostKind, Name: "host-7"}
	must.Is(t, "host-7", s.begins(t.Context(), record, "a").Labels[mendv1.RecordHostLabel], "the label is")
}

func TestARemediationHasOneRecord(t *testing.T) {
	ctx := t.Context()
	// carried gives record the name and the UID of another one, as a request carries them.
	carried := func(record, of *mendv1.RemediationRecord) *mendv1.RemediationRecord {
		record.Name, record.UID = of.Name, of.UID
		return record
	}
	// madeUp has a user create a record with the name of the next one. Begin must not use it.
	madeUp := func(change func(*mendv1.RemediationRecord)) func(*shelf) {
		return func(s *shelf) {
			made := about("w1", "1")
			made.Name, made.UID, made.Spec.Cause = nameOf("w1", "1", "a", ""), "made-up", "Sabotage"
			metav1.SetMetaDataLabel(&made.ObjectMeta, mendv1.RecordOpenLabel, "true")
			change(made)
			must.Do(t, s.server.Create(ctx, made, client.FieldOwner("kubectl-create")))
			if record := s.begins(ctx, about("w1", "1"), "a"); record == nil || record.UID == made.UID || record.Spec.Cause != "" {
				t.Errorf("the remediation has the record %v", record)
			}
		}
	}
	for name, tc := range map[string]struct {
		run  func(s *shelf)
		want int
	}{
		"one begins": {func(s *shelf) { s.begins(ctx, about("w1", "1"), "a") }, 1},
		"it is tried again": {func(s *shelf) {
			decided := about("w1", "1")
			decided.Spec.Due = new(metav1.NewTime(noon.Add(1234 * time.Millisecond))) // the API server stores whole seconds
			first := s.begins(ctx, decided.DeepCopy(), "a")
			decided.Spec.Decided = metav1.NewTime(noon.Add(time.Second))
			if again := s.begins(ctx, decided, "a"); !again.Spec.Decided.Equal(&first.Spec.Decided) {
				t.Error("its record is written anew")
			}
		}, 1},
		"another process begins it, as the first was killed or does not know that it leads no more": {func(s *shelf) {
			s.begins(ctx, about("w1", "1"), "a")
			s.restart()
			s.begins(ctx, about("w1", "1"), "a")
		}, 1},
		"the manager is killed before the record": {func(s *shelf) {
			s.breaks = 0
			must.Is(t, nil, s.begins(ctx, about("w1", "1"), "a"), "the record is")
			s.breaks = -1
			s.restart()
			s.begins(ctx, about("w1", "1"), "a")
		}, 1},
		"a remediation of the same machine after the first is closed": {func(s *shelf) {
			s.begins(ctx, about("w1", "1"), "a")
			s.close(ctx, t)
			s.begins(ctx, about("w1", "1"), "b")
		}, 2},
		"one that did not begin in time, and does now": {func(s *shelf) {
			s.begins(ctx, about("w1", "1"), "a")
			s.close(ctx, t)
			s.begins(ctx, about("w1", "1"), "a")
			s.begins(ctx, about("w1", "1"), "a")
		}, 2},
		"one of another machine of that name": {func(s *shelf) {
			s.begins(ctx, about("w1", "1"), "a")
			s.begins(ctx, about("w1", "2"), "a")
		}, 2},
		"its target came back with another UID, and a request carries its record": {func(s *shelf) {
			first := s.begins(ctx, about("w1", "1"), "a")
			if second := s.begins(ctx, carried(about("w1", "2"), first), "b"); second.Name != first.Name {
				t.Errorf("it takes %q after %q", second.Name, first.Name)
			}
		}, 1},
		"a request carries another one of its record's name": {func(s *shelf) {
			first := s.begins(ctx, about("w1", "1"), "a")
			s.begins(ctx, carried(about("w1", "2"), &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Name: first.Name, UID: "another"}}), "b")
		}, 2},
		"the record that a request carries is closed": {func(s *shelf) {
			first := s.begins(ctx, about("w1", "1"), "a")
			s.close(ctx, t)
			s.begins(ctx, carried(about("w1", "2"), first), "b")
		}, 2},
		"the record that a request carries is gone": {func(s *shelf) {
			s.begins(ctx, carried(about("w1", "1"), &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Name: "w1-gone"}}), "a")
		}, 1},
		"a user has made up an open one of this machine": {madeUp(func(r *mendv1.RemediationRecord) { r.Name = "made-up" }), 2},
		"a user has made up one that has its name, of another machine": {madeUp(func(r *mendv1.RemediationRecord) {
			r.Spec.Target.Machine.Name = "w2"
		}), 2},
		"a user has made up one that has its name, target and remediator": {madeUp(func(*mendv1.RemediationRecord) {}), 2},
		"also if that says that it was begun": {madeUp(func(r *mendv1.RemediationRecord) {
			r.Status.Begun = new(metav1.NewTime(noon))
		}), 2},
		"and if it says else what the manager would": {madeUp(func(r *mendv1.RemediationRecord) { r.Spec.Cause = "" }), 2},
		"a user has made up one that has its name, and keeps it by a finalizer": {madeUp(func(r *mendv1.RemediationRecord) {
			r.Finalizers = []string{"example.com/kept"}
		}), 2},
		"what was found is another thing when it is tried again": {func(s *shelf) {
			s.begins(ctx, about("w1", "1"), "a")
			again := about("w1", "1")
			again.Spec.Cause = "Ready=False"
			if record := s.begins(ctx, again, "a"); record.Spec.Cause != "Ready=False" {
				t.Errorf("its record says %q", record.Spec.Cause)
			}
		}, 1},
		"its evidence or its host is another one when it is tried again": {func(s *shelf) {
			s.begins(ctx, about("w1", "1"), "a")
			again := about("w1", "1")
			again.Spec.Evidence = []mendv1.RecordEvidence{{Type: "Ready", Status: "False", Since: new(metav1.NewTime(noon))}}
			again.Spec.Target.Host = &mendv1.RecordRef{Kind: hostKind, Name: "host-7"}
			record := s.begins(ctx, again, "a")
			must.Equal(t, again.Spec.Target, record.Spec.Target, "the target")
			must.Is(t, 1, len(record.Spec.Evidence), "findings")
			again.Spec.Evidence[0].Since = new(metav1.NewTime(noon.Add(time.Minute)))
			if record := s.begins(ctx, again, "a"); !record.Spec.Evidence[0].Since.Equal(again.Spec.Evidence[0].Since) {
				t.Errorf("its record says that it is unhealthy since %s", record.Spec.Evidence[0].Since)
			}
		}, 1},
		"what was found is another thing, and it was begun": {func(s *shelf) {
			first := s.begins(ctx, about("w1", "1"), "a")
			s.Began(ctx, first, nil)
			again := about("w1", "1")
			again.Spec.Cause = "Ready=False"
			if record := s.begins(ctx, again, "a"); record.Status.Begun == nil {
				t.Error("its record was lost")
			}
		}, 1},
		"the kind is not installed": {func(s *shelf) {
			s.absent = true
			must.Is(t, nil, s.begins(ctx, about("w1", "1"), "a"), "the record is")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			tc.run(s)
			if got := s.all(ctx, t); len(got) != tc.want {
				t.Errorf("there are %d records, want %d: %v", len(got), tc.want, got)
			}
		})
	}
}

func TestARecordSaysThatItIsStillAboutToBegin(t *testing.T) {
	s := newShelf(t)
	for _, after := range []time.Duration{0, 30 * time.Second, 90 * time.Second} {
		s.clock.SetTime(noon.Add(after))
		if record := s.begins(t.Context(), about("w1", "1"), "a"); record == nil || !strings.HasPrefix(record.Name, "w1-") {
			t.Fatalf("it returns %v", record)
		}
	}
	if got := s.all(t.Context(), t)[0].Status.Attempted.Time; !got.Equal(noon.Add(90 * time.Second)) {
		t.Errorf("it was last attempted at %s", got)
	}
}

// The record says that the remediation has begun, even if the Machine is deleted a moment later.
func TestWhoBeginsARemediationWritesThatItHasBegun(t *testing.T) {
	s := newShelf(t)
	record := s.begins(t.Context(), about("w1", "1"), "a")
	s.clock.SetTime(noon.Add(1234567890 * time.Nanosecond))
	s.Began(t.Context(), record, nil)
	got := &s.all(t.Context(), t)[0]
	if condition(got, mendv1.RecordBegun) != "True "+OwnerRequested || len(got.Status.Steps) != 1 || got.Status.Steps[0].Message == "" {
		t.Fatalf("it says %+v", got.Status)
	}
	step := got.Status.Steps[0].Time.Time
	if !step.Equal(noon.Add(1234*time.Millisecond)) || !got.Status.Begun.Time.Equal(noon.Add(time.Second)) {
		t.Errorf("it was begun at %s, the step at %s", got.Status.Begun, step)
	}
	s.Began(t.Context(), nil, nil) // without a record
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
				must.Is(t, nil, s.begins(t.Context(), about("w1", "1"), "a"), "the record is")
				if took := time.Since(began); took > AheadWithin { //nolint:forbidigo // of the bubble
					t.Errorf("the remediation waits for %s", took)
				}
				must.Is(t, 1, testutil.ToFloat64(failed.WithLabelValues("Test"))-before, "it is counted")
			})
		})
	}
}

func TestARecordWhoseAnswerWasLostIsFound(t *testing.T) {
	s := newShelf(t)
	answers := s.Client.(client.WithWatch)
	s.Client = interceptor.NewClient(answers, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := answers.Create(ctx, o, opts...); err != nil {
				return err
			}
			return errors.New("the connection broke")
		},
	})
	before := testutil.ToFloat64(failed.WithLabelValues("Test"))
	record := s.begins(t.Context(), about("w1", "1"), "a")
	if all := s.all(t.Context(), t); len(all) != 1 || record == nil || testutil.ToFloat64(failed.WithLabelValues("Test")) != before {
		t.Errorf("of %d records it has %v", len(all), record)
	}
}

func TestWhatIsTooLongIsCut(t *testing.T) {
	r := about("w1", "1")
	long := strings.Repeat("ä", 1000)
	r.Spec.Cause = long
	for range 100 {
		r.Spec.Evidence = append(r.Spec.Evidence, mendv1.RecordEvidence{Type: "Ready", Message: long})
	}
	r.Status.Steps = []mendv1.RecordStep{{Message: long}}
	Bound(r)
	must.Is(t, 333, len([]rune(r.Spec.Cause)), "characters of the cause")
	must.Is(t, mendv1.MaxRecordEvidence, len(r.Spec.Evidence), "findings")
	must.Is(t, mendv1.MaxRecordText, len([]rune(r.Status.Steps[0].Message)), "characters of a step")
	r.Status.Steps[0].Message, r.Status.Conditions = long[:2*mendv1.MaxRecordText], []metav1.Condition{{Message: strings.Repeat(long, 4)}}
	Bound(r)
	must.Is(t, long[:2*mendv1.MaxRecordText], r.Status.Steps[0].Message, "what is as long as it may be is cut to")
	must.Is(t, 4*mendv1.MaxRecordText, len([]rune(r.Status.Conditions[0].Message)), "characters of a condition")
}
