package hostremediation

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/fence"
)

// H-A3: the sweep of hosts has one of nodes beside it.
func TestAFenceWhoseRemediationIsGoneIsTakenOffAfterAGracePeriod(t *testing.T) {
	moved := remembering("moved", "new", ofMachine("victim", "machine-uid"), `{"state":"MovingWorkload","uid":"old","machine":"victim"}`)
	forged := remembering("forged", "evil", nil, `{"state":"MovingWorkload","uid":"gone","machine":"victim"}`)
	theirs := &infrav1.Metal3Remediation{}
	theirs.Namespace, theirs.Name, theirs.UID = "ns", "theirs", "metal3"
	elsewhere := remembering("elsewhere", "elsewhere", nil, "")
	elsewhere.Namespace = "other"
	for name, row := range map[string]struct {
		mark  types.UID
		swept bool
	}{
		"of nobody":                                 {"gone", true},
		"of a remediation of another namespace":     {"elsewhere", true},
		"of one that lives":                         {"new", false},
		"of one that lives, before it was moved":    {"old", false},
		"of one that lives and is CAPM3's":          {"metal3", false},
		"without a signature it is somebody else's": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := sceneOf(t, Own, &bmov1alpha1.BareMetalHost{}, outOfServiceNode(row.mark), moved.DeepCopy(), forged.DeepCopy(), theirs.DeepCopy(), elsewhere.DeepCopy())
			sweeper := &NodeSweeper{
				Installed: s.r.Installed, Client: s.here, Live: s.here, Nodes: fence.NewNodes(plainCluster{s.there}, func(client.ObjectKey, string) {}),
				Recorder: s.events, Clock: s.clock, Grace: time.Minute,
				Fenced: func(client.ObjectKey) []*corev1.Node {
					if n := s.node(); n.Annotations[fence.FencedByAnnotation] != "" {
						return []*corev1.Node{n}
					}
					return nil
				},
			}
			look := func() (time.Duration, bool) {
				t.Helper()
				result, err := sweeper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "c"}})
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter, !fence.OutOfService(s.node())
			}
			if again, swept := look(); swept || row.swept && again != time.Minute {
				t.Errorf("at once it is swept: %t, and looked at again after %s; want the grace period", swept, again)
			}
			s.clock.SetTime(noon.Add(time.Minute))
			if _, swept := look(); swept != row.swept {
				t.Errorf("swept: %t, want %t", swept, row.swept)
			}
			if said := s.said("OrphanedMarkRemoved"); said != row.swept {
				t.Errorf("said so: %t, want %t", said, row.swept)
			}
		})
	}
}
