package main

import (
	"bytes"
	"strings"
	"testing"
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
