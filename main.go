// The manager of kubemend.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/controllers/process"
	"github.com/kubemend/kubemend/setup"
)

// version is the release, which the linker sets.
var version = "dev"

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kubemend:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	fs := pflag.NewFlagSet("kubemend", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	o := setup.NewOptions(fs)
	fs.AddGoFlagSet(flag.CommandLine) // --kubeconfig
	if err := fs.Parse(os.Args[1:]); err != nil {
		return err
	}
	if args := fs.Args(); len(args) > 0 {
		return fmt.Errorf("unexpected arguments %q: all settings are flags", strings.Join(args, " "))
	}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("read the flags: %w", err)
	}
	if err := logsv1.ValidateAndApply(o.Logs, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	ctrl.SetLogger(klog.Background())
	klog.Background().Info("Starting kubemend", "version", version)
	if err := process.LimitMemory(); err != nil {
		return err
	}
	return setup.Run(ctx, version, o)
}
