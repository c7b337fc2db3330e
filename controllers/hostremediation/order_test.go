package hostremediation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

func TestAHostThatTheMachineHasLostIsReleased(t *testing.T) {
	k := fixtureOf(t)
	k.expects(powersOff, releases)
	k.pass()
	k.found = &host.Found{Is: powercycle.HostOurs, Host: &host.Host{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", UID: "other-uid"}}}
	status := k.pass()
	const want = "The remediation has failed (The host does not belong to the machine any more " +
		"(the machine's host was BareMetalHost h, and is BareMetalHost other now))"
	if status.Phase != infrav1.PhaseFailed || status.Message != want {
		t.Errorf("phase %q: %q, want %q", status.Phase, status.Message, want)
	}
	if len(k.host.Annotations) != 0 {
		t.Errorf("the former host keeps %v", k.host.Annotations)
	}
}

func TestARecordThatCannotBeReadIsReportedAndTheHostReleased(t *testing.T) {
	k := fixtureOf(t, func(rem *mendv1.HostRemediation) {
		rem.Annotations = map[string]string{mendv1.PowerCycleAnnotation: "{"}
		rem.Finalizers = []string{mendv1.HostRemediationFinalizer}
	})
	k.host.Annotations[holdOff+string(fixtureUID)] = infrav1.PowerOffAnnotationValue
	k.seen.Fenced, k.seen.Ours = true, true
	k.expects(releases, unfences)
	status := k.pass()
	const want = "The remediation has failed (metadata.annotations[kubemend.io/power-cycle]: expected what kubemend wrote there: unexpected end of JSON input)"
	if status.Message != want || status.Phase != infrav1.PhaseFailed {
		t.Errorf("phase %q: %q, want %q", status.Phase, status.Message, want)
	}
	if rem := k.remediation(); len(rem.Finalizers) != 0 {
		t.Errorf("the finalizer stays: %v", rem.Finalizers)
	}
}

// A conflict on the taint means that the node has changed since it was read, and may have come back.
func TestANodeThatHasChangedIsNotFencedOnWhatItWasBefore(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*fence.Seen)
		does   []act
	}{
		"it is Ready under another boot": {func(seen *fence.Seen) {
			seen.Node = boots("after", corev1.ConditionTrue).nodes[0]
		}, nil},
		"its kubelet goes on under the same boot: the power of the host was wrong": {
			func(seen *fence.Seen) { seen.Sign = noon.Add(time.Second) }, []act{disproves, releases},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t)
			k.r.Clusters = boots("before", corev1.ConditionUnknown)
			k.seen.Node, k.seen.Sign = boots("before", corev1.ConditionUnknown).nodes[0], noon.Add(-time.Hour)
			k.expects(append([]act{powersOff}, row.does...)...)
			refused := 0
			k.at[fences] = func() error {
				refused++
				changed := k.seen
				row.change(&changed)
				k.seen = changed
				return apierrors.NewConflict(corev1.Resource("nodes"), "node", errors.New("it was modified"))
			}
			k.pass()
			k.power(false)
			if status := k.pass(); refused != 1 || status.Step == string(powercycle.MovingWorkload) {
				t.Errorf("it was to be fenced %d times, and is in %s: %s", refused, status.Step, status.Message)
			}
		})
	}
}

func TestSomebodyElsesBlockOfAMoveStays(t *testing.T) {
	for name, tc := range map[string]struct {
		before map[string]string
		block  bool
		want   []string
	}{
		"while a host is held, ours is put there": {map[string]string{}, true, []string{"kubemend"}},
		"and taken away after that":               {map[string]string{"clusterctl.cluster.x-k8s.io/block-move": "kubemend"}, false, nil},
		"somebody else's is not overwritten":      {map[string]string{"clusterctl.cluster.x-k8s.io/block-move": "true"}, true, []string{"true"}},
		"and not taken away":                      {map[string]string{"clusterctl.cluster.x-k8s.io/block-move": "true"}, false, []string{"true"}},
	} {
		blockMove(tc.before, tc.block)
		var got []string
		for _, value := range tc.before {
			got = append(got, value)
		}
		must.List(t, tc.want, got, "%s:", name)
	}
}

// W21.
func TestWhatWasBegunUnderAWatchFilterIsEndedUnderIt(t *testing.T) {
	label := func(value string) func(*mendv1.HostRemediation) {
		return func(rem *mendv1.HostRemediation) { rem.Labels = map[string]string{clusterv1.WatchLabel: value} }
	}
	k := fixtureOf(t, label("x"))
	k.r.WatchFilterValue = "x"
	k.expects(powersOff)
	k.pass()
	k.edit(func(rem *mendv1.HostRemediation) { delete(rem.Labels, clusterv1.WatchLabel) })
	k.deletes(k.machine(t.Context()))
	k.r.WatchFilterValue = "y"
	k.pass()
	if len(k.host.Annotations) == 0 {
		t.Error("a manager with another filter released the host")
	}
	k.r.WatchFilterValue = "x"
	k.expects(releases)
	k.pass()
	if rem := k.remediation(); len(k.host.Annotations) != 0 || len(rem.Finalizers) != 0 {
		t.Errorf("the host keeps %v, the remediation %v", k.host.Annotations, rem.Finalizers)
	}

	other := fixtureOf(t, label("y"))
	other.r.WatchFilterValue = "x"
	if status := other.pass(); status.Step != "" || len(other.remediation().Annotations) != 0 {
		t.Errorf("what has another label was begun: %+v", status)
	}
}

func TestARemediationThatLacksWhatItIsForSaysSoAndWaits(t *testing.T) {
	for name, change := range map[string]func(*mendv1.HostRemediation){
		"NoOwner":                       func(rem *mendv1.HostRemediation) { rem.OwnerReferences = nil },
		"NoStrategy":                    func(rem *mendv1.HostRemediation) { rem.Spec.Strategy = nil },
		"NoStrategy/of CAPM3's v1beta1": func(rem *mendv1.HostRemediation) { rem.Spec.Strategy.Type = "reboot" },
	} {
		reason, _, _ := strings.Cut(name, "/")
		t.Run(name, func(t *testing.T) {
			reason := strings.TrimSpace(reason)
			k := fixtureOf(t)
			spec, owners := k.remediation().Spec, k.remediation().OwnerReferences
			k.edit(change)
			says := powercycle.RuleOf(powercycle.Reason(reason)).Message
			if status := k.pass(); status.Message != says || says == "" || len(k.remediation().Annotations) != 0 {
				t.Errorf("it says %q", status.Message)
			}
			if got, want := stands(k.remediation()), [3]string{"False", "False", reason}; got != want {
				t.Errorf("it stands at %v, want %v: who waits for it may try something else", got, want)
			}
			k.expects(powersOff)
			k.edit(func(rem *mendv1.HostRemediation) { rem.OwnerReferences, rem.Spec = owners, spec })
			if status := k.pass(); status.Step != string(powercycle.PoweringOff) || stands(k.remediation())[0] != "True" {
				t.Errorf("in %s, want PoweringOff", status.Step)
			}
		})
	}
}

func TestAHostThatWasSomebodyElsesIsKnownBeforeItIsOurs(t *testing.T) {
	k := fixtureOf(t)
	k.found = &host.Found{Host: host.From(k.host), Is: powercycle.HostForeign}
	k.pass()
	if rec := remediation.Remembered(k.remediation()); rec.Host != "h" {
		t.Errorf("it remembers host %q; no event of h would enqueue it", rec.Host)
	}
}

// W31: a user may change the spec during the power cycle.
func TestWhatIsNotAskedForAnyMoreIsEnded(t *testing.T) {
	k := fixtureOf(t)
	k.expects(powersOff, releases)
	k.pass()
	k.edit(func(rem *mendv1.HostRemediation) { rem.Spec.Strategy.TimeoutSeconds = 1200 })
	if got, want := k.pass().Deadline, noon.Add(20*time.Minute); got == nil || !got.Time.Equal(want) {
		t.Errorf("the attempt ends at %v, want %s", got, want)
	}
	k.edit(func(rem *mendv1.HostRemediation) { rem.Spec.Strategy = nil })
	k.pass()
	if rem := k.remediation(); len(rem.Finalizers) != 0 || len(k.host.Annotations) != 0 {
		t.Errorf("the remediation keeps %v, its host %v", rem.Finalizers, k.host.Annotations)
	}
}

// After a crash right after the action, the next manager must know of it.
func TestWhatIsIntendedIsStoredBeforeItIsDone(t *testing.T) {
	k := fixtureOf(t)
	k.r.Clusters = boots("before", corev1.ConditionUnknown)
	stored := func(what string, is func(powercycle.Memory) bool) func() error {
		return func() error {
			if m := remediation.Remembered(k.remediation()).Memory; !is(m) {
				t.Errorf("%s, and it remembers %+v", what, m)
			}
			return nil
		}
	}
	k.expects(powersOff, fences, releases, unfences)
	k.at[powersOff] = stored("the host is kept powered off", func(m powercycle.Memory) bool {
		return m.Attempt == 1 && m.State == powercycle.PoweringOff && m.Asked.Equal(noon) && !m.WasOff && m.Touched
	})
	k.at[fences] = stored("the node is fenced", func(m powercycle.Memory) bool { return m.State == powercycle.MovingWorkload && m.Fencing })
	k.at[releases] = stored("the host is released", func(m powercycle.Memory) bool { return m.State == powercycle.PoweringOn })
	k.reaches(powercycle.Booting)
}

func TestAPassSendsOneEventForAllThatItDoes(t *testing.T) {
	k := fixtureOf(t)
	k.r.Clusters = boots("before", corev1.ConditionUnknown)
	k.expects(powersOff, fences, releases, unfences)
	recorder := events.NewFakeRecorder(100)
	k.r.Recorder = recorder
	told := func() []string {
		var all []string
		for len(recorder.Events) > 0 {
			all = append(all, <-recorder.Events)
		}
		return all
	}
	off, on := func() { k.power(false) }, func() { k.power(true) }
	for _, step := range []struct {
		before func()
		want   []string
	}{
		{func() {}, []string{"Normal PowerOffRequested Attempt 1 of 2: The host is asked to power off"}}, // on the host
		{off, []string{"Normal Fenced Attempt 1 of 2: The host is off; the node is fenced, so that its workload can start elsewhere"}},
		{func() { k.seen.Drained = true }, []string{"Normal PowerOnRequested Attempt 1 of 2: The workload has moved; the host is asked to power on"}},
		{on, []string{"Normal PoweredOn Attempt 1 of 2: The host is on; the fence is removed from the node"}},
	} {
		step.before()
		k.pass()
		must.Equal(t, step.want, told(), "events")
	}
}

// The order in which the two are seen does not matter.
func TestThatAHostIsOnAndItsNodeUnfencedIsOneEvent(t *testing.T) {
	step := func(do powercycle.Action, next powercycle.State, reason powercycle.Reason) taken {
		return taken{observed{rem: aRemediation("r", "")}, powercycle.Step{Do: do, From: powercycle.PoweringOn, Next: next, Reason: reason}}
	}
	on := step(powercycle.Advance, powercycle.Booting, powercycle.PoweredOnReason)
	unfenced := step(powercycle.Unfence, powercycle.PoweringOn, powercycle.UnfencedReason)
	for _, took := range [][]taken{{on, unfenced}, {unfenced, on}} {
		told := eventsOf(took)
		if len(told) != 1 || told[0].Reason != "PoweredOn" || told[0].Text != "The host is on; the fence is removed from the node" {
			t.Errorf("told are %+v", told)
		}
	}
}

// The node shows life before its host is seen on, and then has another boot ID.
func TestWhatFollowsOnceANodeIsUnfencedIsStoredWithThat(t *testing.T) {
	k := fixtureOf(t)
	k.r.Clusters = boots("before", corev1.ConditionUnknown)
	k.obeyed = true
	k.reaches(powercycle.PoweringOn)
	k.seen.Node.Status.NodeInfo.BootID, k.seen.Fenced, k.seen.Ours = "after", true, true
	k.r.Clusters = boots("after", corev1.ConditionUnknown)
	k.power(true)
	looks, stored := 0, 0
	k.r.Nodes = counting{k.nodes, &looks}
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			stored++
			return c.Patch(ctx, obj, p, opts...)
		},
	})
	k.reconciles()
	if rec := remediation.Remembered(k.remediation()); rec.State != powercycle.Booting || rec.Fencing || looks != 1 || stored != 1 {
		t.Errorf("after %d looks and %d writes it remembers %+v", looks, stored, rec)
	}
}

// counting counts how often nodes are read.
type counting struct {
	Nodes
	looks *int
}

func (c counting) Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error) {
	*c.looks++
	return c.Nodes.Look(ctx, cluster, node, by)
}

// The API server would reject the write, because the object does not exist any more.
func TestTheStatusOfARemediationThatIsGoneIsNotWritten(t *testing.T) {
	k := fixtureOf(t, awaitsBoot, func(rem *mendv1.HostRemediation) { rem.Finalizers = []string{remediation.Own.Finalizer} })
	k.deletes(k.remediation())
	k.r.Clusters = boots("after", corev1.ConditionTrue)
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		SubResource: func(client.WithWatch, string) client.SubResourceClient {
			t.Error("its status is written")
			return nil
		},
	})
	k.reconciles()
	if err := k.client.Get(t.Context(), k.key, &mendv1.HostRemediation{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	if told := len(k.r.Recorder.(*events.FakeRecorder).Events); told > 0 {
		t.Errorf("its check has said that the machine is healthy, and %d events say it as well", told)
	}
}

// Held is not stored, because each power cycle would need one more write.
func TestAHostThatWasReleasedIsNotPoweredOffAgainInThisAttemptUnlessTheManagerRestarts(t *testing.T) {
	for restarts, want := range map[bool]powercycle.State{false: powercycle.PoweringOn, true: powercycle.PoweringOff} {
		k := fixtureOf(t)
		k.obeys()
		k.pass()
		clear(k.host.Annotations) // by another client
		k.power(false)
		if restarts {
			k.r.kept.Clear()
		}
		k.pass()
		if rec := remediation.Remembered(k.remediation()); rec.State != want {
			t.Errorf("after a restart: %t, it is in %s", restarts, rec.State)
		}
	}
}

// If the host refuses a request, each stored record would cause the next reconcile.
func TestWhatARemediationRemembersEnqueuesNothing(t *testing.T) {
	was := remembering("victim", "r", nil, `{"state":"PoweringOff"}`)
	is, told := was.DeepCopy(), was.DeepCopy()
	is.Annotations[mendv1.PowerCycleAnnotation] = `{"state":"MovingWorkload"}`
	told.Annotations[clusterv1.PausedAnnotation] = ""
	if metadataChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("it enqueues itself")
	}
	if !metadataChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: told}) {
		t.Error("a pause enqueues nothing")
	}
	if !metadataChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: remembering("victim", "r", nil, "")}) {
		t.Error("who removes it is not noticed before the next timer")
	}
}

// If two remediations begin at the same moment, each sees the other before it acts.
func TestTheRemediationOfAControlPlaneHostShowsThatItHasBegunBeforeItActs(t *testing.T) {
	p := planeOf(t)
	for pass, held := range []bool{false, true} {
		p.reconciles()
		if rec := remediation.Remembered(p.remediation()); rec.State != powercycle.PoweringOff || rec.Attempt != 1 || p.held() != held {
			t.Errorf("after pass %d it is in %s, attempt %d, and its host is held: %t", pass+1, rec.State, rec.Attempt, p.held())
		}
	}
}
