package hosts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/test/faults"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

func faulty(name string, blames bool, change func(*bmo.Faults)) event {
	return event{name: name, do: func(e *environment) { change(&e.box.model.Faults) }, blames: blames}
}

// attached ends a pause and a detachment of the host.
var attached = event{name: "the host is neither paused nor detached", do: func(e *environment) {
	e.annotateHost(func(m map[string]string) {
		delete(m, bmov1alpha1.PausedAnnotation)
		delete(m, bmov1alpha1.DetachedAnnotation)
	})
}}

// happenings may happen at any time; heals ends all of them.
var happenings = []event{
	faulty("BMO stops", false, func(f *bmo.Faults) { f.Stopped = true }),
	faulty("BMO dies when it orders something the next time", false, func(f *bmo.Faults) { f.Crashes = true }),
	{name: "BMO runs again", do: func(e *environment) {
		e.box.model.Faults.Stopped, e.box.model.Faults.Crashes = false, false
		e.box.looks.Restart()
	}},
	faulty("Ironic does not answer", false, func(f *bmo.Faults) { f.NotReady = true }),
	faulty("Ironic answers with errors", false, func(f *bmo.Faults) { f.Errors = true }),
	faulty("Ironic is healthy", false, func(f *bmo.Faults) { f.NotReady, f.Errors = false, false }),
	{name: "Ironic loses its database", do: func(e *environment) { e.box.model.LoseDatabase() }},
	faulty("the credentials of the BMC are missing", false, func(f *bmo.Faults) { f.Credentials = bmo.Missing }),
	faulty("the credentials of the BMC are wrong", false, func(f *bmo.Faults) { f.Credentials = bmo.Wrong }),
	faulty("the credentials of the BMC are right", false, func(f *bmo.Faults) { f.Credentials = "" }),
	faulty("Ironic does not adopt the host", false, func(f *bmo.Faults) { f.AdoptionFails = true }),
	faulty("an image of data cannot be attached", false, func(f *bmo.Faults) { f.DataImageFails = true }),
	faulty("firmware is to be written at the next reboot", false, func(f *bmo.Faults) { f.Firmware = true }),
	faulty("firmware is to be written and will not be", false, func(f *bmo.Faults) { f.Firmware, f.ServicingFails = true, true }),
	faulty("the BMC does not answer", true, func(f *bmo.Faults) { f.Unreachable = true }),
	faulty("the BMC does not switch off", true, func(f *bmo.Faults) { f.IgnoresOff = true }),
	faulty("the BMC does not switch on", true, func(f *bmo.Faults) { f.IgnoresOn = true }),
	faulty("the BMC refuses", true, func(f *bmo.Faults) { f.Refuses = "no" }),
	faulty("the BMC reports stale power", true, func(f *bmo.Faults) { f.Stale = true }),
	faulty("BMO is too late to order anything", false, func(f *bmo.Faults) { f.Races = true }),
	{name: "the host brings up no kubelet", do: func(e *environment) { e.box.mute = -1 }, blames: true},
	{name: "the host is paused", do: annotates(bmov1alpha1.PausedAnnotation)},
	{name: "the host is detached", do: annotates(bmov1alpha1.DetachedAnnotation)},
	attached,
	switchedOff,
	{name: "somebody keeps the host off", do: annotates("reboot.metal3.io/somebody")},
	{name: "nobody else keeps the host off", do: releasedByOthers},
	{name: "the host is registered anew", do: reregister},
	{name: "the Metal3Machine names no host for a moment", do: func(e *environment) {
		between := e.management.At(betweenKind, e.at)
		if between == nil {
			return
		}
		edit(e, e.management, between, false, func(o client.Object) { o.SetAnnotations(nil) })
		e.settle()
		edit(e, e.management, e.management.At(betweenKind, e.at), false, func(o client.Object) {
			o.SetAnnotations(map[string]string{infrav1.HostAnnotation: e.at.String()})
		})
	}},
	{name: "a person presses the button of the host", do: func(e *environment) {
		to := bmo.On
		if e.box.model.Powered() {
			to = bmo.Off
		}
		e.box.model.Press(to, e.clock.Now())
		e.box.byHand = to == bmo.On
	}},
	{name: "the kubelet is cut off", do: func(e *environment) {
		if e.box.runs {
			e.box.runs, e.box.silent = false, e.clock.Now()
		}
		e.box.cutOff = true
	}, blames: true},
	{name: "the kubelet reports again", do: func(e *environment) {
		e.box.cutOff = false
		e.box.recover()
	}},
	breaks, heals, pauses, goesOnToo, lags, catchesUp, restarts, released, cancels,
	{name: "nothing leaves the node", do: func(e *environment) { e.pods.stuck = true }},
	podsLeave,
	{name: "the remediation is another object, as after a move", do: func(e *environment) {
		if e.remediation() != nil && !heldOff(e.host()) {
			moved(e)
		}
	}},
}

func annotates(key string) func(*environment) {
	return func(e *environment) { e.annotateHost(func(m map[string]string) { m[key] = "" }) }
}

func releasedByOthers(e *environment) {
	e.editHost(func(h *bmov1alpha1.BareMetalHost) {
		h.Spec.Online = true
		delete(h.Annotations, "reboot.metal3.io/somebody")
	})
}

func (e *environment) annotateHost(change func(map[string]string)) {
	e.editHost(func(h *bmov1alpha1.BareMetalHost) { change(h.Annotations) })
}

// reregister registers a host again by Metal3's procedure: it is detached, deleted, and created again with its status in an annotation. The
// other annotations stay, as in a backup or in Git.
func reregister(e *environment) {
	is := e.host().DeepCopy()
	status, err := json.Marshal(is.Status)
	e.do(err)
	e.vanish(e.management, e.host())
	is.ObjectMeta = metav1.ObjectMeta{Namespace: is.Namespace, Name: is.Name, Annotations: is.Annotations}
	metav1.SetMetaDataAnnotation(&is.ObjectMeta, bmov1alpha1.StatusAnnotation, string(status))
	e.box.model.LoseDatabase()
	e.settle()
	e.do(e.management.Create(e.t.Context(), e.named(is)))
}

// steps lets all actors act until the state of the remediation has changed n times, for at most the length of an attempt.
func (e *environment) steps(n int) {
	for patience := e.clock.Now().Add(timeout); n > 0 && e.clock.Now().Before(patience); n-- {
		for was := e.memory(); e.memory() == was && e.clock.Now().Before(patience); {
			e.until(time.Second)
		}
	}
}

// healed ends all faults.
func healed(e *environment) {
	if e.writes.Crashed() {
		e.restart()
	}
	e.writes.Choose(0, "")
	firmware := e.box.model.Faults.Firmware // a pending update stays pending, and can now be done
	e.box.revive()
	e.box.model.Faults.Firmware = firmware
	e.box.mute = 0
	e.box.looks.Restart()
	releasedByOthers(e)
	for _, end := range []event{attached, goesOnToo, catchesUp, heals} {
		end.do(e)
	}
	e.pods.stuck, e.box.cutOff = false, false
	if e.box.model.Stranded() { // only a person can end this
		e.box.model.Press(bmo.Reset, e.clock.Now())
	}
	e.box.recover()
}

// TestRandomActionsOfPartnersKeepAPowerCycleSafe plays power cycles with random actions of partner programs, people and bad luck, and
// checks the real power: kubemend never fences the node of a running host, and no volume has two writers. In the end the host is on, its
// node has no mark of kubemend, and no host is marked unhealthy that is not at fault.
func TestRandomActionsOfPartnersKeepAPowerCycleSafe(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.Kind.Kind, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { playWithPartners(rt, k) })
		})
	}
}

// longEnough is how long everything may take after all faults have ended: BMO may wait for eight hours.
const longEnough = 12 * time.Hour

func playWithPartners(rt *rapid.T, k kind) {
	as := settings{mayRecycle: true}
	as.downtime = time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds of downtime")) * time.Second
	e := newEnvironment(rt, k, as)
	e.box.model.Times.Servicing = 20 * time.Minute
	e.box.model.Times.Registering = 10 * time.Second
	e.box.model.NoConditions = rapid.Bool().Draw(rt, "BMO writes no conditions")
	blamed := false
	var story []string
	for range rapid.IntRange(1, 6).Draw(rt, "how many things happen") {
		if seconds := rapid.IntRange(-8, 120).Draw(rt, "seconds before, or steps"); seconds < 0 {
			e.steps(-seconds)
		} else {
			e.until(time.Duration(seconds) * time.Second)
		}
		if e.writes.Crashed() {
			e.restart()
		}
		if nth := rapid.IntRange(-20, 6).Draw(rt, "a write that fails"); nth > 0 {
			e.writes.Choose(nth, rapid.SampledFrom(faults.Fates).Draw(rt, "how"))
		}
		h := rapid.SampledFrom(happenings).Draw(rt, "what happens")
		story = append(story, fmt.Sprintf("after %s, %s: %s", e.clock.Now().Sub(noon), e.memory(), h.name))
		h.do(e)
		blamed = blamed || h.blames
	}
	e.label = fmt.Sprintf("%q", story)
	e.until(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "seconds until all is healed")) * time.Second)
	story = append(story, fmt.Sprintf("after %s, %s: all is healed", e.clock.Now().Sub(noon), e.memory()))
	e.label = fmt.Sprintf("%q", story)
	condemned := e.memory() == string(powercycle.OwnerRequested) || e.memory() == string(powercycle.RequestingOwner)
	healed(e)
	e.until(longEnough)
	is := e.outcome()
	if unreached := strings.Contains(e.label, "the workload cluster is out of reach"); unreached && e.remediation() == nil {
		// If the remediation was deleted, the sweeper of controllers/leftovers cleans up the node after the deadline.
		is.Orphans = slices.DeleteFunc(is.Orphans, func(left string) bool { return strings.HasPrefix(left, "node ") })
		is.Taints = nil
	}
	switch {
	case len(e.unsafe) > 0:
		rt.Fatalf("it was unsafe\n%s", e.story())
	case condemned && !blamed:
		rt.Fatalf("a host is condemned for what was not its fault\n%s", e.story())
	case !ended(e):
		rt.Fatalf("it does not end\n%s", e.story())
	case len(is.Orphans) > 0:
		rt.Fatalf("orphans are left: %q\n%s", is.Orphans, e.story())
	case !is.Powered:
		rt.Fatalf("the host stays off\n%s", e.story())
	case slices.Contains(is.Taints, infrav1.OutOfServiceTaintKey):
		rt.Fatalf("the node stays fenced\n%s", e.story())
	case is.Ready != corev1.ConditionTrue:
		rt.Fatalf("the node is not Ready\n%s", e.story())
	}
}
