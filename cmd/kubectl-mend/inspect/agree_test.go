package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// These tests inspect a scene, then have the controller reconcile the very same scene, and compare the explanation with what the reconcile has
// done. They know of both no more than users do: what is printed, and what objects and events say.

// noon is when every scene begins.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

// quiet is a context in which controllers do not log.
func quiet() context.Context { return log.IntoContext(context.Background(), logr.Discard()) }

// reporter is what *testing.T and *rapid.T have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

var (
	_ reporter = &testing.T{}
	_ reporter = &rapid.T{}
)

// told is an event.
type told struct{ kind, name, reason, text string }

// recorder keeps the events of a reconcile.
type recorder struct{ events []told }

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	obj := about.(client.Object)
	r.events = append(r.events, told{about.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), reason, fmt.Sprintf(note, args...)})
}

// of are the texts of the events about an object, for a reason.
func (r *recorder) of(kind, name, reason string) []string {
	var texts []string
	for _, e := range r.events {
		if e.kind == kind && e.name == name && e.reason == reason {
			texts = append(texts, e.text)
		}
	}
	return texts
}

// play is a scene that is inspected and reconciled.
type play struct {
	reporter
	snapshot *snapshot.Snapshot
	clock    *clocktesting.FakePassiveClock
	asker    *Asker
	*recorder
}

// played is a play in w, in which a manager runs that says this of itself.
func played(t reporter, w *snapshot.Snapshot, says managerlease.Announcement) *play {
	t.Helper()
	said, err := json.Marshal(says)
	if err != nil {
		t.Fatalf("%v", err)
	}
	manager := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kubemend-system", Name: managerlease.LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: string(said)},
	}}
	manager.Spec.HolderIdentity, manager.Spec.LeaseDurationSeconds = ptr.To("kubemend-0"), ptr.To[int32](60)
	manager.Spec.RenewTime = &metav1.MicroTime{Time: noon}
	if err := w.Add(manager); err != nil {
		t.Fatalf("%v", err)
	}
	p := &play{reporter: t, snapshot: w, clock: clocktesting.NewFakePassiveClock(noon), recorder: &recorder{}}
	w.Clock = p.clock
	if p.asker, err = New(quiet(), w, noon); err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// at makes it that moment.
func (p *play) at(now time.Time) {
	p.clock.SetTime(now)
	p.asker.Now = now
}

// sameConditions reports whether two lists have the same conditions, but for when those turned that turned at now.
func (p *play) sameConditions(what string, said, stored []metav1.Condition) {
	p.Helper()
	byType := func(a, b metav1.Condition) int { return slices.Compare([]byte(a.Type), []byte(b.Type)) }
	clean := func(all []metav1.Condition) []metav1.Condition {
		all = slices.Clone(all)
		for i := range all {
			all[i].LastTransitionTime = metav1.NewTime(all[i].LastTransitionTime.UTC().Truncate(time.Second))
		}
		slices.SortFunc(all, byType)
		return all
	}
	if diff := cmp.Diff(clean(said), clean(stored)); diff != "" {
		p.Errorf("the conditions of %s (-said +stored):\n%s", what, diff)
	}
}

// sameMoment reports whether two moments are the same, to the millisecond by which a reconcile is put off at least.
func sameMoment(a, b time.Time) bool { return a.Sub(b).Abs() <= time.Millisecond }

// texts are those of the findings that count.
func texts(findings []explain.Finding) []string {
	var all []string
	for _, f := range findings {
		if f.Expired {
			all = append(all, f.Text)
		}
	}
	return all
}

// pick is one of several.
func pick[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

// odds is true once in so many times.
func odds(t *rapid.T, what string, n int) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

// ago is a time ago that lies around the usual timeouts: a second before, at, and after their end.
func ago(t *rapid.T, what string) metav1.Time {
	return at(time.Duration(pick(t, what, 0, 1, 29, 30, 59, 60, 61, 120, 299, 300, 301, 599, 600, 601, 3600)) * time.Second)
}
