package hosts

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/faults"
)

// figures are how many runs a campaign has tried, by kind of the remediation. Every run that was begun has held, or the test has failed.
type figures struct {
	mu sync.Mutex
	of map[string]int
}

func (f *figures) add(k kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]int{}
	}
	f.of[k.Kind.Kind]++
}

func (f *figures) line(what string) string {
	return fmt.Sprintf("| %s | %d | %d |\n", what, f.of[kinds[0].Kind.Kind], f.of[kinds[1].Kind.Kind])
}

func TestFaultsOfHostRemediations(t *testing.T) {
	var failed, killed, ordered, befallen figures
	t.Run("whatever write fails, the end is the same", func(t *testing.T) { everyWrite(t, &failed) })
	t.Run("at every standstill", func(t *testing.T) { everyStandstill(t, &killed) })
	t.Run("after every write", func(t *testing.T) { everyMoment(t, &befallen) })
	t.Run("in every order of events", func(t *testing.T) { everyOrder(t, &ordered) })
	if t.Failed() || !faults.Whole() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // there are no figures of what was not tried
	}
	text := fmt.Sprintf("| runs | %s | %s |\n|---|---|---|\n", kinds[0].Kind.Kind, kinds[1].Kind.Kind) +
		failed.line("every write fails once") + killed.line("the manager or an object is gone at every standstill") +
		befallen.line("another event comes after every write") + ordered.line("events in every order")
	t.Log("\n" + text)
	faults.Document(t, "hosts", text)
}

// everyWrite lets every write of every tale fail in every way. The end has to be that of the tale undisturbed.
func everyWrite(t *testing.T, all *figures) {
	for _, tl := range slices.Concat(tales, unmanaged(), interrupted()) {
		for turn, k := range kinds {
			t.Run(tl.name+" by a "+k.Kind.Kind, func(t *testing.T) {
				t.Parallel()
				plain := tl.play(t, k, "undisturbed", 0, "")
				tl.check(t, plain)
				for _, fate := range faults.Fates {
					for nth := tl.from(plain) + 1; nth <= len(plain.done); nth++ {
						// After every second crash the controllers run again a minute later, when the host is off.
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

// check makes sure that the tale undisturbed is what it says.
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
	_, before := plain.Conditions["v1beta1 "+string(clusterv1.MachineOwnerRemediatedV1Beta1Condition)]
	if plain.State != "" && (asked != (plain.State == "OwnerRequested") || asked != before) {
		t.Errorf("the owner of the machine was asked: %t", asked)
	}
	if n := plain.node(); n != nil && (n.Labels["example.org/rack"] != "7" || n.Annotations["example.org/note"] != "keep") {
		t.Errorf("the node has lost its labels or annotations: %v %v", n.Labels, n.Annotations)
	}
}

// after is the outcome that has to be the same after a crash, the longer of which leave out conditions: of what went on meanwhile nothing
// is reported once the remediation has ended.
func (o outcome) after(downtime time.Duration) outcome {
	if downtime > 0 {
		o.Reported.Conditions = map[string]string{
			nhcv1.ProcessingCondition: o.Reported.Conditions[nhcv1.ProcessingCondition],
			nhcv1.SucceededCondition:  o.Reported.Conditions[nhcv1.SucceededCondition],
		}
	}
	return o
}

// histories is how many histories of each kind are played. A single one is rare enough that a hundred, which rapid plays by itself, find
// little.
const histories = 1000

// sampled is how many are played otherwise, each time others.
const sampled = 100

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // what the controllers log is no result
	debug.SetGCPercent(800)        // hardly anything lives long
	if err := playMore(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// playMore asks rapid for as many histories, unless the command line says how many (-rapid.checks) or which others (-rapid.seed).
func playMore() error {
	flag.Parse()
	set := map[string]string{"rapid.checks": strconv.Itoa(histories), "rapid.seed": "14"} // the same ones in each whole campaign
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
