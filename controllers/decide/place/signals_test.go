package place

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const shuttingDown = "GracefulNodeShutdownInProgress"

func says(kind string, status corev1.ConditionStatus, ago time.Duration) *corev1.Node {
	cond := corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: status, LastTransitionTime: metav1.NewTime(noon.Add(-ago))}
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{cond}}}
}

func has(key, value string) *corev1.Node {
	return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}}}
}

func deletedAt(ago time.Duration) *corev1.Node {
	return has("ToBeDeletedByClusterAutoscaler", strconv.FormatInt(noon.Add(-ago).Unix(), 10))
}

func TestWhatOthersSayBlocksUntilItIsOver(t *testing.T) {
	all := append([]mendv1.Signal{mendv1.SignalClusterRollout}, WithoutPolicy...)
	rolls := &clusterv1.Cluster{Status: clusterv1.ClusterStatus{Conditions: []metav1.Condition{{Type: "RollingOut", Status: "True"}}}}
	for name, tc := range map[string]struct {
		node    *corev1.Node
		cluster *clusterv1.Cluster
		want    string // reasons, and for how long they block if that is known
	}{
		"nothing":                                   {},
		"a cordon":                                  {node: has(corev1.TaintNodeUnschedulable, "")},
		"a maintenance, also of a day ago":          {says("MaintenanceInProgress", "True", 25*time.Hour), nil, NodeInMaintenance},
		"a drain":                                   {says("DrainInProgress", "True", 0), nil, NodeInMaintenance},
		"the drain taint of medik8s":                {has("medik8s.io/drain", ""), nil, NodeInMaintenance},
		"a maintenance that is over":                {node: says("MaintenanceInProgress", "False", 0)},
		"one that is planned":                       {node: says("MaintenancePlanned", "True", 0)},
		"a shutdown":                                {says(shuttingDown, "True", time.Minute), nil, NodeShuttingDown + " 9m0s"},
		"one of an hour ago":                        {node: says(shuttingDown, "True", time.Hour)},
		"of a clock that is a little ahead":         {says(shuttingDown, "True", -time.Minute), nil, NodeShuttingDown + " 11m0s"},
		"of a clock that is far ahead":              {node: says(shuttingDown, "True", -time.Hour)},
		"a scale-down":                              {deletedAt(10 * time.Minute), nil, ScaleDownPlanned + " 20m0s"},
		"one that the autoscaler has given up":      {node: deletedAt(31 * time.Minute)},
		"one of which nobody knows since when":      {node: has("ToBeDeletedByClusterAutoscaler", "soon")},
		"a rollout":                                 {nil, rolls, ClusterRollingOut},
		"a maintenance while its Cluster rolls out": {has("medik8s.io/drain", ""), rolls, NodeInMaintenance + ", " + ClusterRollingOut},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, b := range Signalled(SignalsOf(tc.node, tc.cluster), all, noon) {
				said := b.Reason
				if !b.Until.IsZero() {
					said += " " + b.Until.Sub(noon).String()
				}
				got = append(got, said)
			}
			must.Equal(t, tc.want, strings.Join(got, ", "))
			must.Is(t, strings.HasPrefix(tc.want, NodeInMaintenance), InMaintenance(tc.node), "in maintenance:")
			if blocked := WithoutLedger(tc.node, noon); len(blocked) > 0 != (tc.node != nil && tc.want != "") {
				t.Errorf("without a policy: %v", blocked)
			}
		})
	}
}
