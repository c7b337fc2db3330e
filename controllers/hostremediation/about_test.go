package hostremediation

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAHostIsKeptOffUnderTheUIDThatTheRemediationHadBeforeItWasMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		before, annotation, want string
	}{
		"moved":                               {"old", holdOff + "old", "old"},
		"moved, and kept off since":           {"old", holdOff + "new", "new"},
		"moved, and another keeps it off":     {"old", holdOff + "another", "new"},
		"never moved, and a UID was left out": {"", holdOff, "new"},
	} {
		w := &observed{rem: aRemediation("new", "")}
		w.record.UID = "new"
		if tc.before != "" {
			w.record.UID = "old"
		}
		w.found.Host = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.annotation: ""}}}
		if got := w.keptOffAs(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
