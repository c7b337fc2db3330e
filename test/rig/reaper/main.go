// Command reaper runs one program for a parent that may die at any moment, and cleans up after both.
//
//	reaper [--remove DIR]... [-- PROGRAM ARGUMENT...]
//
// The parent holds the other end of reaper's standard input and never writes to it. When the parent ends, even by SIGKILL, the kernel
// closes that pipe. reaper then kills the program, removes the folders and exits. SIGTERM does the same. If the program ends by itself,
// reaper removes the folders and exits with its exit code. Without a program it only removes the folders at the end.
//
// reaper ignores SIGINT: Ctrl-C in a terminal reaches a whole process group, and only the parent decides what it means.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const (
	// removeFor is how long removing a folder is tried: programs of other reapers may write to it until they are killed as well.
	removeFor   = 20 * time.Second
	removeEvery = 50 * time.Millisecond
)

func main() {
	flags := pflag.NewFlagSet("reaper", pflag.ExitOnError)
	folders := flags.StringArray("remove", nil, "A folder to remove at the end; may be repeated.")
	_ = flags.Parse(os.Args[1:]) // ExitOnError: it never returns an error

	// With a death signal the kernel kills the program when the thread that started it ends: see attributes.
	runtime.LockOSThread()
	code, err := hold(flags.Args())
	if err := errors.Join(err, remove(*folders)); err != nil {
		fmt.Fprintln(os.Stderr, "reaper:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// hold runs the program until it or the parent ends, and returns the exit code for reaper.
func hold(program []string) (int, error) {
	parentGone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end of it is the end
		close(parentGone)
	}()
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGHUP)
	// These signals are caught and dropped, not ignored, because a program inherits ignored signals. SIGPIPE occurs when the parent read
	// our standard error and is gone.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGPIPE)

	if len(program) == 0 {
		select {
		case <-parentGone:
		case <-stopped:
		}
		return 0, nil
	}

	child, err := start(program)
	if err != nil {
		return 127, err
	}
	ended := make(chan struct{})
	go func() {
		_ = child.Wait() // the exit code is in ProcessState
		close(ended)
	}()
	select {
	case <-ended:
		return exitCode(child.ProcessState), nil
	case <-parentGone:
	case <-stopped:
	}
	// The program has its own process group, so this kills everything that it started too.
	_ = syscall.Kill(-child.Process.Pid, syscall.SIGKILL) // it fails only if the group is gone already
	<-ended
	return 0, nil
}

func start(program []string) (*exec.Cmd, error) {
	child := exec.Command(program[0], program[1:]...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = attributes()
	if _, err := child.StdinPipe(); err != nil { // programs of test/rig/capi end when their input does
		return nil, fmt.Errorf("make a pipe for %s: %w", program[0], err)
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program[0], err)
	}
	return child, nil
}

// exitCode returns what a shell would: 128 plus the signal for a killed program.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// remove tries until the folders are gone: removing a folder fails if another process adds a file at the same time.
func remove(folders []string) error {
	deadline := time.After(removeFor)
	again := time.NewTicker(removeEvery)
	defer again.Stop()
	for {
		var errs []error
		for _, folder := range folders {
			if err := os.RemoveAll(folder); err != nil {
				errs = append(errs, fmt.Errorf("remove %s: %w", folder, err))
			}
		}
		if len(errs) == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-deadline:
			return errors.Join(errs...)
		}
	}
}
