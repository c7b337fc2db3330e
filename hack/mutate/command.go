package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// realGo is the environment variable that says where the go command is that this program stands in for.
const realGo = "MUTATE_GO"

// module is the path of the module whose packages are tested.
const module = "github.com/kubemend/kubemend"

// How go test ends, as gremlins reads it.
const (
	failed    = 1
	notViable = 2
)

// goCommand is the go command as gremlins calls it. It runs the unit tests of one package as `make test-unit` does, always with the same
// random facts, without looking for smaller ones when a rule is broken. The coverage that it measures has all that is executed. A mutant that
// does not compile is not one that a test has killed: go test ends with the same code for both, and gremlins expects another one.
func goCommand(args []string) int {
	cmd := exec.CommandContext(context.Background(), os.Getenv(realGo), testArgs(args)...) //nolint:gosec // this program has set the variable itself
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	_, _ = os.Stdout.Write(out.Bytes())
	var ended *exec.ExitError
	switch {
	case err == nil:
		if at := slices.Index(args, "-coverprofile"); at >= 0 {
			err = widen(args[at+1], module)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return failed
		}
		return 0
	case !errors.As(err, &ended):
		fmt.Fprintln(os.Stderr, err)
		return failed
	case bytes.Contains(out.Bytes(), []byte("[build failed]")):
		return notViable
	}
	return ended.ExitCode()
}

// testArgs leaves all commands but `go test` as they are.
func testArgs(args []string) []string {
	if len(args) == 0 || args[0] != "test" {
		return args
	}
	args = slices.Insert(slices.Clone(args), 1, "-short", "-count=1", "-vet=off", "-ldflags=-s -w")
	last := len(args) - 1
	args[last] = strings.TrimSuffix(args[last], "/...") // packages below are others
	return append(args, "-rapid.seed=1", "-rapid.shrinktime=0s", "-rapid.nofailfile")
}
