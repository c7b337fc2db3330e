package page

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/must"
)

// What keeps a host off, and that it is out of service, replace no answer and no step that matters more.
func TestAHostThatIsKeptOffOrOutOfService(t *testing.T) {
	byHand, marked := "reboot.metal3.io/by-hand", infrav1.UnhealthyAnnotation
	about, not := string(explain.AboutToBePoweredOff), string(explain.NotRemediated)
	for name, tc := range map[string]struct {
		silent  time.Duration
		offline bool
		marks   []string
		want    [4]string // the phase, the action, and the reasons of the next step and of what to do
	}{
		"off as its spec asks":            {0, true, []string{byHand}, [4]string{"Healthy", "", "NothingExpected", ""}},
		"about to be off, out of service": {0, false, []string{byHand, marked}, [4]string{"Healthy", about, "HostKeptOff", "HostKeptOff"}},
		"about to be off, machine is due": {6 * time.Minute, false, []string{byHand}, [4]string{"Blocked", not, "HostKeptOff", "HostKeptOff"}},
		"out of service, machine pending": {time.Minute, false, []string{marked}, [4]string{"Pending", "", "TimeoutExpires", "OutOfService"}},
		"out of service":                  {0, false, []string{marked}, [4]string{"Blocked", "", "OutOfService", ""}},
	} {
		s := aScene(powerCycled("", func(h *bmov1alpha1.BareMetalHost, _ *mendv1.HostRemediation) {
			h.Spec.Online, h.Annotations = !tc.offline, map[string]string{}
			for _, mark := range tc.marks {
				h.Annotations[mark] = ""
			}
		}))
		if tc.silent > 0 {
			silent(tc.silent, "w1")(s)
		}
		e, err := host("rack-w1")(t.Context(), s.asker(t))
		must.Do(t, err)
		got := [4]string{string(e.Phase), string(e.Answer.Action), e.Next.Reason, e.Todo.Reason}
		if got != tc.want {
			t.Errorf("%s: got %q\nwant %q", name, got, tc.want)
		}
	}
}
