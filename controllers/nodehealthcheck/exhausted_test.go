package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// A ladder that came to nothing does not begin anew by itself, and not because somebody tidies up. These are the ways to have it tried again.
func TestWhatBeginsALadderAnewThatCameToNothing(t *testing.T) {
	for name, row := range map[string]struct {
		does func(*fixture)
		want []string // the requests that are made after it
	}{
		"nothing does by itself": {func(*fixture) {}, nil},
		"a restart does not":     {(*fixture).restart, nil},
		"a pause that is over does not": {func(k *fixture) {
			c := k.check("nhc")
			c.Spec.PauseRequests = []string{"for the test"}
			k.update(c)
			k.settle("nhc")
			c = k.check("nhc")
			c.Spec.PauseRequests = nil
			k.update(c)
		}, nil},
		"requests that are deleted do not":              {(*fixture).deleteAll, nil},
		"an exclusion that is removed does not":         {func(k *fixture) { k.inAndOut(nhcv1.ExcludeLabel, nhcv1.ExcludeValue) }, nil},
		"a selection that it leaves and joins does not": {func(k *fixture) { k.inAndOut("out", "true") }, nil},
		"a selection that it leaves and joins does when its requests are deleted": {func(k *fixture) {
			k.deleteAll()
			k.inAndOut("out", "true")
		}, []string{"Reboot/w0"}},
		"a status that is emptied does not while the requests are there": {(*fixture).forget, nil},
		"a status that is emptied does when the requests are deleted": {func(k *fixture) {
			k.deleteAll()
			k.settle("nhc")
			k.forget()
		}, []string{"Reboot/w0"}},
		"a status that is emptied before the check has looked does too": {func(k *fixture) {
			k.deleteAll()
			k.forget()
		}, []string{"Reboot/w0"}},
		"a node that is healthy once does, when it is unhealthy again": {func(k *fixture) {
			k.turn("w0", corev1.ConditionTrue)
			k.settle("nhc")
			k.turn("w0", corev1.ConditionFalse)
			k.settle("nhc")
			k.after(5 * time.Minute)
		}, []string{"Reboot/w0"}},
		"a step more is taken": {func(k *fixture) {
			c := k.check("nhc")
			ladder(refTo("Pray", "pray"))(&c.Spec)
			c.Spec.EscalatingRemediations[2].Order = 2
			k.update(c)
		}, []string{"Pray/w0"}},
		"other templates instead of the steps' are": {func(k *fixture) {
			c := k.check("nhc")
			c.Spec.EscalatingRemediations = nil
			ladder(refTo("Pray", "pray"))(&c.Spec)
			k.update(c)
		}, []string{"Pray/w0"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("w0", "w1", "w2"), template("Reboot", "reboot", false), template("Replace", "replace", false), template("Pray", "pray", false),
				check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")), without("out")))...)
			k.turn("w0", corev1.ConditionFalse)
			for range 4 {
				k.after(5 * time.Minute)
				k.settle("nhc")
			}
			if want := []string{"Reboot/w0", "Replace/w0"}; !slices.Equal(k.made, want) {
				t.Fatalf("%q were made, want %q", k.made, want)
			}
			k.made = nil
			row.does(k)
			for range 3 {
				k.settle("nhc")
				if len(k.made) > 0 {
					break
				}
				k.after(time.Minute)
			}
			if !slices.Equal(k.made, row.want) {
				t.Errorf("%q were made, want %q; %+v", k.made, row.want, k.check("nhc").Status.UnhealthyNodes)
			}
		})
	}
}

// without leaves nodes with a label out of the selection.
func without(label string) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchExpressions = append(s.Selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
}

func (k *fixture) deleteAll() {
	k.t.Helper()
	for _, obj := range k.objects() {
		if err := client.IgnoreNotFound(k.client.Delete(k.t.Context(), obj)); err != nil {
			k.t.Fatal(err)
		}
	}
}

// inAndOut gives a node a label, and takes it away again.
func (k *fixture) inAndOut(key, value string) {
	k.t.Helper()
	k.label("w0", map[string]string{key: value})
	k.settle("nhc")
	k.after(time.Minute)
	k.settle("nhc")
	k.label("w0", map[string]string{key: "-"})
}

// forget takes all nodes out of the status, as a person may.
func (k *fixture) forget() {
	k.t.Helper()
	c := k.check("nhc")
	c.Status.UnhealthyNodes = nil
	if err := k.client.Status().Update(k.t.Context(), c); err != nil {
		k.t.Fatal(err)
	}
}
