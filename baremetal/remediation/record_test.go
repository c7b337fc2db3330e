package remediation

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// aRemediation returns one that remembers this; nothing if it has not begun.
func aRemediation(uid types.UID, remembers string) Object {
	rem := Own.New()
	rem.SetUID(uid)
	rem.SetName(string(uid))
	if remembers != "" {
		rem.SetAnnotations(map[string]string{mendv1.PowerCycleAnnotation: remembers})
	}
	return rem
}

func TestWhatIsRememberedSurvivesAMove(t *testing.T) {
	rec, err := RecordOf(aRemediation("new", `{"state":"PoweringOff","attempt":2,"uid":"old","host":"h","node":"n"}`))
	if err != nil {
		t.Fatal(err)
	}
	if by := rec.By(aRemediation("new", "")); by.UID != "new" || by.Before != "old" {
		t.Errorf("it is known as %+v, want new, and old before", by)
	}
	if by := rec.By(aRemediation("old", "")); by.Before != "" {
		t.Errorf("one that was not moved was known as %q before", by.Before)
	}
	if rec.State != powercycle.PoweringOff || rec.Attempt != 2 || rec.Host != "h" || rec.Node != "n" {
		t.Errorf("it remembers %+v", rec)
	}
	if _, err := RecordOf(aRemediation("new", `{"state":7}`)); err == nil {
		t.Error("what cannot be read is no error: it would begin anew")
	}
}
