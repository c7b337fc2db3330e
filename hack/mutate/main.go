// Command mutate changes one operator of the deciding code at a time, and reports the changes that no test notices.
//
// It compiles all mutants of a package into its test binary and selects one at run time. It fails if too many mutants survive, if a
// survivor is not listed in survivors.txt, or if a listed mutant does not survive.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

// A target is a package that decides.
type target struct {
	folder string
	// least is the percentage of reached mutants that the tests must kill.
	least float64
	// also are other packages whose tests cover decisions of this package.
	also []string
}

var targets = []target{
	{folder: "controllers/claims", least: 95},
	{folder: "controllers/decide/budget", least: 95},
	{
		folder: "controllers/decide/controlplane", least: 95,
		also: []string{"baremetal/powercycle", "controllers/nodehealthcheck", "controllers/hostremediation"},
	},
	{folder: "controllers/decide/escalation", least: 95, also: []string{"controllers/nodehealthcheck"}},
	{folder: "controllers/decide/health", least: 95, also: []string{"controllers/machinehealthcheck", "controllers/nodehealthcheck"}},
	{folder: "controllers/decide/repeats", least: 95},
	{folder: "controllers/remediationrecord", least: 85},
	{folder: "controllers/capacity", least: 85},
	{folder: "baremetal/powercycle", least: 95, also: []string{"controllers/hostremediation"}},
	{folder: "controllers/machinehealthcheck", least: 85, also: []string{"test/inmemory/machines"}},
	{folder: "controllers/nodehealthcheck", least: 85, also: []string{"test/inmemory/nodes"}},
	{folder: "controllers/hostremediation", least: 85},
}

// Files that import one of these packages do I/O or count, and decide nothing. They are not mutated.
var impure = []string{"context", "github.com/prometheus/client_golang/prometheus"}

func main() {
	only := regexp.MustCompile("")
	flag.TextVar(only, "only", only, "mutate only the files whose path this matches, or try the faults whose title it does")
	faults := flag.Bool("faults", false, "try the faults of faults.txt instead, with the tests that the arguments name as go test does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, only, *faults)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only *regexp.Regexp, faults bool) (err error) {
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return fmt.Errorf("make a folder to work in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if faults {
		return tryFaults(ctx, work, only, flag.Args())
	}
	listed, err := readSurvivors(filepath.Join("hack", "mutate", "survivors.txt"))
	if err != nil {
		return err
	}
	var problems []error
	for _, t := range targets {
		mutants, err := t.mutate(ctx, work, only)
		if err != nil {
			return fmt.Errorf("mutate %s: %w", t.folder, err)
		}
		if len(mutants) > 0 {
			problems = append(problems, t.compare(mutants, listed, only))
		}
	}
	return errors.Join(problems...)
}
