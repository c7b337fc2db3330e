package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// endFor is how long a command that was interrupted may take to remove its temporary files.
const endFor = 5 * time.Second

// run runs a command in a folder, with our output. It returns when the command and all that it started are gone.
func run(ctx context.Context, folder string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = folder
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // nothing that is built has an output of its own
	// A group of its own, so that a signal to this process alone ends the compilers as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return &commandError{args: args, err: err, code: cmd.ProcessState.ExitCode()}
		}
		return nil
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // it fails only if the group is gone already
	select {
	case <-ended:
	case <-time.After(endFor):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	return ctx.Err()
}

// progress writes lines about work that takes long. It needs no terminal.
type progress struct {
	out io.Writer
	// name begins each line.
	name string
	// quiet is how long work may take before the first line about it.
	quiet time.Duration
	// every is the time between two lines about the same work.
	every time.Duration
}

func (p progress) line(format string, args ...any) {
	// Progress that cannot be shown is no reason to fail.
	_, _ = fmt.Fprintf(p.out, "%s: %s\n", p.name, fmt.Sprintf(format, args...))
}

// during does the work. It says what is built and how long that usually takes, then how long it has taken so far, and in the end how long
// it took.
func (p progress) during(ctx context.Context, what string, usually time.Duration, work func(context.Context) error) error {
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	announced := false
	for next := time.After(p.quiet); ; next = time.After(p.every) {
		select {
		case err := <-ended:
			if announced && err == nil {
				p.line("built %s in %s", what, time.Since(began).Round(time.Second))
			}
			return err
		case <-next:
			p.line("building %s for %s, usually %s on two cores if nothing is cached", what, time.Since(began).Round(time.Second), usually)
			announced = true
		}
	}
}
