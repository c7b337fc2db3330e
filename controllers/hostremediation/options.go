package hostremediation

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings of the controllers that power-cycle hosts.
type Options struct {
	OrphanGrace time.Duration
	Concurrency int
}

// AddFlags adds the controllers' flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Func("fencing", "Removed.", func(mode string) error {
		if mode == "auto" || mode == "taint" { // a manifest of an older release may say so, and means what is done
			return nil
		}
		return errors.New("nodes are fenced by the out-of-service taint alone, " +
			"which every Kubernetes that Cluster API supports has: remove the flag")
	})
	_ = fs.MarkHidden("fencing") // the flag is there
	fs.DurationVar(&o.OrphanGrace, "orphan-grace-period", 5*time.Minute,
		"How long an annotation that keeps a BareMetalHost powered off, or the fence of a node, stays when its remediation does not exist.")
	fs.IntVar(&o.Concurrency, "hostremediation-concurrency", 20, "Number of remediations of hosts, of each kind, to process at the same time.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(flags.Positive("hostremediation-concurrency", o.Concurrency), flags.NotNegative("orphan-grace-period", o.OrphanGrace))
}
