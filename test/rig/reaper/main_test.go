package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays all parts: which one, it reads from the environment.
const part = "REAPER_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(part) {
	case "reaper":
		_ = os.Unsetenv(part)
		main()
	case "parent":
		playParent()
	default:
		os.Exit(m.Run())
	}
}

// playParent starts reaper with its own arguments, says so, and then waits to be killed.
func playParent() {
	reaper := reaper(os.Args[1:]...)
	reaper.Stdout = os.Stdout
	if _, err := reaper.StdinPipe(); err != nil {
		os.Exit(1)
	}
	if err := reaper.Start(); err != nil {
		os.Exit(1)
	}
	<-time.After(time.Hour)
}

func reaper(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), part+"=reaper")
	cmd.Stderr = os.Stderr
	return cmd
}

// program says that it runs and then never ends; it ignores SIGTERM if it is stubborn.
func program(stubborn bool) []string {
	script := "echo running; while :; do sleep 1; done"
	if stubborn {
		script = "trap '' TERM; " + script
	}
	return []string{"--", "sh", "-c", script}
}

// running waits for the program's word. The pipe that it came through ends when the last process that holds it has
// ended: parent, reaper, program and whatever the program started.
func running(t *testing.T, out io.Reader) *bufio.Reader {
	t.Helper()
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "running\n" {
		t.Fatalf("the program did not come up: %q, %v", line, err)
	}
	return r
}

func allGone(t *testing.T, out io.Reader) {
	t.Helper()
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, out)
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Fatal("a process is still there")
	}
}

func folderGone(t *testing.T, folder string) {
	t.Helper()
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s is still there: %v", folder, err)
	}
}

func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "guarded")
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "deep", "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAKilledParentOrphansNoProgram(t *testing.T) {
	for name, stubborn := range map[string]bool{
		"a program that obeys":           false,
		"a program that ignores signals": true,
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			parent := exec.Command(os.Args[0], append([]string{"--remove", dir, "--grace", "200ms"}, program(stubborn)...)...)
			parent.Env = append(os.Environ(), part+"=parent")
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			parent.Stdout = in
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			_ = in.Close()
			rest := running(t, out)

			if err := parent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait()
			allGone(t, rest)
			folderGone(t, dir)
		})
	}
}

func TestReaperEndsOnASignal(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		progress func(*os.Process, io.Closer) error
	}{
		"by SIGTERM":                {program(false), func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGTERM) }},
		"by the end of its input":   {program(false), func(_ *os.Process, stdin io.Closer) error { return stdin.Close() }},
		"at once, if grace is zero": {append([]string{"--grace", "0s"}, program(true)...), func(_ *os.Process, stdin io.Closer) error { return stdin.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			cmd := reaper(append([]string{"--remove", dir}, c.args...)...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout = in
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = in.Close()
			rest := running(t, out)

			_ = cmd.Process.Signal(syscall.SIGINT) // must not matter
			if err := c.progress(cmd.Process, stdin); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("reaper ended as requested and still reports %v", err)
			}
			allGone(t, rest)
			folderGone(t, dir)
		})
	}
}

func TestReaperEndsLikeItsProgram(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9} {
		dir := folder(t)
		cmd := reaper("--remove", dir, "--", "sh", "-c", script)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: reaper ended with %d, want %d", script, got, want)
		}
		folderGone(t, dir)
	}
}

func TestReaperGuardsFoldersWithoutAProgram(t *testing.T) {
	dir := folder(t)
	cmd := reaper("--remove", dir)
	cmd.Stdin = strings.NewReader("")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	folderGone(t, dir)
}

func TestReaperSaysWhatItCannotStart(t *testing.T) {
	cmd := reaper("--", "/no/such/program")
	cmd.Stdin, cmd.Stderr = strings.NewReader(""), nil
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "/no/such/program") {
		t.Errorf("got %q, %v", said, err)
	}
}
