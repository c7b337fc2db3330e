package leftovers

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/must"
)

// plainCluster is a workload cluster that always answers.
type plainCluster struct{ client client.Client }

func (p plainCluster) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return p.client, nil
}

// lookedAt has the nodes of a cluster that may not answer.
type lookedAt struct {
	fence.Nodes
	silent bool
}

func (l lookedAt) Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error) {
	if l.silent {
		return fence.Seen{}, clustercache.ErrClusterNotConnected
	}
	return l.Nodes.Look(ctx, cluster, node, by)
}

func remembering(name, record string) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	rem.Annotations = map[string]string{mendv1.PowerCycleAnnotation: record}
	return rem
}

// Nodes are unfenced by the same rules by which hosts are released.
func TestAFenceWhoseRemediationIsGoneIsRemovedAfterAGracePeriod(t *testing.T) {
	here := server(t, remembering("exists", `{"state":"MovingWorkload","machine":"victim"}`),
		remembering("forged", `{"state":"MovingWorkload","uid":"gone","machine":"victim"}`)).Build()
	for name, row := range map[string]struct {
		mark  types.UID
		swept bool
		// moves is how long after the grace period the last pod leaves the node; never if it is negative.
		moves time.Duration
		ready corev1.ConditionStatus
		// silent says that the cluster does not answer.
		silent bool
	}{
		"of no remediation":                         {mark: "gone", swept: true},
		"once its workload has moved":               {mark: "gone", swept: true, moves: time.Minute},
		"or when that has not moved for long":       {mark: "gone", swept: true, moves: -1},
		"of a node that is back":                    {mark: "gone", swept: true, moves: -1, ready: corev1.ConditionTrue},
		"or was not seen to for long":               {mark: "gone", swept: true, moves: -1, silent: true},
		"of one that exists":                        {mark: "exists"},
		"without a signature it is another's fence": {},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "victim-node", UID: "n"}}
			n.Spec.Taints = []corev1.Taint{{Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect}}
			if row.mark != "" {
				n.Annotations = map[string]string{fence.FencedByAnnotation: string(row.mark)}
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: row.ready}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{NodeName: n.Name}}
			there := server(t, n, pod).WithIndex(pod, "spec.nodeName",
				func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
			waits := map[bool]time.Duration{true: row.moves, false: stays}[row.moves >= 0]
			if row.ready == corev1.ConditionTrue {
				waits = 0
			}
			node := func() *corev1.Node {
				is := &corev1.Node{}
				must.Do(t, there.Get(t.Context(), client.ObjectKeyFromObject(n), is))
				return is
			}
			connected := true
			clock, recorder := clocktesting.NewFakeClock(noon), events.NewFakeRecorder(10)
			s := &Sweep{
				Remover: Remover{
					Client: here, Live: here, Recorder: recorder,
					Nodes: lookedAt{fence.Nodes{Clusters: plainCluster{there}}, row.silent},
				},
				Installed: installed, Clock: clock, Grace: time.Minute,
				Fenced: func() map[client.ObjectKey][]*corev1.Node {
					if is := node(); connected && is.Annotations[fence.FencedByAnnotation] != "" {
						return map[client.ObjectKey][]*corev1.Node{{Namespace: "ns", Name: "c"}: {is}}
					}
					return nil
				},
			}
			swept := func() bool {
				t.Helper()
				if err := s.sweep(t.Context()); err != nil && !row.silent {
					t.Fatal(err)
				}
				return !fence.SeenOf(node(), fence.Owner{}).Fenced
			}
			if swept() {
				t.Error("at once it is unfenced")
			}
			connected = false // its cache is made anew meanwhile
			swept()
			connected = true
			clock.SetTime(noon.Add(time.Minute + waits - time.Second))
			if swept() {
				t.Error("it is unfenced too early")
			}
			if row.moves >= 0 {
				must.Do(t, there.Delete(t.Context(), pod))
			}
			clock.SetTime(noon.Add(time.Minute + waits))
			must.Is(t, row.swept, swept(), "unfenced:")
			reported := len(recorder.Events) > 0 && strings.Contains(<-recorder.Events, "OrphanedMarkRemoved")
			must.Is(t, row.swept, reported, "reported:")
		})
	}
}
