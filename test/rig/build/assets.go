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
	"time"
)

// askFor bounds how long a program may take to say its version.
const askFor = 20 * time.Second

// asset is the path of a program in the folder of KUBEBUILDER_ASSETS and its version, if the rig can use it. Otherwise why is the reason; it is empty
// if the variable is not set.
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

// ours reports whether the folder is one that we write to: a link to itself would be of no use.
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

// spelled is a version in what a program says of itself: "Kubernetes v1.36.3", "etcd Version: 3.6.8".
var spelled = regexp.MustCompile(`v?([0-9]+)\.([0-9]+)\.[0-9]+\S*`)

// ask runs a program for its version.
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

// numbers are the first two of a version.
func numbers(version string) (major, minor int) {
	found := spelled.FindStringSubmatch(version)
	if found == nil {
		return 0, 0
	}
	major, _ = strconv.Atoi(found[1]) // the pattern has digits alone
	minor, _ = strconv.Atoi(found[2])
	return major, minor
}
