package nodehealthcheck

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func single(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
}

func TestARequestThatIsRefusedKeepsNoLease(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, "b", errors.New("exceeded quota"))
	k := single(t)
	k.fails = func(verb string, obj client.Object) error {
		if _, request := obj.(*unstructured.Unstructured); request && verb == "create" {
			return refused
		}
		return nil
	}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("the API server refuses it")
	if len(k.leases()) != 0 {
		t.Error("no remediator is at work, and the node is leased")
	}
	if !slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.HasPrefix(e, "Warning RemediationFailed") && strings.Contains(e, "No remediation object could be created for node b") &&
			strings.Contains(e, "exceeded quota")
	}) {
		t.Error("no event says why")
	}
	k.fails = nil
	k.settle("nhc")
	k.wants("it does no more", "Reboot/b")
	if len(k.leases()) != 1 {
		t.Error("the node is remediated, and not leased")
	}
}

func TestNothingIsMadeForRequestsThatCannotBeRead(t *testing.T) {
	k := single(t)
	k.settle("nhc")
	k.deny("Reboot")
	k.bad("b")
	if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}}); !apierrors.IsForbidden(err) {
		t.Errorf("a reconcile that cannot read the requests returns %v", err)
	}
	k.wants("the requests that there are cannot be read")
	k.deny("")
	k.after(time.Minute)
	k.settle("nhc")
	k.wants("they can be read", "Reboot/b")
}

// A node is bad for half a minute, healthy for a while, and bad again in another way.
func TestARecoveryThatNoPassCouldSeeEndsAStreak(t *testing.T) {
	for name, meanwhile := range map[string]func(*fixture){
		"no pass was made for hours": func(k *fixture) { k.after(2 * time.Hour) },
		"passes failed": func(k *fixture) {
			k.after(4 * time.Minute)
			k.r.Installed = func(context.Context, string) (bool, error) { return false, errors.New("no answer") }
			_, _ = k.r.Reconcile(k.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
			k.r.Installed = func(context.Context, string) (bool, error) { return false, nil }
			k.after(30 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := single(t)
			k.turn("b", corev1.ConditionFalse)
			k.settle("nhc")
			k.after(30 * time.Second)
			k.turn("b", corev1.ConditionTrue)
			meanwhile(k)
			k.turn("b", corev1.ConditionUnknown)
			k.after(time.Second)
			k.settle("nhc")
			k.after(40 * time.Second)
			k.settle("nhc")
			k.wants("it is bad for less than a minute")
			k.after(260 * time.Second)
			k.settle("nhc")
			k.wants("now it was bad for long enough", "Reboot/b")
		})
	}
}
