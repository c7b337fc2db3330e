package hostremediation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// The machine has named node, and has the provider ID metal3://a. Its host was power-cycled.
func TestAPowerCycleKnowsTheNodeOfItsMachineByTheProviderID(t *testing.T) {
	for name, row := range map[string]struct {
		nodes map[string]string // provider IDs by name
		well  bool
	}{
		"in capitals":                          {map[string]string{"node": "METAL3://A"}, true},
		"without one it goes by its name":      {map[string]string{"node": ""}, true},
		"under another name":                   {map[string]string{"renamed": "metal3://a"}, true},
		"not the node of another of that name": {map[string]string{"node": "metal3://b"}, false},
		"nor where there are several":          {map[string]string{"node": "metal3://a", "renamed": "metal3://a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, remembers(`{"state":"Booting","since":"`+noon.Format(time.RFC3339)+
				`","attempt":1,"uid":"remediation-uid","machine":"m","host":"h","node":"node","bootID":"before"}`))
			m := k.machine(t.Context())
			m.Spec.ProviderID = "metal3://a"
			if err := k.client.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			there := answering{}
			for name, id := range row.nodes {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
				node.Status.NodeInfo.BootID = "after"
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				there.nodes = append(there.nodes, node)
			}
			k.r.Clusters = there
			k.pass()
			if state := remediation.Remembered(k.remediation()).State; (state == powercycle.Succeeded) != row.well {
				t.Errorf("it is %s, want it to have succeeded: %t", state, row.well)
			}
		})
	}
}
