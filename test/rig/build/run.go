package main

import (
	"context"
	"fmt"
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
