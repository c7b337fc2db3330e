package command

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// docs/cli/claim.md shows what is printed at 100 columns.
func TestClaimsAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/claim.md"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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
	page := withExample(t, string(content), "claim mhc/workers", claimed)
	golden.Compare(t, path, withExample(t, page, "release mhc/workers", kept))
}
