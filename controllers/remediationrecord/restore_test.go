package remediationrecord

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// asks has the owner of w1 asked a second after noon.
func asks(m *management) {
	m.ask(time.Second)
	m.reconcile(2 * time.Second)
}

// asked is a management cluster in which it was.
func asked(t *testing.T) *management {
	t.Helper()
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	asks(m)
	return m
}

// vanish deletes the record, and has the reconciler hear of that.
func (m *management) vanish() {
	m.t.Helper()
	is := m.record()
	m.remove(is)
	m.noteVanished(is)
}

func TestARecordThatIsDeletedWhileItIsOpenComesBackWithWhatItSaid(t *testing.T) {
	m := asked(t)
	was := m.record()
	m.vanish()
	is := m.look(time.Minute, recordKey)
	if is == nil {
		t.Fatal("it does not come back")
	}
	if diff := cmp.Diff(was.Spec, is.Spec); diff != "" || is.Labels[mendv1.RecordOpenLabel] != "true" || len(is.OwnerReferences) != 1 {
		t.Errorf("labels %v, owners %v, spec: %s", is.Labels, is.OwnerReferences, diff)
	}
	if got := reasons(is); !slices.Equal(got[:len(was.Status.Steps)], reasons(was)) || !slices.Contains(got, "RecordRestored") {
		t.Errorf("its steps are %v, were %v", got, reasons(was))
	}
	if !is.Status.Begun.Equal(was.Status.Begun) || is.Status.BegunBy != was.Status.BegunBy || !is.Open() {
		t.Errorf("it says %+v, said %+v", is.Status, was.Status)
	}
	m.remove(unhealthy())
	m.look(2*time.Minute, recordKey)
	m.create(machine("w2", 3*time.Minute))
	m.ready("w2", 9*time.Minute)
	if is = m.look(10*time.Minute, recordKey); is.Status.Outcome != mendv1.RecordReplaced {
		t.Errorf("it ends as %q", is.Status.Outcome)
	}
}

func TestWhichRecordsComeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*management) // instead of asking the owner
		after  func(*management)
		back   bool
	}{
		"one whose owner was asked":               {nil, nil, true},
		"one whose Machine is gone since":         {nil, func(m *management) { m.remove(unhealthy()) }, true},
		"not one that is closed":                  {func(m *management) { asks(m); m.heal(time.Minute); m.reconcile(2 * time.Minute) }, nil, false},
		"not one whose remediation has not begun": {func(*management) {}, nil, false},
		"not one whose remediation is over":       {nil, func(m *management) { m.heal(time.Minute) }, false},
		"not one of a Cluster that is gone":       {nil, func(m *management) { m.remove(theCluster()) }, false},
		"not one of a Cluster of that name that was made anew": {nil, func(m *management) {
			m.remove(theCluster())
			another := theCluster()
			another.UID = "another"
			m.create(another)
		}, false},
		"not one of a Cluster that is paused, as while it is moved": {nil, func(m *management) { m.pause(true) }, false},
		"not one beside another record of the machine": {nil, func(m *management) {
			m.create(recordOf(func(is *mendv1.RemediationRecord) {
				is.Name, is.Labels[mendv1.RecordTargetLabel] = "w1-another", "w1"
			}))
		}, false},
		"not another manager's": {nil, func(m *management) { m.WatchFilterValue = "east" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManagement(t, append(fleet(), unhealthy(), recordOf(func(is *mendv1.RemediationRecord) {
				is.Labels[mendv1.RecordTargetLabel] = "w1"
			}))...)
			if tc.before == nil {
				tc.before = asks
			}
			tc.before(m)
			m.vanish()
			if tc.after != nil {
				tc.after(m)
			}
			if is := m.look(3*time.Minute, recordKey); (is != nil) != tc.back {
				t.Errorf("there is %v", is)
			}
		})
	}
}

func TestARecordComesBackWhenItsClusterIsNotPausedAnyMore(t *testing.T) {
	m := asked(t)
	m.vanish()
	m.pause(true)
	m.look(time.Minute, recordKey)
	m.pause(false)
	if m.look(3*time.Minute, recordKey) == nil {
		t.Error("it does not come back")
	}
}

// A record that is closed leaves the cache, which has open ones alone: it shows what the record said before.
func TestARecordThatIsDeletedAfterItsEndStaysDeleted(t *testing.T) {
	m := asked(t)
	before := m.record()
	m.heal(time.Minute)
	if m.reconcile(2 * time.Minute).Open() {
		t.Fatal("it is open")
	}
	m.noteVanished(before)
	m.remove(m.record())
	m.ask(2 * time.Minute) // it is unhealthy again, and the next remediation has a record of its own
	if m.look(3*time.Minute, recordKey) != nil {
		t.Error("it comes back")
	}
}

func TestARecordThatIsDeletedAgainAndAgainComesBackOnceAMinute(t *testing.T) {
	m := asked(t)
	back := 0
	for i := range 60 { // ten minutes
		if is := m.look(time.Minute+time.Duration(i)*10*time.Second, recordKey); is != nil {
			back++
			if len(is.Status.Steps) > 4 {
				t.Fatalf("its steps are %v", reasons(is))
			}
			m.vanish()
		}
	}
	if back < 9 || back > 11 {
		t.Errorf("it comes back %d times", back)
	}
}

// The manager watches open records by their label and its value, so that one with another value is followed no more than one without.
func TestTheLabelOfAnOpenRecordComesBack(t *testing.T) {
	for name, change := range map[string]func(labels map[string]string){
		"that was taken off":           func(labels map[string]string) { delete(labels, mendv1.RecordOpenLabel) },
		"that was given another value": func(labels map[string]string) { labels[mendv1.RecordOpenLabel] = "false" },
	} {
		t.Run(name, func(t *testing.T) {
			m := asked(t)
			is := m.record()
			m.noteVanished(is.DeepCopy())
			change(is.Labels)
			if err := m.server.Update(t.Context(), is); err != nil {
				t.Fatal(err)
			}
			hidden := m.Client // a cache that has open records alone
			m.Client = refusing[*mendv1.RemediationRecord](m.server, apierrors.NewNotFound(schema.GroupResource{}, recordKey.Name))
			m.look(time.Minute, recordKey)
			m.Client = hidden
			if m.record().Labels[mendv1.RecordOpenLabel] != "true" {
				t.Error("it is not followed any more")
			}
		})
	}
}

// What refuses the record is tried again, unless nothing can be created there any more.
func TestARecordThatCannotComeBackNowIsTriedAgain(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{}, "w1-record", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for name, tc := range map[string]struct {
		err   error
		again bool
	}{
		"a quota":                           {apierrors.NewForbidden(schema.GroupResource{}, "w1-record", errors.New("exceeded quota")), true},
		"an admission webhook":              {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"a namespace that is being deleted": {terminating, false},
		"a kind that is gone":               {apierrors.NewNotFound(schema.GroupResource{}, "w1-record"), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := asked(t)
			m.vanish()
			refuses := true
			m.Client = interceptor.NewClient(m.server, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if refuses {
						return tc.err
					}
					return c.Create(ctx, o, opts...)
				},
			})
			_, err := m.Reconcile(t.Context(), ctrl.Request{NamespacedName: recordKey})
			if (err != nil) != tc.again {
				t.Fatalf("it says %v", err)
			}
			if refuses = false; (m.look(time.Minute, recordKey) != nil) != tc.again {
				t.Error("that it comes back is not", tc.again)
			}
		})
	}
}
