package hostremediation

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// strategy and ownStrategy are the defaults.
var (
	strategy    = &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 600}
	ownStrategy = &mendv1.HostRemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600}
)

// remembering is a HostRemediation with that memory.
func remembering(name string, uid types.UID, owners []metav1.OwnerReference, memory string) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: uid, OwnerReferences: owners, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
	}}
	rem.Spec.Strategy = ownStrategy
	if memory != "" {
		rem.Annotations = map[string]string{mendv1.PowerCycleAnnotation: memory}
	}
	return rem
}

// S2: what a remediation remembers is an annotation, and a tenant who may create one may write it.
func TestForgedMemoryActsOnNothingOfOthers(t *testing.T) {
	const about = `"host":"h","node":"victim-node","cluster":"c","fencing":true`
	since := `"since":"` + noon.Format(time.RFC3339) + `",`
	mine := ofMachine("mine", "another-machine")
	for name, row := range map[string]struct {
		evil   *mendv1.HostRemediation
		victim client.Object
	}{
		"the UID of a HostRemediation that lives": {
			remembering("evil", "evil-uid", nil, `{"state":"Ended",`+since+`"uid":"victim-uid",`+about+`}`), remembering("victim", "victim-uid", ofMachine("victim", "machine-uid"), ""),
		},
		"with an owner that it names as well": {
			remembering("evil", "evil-uid", mine, `{"state":"Ended",`+since+`"uid":"victim-uid","machine":"mine",`+about+`}`),
			remembering("victim", "victim-uid", ofMachine("victim", "machine-uid"), ""),
		},
		"the UID of a Metal3Remediation that CAPM3 acts on": {
			remembering("evil", "evil-uid", mine, `{"state":"Ended",`+since+`"uid":"victim-uid","machine":"mine",`+about+`}`),
			&infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "victim", UID: "victim-uid"}},
		},
		"a UID that is unknown, without an owner": {
			remembering("evil", "evil-uid", nil, `{"state":"Ended",`+since+`"uid":"victim-uid",`+about+`}`), remembering("other", "other-uid", nil, ""),
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.evil.Annotations[infrav1.NodeLabelsBackupAnnotation] = `{"node-role.kubernetes.io/control-plane":"","tier":"payments"}`
			row.evil.Annotations[infrav1.NodeAnnotationsBackupAnnotation] = `{"projectcalico.org/IPv4Address":"10.6.6.6/24"}`
			held := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{holdOff + "victim-uid": "x"}}}
			s := sceneOf(t, remediation.Own, held, outOfServiceNode("victim-uid"), row.evil, row.victim)
			hostBefore, nodeBefore := s.host(), s.node()
			s.reconcile("evil", 6, nil)
			if diff := cmp.Diff(hostBefore, s.host()); diff != "" {
				t.Errorf("the host of others (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(nodeBefore, s.node()); diff != "" {
				t.Errorf("the node of others (-before +after):\n%s", diff)
			}
		})
	}
}

func TestNoRemediationGoesFirstByAForgedBeginning(t *testing.T) {
	honest := remembering("honest", "b", ofMachine("victim", "machine-uid"), "")
	honest.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	w := &observed{rem: remediation.Wrap(honest), record: remediation.Record{Memory: powercycle.Memory{State: powercycle.Preparing, Attempt: 1, Began: noon.Add(-time.Hour)}}}
	early := remembering("early", "a", ofMachine("victim", "machine-uid"), `{"state":"Booting","attempt":1,"began":"1970-01-01T00:00:00Z"}`)
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "victim", UID: "machine-uid"}}
	q := powercycle.Queue{Self: w.queued(), SameMachine: queuedOf(remediation.Existing{All: []remediation.OfKind{{Object: early, Kind: remediation.Own}}}, m, honest)}
	if len(q.SameMachine) != 1 || len(q.Ahead(noon)) > 0 {
		t.Errorf("a remediation that was created later has begun earlier: %+v", q)
	}
}

// A clock that never runs out would hold up all that wait for the remediation.
func TestAMomentThatHasNotComeIsNotRemembered(t *testing.T) {
	never := remembering("evil", "evil-uid", ofMachine("victim", "machine-uid"), `{"state":"Booting","since":"2999-01-01T00:00:00Z","attempt":1,"began":"2999-01-01T00:00:00Z","uid":"evil-uid"}`)
	h := &bmov1alpha1.BareMetalHost{}
	s := sceneOf(t, remediation.Own, h, &corev1.Node{}, never)
	s.reconcile("evil", 2, nil)
	rem := &mendv1.HostRemediation{}
	if err := s.here.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "evil"}, rem); err != nil {
		t.Fatal(err)
	}
	var rec remediation.Record
	if err := json.Unmarshal([]byte(rem.Annotations[mendv1.PowerCycleAnnotation]), &rec); err != nil || rec.Since.After(noon) || rec.Began.After(noon) {
		t.Errorf("since %s, began %s (%v); want nothing after %s", rec.Since, rec.Began, err, noon)
	}
}

// H-B8: a node that has registered under the name of another machine's.
func TestTheNodeOfAnotherMachineIsNeverFenced(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"by its provider ID":                func(n *corev1.Node) { n.Spec.ProviderID = "metal3://another" },
		"registered anew since it was seen": func(n *corev1.Node) { n.UID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "n"}}
			node.Spec.ProviderID = "metal3://victim"
			change(node)
			memory := `{"state":"MovingWorkload","since":"` + noon.Format(time.RFC3339) + `","attempt":1,"began":"` + noon.Format(time.RFC3339) +
				`","asked":"` + noon.Format(time.RFC3339) + `","touched":true,"fencing":true,"uid":"r","machine":"victim","host":"h","node":"victim-node","nodeUID":"n"}`
			rem := remembering("r", "r", ofMachine("victim", "machine-uid"), memory)
			rem.Finalizers = []string{mendv1.HostRemediationFinalizer}
			s := sceneOf(t, remediation.Own, &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{holdOff + "r": "x"}}}, node, rem)
			s.reconcile("r", 6, func() {
				if len(s.node().Spec.Taints) > 0 {
					t.Error("it is fenced")
				}
			})
			if _, held := s.host().Annotations[holdOff+"r"]; held {
				t.Error("the host is held off for nothing")
			}
			if got := s.said("NodeMismatch"); !got {
				t.Error("it was not reported")
			}
		})
	}
}
