package nodehealthcheck

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings of the NodeHealthCheck controller.
type Options struct {
	Concurrency    int
	LeaseNamespace string
	Grace          time.Duration
	// DefaultTemplate is that of the check which the manager creates where there is none.
	DefaultTemplate Template
}

// AddFlags adds the controller's flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.Concurrency, "nodehealthcheck-concurrency", 10, "Number of NodeHealthChecks to process at the same time.")
	fs.StringVar(&o.LeaseNamespace, "node-lease-namespace", nhcv1.DefaultLeaseNamespace,
		"Namespace of the leases by which NodeHealthChecks and node maintenance keep out of each other's way. It has to be there, "+
			"with the Role kubemend-node-leases: the packages that have NodeHealthChecks bring both for the default.")
	fs.DurationVar(&o.Grace, "node-monitor-grace-period", 50*time.Second,
		"How long kubelets have to report after the manager was started, or became the leader, or the API server was out of reach, before a "+
			"NodeHealthCheck begins a remediation. What the flag of the kube-controller-manager of this name says, whose default it has.")
	fs.Var(&o.DefaultTemplate, "default-node-health-check-template",
		"Remediation template, as Kind.version.group/namespace/name, of the NodeHealthCheck "+DefaultName+
			", which is made at start if there is none at all. If empty, none is made.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(
		flags.Positive("nodehealthcheck-concurrency", o.Concurrency),
		flags.NotNegative("node-monitor-grace-period", o.Grace),
		flags.Namespace("node-lease-namespace", o.LeaseNamespace),
	)
}
