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
	// passes is the metric that counts its passes, of the controller of MachineHealthChecks unless another one is named.
	passes, controller string
	// floor is the least time between two passes over one check.
	floor time.Duration
}

// unlimitedName is Cluster API's reconciler with the feature gate off that keeps it from making passes too often.
const unlimitedName = "cluster-api-unlimited"

// contenders are all there are, those to compare with after ours.
func contenders() []contender {
	const (
		ours     = "github.com/kubemend/kubemend"
		upstream = "github.com/kubemend/kubemend/test/bench/upstream"
		passes   = "controller_runtime_reconcile_total"
	)
	return []contender{
		{
			name: "kubemend", title: "kubemend", source: ours, passes: passes,
			args: []string{"--unclaimed-machine-health-checks=act"},
		},
		{
			// Its own metric leaves out the passes that its limit puts off without looking.
			name: "cluster-api", title: "Cluster API", source: upstream, passes: "capi_reconcile_total", floor: 15 * time.Second,
		},
		{
			name: unlimitedName, title: "Cluster API without its limit", source: upstream, passes: passes,
			args: []string{"--feature-gates=ReconcilerRateLimiting=false"},
		},
	}
}

func contenderNames() []string {
	all := contenders()
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	return names
}

// lineUp are the contenders of a world: those asked for, or else, to save time, Cluster API without its limit in one world
// alone. In a short run nobody takes part who would have to be waited for.
func lineUp(w world, s settings) []contender {
	var chosen []contender
	for _, c := range contenders() {
		takesPart := slices.Contains(s.contenders, c.name)
		switch {
		case len(s.contenders) > 0:
		case s.quick:
			takesPart = c.floor == 0
		default:
			takesPart = c.name != unlimitedName || w == world{1000, 1}
		}
		if takesPart {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// build builds every contender that may take part into bin/bench, so that what is measured is what the source says now.
func build(ctx context.Context, s settings) (map[string]string, error) {
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubemend/kubemend")
	if err != nil {
		return nil, fmt.Errorf("find the folder of the project: %w", err)
	}
	binaries := map[string]string{}
	programs := contenders()
	if s.wants(cliPart) {
		programs = append(programs, contender{name: "kubectl-mend", title: "kubectl mend", source: pluginSource})
	}
	for _, c := range programs {
		_, built := binaries[c.source]
		if alone := !s.wants(checksPart) && c.source != contenders()[0].source && c.source != pluginSource; built || alone {
			continue
		}
		since := time.Now()
		binary := filepath.Join(root, "bin", "bench", c.name)
		if _, err := command(ctx, root, "go", "build", "-o", binary, c.source); err != nil {
			return nil, fmt.Errorf("build %s: %w", c.title, err)
		}
		binaries[c.source] = binary
		say("built %s in %.1fs", c.title, time.Since(since).Seconds())
	}
	return binaries, nil
}

func command(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false") // as the Makefile has it
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(err, errors.New(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
