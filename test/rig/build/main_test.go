package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// part makes the test binary run the program instead of its tests.
const part = "BUILD_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(part) == "" {
		os.Exit(m.Run())
	}
	_ = os.Unsetenv(part)
	main()
}

// started is this program as a process of its own.
func started(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), part+"=program", assetsEnv+"=")
	return cmd
}

func TestABuildThatIsInterruptedLeavesNothing(t *testing.T) {
	y := newYard(t)
	// A compiler that has begun to write its result, has a child, and holds on to our output.
	compiler := filepath.Join(t.TempDir(), "go")
	script := "#!/bin/sh\nfor last; do [ \"$before\" = -o ] && into=$last; before=$last; done\necho half > $into/server\nsleep 1000 &\necho compiling\nwait\n"
	if err := os.WriteFile(compiler, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := started("-root", y.root, "etcd")
	cmd.Env = append(cmd.Env, "GO="+compiler)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "compiling"); {
		n, err := out.Read(said)
		if err != nil {
			t.Fatalf("%v after %q", err, text)
		}
		text += string(said[:n])
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// The pipe ends when the last process that holds it is gone.
	for err == nil {
		_, err = out.Read(said)
	}
	err = cmd.Wait()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	y.equal("etcd", y.in("etcd"), "missing")
	left, _ := os.ReadDir(filepath.Join(y.root, ".rig", "built"))
	y.equal("number of files in .rig/built", len(left), 0)
}

func TestACommandKeepsItsExitCode(t *testing.T) {
	out, err := started("-what", "something", "--", "sh", "-c", "echo why >&2; exit 7").CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 7 || !strings.Contains(string(out), "why") {
		t.Errorf("got %v and %q", err, out)
	}
	out, err = started("-what", "something", "--", "true").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("got %v and %q from a command that is done at once", err, out)
	}
}
