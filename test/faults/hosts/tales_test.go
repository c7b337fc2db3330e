package hosts

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faults"
)

// tale is a remediation from start to end.
type tale struct {
	name string
	settings
	script []cue
	// ends is the state in which the remediation ends; empty if it is deleted.
	ends string
	// cycles is how often the host is powered off or reset. stays is true if the pods stay on the node.
	cycles int
	stays  bool
	// again means that everything until the second attempt is as in another tale, which tries the failures until then.
	again bool
}

// standstill is a state in which a remediation waits for something that happens only with resume.
type standstill struct {
	state   string
	attempt int
	settings
	resume func(*environment)
	ends   string
	cycles int
}

// standstills are all states in which a remediation of a worker can wait, and the state after its owner was asked.
var standstills = []standstill{
	{
		state: "Preparing", attempt: 1, settings: settings{host: builders.Annotated[*bmov1alpha1.BareMetalHost](bmov1alpha1.PausedAnnotation, "test")},
		resume: func(e *environment) {
			if e.host() != nil {
				e.editHost(func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, bmov1alpha1.PausedAnnotation) })
			}
		},
		ends: "Succeeded", cycles: 1,
	},
	{
		state: "PoweringOff", attempt: 1, settings: settings{box: func(b *box) { b.model.Faults.IgnoresOff = true }},
		resume: revived, ends: "Succeeded", cycles: 1,
	},
	{
		state: "MovingWorkload", attempt: 1, settings: settings{box: func(b *box) { b.e.pods.stuck = true }},
		resume: func(e *environment) { e.pods.stuck = false }, ends: "Succeeded", cycles: 1,
	},
	{
		state: "PoweringOn", attempt: 1, settings: settings{box: func(b *box) { b.model.Faults.IgnoresOn = true }},
		resume: revived, ends: "Succeeded", cycles: 1,
	},
	{
		state: "Rebooting", attempt: 1, settings: settings{host: builders.NeverOff, box: func(b *box) { b.model.Faults.NotReady = true }},
		resume: revived, ends: "Succeeded", cycles: 1,
	},
	{
		state: "Booting", attempt: 1, settings: settings{box: mute(-1)},
		resume: func(e *environment) {
			if e.box.model.Powered() && !e.box.runs {
				e.box.start()
			}
		},
		ends: "Succeeded", cycles: 1,
	},
	{state: "OwnerRequested", attempt: 2, settings: settings{box: mute(-1)}, resume: func(*environment) {}, ends: "OwnerRequested", cycles: 2},
}

func revived(e *environment) { e.box.revive() }

// mute makes the next boots bring up no kubelet.
func mute(boots int) func(*box) { return func(b *box) { b.mute = boots } }

// there is the cue when the remediation is at the standstill.
func (s standstill) there(do func(*environment)) cue { return cue{in(s.state, s.attempt), do} }

// later returns cues that wait for some time after the previous cue and then call do.
func later(d time.Duration, do func(*environment)) []cue {
	return []cue{
		{func(*environment) bool { return true }, func(e *environment) { e.alarm = e.clock.Now().Add(d) }},
		{func(e *environment) bool { return !e.clock.Now().Before(e.alarm) }, func(e *environment) {
			e.alarm = time.Time{}
			do(e)
		}},
	}
}

// Events from outside.
var (
	deleted = func(e *environment) { e.do(client.IgnoreNotFound(e.management.Delete(e.t.Context(), e.remediation()))) }
	stopped = func(e *environment) {
		edit(e, e.management, e.remediation(), false, func(rem client.Object) {
			marks := rem.GetAnnotations()
			marks[nhcv1.TimedOutAnnotation] = "2026-01-01T12:00:00Z"
			rem.SetAnnotations(marks)
		})
	}
	killed = func(e *environment) { e.restart() }
	moved  = func(e *environment) {
		e.move()
		e.restart()
	}
)

// tales are remediations of all kinds.
var tales = []tale{
	{name: "a power cycle that helps", ends: "Succeeded", cycles: 1},
	{name: "a second power cycle that helps", again: true, settings: settings{box: mute(1)}, ends: "Succeeded", cycles: 2},
	{name: "two power cycles in vain, after which owner remediation is requested", again: true, settings: settings{box: mute(-1)}, ends: "OwnerRequested", cycles: 2},
	{name: "two resets of a host that must not be powered off", settings: settings{host: builders.NeverOff, box: mute(1)}, ends: "Succeeded", cycles: 2, stays: true},
	{
		name: "two resets in vain, after which owner remediation is requested", again: true, settings: settings{host: builders.NeverOff, box: mute(-1)},
		ends: "OwnerRequested", cycles: 2, stays: true,
	},
	{
		name: "a BMC that fails, after which owner remediation is requested", settings: settings{box: func(b *box) { b.model.Faults.Refuses = "no route to the BMC" }},
		ends: "OwnerRequested", stays: true,
	},
	{
		name: "a workload that never leaves", settings: settings{box: func(b *box) { b.e.pods.stuck = true }},
		ends: "Succeeded", cycles: 1, stays: true,
	},
	{
		name: "an unreachable workload cluster, for which no host is marked", cycles: 1, stays: true,
		settings: settings{box: func(b *box) { b.mute, b.e.pods.unreachable = -1, true }},
		script:   append([]cue{{in("Booting", 1), func(*environment) {}}}, later(time.Hour, deleted)...),
	},
	{
		name: "a control-plane host on which the API server of its cluster runs", ends: "Succeeded", cycles: 1, stays: true,
		settings: settings{apiServer: true, machine: func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }},
	},
	{name: "a machine that never had a node", again: true, settings: settings{noNode: true, box: mute(-1)}, ends: "OwnerRequested", cycles: 2, stays: true},
	{name: "a machine that is healthy", settings: settings{healthy: true}, ends: "Succeeded", cycles: 1},
	{
		name: "a machine that recovers before its host is asked", settings: standstills[0].settings, ends: "Succeeded", stays: true,
		script: []cue{{
			func(e *environment) bool { return memoryOf(e.remediation()).StartedUnhealthy },
			func(e *environment) { e.box.recover() },
		}},
	},
	{
		name: "a remediation whose finalizer is removed before its host is asked", settings: standstills[0].settings, ends: "Succeeded", cycles: 1,
		script: []cue{standstills[0].there(func(e *environment) {
			edit(e, e.management, e.remediation(), false, func(rem client.Object) { rem.SetFinalizers(nil) })
			standstills[0].resume(e)
		})},
	},
	{
		name: "a host that its owner switches off for an hour meanwhile", settings: standstills[2].settings, ends: "Succeeded", cycles: 1, stays: true,
		script: append([]cue{standstills[2].there(switchedOff.do)}, later(time.Hour, switchedOn.do)...),
	},
	{
		name: "a host that its owner has switched off, and on again before its power cycle", ends: "Succeeded", cycles: 1, stays: true,
		settings: settings{mayRecycle: true, host: func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = false }},
		script:   append([]cue{{in("Pending", 0), func(*environment) {}}}, later(time.Hour, switchedOn.do)...),
	},
	{name: "a request of a NodeHealthCheck, after which owner remediation is requested", again: true, settings: settings{nodeCheck: true, box: mute(-1)}, ends: "OwnerRequested", cycles: 2},
	{
		name: "a request that its NodeHealthCheck stops", settings: settings{nodeCheck: true, box: func(b *box) { b.e.pods.stuck = true }},
		ends: "Stopped", cycles: 1, stays: true, script: []cue{standstills[2].there(stopped)},
	},
}

// interrupted returns, for each standstill, tales in which the remediation goes on, is cancelled, or is paused.
func interrupted() []tale {
	var all []tale
	for _, s := range standstills {
		goesOn := tale{name: "one that stands still while " + s.state, settings: s.settings, ends: s.ends, cycles: s.cycles, script: []cue{s.there(s.resume)}, stays: s.state == "Rebooting"}
		cancelled := goesOn
		cancelled.name, cancelled.ends, cancelled.stays = "one that is cancelled while "+s.state, "", true
		cancelled.cycles = map[string]int{"Preparing": 0, "PoweringOff": 0, "Rebooting": 0}[s.state]
		switch s.state {
		case "MovingWorkload", "PoweringOn", "Booting":
			cancelled.cycles = 1
		}
		resumed := 5 * time.Minute
		if s.state == "MovingWorkload" {
			// After two minutes, one of which may be that of a crash, an unused volume keeps no host off. Whether the volume is detached by
			// then would be chance.
			resumed = 30 * time.Second
		}
		cancelled.script = append([]cue{s.there(deleted)}, later(resumed, s.resume)...)
		paused := goesOn
		paused.name, paused.settings.mayRecycle = "one that is paused while "+s.state, true
		paused.script = append([]cue{s.there(func(e *environment) { e.pause(true) })}, later(5*time.Minute, func(e *environment) {
			s.resume(e)
			e.pause(false)
		})...)
		if s.state != "OwnerRequested" { // after that nothing is written in these tales
			all = append(all, goesOn, cancelled)
		}
		all = append(all, paused)
	}
	return all
}

// unmanaged returns tales of hosts whose power BMO does not manage, at first or for good.
func unmanaged() []tale {
	annotated := func(key string) settings {
		return settings{host: builders.Annotated[*bmov1alpha1.BareMetalHost](key, "test")}
	}
	removed := func(key string) func(*environment) {
		return func(e *environment) {
			e.editHost(func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, key) })
		}
	}
	var all []tale
	for _, u := range []struct {
		name string
		settings
		end func(*environment)
	}{
		{"paused", annotated(bmov1alpha1.PausedAnnotation), removed(bmov1alpha1.PausedAnnotation)},
		{"detached", annotated(bmov1alpha1.DetachedAnnotation), removed(bmov1alpha1.DetachedAnnotation)},
		{
			"being prepared", settings{
				box:  func(b *box) { b.pin(bmov1alpha1.StatePreparing) },
				host: func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StatePreparing },
			},
			func(e *environment) { e.box.pin("") },
		},
	} {
		all = append(all, tale{
			name: "a host that is " + u.name + " at first", settings: u.settings, ends: "Succeeded", cycles: 1,
			script: []cue{{in("Preparing", 1), u.end}},
		}, tale{
			name: "a host that stays " + u.name + " and is not marked", settings: u.settings, stays: true,
			script: append([]cue{{in("Preparing", 1), func(*environment) {}}}, later(time.Hour, deleted)...),
		})
	}
	return all
}

// performance is one run of a tale.
type performance struct {
	*environment
	outcome
	done   []faults.Write
	struck bool
	second int // the number of writes before the second attempt
}

// from returns the number of writes for which the tale is as another one.
func (tl tale) from(plain performance) int {
	if tl.again {
		return plain.second
	}
	return max(plain.first, 0)
}

// play plays the tale; the nth write has this fate, unless nth is 0.
func (tl tale) play(t *testing.T, k kind, label string, nth int, fate faults.Fate) performance {
	t.Helper()
	e := newEnvironment(t, k, tl.settings)
	e.label, e.script = label, tl.script
	e.writes.Choose(nth, fate)
	p := performance{environment: e}
	e.writes.Then = func(n int) {
		if p.second == 0 && memoryOf(e.remediation()).Attempt == 2 {
			p.second = n - 1
		}
	}
	e.run(tl.over)
	p.outcome = e.outcome()
	p.done, p.struck = e.writes.Done()
	if len(e.unsafe) > 0 {
		t.Errorf("it was unsafe\n%s", e.story())
	}
	return p
}

func (tl tale) over(e *environment) bool {
	if tl.ends == "" {
		return e.remediation() == nil
	}
	return e.memory() == tl.ends && !e.kept()
}

// figures is how many runs a campaign has tried, by kind of the remediation. All of them have passed, or the test has failed.
type figures [2]atomic.Int64

func (f *figures) add(k kind) {
	f[slices.IndexFunc(kinds, func(other kind) bool { return other.Kind.Kind == k.Kind.Kind })].Add(1)
}

// line returns the figures as a line of a table.
func (f *figures) line(what string) string {
	return fmt.Sprintf("| %s | %d | %d |\n", what, f[0].Load(), f[1].Load())
}

func TestFaultsOfHostRemediations(t *testing.T) {
	var failed, killed, ordered, befallen figures
	t.Run("whatever write fails, the end is the same", func(t *testing.T) { everyWrite(t, &failed) })
	t.Run("at every standstill", func(t *testing.T) { everyStandstill(t, &killed) })
	t.Run("after every write", func(t *testing.T) { everyMoment(t, &befallen) })
	t.Run("in every order of events", func(t *testing.T) { everyOrder(t, &ordered) })
	text := fmt.Sprintf("| runs | %s | %s |\n|---|---|---|\n", kinds[0].Kind.Kind, kinds[1].Kind.Kind) +
		failed.line("every write fails once") + killed.line("the manager or an object is gone at every standstill") +
		befallen.line("another event comes after every write") + ordered.line("events in every order")
	t.Log("\n" + text)
	faults.Document(t, "hosts", text)
}

// everyWrite gives every write of every tale every fate. The outcome must be that of the undisturbed tale.
func everyWrite(t *testing.T, all *figures) {
	for _, tl := range slices.Concat(tales, unmanaged(), interrupted()) {
		for turn, k := range kinds {
			t.Run(tl.name+" by a "+k.Kind.Kind, func(t *testing.T) {
				t.Parallel()
				plain := tl.play(t, k, "undisturbed", 0, "")
				tl.check(t, plain)
				for _, fate := range faults.Fates {
					for nth := tl.from(plain) + 1; nth <= len(plain.done); nth++ {
						// After every second crash the controllers start again a minute later, when the host is off.
						downtime := time.Duration((nth+turn)%2) * time.Minute
						label := fmt.Sprintf("write %d (%s) was %s", nth, plain.done[nth-1], fate)
						if !faults.Tries(t.Name(), label) {
							continue
						}
						again := tl
						again.downtime = downtime
						is := again.play(t, k, label, nth, fate)
						if !is.struck {
							t.Fatalf("%s: it never came to that", label)
						}
						if diff := cmp.Diff(plain.after(downtime), is.after(downtime), cmpopts.EquateEmpty()); diff != "" {
							t.Errorf("%s: the outcome (-undisturbed +disturbed):\n%s\n%s", label, diff, is.story())
						}
						all.add(k)
					}
				}
			})
		}
	}
}

// check checks the undisturbed run of the tale.
func (tl tale) check(t *testing.T, plain performance) {
	t.Helper()
	if len(plain.Orphans) > 0 {
		t.Errorf("orphans are left: %q", plain.Orphans)
	}
	if got := plain.cycles(); got != tl.cycles {
		t.Errorf("the host was powered off or reset %d times, want %d: %v", got, tl.cycles, plain.Power)
	}
	if h := plain.host(); h != nil && h.Spec.Online && !plain.Powered {
		t.Errorf("the host is off\n%s", plain.story())
	}
	if plain.Pods > 0 && !tl.stays {
		t.Errorf("%d pods and volumes are left", plain.Pods)
	}
	_, asked := plain.Conditions[clusterv1.MachineOwnerRemediatedCondition]
	if _, before := plain.Conditions["v1beta1 "+string(clusterv1.MachineOwnerRemediatedV1Beta1Condition)]; asked != (plain.State == "OwnerRequested") || asked != before {
		if plain.State != "" {
			t.Errorf("the owner of the machine was asked: %t", asked)
		}
	}
	if n := plain.node(); n != nil && (n.Labels["example.org/rack"] != "7" || n.Annotations["example.org/note"] != "keep") {
		t.Errorf("the node has lost its labels or annotations: %v %v", n.Labels, n.Annotations)
	}
}

// after returns the part of the outcome that must be the same after a crash. A longer downtime leaves out conditions: nothing that happens
// meanwhile is reported once the remediation has ended.
func (o outcome) after(downtime time.Duration) outcome {
	if downtime > 0 {
		o.Reported.Conditions = map[string]string{
			nhcv1.ProcessingCondition: o.Reported.Conditions[nhcv1.ProcessingCondition], nhcv1.SucceededCondition: o.Reported.Conditions[nhcv1.SucceededCondition],
		}
	}
	return o
}

// histories is how many random histories of each kind a whole campaign plays. Faults are so rare in one history that rapid's default of a
// hundred finds little.
const histories = 1000

// sampled is how many other runs play, with another seed each time.
const sampled = 100

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // logs are not part of the result
	debug.SetGCPercent(800)        // most objects are short-lived
	if err := playMore(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// playMore sets the number of histories and the seed for rapid, unless the command line does (-rapid.checks, -rapid.seed).
func playMore() error {
	flag.Parse()
	set := map[string]string{"rapid.checks": strconv.Itoa(histories), "rapid.seed": "14"} // each whole campaign plays the same histories
	if !faults.Whole() {
		set = map[string]string{"rapid.checks": strconv.Itoa(sampled), "rapid.seed": strconv.FormatUint(faults.Seed(), 10)}
	}
	flag.Visit(func(f *flag.Flag) { delete(set, f.Name) })
	if testing.Short() {
		return nil
	}
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("ask for %d histories: %w", histories, err)
		}
	}
	return nil
}
