package command

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// A user may be allowed to change checks, and little else.
func TestWhatMayNotBeReadIsSaidAndForcedOver(t *testing.T) {
	forbidden := func(what string) error {
		return apierrors.NewForbidden(clusterv1.GroupVersion.WithResource(what).GroupResource(), "", errors.New("not you"))
	}
	d := deskWith(t, append(both(), checkNamed("workers", ""))...)
	d.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		switch list.(type) {
		case *coordinationv1.LeaseList:
			return forbidden("leases")
		case *clusterv1.MachineList:
			return forbidden("machines")
		}
		return c.List(ctx, list, opts...)
	}
	names := selection{names: []string{"workers"}}
	got, code := d.hands(claiming, names, yes)
	if code != Done || d.marks()["workers"] != "kubemend" || !strings.Contains(unwrapped(got), "its Machines could not be read") {
		t.Errorf("one that is where it usually is may be read: code %d, printed\n%s", code, got)
	}
	d.hooks.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		switch o.(type) {
		case *coordinationv1.Lease:
			return forbidden("leases")
		case *clusterv1.Cluster:
			return forbidden("clusters")
		}
		return c.Get(ctx, key, o, opts...)
	}
	got, code = d.hands(releasing, names, yes)
	if code != Refused || d.marks()["workers"] != "kubemend" || !strings.Contains(unwrapped(got), "it cannot be seen whether Cluster API core is there to take it") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
	got, code = d.hands(releasing, names, yes, func(h *handing) { h.force = true })
	if code != Done || len(d.marks()) > 0 || !strings.Contains(unwrapped(got), "its Cluster could not be read") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		s    selection
		says string
	}{
		"one name that is wrong stops all": {selection{names: []string{"workers", "wrokers"}}, "error: there is no MachineHealthCheck wrokers in namespace metal"},
		"a check of another Cluster":       {selection{names: []string{"workers"}, cluster: "test"}, "error: MachineHealthCheck metal/workers is of Cluster prod, not of test"},
		"a Cluster without checks":         {selection{cluster: "test"}, "error: no MachineHealthCheck in namespace metal is selected"},
		"a label that none has":            {selection{labels: labels.SelectorFromSet(labels.Set{"team": "b"})}, "error: no MachineHealthCheck in namespace metal is selected"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deskWith(t, append(both(), checkNamed("workers", ""))...)
			if got, code := d.hands(claiming, tc.s, yes); code != Failed || !strings.Contains(got, tc.says) || len(d.marks()) > 0 {
				t.Errorf("code %d, marks %v, printed\n%s", code, d.marks(), got)
			}
		})
	}
}

func TestCoreIsKnownByItsLease(t *testing.T) {
	given := lease("capi-system", managerlease.CoreLeaseName, nil)
	given.Spec.HolderIdentity = nil
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		now   time.Time
		want  explain.CoreLease
	}{
		"one that was renewed is of a core that runs": {lease("capi-system", managerlease.CoreLeaseName, nil), noon.Add(59 * time.Second), explain.CoreLease{Alive: true}},
		"one where core is not bound is not believed": {lease("elsewhere", managerlease.CoreLeaseName, nil), noon, explain.CoreLease{
			Leases: []managerlease.Off{{Reason: managerlease.Unbound, Manager: managerlease.Manager{Namespace: "elsewhere"}}},
		}},
		"one that ran out is of a core that is gone": {lease("capi-system", managerlease.CoreLeaseName, nil), noon.Add(time.Minute), explain.CoreLease{Gone: noon.Add(time.Minute)}},
		"one that was given back as well":            {given, noon.Add(time.Second), explain.CoreLease{Gone: noon}},
		"without one it is not known":                {lease("capi-system", "another", nil), noon, explain.CoreLease{NoLease: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got := coreSeen(t.Context(), deskWith(t, tc.lease, bound(managerlease.OfCore, "capi-system")).client, tc.now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
