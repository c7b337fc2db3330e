// Command demo shows kubemend in action: a real control plane, the real manager, and Cluster API's own controllers; only the
// hosts and their kubelets are simulated.
//
// It takes its settings from the environment, so that `make demo KEEP=1 SCENE=replace` reaches it:
// SCENE is the name of one scene, or all; KEEP leaves everything
// running at the end, with a prompt.
//
// Each line of commentary reports a change of an object, or an event. A scene fails if an expected change does not
// come before its deadline; then the exit code is 1. It is 130 after Ctrl-C.
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
	// Libraries log errors about a control plane that is being stopped, which tell the user nothing.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := perform(ctx, newNarrator(os.Stdout))
	cancel()
	os.Exit(code)
}

// perform plays the chosen scenes, in an environment of their own, and returns the exit code.
func perform(ctx context.Context, n *narrator) int {
	began := time.Now()
	chosen, err := choose(os.Getenv("SCENE"))
	if err != nil {
		n.note("%v", err)
		return failed
	}
	s, err := start(ctx, n)
	if err == nil {
		err = s.play(ctx, chosen)
	}
	code := 0
	switch {
	case ctx.Err() != nil:
		n.verdict("Interrupted: stopping everything.")
		code = interrupted
	case err != nil:
		n.verdict(fmt.Sprintf("Failed: %v", err))
		s.showWhy()
		code = failed
	default:
		n.verdict(fmt.Sprintf("Success: everything happened as expected, in %.0f s.", time.Since(began).Seconds()))
	}
	if keep := os.Getenv("KEEP"); keep != "" && keep != "0" && ctx.Err() == nil {
		s.keep(ctx, os.Stdin)
	}
	if err := s.stop(); err != nil {
		n.note("The environment was not removed completely: %v", err)
		code = max(code, failed)
	}
	return code
}
