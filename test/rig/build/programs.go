package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// module is a folder with a go.mod, from which programs are built.
type module struct {
	folder string
	// The programs print the version of the dependency version, from variables in the package stamp. Both are empty if they print none.
	version, stamp string
	// patch is the change of a dependency, if there is one.
	patch patch
}

var (
	// Without a version Cluster API refuses to talk to the API server.
	kube = module{folder: "test/rig/kube", version: "k8s.io/kubernetes", stamp: "k8s.io/component-base/version"}
	// clusterctl uses its own version to choose releases.
	capi     = module{folder: "test/rig/capi", version: "sigs.k8s.io/cluster-api", stamp: "sigs.k8s.io/cluster-api/version"}
	inMemory = module{folder: capi.folder, version: capi.version, stamp: capi.stamp, patch: loopback}
	project  = module{folder: "."}
)

const etcdServer = "go.etcd.io/etcd/server/v3"

// program is one file of .rig/bin.
type program struct {
	name string
	from module
	// builds is the package to build.
	builds string
	// output is the file name that go gives it, if that is not name.
	output string
	// sources are patterns of its source files, relative to the folder of its module. go.mod and go.sum are always included.
	sources []string
	// usually is how long the build takes on two cores if only kubemend's own dependencies are cached.
	usually time.Duration
	// asset is a dependency: the program may come from KUBEBUILDER_ASSETS if it has the same minor version as this dependency. It is empty
	// if the program must be built.
	asset string
	// older is how many minor versions older it may be.
	older int
}

// programs are all programs of a rig. One go command builds all programs of a module, because they share most packages.
var programs = []program{
	// kube-apiserver also works with the etcd of the previous minor version.
	{name: "etcd", from: kube, builds: etcdServer, output: "server", usually: 20 * time.Second, asset: etcdServer, older: 1},
	{name: "kube-apiserver", from: kube, builds: "k8s.io/kubernetes/cmd/kube-apiserver", usually: 70 * time.Second, asset: kube.version},
	{name: "kube-controller-manager", from: kube, builds: "k8s.io/kubernetes/cmd/kube-controller-manager", usually: 50 * time.Second,
		asset: kube.version},
	{name: "kubectl", from: kube, builds: "k8s.io/kubernetes/cmd/kubectl", usually: 30 * time.Second},
	{name: "capi-core", from: capi, builds: ".", output: "capi", sources: []string{"*.go", "program/*.go"}, usually: 20 * time.Second},
	{name: "clusterctl", from: capi, builds: "sigs.k8s.io/cluster-api/cmd/clusterctl", usually: 20 * time.Second},
	{
		name: "capi-kubeadm", from: inMemory, builds: "./kubeadm", output: "kubeadm", sources: []string{"kubeadm/*.go", "program/*.go"},
		usually: 40 * time.Second,
	},
	{name: "reaper", from: project, builds: "./test/rig/reaper", sources: []string{"test/rig/reaper/*.go"}, usually: 2 * time.Second},
}

// named returns the programs with these names, in the order of the table.
func named(names []string) ([]program, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var found []program
	for _, p := range programs {
		if wanted[p.name] {
			found = append(found, p)
			delete(wanted, p.name)
		}
	}
	for name := range wanted {
		return nil, fmt.Errorf("find program %q: the rig has none of that name", name)
	}
	return found, nil
}

// flags returns the linker flags of the module's programs.
func (m module) flags(root string) (string, error) {
	if m.version == "" {
		return "-s -w", nil
	}
	version, err := m.pinned(root, m.version)
	if err != nil {
		return "", err
	}
	major, minor := numbers(version)
	return fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]d -X %[1]s.gitMinor=%[4]d -X %[1]s.gitTreeState=clean",
		m.stamp, version, major, minor), nil
}

// pinned returns the version of a dependency in the module's go.mod.
func (m module) pinned(root, dependency string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, m.folder, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find the version of %s: %w", dependency, err)
	}
	for line := range strings.Lines(string(content)) {
		if words := strings.Fields(strings.TrimPrefix(line, "require ")); len(words) >= 2 && words[0] == dependency {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("find the version of %s: it is not in %s/go.mod", dependency, m.folder)
}

// askFor is the timeout of a program that prints its version.
const askFor = 20 * time.Second

// asset returns the path and version of a program in KUBEBUILDER_ASSETS if the rig can use it. Otherwise why is the reason; it is empty if
// the variable is not set.
func (b *builder) asset(ctx context.Context, p program) (path, version, why string, err error) {
	if b.assets == "" || p.asset == "" {
		return "", "", "", nil
	}
	folder, err := filepath.Abs(b.assets)
	if err != nil {
		return "", "", "", fmt.Errorf("find %s: %w", assetsEnv, err)
	}
	if b.ours(folder) {
		return "", "", "", nil
	}
	pinned, err := p.from.pinned(b.root, p.asset)
	if err != nil {
		return "", "", "", err
	}
	path = filepath.Join(folder, p.name)
	version, failed := ask(ctx, path)
	major, minor := numbers(pinned)
	switch {
	case errors.Is(failed, os.ErrNotExist):
		why = "has no " + p.name
	case failed != nil:
		why = fmt.Sprintf("has a file %s that does not say its version (%v)", p.name, failed)
	case !p.usable(version, pinned):
		why = fmt.Sprintf("has %s %s, the rig needs v%d.%d", p.name, version, major, minor)
	default:
		return path, version, "", nil
	}
	return "", "", why, nil
}

// ours reports whether folder is one of the builder's own folders: a link from .rig/bin to itself would be broken.
func (b *builder) ours(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil {
		return false
	}
	for _, own := range []string{b.bin(), b.built()} {
		if target, err := os.Stat(own); err == nil && os.SameFile(info, target) {
			return true
		}
	}
	return false
}

func (p program) usable(version, pinned string) bool {
	major, minor := numbers(version)
	wantMajor, wantMinor := numbers(pinned)
	return major == wantMajor && minor <= wantMinor && minor >= wantMinor-p.older
}

// spelled matches the version in what a program prints: "Kubernetes v1.36.3", "etcd Version: 3.6.8".
var spelled = regexp.MustCompile(`v?([0-9]+)\.([0-9]+)\.[0-9]+\S*`)

func ask(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run it with --version: %w", err)
	}
	version := spelled.Find(out)
	if version == nil {
		return "", fmt.Errorf("run it with --version: no version in %q", out[:min(len(out), 100)])
	}
	return string(version), nil
}

// numbers returns the major and minor version.
func numbers(version string) (major, minor int) {
	found := spelled.FindStringSubmatch(version)
	if found == nil {
		return 0, 0
	}
	major, _ = strconv.Atoi(found[1]) // the pattern has digits alone
	minor, _ = strconv.Atoi(found[2])
	return major, minor
}
