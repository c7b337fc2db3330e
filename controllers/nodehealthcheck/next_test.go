package nodehealthcheck

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

func TestWhenACheckIsReconciledAgain(t *testing.T) {
	conflict, broken := apierrors.NewConflict(schema.GroupResource{}, "x", nil), errors.New("broken")
	for name, tc := range map[string]struct {
		resync   time.Duration
		recheck  time.Time
		trouble  []error
		outcomes []outcome
		record   error
		want     time.Duration
	}{
		"a steady check is not":                             {outcomes: []outcome{{}}},
		"one with a resync is, once that is due":            {resync: time.Hour, want: time.Hour},
		"a moment that the plan waits for":                  {recheck: epoch.Add(time.Minute), want: time.Minute},
		"what could not be observed is tried again":         {trouble: []error{broken}, want: enqueue.Backoff(1)},
		"a step that failed is tried again":                 {outcomes: []outcome{{err: broken}}, want: enqueue.Backoff(1)},
		"so is one in which another controller was faster":  {outcomes: []outcome{{again: true}}, want: enqueue.Backoff(1)},
		"so is a status that could not be written":          {record: broken, want: enqueue.Backoff(1)},
		"so is one that another controller has written too": {record: conflict, want: enqueue.Backoff(1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(epoch), Resync: tc.resync}
			w := &observed{check: &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nhc"}}, facts: Facts{Now: epoch}, trouble: tc.trouble}
			done := applied{outcomes: tc.outcomes, err: tc.record}
			if result, err := r.next(t.Context(), w, &Plan{Recheck: tc.recheck}, done); err != nil || result.RequeueAfter != tc.want {
				t.Errorf("after %s, %v; want after %s", result.RequeueAfter, err, tc.want)
			}
		})
	}
}

func TestTriesGetRarerUntilOneSucceeds(t *testing.T) {
	r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(epoch)}
	w := &observed{check: &nhcv1.NodeHealthCheck{}, facts: Facts{Now: epoch}}
	for i, tries := range []int{1, 2, 3, 0, 1} {
		w.trouble = nil
		want := time.Duration(0)
		if tries > 0 {
			w.trouble, want = []error{errors.New("no")}, enqueue.Backoff(tries)
		}
		if result, err := r.next(t.Context(), w, &Plan{}, applied{}); err != nil || result.RequeueAfter != want {
			t.Errorf("reconcile %d: after %s, %v; want after %s", i, result.RequeueAfter, err, want)
		}
	}
}
