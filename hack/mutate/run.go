package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memory is the limit of a test's address space in KiB, for mutants that allocate without end.
const memory = "8000000"

// A suite is the test binary of one package, with all mutants.
type suite struct {
	folder, binary string
	args           []string
	reached        map[int]bool
	// patience is the longest time that a run with a mutant may take.
	patience time.Duration
}

// mutate tries the mutants of the package's files whose path matches only.
func (t target) mutate(ctx context.Context, work string, only *regexp.Regexp) ([]*mutant, error) {
	files, err := t.files(only)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	mutants, overlay, err := t.compileMutants(ctx, work, files)
	if err != nil {
		return nil, err
	}
	for _, m := range mutants {
		if m.status == lived {
			m.status = notReached
		}
	}
	for _, folder := range append([]string{t.folder}, t.also...) {
		s, err := newSuite(ctx, work, folder, overlay)
		if err != nil {
			return nil, err
		}
		if err := s.tryAll(ctx, mutants); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(mutants, func(a, b *mutant) int { return strings.Compare(a.name, b.name) })
	return mutants, nil
}

var imported = regexp.MustCompile(`(?m)^(?:import)?\s*(?:\w+ )?"([^"]+)"$`)

// files returns the files of the package that are mutated.
func (t target) files(only *regexp.Regexp) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(t.folder, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list the files of the package: %w", err)
	}
	return slices.DeleteFunc(files, func(path string) bool {
		content, err := os.ReadFile(path)
		return err != nil || strings.HasSuffix(path, "_test.go") || !only.MatchString(filepath.ToSlash(path)) ||
			slices.ContainsFunc(imported.FindAllSubmatch(content, -1), func(found [][]byte) bool { return slices.Contains(impure, string(found[1])) })
	}), nil
}

// needsConstant matches the compiler's error if a variable replaces a constant that another constant or the length of an array needs.
var needsConstant = regexp.MustCompile(`is not constant|must be constant`)

var failedLine = regexp.MustCompile(`(?m)^(?:\./)?([\w./-]+\.go):(\d+):\d+: `)

// compileMutants writes the files with all mutants that compile, and returns them and a file for go's flag -overlay.
func (t target) compileMutants(ctx context.Context, work string, files []string) (mutants []*mutant, overlay string, err error) {
	failures, constants := map[string]map[int]int{}, true
	for range 10 {
		mutants, overlay, err = t.writeMutants(work, files, failures, constants)
		if err != nil {
			return nil, "", err
		}
		out, err := goCommand(ctx, "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", overlay, "-o", os.DevNull, "./"+t.folder)
		if err == nil {
			return mutants, overlay, nil
		}
		if constants && needsConstant.MatchString(out) {
			constants = false
			continue
		}
		failed := map[string]bool{} // a line may have several errors
		for _, at := range failedLine.FindAllStringSubmatch(out, -1) {
			path := filepath.Join(t.folder, filepath.Base(at[1]))
			line, _ := strconv.Atoi(at[2])
			if failures[path] == nil {
				failures[path] = map[int]int{}
			}
			if !failed[path+at[2]] {
				failed[path+at[2]] = true
				failures[path][line]++
			}
		}
		if len(failed) == 0 {
			return nil, "", fmt.Errorf("compile the mutants: %w: %s", err, out)
		}
	}
	return nil, "", errors.New("compile the mutants: too many lines do not compile")
}

func (t target) writeMutants(work string, files []string, failures map[string]map[int]int, constants bool) ([]*mutant, string, error) {
	var mutants []*mutant
	replaced, name := map[string][]byte{}, ""
	for _, path := range files {
		m, err := newMutator(path, failures[path], constants)
		if err != nil {
			return nil, "", err
		}
		replaced[path] = m.rewrite(len(mutants) + 1)
		mutants, name = append(mutants, m.mutants...), m.file.Name.Name
	}
	replaced[filepath.Join(t.folder, "mutants_of_package.go")] = helpers(name, len(mutants))
	overlay, err := writeOverlay(work, replaced)
	return mutants, overlay, err
}

// writeOverlay returns a file for go's flag -overlay, which replaces these files of one package.
func writeOverlay(work string, files map[string][]byte) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the tree: %w", err)
	}
	replaced := map[string]string{}
	for path, content := range files {
		at := filepath.Join(work, filepath.Base(path))
		replaced[filepath.Join(root, path)] = at
		if err := os.WriteFile(at, content, 0o644); err != nil { //nolint:gosec // as any file of the user
			return "", fmt.Errorf("write the overlay: %w", err)
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	overlay := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(overlay, content, 0o644); err != nil { //nolint:gosec // as any file of the user
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return overlay, nil
}

func goCommand(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	return string(out), err
}

// newSuite compiles the tests of a folder, and runs them without a mutant.
func newSuite(ctx context.Context, work, folder, overlay string) (*suite, error) {
	s := &suite{folder: folder, binary: filepath.Join(work, "suite.test"), reached: map[int]bool{}, patience: time.Minute}
	if out, err := goCommand(ctx, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", s.binary, "./"+folder); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w: %s", folder, err, out)
	}
	// Tests that start a manager take seconds and test no decision.
	s.args = []string{"-test.short", "-test.failfast", "-test.skip=^TestAManager"}
	if help, _ := exec.CommandContext(ctx, s.binary, "-help").CombinedOutput(); bytes.Contains(help, []byte("-rapid.seed")) {
		s.args = append(s.args, "-rapid.seed=1", "-rapid.shrinktime=0s", "-rapid.nofailfile")
	}
	log := filepath.Join(work, "reached")
	_ = os.Remove(log)
	began := time.Now() //nolint:forbidigo // the time that tests take
	if out, err := s.run(ctx, "MUTANTS_REACHED="+log); err != nil {
		return nil, fmt.Errorf("test %s without a mutant: %w: %s", folder, err, out)
	}
	s.patience = max(20*time.Second, 10*time.Since(began)) //nolint:forbidigo // the time that tests take
	content, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what the tests of %s reach: %w", folder, err)
	}
	for line := range strings.FieldsSeq(string(content)) {
		id, _ := strconv.Atoi(line)
		s.reached[id] = true
	}
	return s, nil
}

func (s *suite) run(ctx context.Context, env string) ([]byte, error) {
	args := append([]string{"-c", "ulimit -v " + memory + `; exec "$0" "$@"`, s.binary, "-test.timeout=" + s.patience.String()}, s.args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), env)
	return cmd.CombinedOutput()
}

// tryAll tries the mutants that the tests reach and that are still alive, one on each processor.
func (s *suite) tryAll(ctx context.Context, mutants []*mutant) error {
	queue := make(chan *mutant)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for m := range queue {
				out, err := s.run(ctx, "MUTANT="+strconv.Itoa(m.id))
				switch {
				case err == nil:
					m.status = lived
				case bytes.Contains(out, []byte("panic: test timed out after")):
					m.status = timedOut
				default:
					m.status = killed
				}
			}
		})
	}
	for _, m := range mutants {
		if s.reached[m.id] && (m.status == lived || m.status == notReached) && ctx.Err() == nil {
			queue <- m
		}
	}
	close(queue)
	workers.Wait()
	return ctx.Err()
}
