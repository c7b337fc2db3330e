package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"
)

// This plays the whole demo like `make demo`. All changes that the scenes expect must happen, in the expected order.
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

func TestEverySceneIsNamedWhereReadersLook(t *testing.T) {
	for file, named := range map[string]func(string) string{
		"Makefile":            func(name string) string { return "[=|]" + name + "[|,]" },
		"docs/development.md": func(name string) string { return "(?m)^\\| `" + name + "` " },
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		must.Do(t, err)
		for _, s := range scenes() {
			if !regexp.MustCompile(named(s.name)).Match(text) {
				t.Errorf("%s does not name the scene %s", file, s.name)
			}
		}
	}
}
