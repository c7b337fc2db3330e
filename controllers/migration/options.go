package migration

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
)

// Options are the settings of the migration of stored objects.
type Options struct {
	// Skip are the phases of Cluster API's migrator that are left out.
	Skip []string
}

// AddFlags adds the flag of the migration to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Skip, "skip-crd-migration-phases", nil,
		"Phases to skip when a release changes the stored version of a kind that kubemend installed. StorageVersionMigration: store all objects anew. "+
			"CleanupManagedFields: forget who wrote fields in versions that are gone.")
}

// Validate returns every phase that Cluster API's migrator does not have.
func (o *Options) Validate() error {
	var errs []error
	for _, phase := range o.Skip {
		all := []crdmigrator.Phase{crdmigrator.StorageVersionMigrationPhase, crdmigrator.CleanupManagedFieldsPhase}
		if !slices.Contains(all, crdmigrator.Phase(phase)) {
			errs = append(errs, fmt.Errorf("--skip-crd-migration-phases %q: must be of %v", phase, all))
		}
	}
	return errors.Join(errs...)
}
