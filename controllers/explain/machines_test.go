package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// The page of a machine whose node does not appear names the one that is likely its own.
func TestANodeThatIsNotTheMachinesIsNamedAsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		given health.Other
		want  string
	}{
		"another provider ID": {health.Other{Name: "n", Wanted: "p://a"}, `Node n has the provider ID "", and Cluster API looks for "p://a"`},
		"several of it":       {health.Other{Name: "n", ProviderID: "P://a", Wanted: "p://a"}, `Node n is one of several of provider ID "p://a"`},
	} {
		f := health.Finding{Reason: health.NodeStartup, Limit: time.Minute, Other: tc.given}
		found := Findings(health.Verdict{Findings: []health.Finding{f}}, time.Time{}.Add(time.Hour))
		if len(found) != 1 || !strings.Contains(found[0].Message, tc.want) || f.Text() != "Node failed to report startup in 1m0s" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
