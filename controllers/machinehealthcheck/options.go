package machinehealthcheck

import (
	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Unclaimed says what to do with checks that are not claimed for kubemend. It is the
// value of the flag --unclaimed-machine-health-checks.
type Unclaimed string

const (
	// Observe judges, exports metrics and answers questions, and writes records of what it would have done, and nothing else.
	Observe Unclaimed = "observe"
	// Act treats unclaimed checks like claimed ones. It is for clusters in which Cluster API core
	// leaves MachineHealthChecks alone; elsewhere two controllers would act on one check.
	Act Unclaimed = "act"
	// Ignore does not look at unclaimed checks at all.
	Ignore Unclaimed = "ignore"
)

// Options are the settings of the MachineHealthCheck controller.
type Options struct {
	Unclaimed   Unclaimed
	Concurrency int
}

// AddFlags adds the controller's flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&o.Unclaimed, Observe, Act, Ignore), "unclaimed-machine-health-checks",
		"What to do with a MachineHealthCheck that is not claimed by the annotation cluster.x-k8s.io/paused: kubemend. "+
			"observe: judge, export metrics, write nothing but RemediationRecords. "+
			"act: remediate; only where Cluster API core leaves MachineHealthChecks alone. "+
			"ignore: do not read it.")
	fs.IntVar(&o.Concurrency, "machinehealthcheck-concurrency", 50, "Number of MachineHealthChecks to process at the same time.")
}

// Validate returns what is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return flags.Positive("machinehealthcheck-concurrency", o.Concurrency)
}
