package machinehealthcheck

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// counts makes the status of the check count machines, of which those of w are all that were read.
func (w *observed) counts(expected, healthy int32) *observed {
	w.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	w.Check.Status.ObservedGeneration = w.Check.Generation
	w.Check.Status.ExpectedMachines, w.Check.Status.CurrentHealthy = ptr.To(expected), ptr.To(healthy)
	w.Counted = Counted(w.Check, w.Cluster)
	return w
}

func TestAMachineIsExplainedWithTheNumbersOfTheStatus(t *testing.T) {
	tooMany := metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Message: "as the manager wrote it",
	}
	for name, tc := range map[string]struct {
		given    *observed
		blockers []string
		text     string
	}{
		"few enough are unhealthy": {aCheck(a("m", health.Unhealthy)).limited("40%").counts(5, 3), nil, ""},
		"too many are, in the manager's words": {
			aCheck(a("m", health.Unhealthy)).limited("40%").counts(5, 2).with(func(w *observed) { w.Check.Status.Conditions = []metav1.Condition{tooMany} }),
			[]string{tooMany.Reason}, tooMany.Message,
		},
		"too many are since a moment ago": {aCheck(a("m", health.Unhealthy)).limited("0").counts(5, 5), []string{tooMany.Reason},
			"Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo " +
				"(total: 5, unhealthy: 1, unhealthyLessThanOrEqualTo: 0). " +
				"1 of 5 targets are not healthy: 1 unhealthy, 0 pending, 0 starting, 0 being deleted, 0 unknown; 0 of 5 allows 0"},
		"the queue is not known": {aCheck(a("m", health.Unhealthy)).limited("100%").counts(5, 3).with(func(w *observed) {
			w.Check.Annotations[mendv1.MaxInFlightAnnotation] = "1"
		}), []string{string(QueueUnread)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := explanationOf(tc.given)
			if got := reasonsOf(is.Targets[0].Blockers); !slices.Equal(got, tc.blockers) || is.Message != tc.text {
				t.Errorf("blocked by %q, %q; want %q, %q", got, is.Message, tc.blockers, tc.text)
			}
			if !is.CountedByStatus || is.Counts.Total() != 5 {
				t.Errorf("counted by the status: %t, %+v", is.CountedByStatus, is.Counts)
			}
		})
	}
}

func TestWhichNumbersOfAStatusCount(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*observed)
		want   bool
	}{
		"those of a check that somebody acts on":  {func(*observed) {}, true},
		"those of one that Cluster API acts on":   {func(w *observed) { w.Check.Annotations = nil }, true},
		"not those of a status that is not there": {func(w *observed) { w.Check.Status = clusterv1.MachineHealthCheckStatus{} }, false},
		"not those of a check as it was before":   {func(w *observed) { w.Check.Generation++ }, false},
		"not those of a check that is paused":     {func(w *observed) { w.Check.Annotations[clusterv1.PausedAnnotation] = "" }, false},
		"not those of a cluster that is paused":   {func(w *observed) { w.Cluster.Spec.Paused = ptr.To(true) }, false},
		"not those of a cluster that goes":        {func(w *observed) { w.Cluster.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck().counts(5, 3)
			tc.change(w)
			if got := Counted(w.Check, w.Cluster); (got != nil) != tc.want {
				t.Errorf("counted: %+v", got)
			}
		})
	}
}

func TestWhenTheStatusChangedIsKnownFromItsWriter(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(ago(d))) }
	numbers, paused := &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:currentHealthy":{}}}`)}, &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{}}}`)}
	w := aCheck().counts(5, 5)
	w.Check.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Time: at(time.Hour), FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}},
		{Manager: "core", Time: at(time.Second), Subresource: "status", FieldsV1: paused},
		{Manager: "kubemend", Time: at(time.Minute), Subresource: "status", FieldsV1: numbers},
	}
	if is := explanationOf(w); !is.StatusChanged.Time.Equal(ago(time.Minute)) {
		t.Errorf("changed at %s", is.StatusChanged)
	}
	w.Check.ManagedFields = nil
	if is := explanationOf(w); !is.StatusChanged.IsZero() || is.Counts != (budget.Population{Healthy: 5}) || is.Mode != explain.Acting {
		t.Errorf("without managed fields: %+v", is)
	}
}

// alone are the facts for a reader that has read one machine of f, and the status of the check after p.
func (f Facts) alone(i int, p *Plan) Facts {
	f.Targets, f.Verdicts = f.Targets[i:i+1], f.Verdicts[i:i+1]
	f.Counted = &StatusCounts{Total: p.Population.Total(), Healthy: p.Population.Healthy}
	f.Check = f.Check.DeepCopy()
	has(f.Check, p.Allowed)
	return f
}

func TestTheNumbersOfTheStatusDecideAsAllMachinesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		f.Limits.InFlight = budget.Unlimited
		all := Decide(f)
		for i := range f.Targets {
			one := Decide(f.alone(i, &all))
			if diff := cmp.Diff(all.Decisions[i], one.Decisions[0], cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("machine %d: -all machines read +one machine read\n%s", i, diff)
			}
			if got, want := one.Population.NotHealthy(), all.Population.NotHealthy(); got != want {
				t.Fatalf("%d are not healthy, want %d", got, want)
			}
		}
	})
}

func TestThePlaceInTheQueueIsNotKnownFromTheStatus(t *testing.T) {
	counted := func(f *Facts) { f.Counted = &StatusCounts{Total: 5, Healthy: 3} }
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"a machine that would wait in the queue": {facts(bad()).with(atOnce(1)).with(counted), true},
		"a machine that is pending":              {facts(is(health.Pending)).with(atOnce(1)).with(counted), true},
		"there is no queue":                      {facts(bad()).with(counted), false},
		"nothing starts anyway":                  {facts(bad()).with(atOnce(0)).with(counted), false},
		"too many are unhealthy anyway":          {facts(bad()).with(atOnce(1)).with(counted).with(func(f *Facts) { f.Limits.AtMost = 1 }), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.given).Decisions[0]
			if got := d.Blocked(QueueUnread); got != tc.want || got && d.Starts() {
				t.Errorf("blocked by %v, starts: %t", d.Blockers, d.Starts())
			}
		})
	}
}
