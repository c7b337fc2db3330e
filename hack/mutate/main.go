// Command mutate changes the deciding code of the project, one operator at a time, and reports the changes that no unit test notices.
//
// gremlins makes the mutants and runs the tests. This program gives it a copy of the tree to work in, and compares what it found with
// survivors.txt: it fails when too many mutants survive, when one survives that is not listed there, and when one listed there does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A target is a package with decisions.
type target struct {
	folder string
	// least is how many of a hundred covered mutants the tests must kill.
	least float64
}

var targets = []target{
	{folder: "controllers/decide/health", least: 95},
	{folder: "controllers/claims", least: 95},
	{folder: "controllers/decide/budget", least: 95},
	{folder: "controllers/decide/controlplane", least: 95},
	{folder: "controllers/decide/escalation", least: 95},
	{folder: "controllers/remediationrecord", least: 85},
	{folder: "controllers/capacity", least: 85},
	{folder: "baremetal/powercycle", least: 95},
	{folder: "controllers/machinehealthcheck", least: 85},
	{folder: "controllers/nodehealthcheck", least: 85},
	{folder: "controllers/hostremediation", least: 85},
}

// Files that import one of these read, write or count, and decide nothing: they are not mutated.
var impure = []string{"context", "github.com/prometheus/client_golang/prometheus"}

func main() {
	if filepath.Base(os.Args[0]) == "go" {
		os.Exit(goCommand(os.Args[1:]))
	}
	gremlins := flag.String("gremlins", "gremlins", "the mutation tester")
	only := flag.String("only", "", "test only the packages whose folder contains this, or the faults whose title does")
	faults := flag.Bool("faults", false, "try the faults of faults.txt instead, with the tests that the arguments name as go test does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *gremlins, *only, *faults)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, gremlins, only string, faults bool) (err error) {
	listed, err := readSurvivors(filepath.Join("hack", "mutate", "survivors.txt"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return fmt.Errorf("make a folder to work in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	env, err := environment(work)
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if err := copyTree(ctx, tree); err != nil {
		return err
	}
	if faults {
		return tryFaults(ctx, tree, only, flag.Args())
	}
	var problems []error
	for _, t := range targets {
		if !strings.Contains(t.folder, only) {
			continue
		}
		mutants, err := t.mutate(ctx, gremlins, tree, env)
		if err != nil {
			return fmt.Errorf("mutate %s: %w", t.folder, err)
		}
		problems = append(problems, t.compare(mutants, listed))
	}
	return errors.Join(problems...)
}

// environment is that of gremlins: this program stands in for the go command, and temporary files are in the folder work.
func environment(work string) ([]string, error) {
	command, err := exec.LookPath("go")
	if err != nil {
		return nil, fmt.Errorf("find the go command: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	bin, temp := filepath.Join(work, "bin"), filepath.Join(work, "tmp")
	for _, dir := range []string{bin, temp} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as any folder of the user
			return nil, fmt.Errorf("make a folder to work in: %w", err)
		}
	}
	if err := os.Symlink(self, filepath.Join(bin, "go")); err != nil {
		return nil, fmt.Errorf("stand in for the go command: %w", err)
	}
	path := bin + string(os.PathListSeparator) + os.Getenv("PATH")
	return append(os.Environ(), "PATH="+path, "TMPDIR="+temp, realGo+"="+command), nil
}

// copyTree copies what git knows or would add, with changes that are not committed: gremlins copies the whole folder for each of its workers,
// and must find neither the history in it nor what was built.
func copyTree(ctx context.Context, to string) error {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed
		}
		if err != nil {
			return fmt.Errorf("copy the tree: %w", err)
		}
		at := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // as any folder of the user
			return fmt.Errorf("copy the tree: %w", err)
		}
		if err := os.WriteFile(at, content, 0o644); err != nil { //nolint:gosec // as any file of the user
			return fmt.Errorf("copy the tree: %w", err)
		}
	}
	return nil
}

// mutate runs gremlins on one package.
func (t target) mutate(ctx context.Context, gremlins, tree string, env []string) ([]mutant, error) {
	excluded, err := t.excluded(tree)
	if err != nil {
		return nil, err
	}
	report := filepath.Join(filepath.Dir(tree), strings.ReplaceAll(t.folder, "/", "-")+".json")
	cmd := exec.CommandContext(ctx, gremlins, "unleash", "--config", filepath.Join(tree, "hack", "mutate", "gremlins.yaml"),
		"--exclude-files", excluded, "--output", report, "./"+t.folder)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = tree, env, os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second // gremlins goes through its whole queue first
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run gremlins: %w", err)
	}
	return readReport(report, tree, t.folder)
}

// excluded is a pattern for gremlins of what is not mutated: impure files, and the packages below this one.
func (t target) excluded(tree string) (string, error) {
	files, err := filepath.Glob(filepath.Join(tree, t.folder, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list the files of the package: %w", err)
	}
	patterns := []string{"/"}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return "", fmt.Errorf("read the imports of a file: %w", err)
		}
		for _, i := range file.Imports {
			if slices.Contains(impure, strings.Trim(i.Path.Value, `"`)) {
				patterns = append(patterns, "^"+regexp.QuoteMeta(filepath.Base(name))+"$")
				break
			}
		}
	}
	return strings.Join(patterns, "|"), nil
}
