package page

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// aFleet is a scene with checks of which one selects nothing that is unhealthy, one has trouble, and one is not claimed.
func aFleet() *scene {
	return aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3"), func(s *scene) {
		for name, machines := range map[string][]string{"control-plane": {"w4", "w5"}, "storage": {"w3"}} {
			other := s.check.DeepCopy()
			other.Name, other.UID, other.CreationTimestamp = name, "", at(12*time.Hour)
			other.Spec.Selector.MatchLabels = map[string]string{"pool": name}
			for _, m := range machines {
				s.machines[m].Labels["pool"] = name
			}
			if name == "storage" {
				other.Annotations = nil
			}
			s.others = append(s.others, other)
		}
	})
}

func TestTheStatusOfAFleet(t *testing.T) {
	golden.StoriesIn(t, "testdata/fleet", map[string]Layout{
		"all checks":               {},
		"checks that are not OK":   {NotOK: true},
		"the most unhealthy first": {Sort: ByUnhealthy},
		"the next step first":      {Sort: ByNext, NotOK: true},
		"with all reasons":         {Wide: true, NotOK: true},
	}, func(t *testing.T, l Layout) string {
		s := aFleet()
		kindNotServed(s)
		all, err := Of(t.Context(), s.asker(t), "", "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, width := range []int{80, 200} {
			fmt.Fprintf(&out, "==== %d columns\n", width)
			l.Width, l.Namespaces = width, true
			if err := all.Print(&out, l); err != nil {
				t.Fatal(err)
			}
		}
		return out.String()
	})
}

func TestAFleetThatIsAllOKSaysHowToListIt(t *testing.T) {
	all, err := Of(t.Context(), aScene().asker(t), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, notOK := range []bool{true, false} {
		var out bytes.Buffer
		if err := all.Print(&out, Layout{NotOK: notOK, Width: 200}); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		hint, table := strings.Contains(got, explain.NotListed(1)), strings.Contains(got, "CHECK")
		if !strings.Contains(got, "1 of 1 checks OK") || hint != notOK || table == notOK {
			t.Errorf("with NotOK %t it prints:\n%s", notOK, got)
		}
	}
}

func TestAHeadingMeansTheSameAtEveryWidth(t *testing.T) {
	for _, narrow := range narrowColumns {
		wide := slices.IndexFunc(wideColumns, func(c column) bool { return c.heading == narrow.heading })
		if wide < 0 {
			t.Errorf("the wide table has no column %s", narrow.heading)
			continue
		}
		for mode, c := range map[string]explain.Check{"acting": {Mode: explain.Acting, Reason: "Blocked"}, "unknown": {Mode: explain.Unknown}} {
			p := &page{now: noon}
			if a, b := narrow.cell(p, Row{Check: c}), wideColumns[wide].cell(p, Row{Check: c}); a != b {
				t.Errorf("%s of %s is %q in the narrow table, and %q in the wide one", narrow.heading, mode, a, b)
			}
		}
	}
}

func TestAPageHasOneClock(t *testing.T) {
	east := noon.In(time.FixedZone("EAST", 2*60*60))
	p := &page{now: east}
	for stored, want := range map[string]string{
		"out of reach since 2026-01-01T11:56:00Z; machines":   "out of reach since 13:56:00; machines",
		"(until 2026-01-02T11:56:00.5Z)":                      "(until 2026-01-02 13:56:00)",
		`annotation a/b="2026-01-01T11:56:00Z"`:               `annotation a/b="2026-01-01T11:56:00Z"`,
		"kubectl annotate machine/m a/b=2026-01-01T11:56:00Z": "kubectl annotate machine/m a/b=2026-01-01T11:56:00Z",
		"since 2026-99-01T11:56:00Z":                          "since 2026-99-01T11:56:00Z",
	} {
		if got := p.local(stored); got != want {
			t.Errorf("%q is %q, want %q", stored, got, want)
		}
	}
}

func TestNoGoldenPageHasAClockBesideItsOwn(t *testing.T) {
	for name, s := range map[string]*scene{
		"out of sight": aScene(silent(6*time.Minute, "w1"), outOfSight), "gone": aScene(silent(6*time.Minute, "w1"), dead),
	} {
		e, err := machine("w1")(t.Context(), s.asker(t))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := e.Print(&out, 200, text.Painter{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "T11:") || strings.Count(out.String(), "UTC") != 1 {
			t.Errorf("%s: a second clock in\n%s", name, out.String())
		}
	}
}
