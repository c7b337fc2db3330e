package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ClusterctlProgram is the file of clusterctl.
func ClusterctlProgram() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return binariesOf(root).find(clusterctl)
}

// Clusterctl runs clusterctl, of the version of Cluster API that go.mod asks for, and returns what it writes to its standard output. What it
// writes to its standard error is in the error. The file config is the only configuration it sees: nothing of the user's own, no other providers'
// variables, no look for a newer version of itself. Arguments that name a kubeconfig are the caller's.
func Clusterctl(ctx context.Context, config string, args ...string) ([]byte, error) {
	program, err := ClusterctlProgram()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "kubemend-clusterctl-")
	if err != nil {
		return nil, fmt.Errorf("make a home for clusterctl: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	command := exec.CommandContext(ctx, program, append(args, "--config", config)...)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home,
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
	}
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("clusterctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}
