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

// A fault is a change of one file, written by hand.
type fault struct {
	title, file string
	old, new    string
}

// readFaults reads the list of faults. The first lines of the list describe its format.
func readFaults(path string) ([]fault, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of faults: %w", err)
	}
	var faults []fault
	for i, block := range strings.Split(string(content), "\n= ") {
		if i == 0 {
			continue // the comment at the top
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

// tryFaults tries each fault whose title matches only, and prints the packages whose tests fail. A fault that no test notices is an error.
func tryFaults(ctx context.Context, work string, only *regexp.Regexp, args []string) error {
	faults, err := readFaults(filepath.Join("hack", "mutate", "faults.txt"))
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"-short", "./..."}
	}
	args = append([]string{"test", "-vet=off"}, args...)
	without, err := fault{title: "there is no fault"}.test(ctx, ".", args)
	if err != nil {
		return err
	}
	var problems []error
	if len(without) > 0 {
		problems = append(problems, fmt.Errorf("these fail without a fault, and notice none: %s", strings.Join(without, " ")))
	}
	for _, f := range faults {
		if !only.MatchString(f.title) {
			continue
		}
		noticed, err := f.try(ctx, work, args)
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

// try returns the packages whose tests fail with the fault. A changed Go file is given to the compiler as an overlay. Other files are read
// by tests, so the whole tree is copied.
func (f fault) try(ctx context.Context, work string, args []string) ([]string, error) {
	original, err := os.ReadFile(f.file)
	if err != nil {
		return nil, fmt.Errorf("put in that %s: %w", f.title, err)
	}
	if n := strings.Count(string(original), f.old); n != 1 {
		return nil, fmt.Errorf("put in that %s: %s has the text %d times, and needs it once: correct hack/mutate/faults.txt", f.title, f.file, n)
	}
	changed := []byte(strings.Replace(string(original), f.old, f.new, 1))
	if filepath.Ext(f.file) == ".go" {
		overlay, err := writeOverlay(work, map[string][]byte{f.file: changed})
		if err != nil {
			return nil, err
		}
		return f.test(ctx, ".", slices.Insert(slices.Clone(args), 1, "-overlay="+overlay))
	}
	tree, err := copyTree(ctx, work)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tree, f.file), changed, 0o644); err != nil { //nolint:gosec // as any file of the user
		return nil, fmt.Errorf("put in that %s: %w", f.title, err)
	}
	return f.test(ctx, tree, args)
}

var failedPackage = regexp.MustCompile(`(?m)^FAIL\s+github\.com/kubemend/kubemend/?(\S*)( \[build failed\])?`)

func (f fault) test(ctx context.Context, dir string, args []string) (noticed []string, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, failed := cmd.CombinedOutput()
	for _, found := range failedPackage.FindAllSubmatch(out, -1) {
		if len(found[2]) > 0 {
			return nil, fmt.Errorf("put in that %s: it does not compile: %s", f.title, out)
		}
		noticed = append(noticed, string(found[1]))
	}
	if failed != nil && len(noticed) == 0 {
		return nil, fmt.Errorf("test with the fault that %s: %w: %s", f.title, failed, out)
	}
	slices.Sort(noticed)
	return slices.Compact(noticed), nil
}

// copyTree copies all files that git tracks or would add, including uncommitted changes, and links what was built.
func copyTree(ctx context.Context, work string) (string, error) {
	to := filepath.Join(work, "tree")
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", fmt.Errorf("list the files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not committed
		}
		if err != nil {
			return "", fmt.Errorf("copy the tree: %w", err)
		}
		at := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // as any folder of the user
			return "", fmt.Errorf("copy the tree: %w", err)
		}
		if err := os.WriteFile(at, content, 0o644); err != nil { //nolint:gosec // as any file of the user
			return "", fmt.Errorf("copy the tree: %w", err)
		}
	}
	for _, built := range []string{".tools", "bin"} {
		from, err := filepath.Abs(built)
		if err == nil {
			err = os.Symlink(from, filepath.Join(to, built))
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("copy the tree: %w", err)
		}
	}
	return to, nil
}
