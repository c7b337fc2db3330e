// Package golden compares the output of a test with a reviewed file. It imports no package of the project, so that the tests of
// decisions may import it.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Compare fails the test if the file is not what the test has got; with the flag -update it makes it so.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is stale; if the change is meant, run go test . -update in the folder of this test\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// Stories plays every story, each a test of its name, and compares it with the file of that name in testdata. No other files may be there.
func Stories[S any](t *testing.T, stories map[string]S, play func(*testing.T, S) string) {
	t.Helper()
	StoriesIn(t, "testdata", stories, play)
}

// StoriesIn is Stories with another folder than testdata, such as one below it.
func StoriesIn[S any](t *testing.T, folder string, stories map[string]S, play func(*testing.T, S) string) {
	t.Helper()
	files := map[string]bool{}
	for name, story := range stories {
		file := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".txt")
		files[file] = true
		t.Run(name, func(t *testing.T) { Compare(t, file, play(t, story)) })
	}
	kept, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range kept {
		if !files[file] {
			t.Errorf("%s: no story has this name any more, delete the file", file)
		}
	}
}
