package records

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var due = metav1.NewTime(time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC))

func waits(reason, message string, since metav1.Time) func(*mendv1.RemediationRecord) {
	return func(is *mendv1.RemediationRecord) {
		is.Status.Conditions = append(is.Status.Conditions, metav1.Condition{
			Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		})
		is.Status.Waits = []mendv1.RecordWait{{Reason: "DrainBlocked", Seconds: 60}, {Reason: reason, Since: &since}}
	}
}

func TestWhatIsMissingByARecord(t *testing.T) {
	begun := func(is *mendv1.RemediationRecord) { is.Status.Begun = new(metav1.NewTime(due.Add(time.Second))) }
	later := metav1.NewTime(due.Add(time.Hour))
	machine := mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1"}
	check := mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "metal", Name: "workers"}
	for name, tc := range map[string]struct {
		says []func(*mendv1.RemediationRecord)
		want *Missing
	}{
		"nothing before it was begun": {},
		"something that was not read, once it was begun": {
			[]func(*mendv1.RemediationRecord){begun}, &Missing{Target: machine, Check: check, Reason: "Unread", Due: due.Time},
		},
		"what it waits for": {
			[]func(*mendv1.RemediationRecord){begun, waits("NoHost", "No host fits", later)},
			&Missing{Target: machine, Check: check, Reason: "NoHost", Message: "No host fits", Since: later.Time, Due: due.Time},
		},
		"what it waits for since its machine was gone, also if it was not begun": {
			[]func(*mendv1.RemediationRecord){waits("OwnerCreates", "", later)},
			&Missing{Target: machine, Check: check, Reason: "OwnerCreates", Since: later.Time, Due: due.Time},
		},
		"nothing where the owner was scaled down": {says: []func(*mendv1.RemediationRecord){begun, waits("ScaledDown", "", later)}},
		"nothing after its end": {says: []func(*mendv1.RemediationRecord){begun, waits("GivenUp", "", later), func(is *mendv1.RemediationRecord) {
			is.Status.Ended = &later
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			is := &mendv1.RemediationRecord{}
			is.Spec.Target.Machine, is.Spec.Requester.Check, is.Spec.Due = &machine, &check, &due
			for _, say := range tc.says {
				say(is)
			}
			if diff := cmp.Diff(tc.want, MissingBy(is)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatWasDueFirstComesFirst(t *testing.T) {
	at := func(name string, after time.Duration) Missing {
		return Missing{Target: mendv1.RecordRef{Name: name}, Due: due.Add(after)}
	}
	all := []Missing{at("c", 0), at("a", time.Hour), at("b", 0)}
	OldestFirst(all)
	if all[0].Target.Name != "b" || all[1].Target.Name != "c" || all[2].Target.Name != "a" {
		t.Errorf("the order is %v", all)
	}
}
