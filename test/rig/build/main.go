// Command build puts the programs of the rig into .rig/bin, and reports its progress.
//
//	build [-root FOLDER] PROGRAM...
//	build -what NAME [-usually 2m] -- COMMAND [ARGUMENT...]
//
// The first form builds the programs that are missing or older than their sources. It takes etcd, kube-apiserver and
// kube-controller-manager from the folder in KUBEBUILDER_ASSETS if it has them in the right minor version. No other code decides this: all
// others use .rig/bin.
//
// The second form runs a command that may take long, and prints nothing if it ends soon.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// assetsEnv is the variable of envtest; setup-envtest prints a value for it.
	assetsEnv = "KUBEBUILDER_ASSETS"
	// quietFor is how long a command of the second form may run before the first line.
	quietFor = 3 * time.Second
	// remindEvery is the time between two lines about one build.
	remindEvery = 30 * time.Second
)

func main() {
	root := flag.String("root", ".", "The folder of the project.")
	what := flag.String("what", "", "What the command makes.")
	usually := flag.Duration("usually", 0, "How long the command takes on two cores, if nothing is cached.")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(),
			"build [-root FOLDER] PROGRAM...\nbuild -what NAME [-usually 2m] -- COMMAND [ARGUMENT...]")
		flag.PrintDefaults()
	}
	flag.Parse()

	// make passes on SIGTERM when it is stopped; a closed terminal sends SIGHUP.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	say := progress{}
	var err error
	if *what != "" {
		say.name, say.quiet = "build", quietFor
		err = say.during(ctx, *what, *usually, func(ctx context.Context) error { return run(ctx, "", flag.Args()...) })
	} else {
		say.name = "rig"
		b := &builder{root: *root, assets: os.Getenv(assetsEnv), say: say}
		err = b.provide(ctx, flag.Args())
	}
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(128 + int(syscall.SIGINT))
	case err != nil:
		say.line("%v", err)
		os.Exit(exitCode(err))
	}
}

// exitCode returns the exit code of the failed command, so that the second form exits like its command.
func exitCode(err error) int {
	var failed *commandError
	if errors.As(err, &failed) && failed.code > 0 {
		return failed.code
	}
	return 1
}

// commandError names the failed command. The command itself has printed why it failed.
type commandError struct {
	args []string
	err  error
	code int
}

func (e *commandError) Error() string {
	return fmt.Sprintf("run %s: %v", strings.Join(e.args[:min(len(e.args), 4)], " "), e.err)
}

func (e *commandError) Unwrap() error { return e.err }

// endFor is how long an interrupted command may take to remove its temporary files.
const endFor = 5 * time.Second

// run runs a command in a folder with our output, and returns when the command and all its child processes have ended.
func run(ctx context.Context, folder string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = folder
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // nothing that is built has an output of its own
	// The command has its own process group, so that an interruption of this process ends the compilers too.
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

// progress prints lines about a long task. It needs no terminal.
type progress struct {
	// name is the prefix of each line.
	name string
	// quiet is how long the task may take before the first line.
	quiet time.Duration
}

func (p progress) line(format string, args ...any) {
	// An error here is no reason to fail.
	_, _ = fmt.Fprintf(os.Stderr, "%s: %s\n", p.name, fmt.Sprintf(format, args...))
}

// during runs work. It prints what is built and how long that usually takes, then from time to time how long it has taken, and the total at
// the end.
func (p progress) during(ctx context.Context, what string, usually time.Duration, work func(context.Context) error) error {
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	announced := false
	for next := time.After(p.quiet); ; next = time.After(remindEvery) {
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
