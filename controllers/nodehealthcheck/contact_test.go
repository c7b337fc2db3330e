package nodehealthcheck

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

const grace = 50 * time.Second

// answers is an API server: the status of its answer, or the error if there is none.
type answers struct {
	status int
	err    error
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Body: http.NoBody}, nil
}

func TestWhenTheAPIServerWasOutOfReach(t *testing.T) {
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		meanwhile answers
		lasts     time.Duration
		want      int
	}{
		"it refuses connections":                 {answers{err: refused}, time.Minute, 1},
		"a proxy before it has no server to ask": {answers{status: http.StatusBadGateway}, time.Minute, 1},
		"for so short that no report is missing": {answers{err: refused}, 9 * time.Second, 0},
		"it only refuses what it is asked":       {answers{status: http.StatusForbidden}, time.Minute, 0},
		"it has too much to do, and says so":     {answers{status: http.StatusTooManyRequests}, time.Minute, 0},
		"it was not waited for":                  {answers{err: context.Canceled}, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(epoch)
			contact, server := &Contact{Clock: clock}, &answers{status: http.StatusOK}
			transport := contact.Around(server)
			ask := func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				if resp, err := transport.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}
			ask()
			*server = tc.meanwhile
			ask()
			clock.SetTime(epoch.Add(tc.lasts))
			ask()
			*server = answers{status: http.StatusOK}
			ask()
			ask()
			past := contact.past()
			if len(past) != tc.want || tc.want > 0 && past[0] != (Outage{From: epoch, To: epoch.Add(tc.lasts)}) {
				t.Errorf("outages %v, want %d", past, tc.want)
			}
		})
	}
}

// cutOff lets the API server be out of reach for a while, in which no reconcile is made.
func (k *fixture) cutOff(d time.Duration) {
	k.t.Helper()
	k.r.Contact.note(false)
	k.after(d)
	k.r.Contact.note(true)
}

// watching is a fixture whose controller knows when the API server was away, and gives kubelets time to report.
func watching(t *testing.T, spec func(*nhcv1.NodeHealthCheckSpec)) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false), check("nhc", spec))...)
	k.r.Contact, k.r.Grace = &Contact{Clock: k.clock}, grace
	k.settle("nhc")
	k.after(grace)
	k.settle("nhc")
	return k
}

func classic(*nhcv1.NodeHealthCheckSpec) {}

func TestNothingBeginsBeforeKubeletsHadTimeToReport(t *testing.T) {
	for name, happens := range map[string]func(*fixture){
		"after a start, or a change of leader": func(k *fixture) { k.after(10 * time.Minute); k.restart() },
		"after an outage of the API server":    func(k *fixture) { k.cutOff(10 * time.Minute) },
		"when the checks are ours again":       func(k *fixture) { k.r.Serve(false); k.after(10 * time.Minute); k.r.Serve(true) },
	} {
		t.Run(name, func(t *testing.T) {
			k := watching(t, classic)
			k.turn("b", corev1.ConditionUnknown)
			k.turn("c", corev1.ConditionUnknown)
			happens(k)
			k.settle("nhc")
			k.wants("no kubelet could report")
			if c := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition); c.Reason != nhcv1.KubeletsAwaitedReason {
				t.Errorf("RemediationAllowed: %+v", c)
			}
			if is := k.look("nhc"); is.Reason != nhcv1.KubeletsAwaitedReason || is.Targets[1].Blockers[0].Until != k.clock.Now().Add(grace) {
				t.Errorf("explained by %q, %+v", is.Reason, is.Targets)
			}
			k.after(10 * time.Second)
			k.turn("c", corev1.ConditionTrue)
			k.settle("nhc")
			k.after(grace - 11*time.Second)
			k.settle("nhc")
			k.wants("kubelets have a second left")
			k.after(time.Second)
			k.settle("nhc")
			k.wants("b has not reported, and c has", "Reboot/b")
		})
	}
}
