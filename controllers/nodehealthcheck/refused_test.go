package nodehealthcheck

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// The webhook of Reboots refuses every node, or is down.
func TestALadderGoesOnWhereAStepCannotBeRequested(t *testing.T) {
	reboots := schema.GroupResource{Group: remediatorGroup, Resource: "reboots"}
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"refused":      {apierrors.NewForbidden(reboots, "", nil), []string{"Replace/b", "Replace/c"}},
		"not answered": {apierrors.NewInternalError(errors.New("no route to host")), []string{"Replace/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false),
				check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
			k.fails = func(verb string, obj client.Object) error {
				if verb == "create" && obj.GetObjectKind().GroupVersionKind().Kind == "Reboot" {
					return tc.err
				}
				return nil
			}
			k.settle("nhc") // its kinds are read
			k.turn("b", corev1.ConditionUnknown)
			k.turn("c", corev1.ConditionUnknown)
			k.after(300 * time.Second)
			for range 10 {
				k.reconcile("nhc")
				k.after(30 * time.Second)
			}
			k.wants("the time of the step is not over")
			k.reconcile("nhc")
			k.wants("it is", tc.want...)
			said := func(event string) bool { return strings.Contains(event, "could not be requested within 5m0s") }
			if events := k.events(); !slices.ContainsFunc(events, said) {
				t.Errorf("nobody says so: %q", events)
			}
		})
	}
}

// Its remediator deletes its request when the power is back, as medik8s' first documentation asks, and the node boots for twelve minutes.
func TestANodeThatBootsIsNotRemediatedOnceMore(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.settle("nhc")
	k.remove(k.objects()[0])
	k.settle("nhc")
	k.minutes(12, "nhc")
	if len(k.made) > 1 {
		t.Errorf("made %v", k.made)
	}
}
