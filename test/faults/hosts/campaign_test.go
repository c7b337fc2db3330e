package hosts

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubemend/kubemend/test/faults"
)

// figures are what a campaign has tried: for each row of its table, one number for each kind of remediations.
type figures struct {
	mu   sync.Mutex
	rows []string
	of   map[string]map[string]int
}

// row makes room for a row, so that the order is that of the campaign and not that in which its runs end.
func (f *figures) row(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]map[string]int{}
	}
	f.rows, f.of[name] = append(f.rows, name), map[string]int{}
}

func (f *figures) add(row string, k kind, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[row][k.Kind.Kind] += n
}

// table is the figures as a table of a document. Every run that was begun has held, or the test has failed.
func (f *figures) table(first string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s | %s |\n|---|---|---|\n", first, kinds[0].Kind.Kind, kinds[1].Kind.Kind)
	total := map[string]int{}
	for _, row := range f.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, k := range kinds {
			n := f.of[row][k.Kind.Kind]
			total[k.Kind.Kind] += n
			fmt.Fprintf(&b, " %d of %d |", n, n)
		}
		b.WriteString("\n")
	}
	a, z := total[kinds[0].Kind.Kind], total[kinds[1].Kind.Kind]
	fmt.Fprintf(&b, "| **all** | %d of %d | %d of %d |\n", a, a, z, z)
	return b.String()
}

// fates are what can befall a write. After some crashes the controllers run again at once, after others a minute later, when the host is off.
var fates = []struct {
	name     string
	fate     faults.Fate
	downtime time.Duration
}{
	{"refused", faults.Refused, 0},
	{"carried out, and its answer lost", faults.Lost, 0},
	{"the last one before a crash", faults.Crash, 0},
	{"the last one before a crash of a minute", faults.Crash, time.Minute},
}

func TestFaultsOfHostRemediationsAreDocumented(t *testing.T) {
	var failed, killed, ordered, befallen, random figures
	t.Run("whatever write fails, the end is the same", func(t *testing.T) { everyWrite(t, &failed) })
	t.Run("at every standstill", func(t *testing.T) { everyStandstill(t, &killed) })
	t.Run("after every write", func(t *testing.T) { everyMoment(t, &befallen) })
	t.Run("in every order of events", func(t *testing.T) { everyOrder(t, &ordered) })
	t.Run("at random", func(t *testing.T) { atRandom(t, &random) })
	if t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // there are no figures of what was not tried
	}
	text := "**Every write fails once**: it is refused, or carried out and its answer lost, or the last one before a crash of the manager, which runs " +
		"again at once or a minute later.\n\n" + failed.table("remediation") +
		"\n**At every standstill** of a power cycle, while the remediation waits for something:\n\n" + killed.table("what happens") +
		"\n**After every write** of a power cycle something else happens, before the controller does anything more:\n\n" + befallen.table("what happens") +
		"\n**In every order** of these events:\n\n" + ordered.table("events") +
		"\n**At random**, with a fixed seed for each run: several writes fail, and several of these events happen:\n\n" + random.table("remediation")
	t.Log("\n" + text)
	faults.Document(t, "hosts", text)
}

// everyWrite lets every write of every tale fail in every way. The end has to be that of the tale undisturbed.
func everyWrite(t *testing.T, all *figures) {
	for _, tl := range append(tales, interrupted()...) {
		all.row(tl.name)
		for _, k := range kinds {
			t.Run(tl.name+" by a "+k.Kind.Kind, func(t *testing.T) {
				t.Parallel()
				plain := tl.play(t, k, "undisturbed", 0, "")
				tl.check(t, plain)
				for _, f := range fates {
					for nth := 1; nth <= len(plain.done); nth++ {
						label := fmt.Sprintf("write %d (%s) was %s", nth, plain.done[nth-1], f.name)
						is := tl.play(t, k, label, nth, f.fate, func(s *settings) { s.downtime = f.downtime })
						if !is.struck {
							t.Fatalf("%s: it never came to that", label)
						}
						if diff := cmp.Diff(plain.outcome, is.outcome, cmpopts.EquateEmpty()); diff != "" {
							t.Errorf("%s: the outcome (-undisturbed +disturbed):\n%s\n%s", label, diff, is.story())
						}
						all.add(tl.name, k, 1)
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
	if (plain.Pods > 0) != tl.stays && !tl.stays {
		t.Errorf("%d pods and volumes are left", plain.Pods)
	}
	if n := plain.node(); n != nil && (n.Labels["example.org/rack"] != "7" || n.Annotations["example.org/note"] != "keep") {
		t.Errorf("the node has lost its labels or annotations: %v %v", n.Labels, n.Annotations)
	}
}
