// Command demo shows kubemend at work: real control planes, the real manager, and Cluster API's own controllers; only the
// hosts and their kubelets are simulated.
//
// It takes its settings from the environment, so that `make demo KEEP=1 SCENE=replace` reaches it:
// SCENE is the name of one scene, or all, which are those that can be played one after another in a minute or two; KEEP leaves
// everything running at the end, with a prompt.
//
// A line of commentary is printed only because an object, an event or a metric showed it. A scene that does not show
// all it should within its deadlines fails, and the exit code is 1. It is 130 after Ctrl-C.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	failed      = 1
	interrupted = 130
)

func main() {
	// What libraries log about a control plane that is being stopped is nobody's business here.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := perform(ctx, newNarrator(os.Stdout))
	cancel()
	os.Exit(code)
}

// perform plays the scenes that were asked for, on a stage of their own, and returns the exit code.
func perform(ctx context.Context, n *narrator) int {
	began := time.Now()
	chosen, err := choose(os.Getenv("SCENE"))
	if err != nil {
		n.note("%v", err)
		return failed
	}
	s, err := raise(ctx, n, chosen[0].selfHosted)
	if err == nil {
		err = s.play(ctx, chosen)
	}
	code := 0
	switch {
	case ctx.Err() != nil:
		n.verdict("Interrupted: everything is being stopped.")
		code = interrupted
	case err != nil:
		n.verdict(fmt.Sprintf("Failed: %v", err))
		s.showWhy()
		code = failed
	default:
		n.verdict(fmt.Sprintf("All of it was seen, in %.0f s.", time.Since(began).Seconds()))
		if more := leftOut(chosen); more != "" {
			n.note("%s", more)
		}
	}
	if keep := os.Getenv("KEEP"); keep != "" && keep != "0" && ctx.Err() == nil {
		s.keep(ctx, os.Stdin)
	}
	if err := s.strike(); err != nil {
		n.note("The stage was not taken down as it should be: %v", err)
		code = max(code, failed)
	}
	return code
}
