package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The whole default demo, as `make demo` plays it: everything that it promises has to be observed, in the documented order.
func TestTheDemoShowsAllThatItPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes two minutes")
	}
	t.Chdir("../..") // make runs it there
	t.Setenv("SCENE", "")
	t.Setenv("KEEP", "")
	out := &bytes.Buffer{}
	if code := perform(t.Context(), &narrator{out: out}); code != 0 || !strings.Contains(out.String(), "Success") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func recordOf(observations ...observation) *record {
	r := newRecord(&narrator{out: io.Discard})
	r.add(observations...)
	return r
}

func TestOrderedExpectationsNeedTheOrder(t *testing.T) {
	unknown := expectation{text: "Unknown", within: time.Millisecond, fact: nodeUnknown}
	failed := expectation{text: "unhealthy", within: time.Millisecond, fact: machineFailed}
	r := recordOf(observation{fact: machineFailed, about: "a"}, observation{fact: nodeUnknown, about: "a"})

	if err := r.inAnyOrder(t.Context(), unknown, failed); err != nil {
		t.Errorf("in any order: %v", err)
	}
	r.cursor = 0
	var unseen *unseenError
	if err := r.inOrder(t.Context(), unknown, failed); !errors.As(err, &unseen) || unseen.text != "unhealthy" {
		t.Errorf("in order: %v", err)
	}
}

func TestAnUnmetExpectationNamesTheMissingObjects(t *testing.T) {
	r := recordOf(observation{fact: nodeUnknown, about: "a"}, observation{fact: nodeUnknown, about: "a"}, observation{fact: nodeUnknown, about: "c"})
	var unseen *unseenError
	err := r.inOrder(t.Context(), expectation{within: time.Millisecond, fact: nodeUnknown, each: []string{"a", "b", "c"}})
	if !errors.As(err, &unseen) || !cmp.Equal(unseen.missing, []string{"b"}) {
		t.Errorf("the error is %v", err)
	}
}

func TestObservationsBeforeASceneDoNotCount(t *testing.T) {
	r := recordOf(observation{fact: nodeUnknown})
	r.begin()
	if err := r.inOrder(t.Context(), expectation{within: time.Millisecond, fact: nodeUnknown}); err == nil {
		t.Error("it counts")
	}
}

func TestAForbiddenObservationFailsAtOnce(t *testing.T) {
	r := recordOf(observation{fact: nodeUnknown}, observation{fact: ownerRequested, text: "requested"})
	if err := r.never(t.Context(), 0, time.Hour, machineGone, ownerRequested); err == nil {
		t.Error("it is not noticed")
	}
	if err := r.never(t.Context(), 2, time.Millisecond, machineGone, ownerRequested); err != nil {
		t.Errorf("what was seen earlier counts: %v", err)
	}
}

func TestEverySceneIsNamedWhereReadersLook(t *testing.T) {
	for file, named := range map[string]func(string) string{
		"Makefile":            func(name string) string { return "[=|]" + name + "[|,]" },
		"docs/development.md": func(name string) string { return "(?m)^\\| `" + name + "` " },
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scenes() {
			if !regexp.MustCompile(named(s.name)).Match(text) {
				t.Errorf("%s does not name the scene %s", file, s.name)
			}
		}
	}
}

func TestLongScenesAreNamedAndNotPlayedByDefault(t *testing.T) {
	names := func(chosen []scene) (names []string) {
		for _, s := range chosen {
			names = append(names, s.name)
		}
		return names
	}
	for asked, want := range map[string]struct {
		names []string
		hint  bool
	}{
		"":          {[]string{"replace", "short-circuit", "reboot"}, true},
		"all":       {[]string{"replace", "short-circuit", "reboot"}, true},
		"replace":   {[]string{"replace"}, false},
		"dead-host": {[]string{"dead-host"}, false},
		"escalate":  {[]string{"escalate"}, false},
	} {
		chosen, err := choose(asked)
		if diff := cmp.Diff(want.names, names(chosen)); err != nil || diff != "" {
			t.Errorf("SCENE=%s: error %v, difference %s", asked, err, diff)
		}
		if hint := strings.Contains(leftOut(chosen), "make demo SCENE=dead-host"); hint != want.hint {
			t.Errorf("SCENE=%s: is the scene that was left out named? %t", asked, hint)
		}
	}
	if _, err := choose("no such scene"); err == nil || !strings.Contains(err.Error(), "dead-host") {
		t.Errorf("the error does not name the scenes: %v", err)
	}
}
