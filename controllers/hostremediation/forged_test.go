package hostremediation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// ownStrategy is the default.
var ownStrategy = &mendv1.HostRemediationStrategy{
	Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600,
}

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
	const never = `{"state":"Booting","since":"2999-01-01T00:00:00Z","attempt":1,"began":"2999-01-01T00:00:00Z","uid":"remediation-uid"}`
	k := fixtureOf(t, remembers(never))
	k.obeys()
	k.pass()
	if rec := remediation.Remembered(k.remediation()); rec.Since.After(noon) || rec.Began.After(noon) {
		t.Errorf("since %s, began %s; want nothing after %s", rec.Since, rec.Began, noon)
	}
}

// H-A3: a remediation whose finalizer was taken away by hand has left a taint with its UID.
func TestTheFenceOfARemediationThatIsGoneGoesWithTheNext(t *testing.T) {
	for uid, want := range map[types.UID][]act{"gone": {powersOff, fences, releases, unfences}, "lives": {powersOff, releases}} {
		k := fixtureOf(t)
		k.creates(remembering("predecessor", "lives", ofMachine("m", "machine-uid"), ""))
		k.seen.Mark, k.seen.Fenced = uid, true
		k.seen.Node.Spec.Taints = []corev1.Taint{{
			Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect,
		}}
		k.expects(want...)
		k.reaches(powercycle.Booting)
	}
}
