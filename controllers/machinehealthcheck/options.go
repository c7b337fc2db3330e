package machinehealthcheck

import (
	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings of the MachineHealthCheck controller.
type Options struct {
	Unclaimed   Unclaimed
	Concurrency int
}

// AddFlags adds the controller's flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&o.Unclaimed, Observe, Act, Ignore), "unclaimed-machine-health-checks",
		"What to do with a MachineHealthCheck that is not claimed with the annotation cluster.x-k8s.io/paused: kubemend. "+
			"observe: judge, export metrics, write nothing. act: remediate; only where Cluster API core leaves MachineHealthChecks alone. ignore: do not look.")
	fs.IntVar(&o.Concurrency, "machinehealthcheck-concurrency", 50, "Number of MachineHealthChecks to process at the same time.")
}

// Validate returns what is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return flags.Positive("machinehealthcheck-concurrency", o.Concurrency)
}
