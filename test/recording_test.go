package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The picture shows what was recorded, and nothing that was edited by hand.
func TestTheRecordingOfTheDemoIsDrawnFromItsCast(t *testing.T) {
	const folder = "docs/images"
	read := func(path string) []byte {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	copied := filepath.Join(t.TempDir(), "demo")
	if err := os.WriteFile(copied+".cast", read(filepath.Join(root, folder, "demo.cast")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "recording"), "run", ".", "-out", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cast := read(copied + ".cast")
	moments := regexp.MustCompile(`(\d+\.\d) s\b`).FindAllSubmatch(read(filepath.Join(root, "docs", "architecture.md")), -1)
	if len(moments) < 10 {
		t.Errorf("docs/architecture.md has only %d moments of it", len(moments))
	}
	for _, m := range moments {
		if !bytes.Contains(cast, []byte("+"+string(m[1])+"s")) {
			t.Errorf("docs/architecture.md says that something happened at %s, and the recording does not", m[0])
		}
	}
	if !bytes.Equal(read(copied+".svg"), read(filepath.Join(root, folder, "demo.svg"))) {
		t.Errorf("%s/demo.svg is not what hack/recording makes of demo.cast: go -C hack/recording run . -out $PWD/%s/demo", folder, folder)
	}
}
