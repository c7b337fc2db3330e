package nodehealthcheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// bad makes a node unhealthy, long enough for the default conditions.
func (k *fixture) bad(node string) {
	k.turn(node, corev1.ConditionUnknown)
	k.after(300 * time.Second)
}

func (k *fixture) wants(what string, want ...string) {
	k.t.Helper()
	if diff := cmp.Diff(want, k.requests(), cmpopts.EquateEmpty()); diff != "" {
		k.t.Fatalf("%s: requests (-want +got):\n%s", what, diff)
	}
}

func (k *fixture) told(reason string) bool {
	return slices.ContainsFunc(k.events(), func(e string) bool { return strings.Contains(e, " "+reason+" ") })
}

func TestRequestsThatMayNotBeReadAreNotTakenForNone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.turn("b", corev1.ConditionTrue)
	k.deny("Reboot")
	k.restart()
	k.settle("nhc")
	k.wants("it is left alone", "Reboot/b")
	is := k.check("nhc")
	if c := meta.FindStatusCondition(is.Status.Conditions, nhcv1.DisabledCondition); c.Reason != nhcv1.TemplateForbiddenReason {
		t.Errorf("Disabled says %+v", c)
	}
	if *is.Status.HealthyNodes != 2 || len(is.Status.UnhealthyNodes) != 1 || len(is.Status.UnhealthyNodes[0].Remediations) != 1 {
		t.Errorf("the request that cannot be read is forgotten: %+v", is.Status)
	}
	if len(k.leases()) != 1 {
		t.Error("its lease is given back")
	}
	k.denied = ""
	k.after(readRetry)
	k.settle("nhc")
	k.wants("it can be read again")
}

func TestWhatGoesOnIsReportedAgainWhenItsEventIsGone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
	badB(k)
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Fatal("no event says that it is skipped")
	}
	k.after(59 * time.Minute)
	k.settle("nhc")
	if k.told(nhcv1.EventRemediationSkipped) {
		t.Error("it is reported while the event is there")
	}
	k.after(time.Minute)
	k.settle("nhc")
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Error("after an hour nothing says why it is left alone")
	}
}

func named(lease *coordinationv1.Lease, name string) *coordinationv1.Lease {
	lease.Namespace, lease.Name = nhcv1.DefaultLeaseNamespace, name
	return lease
}

func TestARequestWithoutItsLabelsIsOneOfTheControlPlaneAllTheSame(t *testing.T) {
	objects := []client.Object{template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.MaxUnhealthy = ptr.To(intstr.FromInt32(5)) })}
	for _, name := range []string{"m0", "m1", "m2", "m3", "m4"} {
		objects = append(objects, member(name))
	}
	k := newFixture(t, objects...)
	k.bad("m0")
	k.settle("nhc")
	obj := k.objects()[0]
	obj.SetLabels(nil)
	k.update(obj)
	k.bad("m1")
	k.settle("nhc")
	k.wants("another one waits", "Reboot/m0")
}
