package managerlease

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings of leader election, whose namespace the manager lease shares.
type Options struct {
	LeaderElect   bool
	Namespace     string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

// AddFlags adds the flags of leader election to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", false, "Elect a leader, so that one of several replicas acts at a time.")
	fs.StringVar(&o.Namespace, "leader-elect-namespace", "",
		"Namespace of the lease by which the replicas agree, and of the one that says that a manager runs. "+
			"If empty, that of the pod, and outside of a cluster "+UsualNamespace+".")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long the other replicas wait before they replace a silent leader.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader that cannot renew its lease retries before it ends.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "How long to wait between tries to take or renew the lease.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(
		flags.Positive("leader-elect-retry-period", o.RetryPeriod),
		flags.Longer("leader-elect-renew-deadline", o.RenewDeadline, "leader-elect-retry-period", o.RetryPeriod),
		flags.Longer("leader-elect-lease-duration", o.LeaseDuration, "leader-elect-renew-deadline", o.RenewDeadline),
		flags.NamespaceIfAny("leader-elect-namespace", o.Namespace),
	)
}

// LeaderLease is the lease by which the replicas agree, for a manager whose pod is in a namespace; that may be empty.
func (o *Options) LeaderLease(podNamespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: cmp.Or(o.Namespace, podNamespace), Name: LeaderLeaseName}
}
