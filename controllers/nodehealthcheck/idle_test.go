package nodehealthcheck

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func single(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
}

func TestANodeWithoutARemediatorAtWorkIsLeftToOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		says func(*fixture)
		held bool
	}{
		"the only remediation has failed":                 {func(k *fixture) { k.answers("Reboot", nhcv1.SucceededCondition, "False") }, false},
		"it has stopped, and its remediator says no more": {func(k *fixture) { k.answers("Reboot", nhcv1.ProcessingCondition, "False") }, false},
		"it is being deleted, and its remediator clings":  {func(k *fixture) { k.atWork(); k.remove(k.objects()[0]) }, false},
		"it goes on": {func(k *fixture) { k.answers("Reboot", nhcv1.ProcessingCondition, "True") }, true},
		"it has succeeded, and the node is waited for": {func(k *fixture) { k.answers("Reboot", nhcv1.SucceededCondition, "True") }, true},
		"its remediator says nothing":                  {func(*fixture) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := single(t)
			k.bad("b")
			k.settle("nhc")
			tc.says(k)
			k.minutes(29, "nhc")
			if len(k.leases()) != 1 {
				t.Fatal("the lease is not held for half an hour")
			}
			for range 10 {
				k.minutes(1, "nhc")
				if held := len(k.leases()) == 1; held != tc.held {
					t.Fatalf("after half an hour: held %v, want %v", held, tc.held)
				}
			}
		})
	}
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

// Kubernetes deletes what a node owns with it.
func TestALeaseThatWentWithItsNodeIsTakenAgainWhileTheRemediationGoesOn(t *testing.T) {
	k := single(t)
	k.bad("b")
	k.settle("nhc")
	k.says(nhcv1.NodeDeletionExpectedCondition, "True", "Deletes", "")
	k.remove(node("b", nil))
	k.remove(&k.heldLeases()[0])
	k.settle("nhc")
	if len(k.leases()) != 1 {
		t.Fatal("the remediation goes on, and the node is not leased when it comes back")
	}
	k.create(node("b", nil))
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	k.wants("it is back")
	if len(k.leases()) != 0 {
		t.Error("the node is healthy, and still leased")
	}
}

func TestALeaseCountsWhoseHoldersClockIsALittleAhead(t *testing.T) {
	for ahead, want := range map[time.Duration][]string{2 * time.Second: nil, skew: nil, skew + time.Second: {"Reboot/b"}} {
		t.Run(ahead.String(), func(t *testing.T) {
			k := single(t)
			k.bad("b")
			renewed := metav1.NewMicroTime(k.clock.Now().Add(ahead))
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("node-maintenance"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &renewed, RenewTime: &renewed,
			}}
			lease.Namespace, lease.Name = nhcv1.DefaultLeaseNamespace, leaseName("b")
			k.create(lease)
			k.reconciles("nhc")
			k.wants("the node is in maintenance", want...)
		})
	}
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
