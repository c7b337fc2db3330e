package hostremediation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// Neither a broken webhook nor a client that rewrites the remediation in a loop may keep a host off. And the host must not be powered off
// again because the release was not stored.
func TestAHostIsReleasedAlsoIfThatCannotBeStored(t *testing.T) {
	down := errors.New("no endpoints available for the webhook")
	for name, tc := range map[string]struct {
		refusal, returned error
		does              []act
	}{
		"by a webhook that is down": {down, down, []act{releasesUnstored, releasesUnstored}},
		"but not by one write of another client": {
			apierrors.NewConflict(mendv1.GroupVersion.WithResource("hostremediations").GroupResource(), "m", nil), nil, []act{releasesUnstored},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t)
			k.reaches(powercycle.MovingWorkload)
			k.seen.Drained = true
			refuses := true
			k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if refuses {
						return tc.refusal
					}
					return c.Patch(ctx, o, patch, opts...)
				},
			})
			k.expects(append([]act{powersOff, fences}, tc.does...)...)
			for range 2 {
				k.clock.SetTime(k.clock.Now().Add(time.Minute))
				if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k.key}); !errors.Is(err, tc.returned) {
					t.Fatalf("Reconcile() = %v", err)
				}
			}
			k.power(true)
			k.r.kept.Clear() // it is restarted
			refuses = false
			k.expects(releases, unfences)
			if status := k.pass(); status.Step != string(powercycle.Booting) {
				t.Errorf("in %s: %s", status.Step, status.Message)
			}
			if got := remediation.Remembered(k.remediation()); got.State != powercycle.Booting || got.Attempt != 1 {
				t.Errorf("it remembers %+v", got)
			}
		})
	}
}

// CAPM3's conversion webhook may be down, its CRDs may be gone, or kubemend may have lost the permission to read them.
func TestAHostIsReleasedAlsoIfItCannotBeReadWhoseItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		state powercycle.State
		end   func(*fixture)
	}{
		"at the deadline":                   {powercycle.MovingWorkload, func(k *fixture) { k.wait(10 * time.Minute) }},
		"at the deadline, if it is not off": {powercycle.PoweringOff, func(k *fixture) { k.wait(10 * time.Minute) }},
		"when its check wants it no more": {powercycle.MovingWorkload, func(k *fixture) {
			k.edit(func(rem *mendv1.HostRemediation) { rem.Annotations[nhcv1.TimedOutAnnotation] = "2026-01-01T12:00:00Z" })
			k.wait(10 * time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t)
			k.obeys()
			k.reaches(tc.state)
			k.unread = errors.New("conversion webhook: connection refused")
			status := k.pass()
			if !strings.Contains(status.Message, "connection refused") {
				t.Errorf("in %s: %s", status.Step, status.Message)
			}
			if tc.end(k); host.KeptOffByOthers(host.From(k.host), host.Remediation{}) != "" {
				t.Errorf("the host stays off, in %s: %s", k.remediation().Status.Step, k.remediation().Status.Message)
			}
			if powercycle.State(k.remediation().Status.Step) == powercycle.RequestingOwner {
				t.Error("the owner is asked for what cannot be read")
			}
		})
	}
}

// No event tells when the last pod has left, because pods and attachments are not watched.
func TestANodeThatIsBeingDrainedIsReadAgainSoon(t *testing.T) {
	k := fixtureOf(t)
	k.obeys()
	for k.reaches(powercycle.MovingWorkload); !k.seen.Fenced; {
		k.reconciles()
	}
	if k.reconciles(); k.reconciles().RequeueAfter != drainRecheck {
		t.Errorf("it looks again in %s", k.reconciles().RequeueAfter)
	}
}

// Only remediations that have stored a host's name get the events of that host.
func TestAHostThatWasNeverSeenIsLookedForAgain(t *testing.T) {
	k := fixtureOf(t)
	k.found = &host.Found{Is: powercycle.HostGone, Why: "Metal3Machine ns/m names no host"}
	k.reconciles()
	if in := k.reconciles().RequeueAfter; in == 0 || in > unreachableRecheck {
		t.Errorf("it looks again in %s", in)
	}
}

func TestTheNodeIsAskedForAsLongAsItMayBeFencedOrHasLivedThen(t *testing.T) {
	for _, tc := range []struct {
		state                powercycle.State
		fencing, lived, held bool
		want                 bool
	}{
		{powercycle.PoweringOn, true, false, false, true},
		{powercycle.PoweringOn, false, true, false, true},
		{powercycle.PoweringOn, true, false, true, false}, // the release of its host does not wait for the workload cluster
		{powercycle.Booting, false, true, false, true},
		{powercycle.Booting, false, false, false, false},
	} {
		w := &observed{rem: remediation.Own.New()}
		w.facts.State, w.facts.HasPowerAnnotations, w.record.Fencing, w.record.Lived = tc.state, tc.held, tc.fencing, tc.lived
		must.Is(t, tc.want, needsNode(w), "%+v:", tc)
	}
}

func TestAPowerCycleDoesNotWaitForTheWorkloadOfANodeThatIsBeingDeleted(t *testing.T) {
	k := fixtureOf(t)
	k.obeys()
	k.reaches(powercycle.MovingWorkload)
	k.edit(func(rem *mendv1.HostRemediation) { rem.Annotations[nhcv1.TimedOutAnnotation] = "2026-01-01T12:00:00Z" }) // its check has timed it out
	k.seen.Deleting = true
	if got := k.pass(); got.Step != string(powercycle.Stopped) {
		t.Errorf("in %s: %s", got.Step, got.Message)
	}
}

// A kubelet that starts renews its lease before it reports its boot ID. So while the host powers on, a sign from a node with an unknown
// boot ID does not mean that the node has lived on.
func TestASignOfLifeCountsWhileTheHostPowersOnOnlyIfTheBootIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		state          powercycle.State
		before, now    string
		counts, booted bool
	}{
		"while the workload moves":   {powercycle.MovingWorkload, "", "2", true, false},
		"without the boot of before": {powercycle.PoweringOn, "", "2", false, false},
		"without one now":            {powercycle.Booting, "1", "", false, false},
		"under the same boot":        {powercycle.PoweringOn, "1", "1", true, false},
		"under another one":          {powercycle.Booting, "1", "2", true, true},
	} {
		w := &observed{}
		w.facts.State, w.record.BootID, w.seen.Sign, w.seen.Node = tc.state, tc.before, noon, &corev1.Node{}
		w.seen.Node.Status.NodeInfo.BootID = tc.now
		if sign, booted := w.signOfLife(); sign.Equal(noon) != tc.counts || booted != tc.booted {
			t.Errorf("%s: %s, booted %t", name, sign, booted)
		}
	}
}

func TestANodeIsNotFencedByAStatusThatWasRestoredMeanwhile(t *testing.T) {
	k := fixtureOf(t)
	for before, want := range map[time.Duration]error{0: nil, time.Second: errChanged} {
		w := &observed{kept: &kept{}, rem: mustWrap(k.remediation()), found: k.finds(), facts: powercycle.Facts{Power: host.PowerOf(k.host)}}
		w.facts.Power.Said = w.facts.Power.Said.Add(before)
		if err := k.r.unchanged(t.Context(), w); !errors.Is(err, want) {
			t.Errorf("by %s: %v, want %v", before, err, want)
		}
	}
}

// goneLive are hosts that the cache has, and the API server no longer.
type goneLive struct{ *fakeHosts }

func (goneLive) Refresh(_ context.Context, found *host.Found) error {
	*found = host.Found{Is: powercycle.HostGone}
	return nil
}

func TestAHostThatIsGoneByNowIsNotMarked(t *testing.T) {
	k := fixtureOf(t)
	k.r.Hosts = goneLive{k.hosts}
	w := &observed{kept: &kept{}, now: noon, rem: mustWrap(k.remediation()), machine: k.machine(t.Context()), found: k.finds()}
	if done, err := k.r.act(t.Context(), w, powercycle.Step{Do: powercycle.MarkHost, Next: powercycle.RequestingOwner}); done || err != nil {
		t.Errorf("it was done: %t, %v", done, err)
	}
}

// The request to the owner is withdrawn before the host's mark: if the manager is killed in between, the owner must not replace a healthy
// machine.
func TestAHostStaysMarkedUntilItsMachineIsNotToBeReplaced(t *testing.T) {
	k := fixtureOf(t)
	k.do(remediation.RequestOwner(t.Context(), k.client, k.machine(t.Context()), noon))
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("etcd has no leader")
		},
	})
	w := &observed{kept: &kept{}, now: noon, rem: mustWrap(k.remediation()), machine: k.machine(t.Context()), found: k.finds()}
	if done, err := k.r.act(t.Context(), w, powercycle.Step{Do: powercycle.Withdraw, Next: powercycle.Succeeded}); done || err == nil {
		t.Errorf("it was done: %t, %v", done, err)
	}
}

func TestThePodsThatWereThereAreRememberedWithTheFence(t *testing.T) {
	k := fixtureOf(t)
	k.seen.Pods = []types.UID{"old"}
	k.expects(powersOff, fences)
	k.reaches(powercycle.MovingWorkload)
	policy := policyOf(nil, 0)
	w := &observed{kept: &kept{}, now: noon.Add(policy.Move), policy: policy, rem: mustWrap(k.remediation()), record: remediation.Remembered(k.remediation())}
	if by := k.r.signs(w); !slices.Equal(by.Found, k.seen.Pods) || !by.Long || !by.Fences {
		t.Errorf("it looks as %+v", by)
	}
}

func TestVolumesThatNoPodNeedsAreNamedOnceTheWorkloadHasMoved(t *testing.T) {
	k := fixtureOf(t)
	k.obeys()
	k.seen.Idle = []string{"VolumeAttachment a", "VolumeAttachment b"}
	k.reaches(powercycle.PoweringOn)
	told := k.r.Recorder.(*events.FakeRecorder).Events
	for len(told) > 0 {
		if strings.Contains(<-told, "no pod needs are still attached (VolumeAttachment a, VolumeAttachment b)") {
			return
		}
	}
	t.Error("no event names them")
}

// Kubernetes removes neither pods nor volume attachments of a node that is unfenced while its host is off.
func TestANodeStaysFencedWhileItsHostIsOffAlsoWhenItsRemediationEnds(t *testing.T) {
	k := fixtureOf(t)
	k.seen.Pods = []types.UID{"old"}
	k.expects(powersOff, fences)
	k.reaches(powercycle.MovingWorkload)
	k.host.Annotations = map[string]string{infrav1.RebootAnnotation + "/another": ""}
	k.pass()
	k.deletes(k.remediation())
	status, record := k.pass(), remediation.Remembered(k.remediation())
	if status.Step != string(powercycle.Ended) || !strings.Contains(status.Message, "waiting for the workload to leave the node") {
		t.Errorf("in %s: %s", status.Step, status.Message)
	}
	if !slices.Equal(record.Pods, k.seen.Pods) || record.FencedAt.IsZero() {
		t.Errorf("it remembers of the fence %+v", record)
	}
	k.seen.Drained = true
	k.expects(unfences)
	k.reconciles()
}

func mustWrap(rem *mendv1.HostRemediation) remediation.Object {
	wrapped := remediation.Own.New()
	rem.DeepCopyInto(wrapped.Unwrapped().(*mendv1.HostRemediation))
	return wrapped
}

// The remediation is reconciled when a condition that its NodeHealthCheck names is over, but not for a heartbeat.
func TestAConditionOfANodeThatChangesIsHeard(t *testing.T) {
	was := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "KernelDeadlock", Status: "True"}}}}
	is, later := was.DeepCopy(), was.DeepCopy()
	is.Status.Conditions[1].Status = corev1.ConditionFalse
	later.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(noon)
	if !nodeChanges().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is}) {
		t.Error("the condition is over, and nothing is enqueued")
	}
	if nodeChanges().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: later}) {
		t.Error("a heartbeat is heard")
	}
}

// Without the node's old boot ID nothing would tell later that the node has booted.
func TestAHostIsNotRebootedBeforeTheBootOfItsNodeIsKnown(t *testing.T) {
	k := fixtureOf(t)
	k.host.Spec.DisablePowerOff = true
	k.r.Clusters = answering{err: clustercache.ErrClusterNotConnected}
	k.pass()
	if len(k.did) > 0 {
		t.Fatal("it is asked to reboot before the boot of its node was seen")
	}
	k.r.Clusters = boots("before", corev1.ConditionTrue)
	k.obeys()
	k.pass()
	record := remediation.Remembered(k.remediation())
	if !slices.Contains(k.did, reboots) || record.BootID != "before" {
		t.Errorf("%q is done, with boot %q remembered; want it asked to reboot, and the boot that the node has", k.did, record.BootID)
	}
	if record.HostUID != k.host.UID || record.HostUID == "" { // else the owner would be asked because of a new host
		t.Errorf("%q is asked to reboot, and %q remembered", k.host.UID, record.HostUID)
	}
}
