package remediationrecord

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the settings for RemediationRecords.
type Options struct {
	// Keep is how long a record is kept after its end, PerCluster how many of a Cluster are.
	Keep       time.Duration
	PerCluster int
}

// AddFlags adds the flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Keep, "record-retention", 30*24*time.Hour,
		"How long a RemediationRecord is kept after its end. Older ones are deleted when the next one of their Cluster is closed.")
	fs.IntVar(&o.PerCluster, "records-per-cluster", 1000,
		"How many RemediationRecords of a Cluster are kept after their end; of those that belong to no Cluster, how many in a namespace. "+
			"The oldest are deleted first.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(flags.Positive("record-retention", o.Keep), flags.Positive("records-per-cluster", o.PerCluster))
}
