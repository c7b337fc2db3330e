package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"
)

var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "capi-core", "reaper"}

// yard is a project with nothing but what programs are built from, and a compiler that writes down what it was asked for.
type yard struct {
	*testing.T
	root   string
	assets string
	broken error
	// meanwhile happens while it compiles.
	meanwhile func()

	asked []string
	said  bytes.Buffer
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{T: t, root: t.TempDir()}
	for _, folder := range []string{".", "test/rig/kube", "test/rig/capi"} {
		y.write(filepath.Join(folder, "go.sum"), "")
		y.write(filepath.Join(folder, "go.mod"), `module some

require (
	go.etcd.io/etcd/server/v3 v3.6.8
	k8s.io/kubernetes v1.36.3
	sigs.k8s.io/cluster-api v1.14.2
)
`)
	}
	y.write("test/rig/capi/main.go", "package main")
	y.write("test/rig/reaper/main.go", "package main")
	return y
}

func (y *yard) write(name, content string) {
	y.Helper()
	file := filepath.Join(y.root, name)
	must.Do(y, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)))
}

func (y *yard) remove(folder, name string) {
	y.Helper()
	must.Do(y, os.Remove(filepath.Join(y.root, ".rig", folder, name)))
}

// asset is a program that says its version, in a folder of its own.
func (y *yard) asset(name, says string) {
	y.Helper()
	if y.assets == "" {
		y.assets = y.TempDir()
	}
	must.Do(y, os.WriteFile(filepath.Join(y.assets, name), []byte("#!/bin/sh\n"+says+"\n"), 0o700))
}

// compile stands for the go command: it makes a file for each package that it is to build.
func (y *yard) compile(_ context.Context, _ string, args ...string) error {
	var made []string
	into := args[slices.Index(args, "-o")+1]
	for _, p := range programs {
		if !slices.Contains(args, p.builds) {
			continue
		}
		made = append(made, p.name)
		output := p.name
		if p.output != "" {
			output = p.output
		}
		if err := os.WriteFile(filepath.Join(into, output), []byte("#!/bin/sh\necho 3.6.8 # built "+p.name), 0o700); err != nil {
			return err
		}
	}
	y.asked = append(y.asked, strings.Join(made, " "))
	if y.meanwhile != nil {
		y.meanwhile()
	}
	return y.broken
}

// provide returns what was built, one entry for each go command, and the lines about it.
func (y *yard) provide(names ...string) (asked []string, said string, err error) {
	y.Helper()
	y.asked = nil
	y.said.Reset()
	b := &builder{root: y.root, assets: y.assets, say: progress{out: &y.said, name: "rig", every: remindEvery}, run: y.compile}
	err = b.provide(y.Context(), names)
	return y.asked, y.said.String(), err
}

func (y *yard) mustProvide(names ...string) (asked []string, said string) {
	y.Helper()
	asked, said, err := y.provide(names...)
	must.Do(y, err)
	return asked, said
}

// in reports what is found as a program in .rig/bin: "built etcd", "asset" or "missing".
func (y *yard) in(name string) string {
	content, err := os.ReadFile(filepath.Join(y.root, ".rig", "bin", name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "missing"
	case err != nil:
		y.Fatal(err)
	}
	if _, source, ours := strings.Cut(string(content), "# built "); ours {
		return "built " + source
	}
	return "asset"
}

func (y *yard) equal(what string, got, want any) {
	y.Helper()
	must.Equal(y, want, got, "%s", what)
}

func TestAProgramIsBuiltAgainWhenItsSourcesChange(t *testing.T) {
	for name, c := range map[string]struct {
		change func(y *yard)
		want   []string
	}{
		"go.sum of its module": {func(y *yard) { y.write("test/rig/kube/go.sum", "x") },
			[]string{"etcd kube-apiserver kube-controller-manager"}},
		"its source":             {func(y *yard) { y.write("test/rig/capi/main.go", "package other") }, []string{"capi-core"}},
		"a new file":             {func(y *yard) { y.write("test/rig/reaper/more.go", "package main") }, []string{"reaper"}},
		"a test":                 {func(y *yard) { y.write("test/rig/reaper/more_test.go", "package main") }, nil},
		"the program is removed": {func(y *yard) { y.remove("built", "etcd") }, []string{"etcd"}},
		"its link is removed":    {func(y *yard) { y.remove("bin", "etcd") }, nil},
		"it was not linked": {func(y *yard) {
			y.remove("bin", "etcd")
			y.write(".rig/bin/etcd", "of an older layout")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			asked, _ := y.mustProvide(controlPlane...)
			y.equal("built at first", asked, []string{"etcd kube-apiserver kube-controller-manager", "capi-core", "reaper"})
			c.change(y)
			asked, _ = y.mustProvide(controlPlane...)
			y.equal("built", asked, c.want)
			for _, program := range controlPlane {
				y.equal(program, y.in(program), "built "+program)
			}
		})
	}
}

func TestABuildThatFailsLeavesNothingThatLooksFinished(t *testing.T) {
	y := newYard(t)
	y.mustProvide("etcd", "reaper")
	y.write("test/rig/kube/go.mod", "module some\n\nrequire k8s.io/kubernetes v1.37.0\n\nrequire go.etcd.io/etcd/server/v3 v3.6.9\n")
	y.broken = errors.New("the compiler does not like it")
	_, said, err := y.provide("etcd", "reaper")
	if !errors.Is(err, y.broken) {
		t.Errorf("got %v", err)
	}
	if strings.Contains(said, "built") {
		t.Errorf("it says that something is built:\n%s", said)
	}
	y.equal("etcd", y.in("etcd"), "missing")
	y.equal("reaper", y.in("reaper"), "built reaper")
	left, _ := filepath.Glob(filepath.Join(y.root, ".rig", "built", "part-*"))
	y.equal("folders to build in", left, []string(nil))

	y.broken = nil
	asked, _ := y.mustProvide("etcd", "reaper")
	y.equal("built after that", asked, []string{"etcd"})
}

const saysEtcd = "echo etcd Version: 3.6.4; echo Git SHA: Not provided; echo Go Version: go1.24.11"

func TestAssetsThatTheRigCannotUseAreBuilt(t *testing.T) {
	for name, c := range map[string]struct{ program, says, why string }{
		"a kube-apiserver of an older minor version": {
			"kube-apiserver", "echo Kubernetes v1.31.0", "has kube-apiserver v1.31.0, the rig needs v1.36",
		},
		"a kube-apiserver of a newer minor version": {"kube-apiserver", "echo Kubernetes v1.37.0",
			"has kube-apiserver v1.37.0, the rig needs v1.36"},
		"an etcd two minor versions older": {"etcd", "echo etcd Version: 3.4.23", "has etcd 3.4.23, the rig needs v3.6"},
		"an etcd that ends with an error": {"etcd", "echo 3.6.8; exit 1",
			"has a file etcd that does not say its version (run it with --version: exit status 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.asset(c.program, c.says)
			asked, said := y.mustProvide(c.program)
			y.equal("built", asked, []string{c.program})
			y.equal(c.program, y.in(c.program), "built "+c.program)
			if !strings.Contains(said, "rig: KUBEBUILDER_ASSETS "+c.why) || !strings.Contains(said, ": building it\n") {
				t.Errorf("it does not say why:\n%s", said)
			}
		})
	}
}

func TestAChangeOfKubebuilderAssetsIsNoticed(t *testing.T) {
	y := newYard(t)
	y.mustProvide("etcd", "kube-apiserver")
	y.asset("etcd", saysEtcd)
	folder := y.assets

	asked, _ := y.mustProvide("etcd", "kube-apiserver")
	y.equal("built when it is on", asked, []string(nil))
	y.equal("etcd when it is on", y.in("etcd"), "asset")

	y.assets = ""
	asked, _ = y.mustProvide("etcd", "kube-apiserver")
	y.equal("built when it is off", asked, []string(nil))
	y.equal("etcd when it is off", y.in("etcd"), "built etcd")

	y.assets = folder
	y.mustProvide("etcd", "kube-apiserver")
	y.equal("etcd when it is on again", y.in("etcd"), "asset")
	must.Do(t, os.Remove(filepath.Join(folder, "etcd")))
	y.mustProvide("etcd", "kube-apiserver")
	y.equal("etcd when the asset is gone", y.in("etcd"), "built etcd")
}

func TestThePatchOfTheRigIsForTheVersionThatItPins(t *testing.T) {
	folder := filepath.Join("..", "..", "..", inMemory.folder)
	found, err := download(t.Context(), folder, loopback.dependency)
	must.Do(t, err)
	content, err := os.ReadFile(filepath.Join(found, loopback.file))
	must.Do(t, err)
	changed, err := loopback.apply(string(content))
	must.Do(t, err)
	if strings.Count(changed, "net.Listen(") != strings.Count(changed, loopback.new) {
		t.Errorf("%s of %s listens elsewhere than where the patch looks", loopback.file, loopback.dependency)
	}
}
