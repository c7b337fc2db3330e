package nodehealthcheck

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestTeardownRemovesTheRequestsOfAllChecks(t *testing.T) {
	for name, strip := range map[string]func(*unstructured.Unstructured){
		"by their mark": func(*unstructured.Unstructured) {},
		"without mark and owner, by the status": func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(nil)
			obj.SetLabels(nil)
			obj.SetOwnerReferences(nil)
		},
	} {
		for _, lets := range []bool{true, false} {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
			badB(k)
			k.atWork()
			for _, obj := range k.objects() {
				strip(obj)
				k.update(obj)
			}
			k.restart()
			k.r.Teardown = true
			k.settle("nhc")
			if k.objects()[0].GetDeletionTimestamp() == nil || len(k.leases()) != 1 || len(k.made) != 1 {
				t.Errorf("%s: requests %v, leases %v: want the request to end, and the lease to stay until it has", name, k.objects(), k.leases())
			}
			if lets {
				k.over()
			} else {
				k.clock.SetTime(k.objects()[0].GetDeletionTimestamp().Add(remediationrequest.ClingingFor))
			}
			k.search()
			k.settle("nhc")
			if len(k.leases()) > 0 {
				t.Errorf("%s, released %t: leases %v are left", name, lets, k.leases())
			}
			said := k.check("nhc").Status
			disabled := conditionOf(k.check("nhc"), nhcv1.DisabledCondition)
			if said.Phase != nhcv1.PhaseDisabled || disabled == nil || disabled.Reason != nhcv1.TeardownReason || lets != (len(said.UnhealthyNodes) == 0) {
				t.Errorf("%s, released %t: the check says %+v", name, lets, said)
			}
		}
	}
}

func TestTeardownStartsNothing(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.Teardown = true
	badB(k)
	k.wants("none was made")
	if len(k.leases()) > 0 {
		t.Errorf("leases %v", k.leases())
	}
}
