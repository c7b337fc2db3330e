package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ourSource is the package of the manager.
const ourSource = "github.com/kubemend/kubemend"

// bench is what every part needs: the settings, the programs, and where the CRDs of kubemend's own kinds are.
type bench struct {
	settings
	manager, plugin string
	crds            []string
}

// program is the manager as it is measured.
type program struct {
	binary string
	args   []string
	// controller is the name in the metrics of the controller whose reconciles are counted.
	controller string
}

// kubemend is the manager, with these arguments and those of the command line.
func (b bench) kubemend(args ...string) program {
	all := slices.Concat([]string{"--unclaimed-machine-health-checks=act"}, args, b.more)
	return program{binary: b.manager, args: all, controller: checkController}
}

// build builds what is measured into bin/bench, so that it is what the source says now.
func build(ctx context.Context, s settings) (bench, error) {
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", ourSource)
	if err != nil {
		return bench{}, fmt.Errorf("find the folder of the project: %w", err)
	}
	bin := filepath.Join(root, "bin", "bench")
	b := bench{
		settings: s, manager: filepath.Join(bin, "kubemend"), plugin: filepath.Join(bin, "kubectl-mend"),
		crds: []string{filepath.Join(root, "config", "crd", "bases")},
	}
	for binary, source := range map[string]string{b.manager: ourSource, b.plugin: ourSource + "/cmd/kubectl-mend"} {
		if _, err := command(ctx, root, "go", "build", "-o", binary, source); err != nil {
			return b, fmt.Errorf("build %s: %w", source, err)
		}
	}
	progress("built the manager and kubectl-mend")
	return b, nil
}

func command(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false") // as the Makefile has it
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(err, errors.New(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
