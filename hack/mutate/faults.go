package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A fault is a change of one file by hand.
type fault struct {
	title, file string
	old, new    string
}

// readFaults reads the list of faults: its own first lines say how it is written.
func readFaults(path string) ([]fault, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of faults: %w", err)
	}
	var faults []fault
	for i, block := range strings.Split(string(content), "\n= ") {
		if i == 0 {
			continue // the comment
		}
		title, rest, _ := strings.Cut(block, "\n")
		file, rest, _ := strings.Cut(rest, "\n-")
		old, replacement, found := strings.Cut(rest, "\n+")
		if !found {
			return nil, fmt.Errorf("%s: fault %q needs a file, a text that begins with - and one that begins with +", path, title)
		}
		faults = append(faults, fault{title: title, file: file, old: old, new: strings.TrimRight(replacement, "\n")})
	}
	return faults, nil
}

// tryFaults puts each fault whose title contains only into a copy of the tree, and prints which packages' tests fail. It fails if one is noticed by none.
func tryFaults(ctx context.Context, tree, only string, args []string) error {
	faults, err := readFaults(filepath.Join("hack", "mutate", "faults.txt"))
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"-short", "./..."}
	}
	without, err := fault{title: "there is no fault"}.try(ctx, tree, args)
	if err != nil {
		return err
	}
	var problems []error
	for _, f := range faults {
		if !strings.Contains(f.title, only) {
			continue
		}
		noticed, err := f.try(ctx, tree, args)
		noticed = slices.DeleteFunc(noticed, func(failed string) bool { return slices.Contains(without, failed) })
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			problems = append(problems, err)
		case len(noticed) == 0:
			problems = append(problems, fmt.Errorf("no test notices that %s", f.title))
		}
		fmt.Printf("%s: %s\n", f.title, strings.Join(noticed, " "))
	}
	return errors.Join(problems...)
}

var failedPackage = regexp.MustCompile(`(?m)^FAIL\s+github\.com/kubemend/kubemend/?(\S*)`)

// try returns the packages whose tests fail in a tree with the fault.
func (f fault) try(ctx context.Context, tree string, args []string) (noticed []string, err error) {
	if f.file == "" {
		return f.test(ctx, tree, args)
	}
	path := filepath.Join(tree, f.file)
	original, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("put in that %s: %w", f.title, err)
	}
	if n := strings.Count(string(original), f.old); n != 1 {
		return nil, fmt.Errorf("put in that %s: %s has the text %d times, and needs it once: correct hack/mutate/faults.txt", f.title, f.file, n)
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, original, 0o644)) }() //nolint:gosec // as any file of the user
	changed := strings.Replace(string(original), f.old, f.new, 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil { //nolint:gosec // as any file of the user
		return nil, fmt.Errorf("put in that %s: %w", f.title, err)
	}
	return f.test(ctx, tree, args)
}

func (f fault) test(ctx context.Context, tree string, args []string) (noticed []string, err error) {
	if out, err := f.run(ctx, tree, "build", "./..."); err != nil {
		return nil, fmt.Errorf("put in that %s: it does not compile: %s", f.title, out)
	}
	out, failed := f.run(ctx, tree, append([]string{"test", "-vet=off"}, args...)...)
	for _, found := range failedPackage.FindAllStringSubmatch(out, -1) {
		noticed = append(noticed, found[1])
	}
	if failed != nil && len(noticed) == 0 {
		return nil, fmt.Errorf("test with the fault that %s: %w: %s", f.title, failed, out)
	}
	slices.Sort(noticed)
	return slices.Compact(noticed), nil
}

func (f fault) run(ctx context.Context, tree string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = tree
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}
