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
	"time"
)

// contender is a program that is measured.
type contender struct {
	name  string
	title string
	// source is the package that it is built from.
	source string
	args   []string
	// reconciles is the metric that counts its reconciles, and controller the name of its controller there: that of MachineHealthChecks if it is empty.
	reconciles, controller string
	// interval is the least time between two reconciles of one check.
	interval time.Duration
}

// The packages that programs are built from.
const (
	ourSource      = "github.com/kubemend/kubemend"
	upstreamSource = ourSource + "/test/bench/upstream"
	pluginSource   = ourSource + "/cmd/kubectl-mend"
)

// unlimitedName is Cluster API's reconciler without the feature gate that limits how often it reconciles.
const unlimitedName = "cluster-api-unlimited"

// contenders are all there are: kubemend first, then those to compare it with.
func contenders() []contender {
	const reconciles = "controller_runtime_reconcile_total"
	return []contender{
		{
			name: "kubemend", title: "kubemend", source: ourSource, reconciles: reconciles,
			args: []string{"--unclaimed-machine-health-checks=act"},
		},
		{
			// Its own metric leaves out the reconciles that its limit puts off.
			name: "cluster-api", title: "Cluster API", source: upstreamSource, reconciles: "capi_reconcile_total", interval: 15 * time.Second,
		},
		{
			name: unlimitedName, title: "Cluster API without its limit", source: upstreamSource, reconciles: reconciles,
			args: []string{"--feature-gates=ReconcilerRateLimiting=false"},
		},
	}
}

// kubemend is our contender, with these arguments and those of the command line.
func (s settings) kubemend(args ...string) contender {
	c := contenders()[0]
	c.args = slices.Concat(c.args, args, s.more)
	return c
}

func contenderNames() []string {
	all := contenders()
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	return names
}

// lineUp are the contenders at a size: those asked for, or else all, but for Cluster API without its limit, which is slow and takes part at
// one size alone. In a short run those with an interval, which take longest, are left out.
func lineUp(n size, s settings) []contender {
	var chosen []contender
	for _, c := range contenders() {
		takesPart := slices.Contains(s.contenders, c.name)
		switch {
		case len(s.contenders) > 0:
		case s.quick:
			takesPart = c.interval == 0
		default:
			takesPart = c.name != unlimitedName || n == size{1000, 1}
		}
		if c.source == ourSource {
			c = s.kubemend()
		}
		if takesPart {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// build builds every program that may be measured into bin/bench, so that what is measured is what the source says now. It returns the
// binaries by their sources.
func build(ctx context.Context, s settings) (map[string]string, error) {
	root, err := projectRoot(ctx)
	if err != nil {
		return nil, err
	}
	binaries := map[string]string{}
	for _, program := range []struct {
		name, source string
		wanted       bool
	}{
		{"kubemend", ourSource, true},
		{"cluster-api", upstreamSource, s.wants(checksPart)},
		{"kubectl-mend", pluginSource, s.wants(cliPart)},
	} {
		if !program.wanted {
			continue
		}
		since := time.Now()
		binary := filepath.Join(root, "bin", "bench", program.name)
		if _, err := command(ctx, root, "go", "build", "-o", binary, program.source); err != nil {
			return nil, fmt.Errorf("build %s: %w", program.name, err)
		}
		binaries[program.source] = binary
		progress("built %s in %.1fs", program.name, time.Since(since).Seconds())
	}
	return binaries, nil
}

func projectRoot(ctx context.Context) (string, error) {
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", ourSource)
	if err != nil {
		return "", fmt.Errorf("find the folder of the project: %w", err)
	}
	return root, nil
}

// ownCRDs are the folders with the CRDs of kubemend's own kinds.
func ownCRDs(ctx context.Context) ([]string, error) {
	root, err := projectRoot(ctx)
	return []string{filepath.Join(root, "config", "crd", "bases")}, err
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
