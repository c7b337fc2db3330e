package command

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

var (
	onProd  = selection{label: &labelOwner{clusterKind, client.ObjectKey{Namespace: "metal", Name: "prod"}}}
	onMetal = selection{label: &labelOwner{namespaceKind, client.ObjectKey{Name: "metal"}}}
)

// labelOn is the label that claims checks, of the Cluster and of the Namespace.
func (d *desk) labelOn() (cluster, namespace string) {
	d.t.Helper()
	c, n := &clusterv1.Cluster{}, &corev1.Namespace{}
	if err := d.client.Get(d.t.Context(), onProd.label.key, c); err != nil {
		d.t.Fatal(err)
	}
	if err := d.client.Get(d.t.Context(), onMetal.label.key, n); err != nil {
		d.t.Fatal(err)
	}
	return c.Labels[mendv1.ClaimLabel], n.Labels[mendv1.ClaimLabel]
}

// theLabels is a desk with the Namespace, beside both controllers.
func theLabels(t *testing.T, objects ...client.Object) *desk {
	t.Helper()
	where := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}
	return deskWith(t, append(append(both(), where), objects...)...)
}

// claimed gives the Cluster the label.
func (d *desk) claimed() *desk {
	d.t.Helper()
	if got, code := d.hands(claiming, onProd, yes); code != Done {
		d.t.Fatalf("code %d, printed\n%s", code, got)
	}
	return d
}

func markedCheck(name string) *clusterv1.MachineHealthCheck {
	c := checkNamed(name, mendv1.Claim)
	c.Annotations[mendv1.ClaimedByAnnotation] = "Cluster"
	return c
}

func TestALabelIsWrittenAndItsChecksAreShown(t *testing.T) {
	d := theLabels(t, checkNamed("a", ""), checkNamed("b", "true"), checkNamed("c", "kubemend"), checkNamed("d", "", "other"))
	d.typed = "y\n"
	got, code := d.hands(claiming, onProd)
	want := `claim cluster/prod in metal: the label kubemend.io/machine-health-checks: act has kubemend claim its checks, and each new one
claim mhc/a in metal: kubemend will act on it in place of Cluster API core
cannot claim mhc/b in metal: it is paused: cluster.x-k8s.io/paused is "true". Neither Cluster API core nor kubemend acts on it, because another client set it; that client, or its user, has to remove it first
nothing to do for mhc/c in metal: is claimed already
Proceed? [y/N] cluster/prod in metal labelled
`
	if cluster, namespace := d.labelOn(); unwrapped(got) != want || code != Done || cluster != "act" || namespace != "" {
		t.Errorf("code %d, labels %q and %q, printed\n%s", code, cluster, namespace, got)
	}
	if m := d.marks(); m["a"] != "" {
		t.Errorf("it has claimed checks itself: %v", m)
	}
	got, code = d.hands(claiming, onProd)
	if !strings.HasPrefix(unwrapped(got), "nothing to do for cluster/prod in metal: it has the label kubemend.io/machine-health-checks: act already\n") || code != Done {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
	got, code = d.hands(claiming, onMetal, yes)
	if _, namespace := d.labelOn(); code != Done || namespace != "act" || !strings.Contains(got, "mhc/d in metal") {
		t.Errorf("the Namespace: code %d, label %q, printed\n%s", code, namespace, got)
	}
}

func TestALabelIsRemovedAndClaimsByHandStay(t *testing.T) {
	d := theLabels(t, markedCheck("a"), checkNamed("b", "kubemend")).claimed()
	if _, code := d.hands(releasing, onProd, func(h *handing) { h.dryRun = true }); code != Done {
		t.Errorf("a dry run ends with code %d", code)
	}
	if cluster, _ := d.labelOn(); cluster != "act" {
		t.Errorf("a dry run has left %q", cluster)
	}
	got, code := d.hands(releasing, onProd, yes)
	want := `release cluster/prod in metal: without the label kubemend.io/machine-health-checks: act kubemend releases the checks that it claimed
release mhc/a in metal: Cluster API core will act on it in place of kubemend
nothing to do for mhc/b in metal: it was claimed on the check itself, and not by the label, so it stays claimed
cluster/prod in metal has no label any more
`
	if cluster, _ := d.labelOn(); unwrapped(got) != want || code != Done || cluster != "" {
		t.Errorf("code %d, label %q, printed\n%s", code, cluster, got)
	}
}

func TestALabelWithAnotherValueKeepsWhatTheOtherOneClaimed(t *testing.T) {
	d := theLabels(t, markedCheck("a")).claimed()
	where := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal", Labels: map[string]string{mendv1.ClaimLabel: "yes"}}}
	if err := d.client.Update(t.Context(), where); err != nil {
		t.Fatal(err)
	}
	got, code := d.hands(releasing, onProd, yes)
	if code != Done || !strings.Contains(unwrapped(got), `nothing to do for mhc/a in metal: the label kubemend.io/machine-health-checks of its Cluster or its Namespace has another value than "act", so`) {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}

// A label that would leave a check without a controller is not written, and is not removed.
func TestALabelLeavesNoCheckAlone(t *testing.T) {
	d := theLabels(t, checkNamed("a", ""))
	d.stopped()
	got, code := d.hands(claiming, onProd, yes, func(h *handing) { h.force = true })
	if cluster, _ := d.labelOn(); code != Refused || cluster != "" || !strings.Contains(unwrapped(got), "no manager of kubemend would act on it") {
		t.Errorf("without a manager: code %d, label %q, printed\n%s", code, cluster, got)
	}
	d = theLabels(t, markedCheck("a")).claimed()
	if err := d.client.Delete(t.Context(), lease("capi-system", managerlease.CoreLeaseName, nil)); err != nil {
		t.Fatal(err)
	}
	got, code = d.hands(releasing, onProd, yes)
	if cluster, _ := d.labelOn(); code != Refused || cluster != "act" || !strings.Contains(got, "stays as it is, because of mhc/a") {
		t.Errorf("without core: code %d, label %q, printed\n%s", code, cluster, got)
	}
	got, code = d.hands(releasing, onProd, yes, func(h *handing) { h.force = true })
	if cluster, _ := d.labelOn(); code != Done || cluster != "" {
		t.Errorf("by force, where it is not known: code %d, label %q, printed\n%s", code, cluster, got)
	}
}

func TestALabelNeedsItsObjectAndNoCheck(t *testing.T) {
	d := theLabels(t)
	if got, code := d.hands(claiming, onProd, yes); code != Done {
		t.Errorf("a Cluster without checks: code %d, printed\n%s", code, got)
	}
	missing := selection{label: &labelOwner{clusterKind, client.ObjectKey{Namespace: "metal", Name: "test"}}}
	if got, code := d.hands(claiming, missing, yes); code != Failed || !strings.Contains(got, "there is no cluster/test in metal") {
		t.Errorf("a Cluster that does not exist: code %d, printed\n%s", code, got)
	}
}

// stopped ends the manager, which gives its lease back.
func (d *desk) stopped() {
	d.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := d.client.Get(d.t.Context(), client.ObjectKey{Namespace: "kubemend-system", Name: managerlease.LeaseName}, lease); err != nil {
		d.t.Fatal(err)
	}
	lease.Spec.HolderIdentity = nil
	if err := d.client.Update(d.t.Context(), lease); err != nil {
		d.t.Fatal(err)
	}
}

func TestACheckStaysClaimedUntilAManagerReleasesIt(t *testing.T) {
	d := theLabels(t, markedCheck("a")).claimed()
	d.stopped()
	got, code := d.hands(releasing, onProd, yes)
	want := "release mhc/a in metal: it stays claimed until a manager of kubemend runs that acts on it, of which none is seen; then Cluster API core acts on it\n"
	if cluster, _ := d.labelOn(); code != Done || cluster != "" || !strings.Contains(unwrapped(got), want) {
		t.Errorf("code %d, label %q, printed\n%s", code, cluster, got)
	}
}

// docs/cli/claim.md shows what is printed at 100 columns.
func TestClaimsAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/claim.md"
	content := contentOf(t, path)
	asked := metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse}
	bad := metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse}
	d := deskWith(t, append(both(), checkNamed("workers", ""), machineOf("workers", "w1", asked, bad))...)
	t.Setenv("COLUMNS", "100")
	claimed, _ := d.hands(claiming, selection{names: []string{"workers"}}, yes)
	gone := lease("capi-system", managerlease.CoreLeaseName, nil)
	if err := d.client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	kept, _ := d.hands(releasing, selection{names: []string{"workers"}}, yes)
	page := withExample(t, content, "claim mhc/workers", claimed)
	golden.Compare(t, path, withExample(t, page, "release mhc/workers", kept))
}
