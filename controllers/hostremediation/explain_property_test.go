package hostremediation

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// draws are what observed states are made of.
type draws struct{ *rapid.T }

func (d draws) rarely(what string) bool { return rapid.IntRange(0, 5).Draw(d.T, what) == 1 }

// seldom is for what ends a remediation: it would else hide all that comes before an end.
func (d draws) seldom(what string) bool { return rapid.IntRange(0, 15).Draw(d.T, what) == 1 }

func (d draws) half(what string) bool { return rapid.Bool().Draw(d.T, what) }

func (d draws) moment(what string) time.Time {
	if back := rapid.IntRange(-1, 150).Draw(d.T, what); back >= 0 {
		return noon.Add(-time.Duration(back) * 15 * time.Second)
	}
	return time.Time{}
}

// record is what a remediation may remember, possible or not.
func (d draws) record() remediation.Record {
	rec := remediation.Record{UID: fixtureUID, Host: "h", Node: "node", Cluster: "c"}
	rec.State = rapid.SampledFrom([]powercycle.State{
		powercycle.Pending, powercycle.Preparing, powercycle.PoweringOff, powercycle.MovingWorkload, powercycle.PoweringOn, powercycle.Rebooting,
		powercycle.Booting, powercycle.RequestingOwner, powercycle.Succeeded, powercycle.OwnerRequested, powercycle.Failed, powercycle.Ended, powercycle.Stopped, "Sideways",
	}).Draw(d.T, "state")
	rec.Attempt = rapid.IntRange(0, 2).Draw(d.T, "attempt")
	rec.Since, rec.Began, rec.Asked, rec.Unseen = d.moment("since"), d.moment("began"), d.moment("asked"), d.moment("unseen")
	rec.WasOff, rec.Touched, rec.StartedUnhealthy, rec.Fencing = d.rarely("was off"), d.half("touched"), d.half("started bad"), d.half("fencing")
	if d.rarely("paused before") {
		rec.Paused = noon.Add(-time.Minute)
	}
	if d.rarely("moved by clusterctl") {
		rec.UID = "before"
	}
	if rec.State.Final() {
		rec.Cause = powercycle.Cause{Reason: powercycle.HostSwitchedOffReason, Do: powercycle.Advance, From: powercycle.Booting, Next: rec.State}
	}
	return rec
}

// remediation edits one into a state that it may be found in.
func (d draws) remediation(t *testing.T) func(*mendv1.HostRemediation) {
	return func(rem *mendv1.HostRemediation) {
		rem.Annotations = map[string]string{}
		if d.half("begun") {
			content, err := json.Marshal(d.record())
			if err != nil {
				t.Fatal(err)
			}
			rem.Annotations[mendv1.PowerCycleAnnotation] = string(content)
			rem.Finalizers = []string{mendv1.HostRemediationFinalizer}
		}
		if d.seldom("unreadable") {
			rem.Annotations[mendv1.PowerCycleAnnotation] = "{"
		}
		if d.rarely("paused") {
			rem.Annotations[clusterv1.PausedAnnotation] = ""
		}
		if d.seldom("timed out by its check") {
			toldToStop(rem)
		}
		if d.seldom("being deleted") {
			rem.DeletionTimestamp, rem.Finalizers = &metav1.Time{Time: noon}, []string{mendv1.HostRemediationFinalizer, "example.org/other"}
		}
		if d.seldom("ownerless") {
			rem.OwnerReferences = nil
		}
		if d.seldom("without a strategy") {
			rem.Spec.Strategy = nil
		}
	}
}

func (d draws) host(h *bmov1alpha1.BareMetalHost) {
	h.Spec.Online, h.Status.PoweredOn, h.Spec.DisablePowerOff = !d.rarely("switched off"), d.half("on"), d.rarely("cannot be off")
	for _, key := range []string{
		holdOff + string(fixtureUID), holdOff + "before", holdOff + "another", "reboot.metal3.io/by-hand", bmov1alpha1.PausedAnnotation,
		infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation,
	} {
		if d.rarely(key) {
			h.Annotations[key] = ""
		}
	}
	if d.rarely("marked by us") {
		h.Annotations[mendv1.MarkedForAnnotation] = "machine-uid"
	}
	if d.rarely("asked to reboot") {
		h.Annotations[mendv1.RebootedForAnnotation] = string(fixtureUID) + "/1"
	}
	if d.rarely("power fails") {
		h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no route"
	}
}

func (d draws) observed(t *testing.T) *fixture {
	k := fixtureOf(t, d.remediation(t))
	k.obeys()
	d.host(k.host)
	switch rapid.IntRange(0, 5).Draw(d.T, "whose host") {
	case 1:
		k.found = &host.Found{Host: host.From(k.host), Is: powercycle.HostForeign, Why: "spec.consumerRef names another"}
	case 2:
		k.found = &host.Found{Is: powercycle.HostGone, Named: true, Why: "BareMetalHost ns/h does not exist"}
	}
	switch rapid.IntRange(0, 3).Draw(d.T, "what is seen of the node") {
	case 0:
		k.seen = fence.Seen{Cause: errors.New("no route to host")}
	case 1:
		k.seen = fence.Seen{Presence: fence.Absent, Drained: d.half("drained")}
	default:
		k.seen.Fenced, k.seen.Ours, k.seen.Drained = d.half("fenced"), d.half("by us"), d.half("drained")
		k.seen.Left, k.seen.Count = []string{"Pod ns/db-0"}, 3
	}
	switch rapid.IntRange(0, 2).Draw(d.T, "what the cache has of it") {
	case 1:
		k.r.Clusters = boots("boot", corev1.ConditionTrue)
	case 2:
		k.r.Clusters = answering{err: errors.New("broken")}
	}
	if d.rarely("control plane") {
		k.controlPlane()
	}
	if d.seldom("machine gone") {
		if err := k.client.Delete(t.Context(), k.machine(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	k.r.Teardown = d.seldom("kubemend leaves")
	return k
}

// firstStep makes a reconcile, and returns the step that it has taken first; nil if it has taken none.
func (k *fixture) firstStep() (*taken, error) {
	ctx := k.t.Context()
	w, err := k.r.observe(ctx, k.key, nil)
	if err != nil || w == nil {
		return nil, err
	}
	if w.idle != "" {
		return nil, k.r.writeStatus(ctx, w, w.next(), nil)
	}
	step, err := k.r.decide(ctx, w)
	if err == nil {
		_, err = k.r.apply(ctx, w, step)
	}
	if err != nil || len(w.taken) == 0 {
		return nil, err
	}
	return &w.taken[0], nil
}

// What Explain returns is to the letter what the reconcile writes for the first step that it takes, whatever was observed; and Explain changes nothing.
func TestALookSaysWhatThePassThenSays(t *testing.T) {
	reasons := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		k := draws{rt}.observed(t)
		is := k.looks(k.onlooker())
		silent := k.remediation()
		first, err := k.firstStep()
		if err != nil {
			rt.Fatal(err)
		}
		rem := &mendv1.HostRemediation{}
		err = k.client.Get(t.Context(), k.key, rem)
		if client.IgnoreNotFound(err) != nil {
			rt.Fatal(err)
		}
		if is == nil {
			if rem.ResourceVersion != silent.ResourceVersion {
				rt.Fatalf("Explain returns nothing, and the reconcile writes %+v", rem)
			}
			return
		}
		reasons[is.Reason]++
		if ends := !silent.DeletionTimestamp.IsZero() || silent.Spec.Strategy == nil; ends && len(rem.Finalizers) < len(silent.Finalizers) {
			return // with the finalizer of what goes, nothing is said
		}
		reason, text := stands(rem)[2], rem.Status.Message
		if first != nil && is.Acts {
			reason, text = string(first.step.Reason), first.cycle().Message("", first.step)
		}
		if text != is.Message || reason != is.Reason {
			rt.Fatalf("the look says\n%s: %s\nand the pass\n%s: %s\nof\n%s", is.Reason, is.Message, reason, text, told(is))
		}
		if rec := remediation.Remembered(rem); !is.Acts && rec.State != "" && (is.State != string(rec.State) || is.Attempt != rec.Attempt || !is.Deadline.Equal(cliv1.Moment(deadlineOf(rec.Memory, policyOf(remediation.Wrap(rem).Strategy(), rec.BootSeconds))))) {
			rt.Fatalf("the look sees it in %s until %s, and the pass in %+v", is.State, is.Deadline, rec.Memory)
		}
	})
	if len(reasons) < 12 && !testing.Short() {
		t.Errorf("the situations are too much alike: %v", reasons)
	}
}
