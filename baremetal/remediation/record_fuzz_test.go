package remediation

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// A tenant who may write a remediation can write its record. One that cannot be read names no host and no node, and one that can be read is the same after
// it was written again: else each reconcile would store another one.
func FuzzRecord(f *testing.F) {
	for _, value := range []string{
		"", "{}", "null", "[]", `"Ended"`, "{", `{"state":7}`, `{"state":"Ended","uid":"other","host":"h","node":"n","cluster":"c","fencing":true}`,
		`{"state":"PoweringOff","attempt":1,"asked":"2026-01-01T12:00:00Z","deleted":"2026-01-01T12:00:01.5+23:59"}`,
		`{"attempt":99999999999999999999}`, `{"deleted":"0000-00-00T00:00:00Z"}`, "{\"host\":\"\xff\"}", `{"uid":"a","uid":"b","UID":"c"}`,
	} {
		f.Add(value, "uid")
	}
	f.Fuzz(func(t *testing.T, value, uid string) {
		rem := &mendv1.HostRemediation{}
		rem.UID, rem.Annotations = types.UID(uid), map[string]string{mendv1.PowerCycleAnnotation: value}
		r, err := RecordOf(rem)
		if err != nil {
			if r.State != powercycle.Failed || !strings.Contains(r.Cause.Said, mendv1.PowerCycleAnnotation) ||
				r.UID != "" || r.Host != "" || r.HostUID != "" || r.Node != "" || r.Cluster != "" || r.Machine != "" {
				t.Errorf("RecordOf(%q) = %+v, %v; want a failure that names the annotation and nothing else", value, r, err)
			}
			return
		}
		if who := r.By(rem); who.UID != rem.UID || who.Before == rem.UID && rem.UID != "" {
			t.Errorf("of %q it is known as %+v, want as itself, and not a second time", value, who)
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("what was read of %q cannot be written: %v", value, err)
		}
		rem.Annotations[mendv1.PowerCycleAnnotation] = string(written)
		again, err := RecordOf(rem)
		if err != nil {
			t.Fatalf("%s cannot be read: %v", written, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(twice, written) {
			t.Errorf("written again it is %s, %v; want %s", twice, err, written)
		}
	})
}
