// Package migration stores the objects of kubemend's kinds again when a release changes their storage version, so that a later release can
// remove the old version. Cluster API's CRD migrator does that; this package only configures the kinds.
package migration

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// provider is the value of the label cluster.x-k8s.io/provider on all objects that kubemend's manifests install.
const provider = "addon-kubemend"

// RBAC to read CustomResourceDefinitions. The rights to store objects again are in the roles of the features (controllers/hostremediation,
// controllers/nodehealthcheck).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// SetUp adds the migration to mgr, whose scheme must have the kinds and CustomResourceDefinition. skip has names of phases of Cluster API's
// migrator: StorageVersionMigration, CleanupManagedFields. Any other name is an error.
func SetUp(ctx context.Context, mgr ctrl.Manager, skip []string) error {
	phases := make([]crdmigrator.Phase, len(skip))
	for i, phase := range skip {
		phases[i] = crdmigrator.Phase(phase)
	}
	// A write of the status calls no webhook, which could reject an old object or have no endpoint.
	throughStatus := crdmigrator.ByObjectConfig{UseStatusForStorageVersionMigration: true}
	migrator := &crdmigrator.CRDMigrator{
		Client: ownCRDs{mgr.GetClient()}, APIReader: mgr.GetAPIReader(), SkipCRDMigrationPhases: phases,
		Config: map[client.Object]crdmigrator.ByObjectConfig{
			&mendv1.HostRemediation{}:            throughStatus,
			&mendv1.HostRemediationTemplate{}:    {}, // has no status
			&infrav1.Metal3Remediation{}:         throughStatus,
			&infrav1.Metal3RemediationTemplate{}: throughStatus,
			&nhcv1.NodeHealthCheck{}:             throughStatus,
		},
	}
	// One kind after the other, because the migration is not urgent and the API server has other work.
	if err := migrator.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 1}); err != nil {
		return fmt.Errorf("set up the migration of stored objects: %w", err)
	}
	return nil
}

// ownCRDs is a client for which only the CustomResourceDefinitions that kubemend installed exist, so that the migrator skips the others.
// CAPM3 migrates its kinds itself, and two migrators of one kind would overwrite each other's notes.
type ownCRDs struct{ client.Client }

// Get implements client.Reader.
func (c ownCRDs) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	crd, is := obj.(*metav1.PartialObjectMetadata)
	if is && crd.GroupVersionKind().GroupKind() == apiextensionsv1.Kind("CustomResourceDefinition") && !ours(crd.Name, crd.Labels) {
		return apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), crd.Name)
	}
	return nil
}

// ours reports whether kubemend installed a CustomResourceDefinition: it is of kubemend's own group, or has the provider's label.
func ours(name string, labels map[string]string) bool {
	return strings.HasSuffix(name, "."+mendv1.GroupVersion.Group) || labels[clusterv1.ProviderNameLabel] == provider
}
