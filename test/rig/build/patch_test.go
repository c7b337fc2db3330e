package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAPatchIsAppliedAsOftenAsItSays(t *testing.T) {
	p := patch{dependency: "some/dependency", file: "listen.go", old: `":%d"`, new: `"127.0.0.1:%d"`, times: 2}
	for name, test := range map[string]struct{ content, want, err string }{
		"as often as expected": {content: `":%d" and ":%d"`, want: `"127.0.0.1:%d" and "127.0.0.1:%d"`},
		"less often":           {content: `":%d"`, err: "1 times, not 2 times"},
		"more often":           {content: `":%d" ":%d" ":%d"`, err: "3 times, not 2 times"},
		"not at all":           {content: "other", err: "0 times, not 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.apply(test.content)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestThePatchOfTheRigIsForTheVersionThatItPins(t *testing.T) {
	folder := filepath.Join("..", "..", "..", inMemory.folder)
	found, err := download(t.Context(), folder, loopback.dependency)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(found, loopback.file))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := loopback.apply(string(content))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(changed, "net.Listen(") != strings.Count(changed, loopback.new) {
		t.Errorf("%s of %s listens elsewhere than where the patch looks", loopback.file, loopback.dependency)
	}
}

func TestAProgramIsBuiltFromAPatchedCopy(t *testing.T) {
	y := newYard(t)
	upstream := t.TempDir()
	source := filepath.Join(upstream, loopback.file)
	if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, []byte(strings.Repeat(loopback.old+"\n", loopback.times)), 0o400); err != nil {
		t.Fatal(err)
	}
	y.write("test/rig/capi/kubeadm/main.go", "package main")
	var modfile string
	b := &builder{
		root: y.root, say: progress{out: &y.said, name: "rig", every: remindEvery},
		find: func(context.Context, string, string) (string, error) { return upstream, nil },
		run: func(ctx context.Context, folder string, args ...string) error {
			modfile = args[slices.Index(args, "-modfile")+1]
			return y.compile(ctx, folder, args...)
		},
	}
	if err := b.provide(t.Context(), []string{"capi-kubeadm"}); err != nil {
		t.Fatal(err)
	}
	y.equal("program", y.in("capi-kubeadm"), "built capi-kubeadm")
	goMod, err := os.ReadFile(modfile)
	if err != nil {
		t.Fatal(err)
	}
	_, copied, replaced := strings.Cut(string(goMod), "replace "+loopback.dependency+" => ")
	if !replaced {
		t.Fatalf("the go.mod does not take the copy: %s", goMod)
	}
	changed, err := os.ReadFile(filepath.Join(strings.TrimSpace(copied), loopback.file))
	if err != nil {
		t.Fatal(err)
	}
	y.equal("changes", strings.Count(string(changed), loopback.new), loopback.times)

	if err := b.provide(t.Context(), []string{"capi-kubeadm"}); err != nil {
		t.Fatal(err)
	}
	y.equal("builds", len(y.asked), 1)
}
