package machinehealthcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestACheckSaysWhichCapacityIsNotBack(t *testing.T) {
	w := aCheck()
	says := func(is Capacity) string {
		w.Capacity = is
		w.Capacity.Reported = ConditionOf(w.Check, mendv1.CapacityBack) != nil
		w.Check = statusAfter(w, decide(w), result{})
		c := ConditionOf(w.Check, mendv1.CapacityBack)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	one := Capacity{Known: true, Missing: 1, Target: "Machine w7", Reason: "NoHost", Message: "No host fits Machine w17"}
	two, brief := one, one
	two.Missing, brief.Message = 2, ""
	for i, step := range []struct {
		capacity Capacity
		want     string
	}{
		{Capacity{}, ""},
		{Capacity{Known: true}, ""},
		{one, "False NoHost: The capacity of Machine w7 is not back: No host fits Machine w17"},
		{Capacity{}, "False NoHost: The capacity of Machine w7 is not back: No host fits Machine w17"}, // after a restart
		{two, "False NoHost: The capacity of 2 remediations is not back, for the longest time that of Machine w7: No host fits Machine w17"},
		{brief, "False NoHost: The capacity of Machine w7 is not back"},
		{Capacity{Known: true}, "True CapacityBack: "},
		{Capacity{}, "True CapacityBack: "},
	} {
		if got := says(step.capacity); got != step.want {
			t.Errorf("step %d: it says %q, want %q", i, got, step.want)
		}
		if c := ConditionOf(w.Check, mendv1.CapacityBack); c != nil && c.Status == metav1.ConditionFalse && c.LastTransitionTime.IsZero() {
			t.Errorf("step %d: it does not say since when", i)
		}
	}
}
