package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	"sigs.k8s.io/cluster-api/util/contract"
)

// setUpWebhooks serves every webhook that core's own manifests register: a kind that was left out would refuse all
// writes instead of letting them pass.
func setUpWebhooks(mgr ctrl.Manager, clusters admission.ClusterCacheReader) error {
	conversion.SetAPIVersionGetter(func(ctx context.Context, gk schema.GroupKind) (string, error) {
		return servedVersion(ctx, mgr.GetClient(), gk)
	})
	c := mgr.GetClient()
	for _, hook := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{
		&admission.Cluster{Client: c, ClusterCacheReader: clusters},
		&admission.ClusterClass{Client: c},
		&admission.ClusterResourceSet{},
		&admission.ClusterResourceSetBinding{},
		&admission.ExtensionConfig{},
		&admission.IPAddress{Client: mgr.GetAPIReader()},
		&admission.IPAddressClaim{},
		&admission.Machine{},
		&admission.MachineDeployment{},
		&admission.MachineDrainRule{},
		&admission.MachineHealthCheck{},
		&admission.MachinePool{},
		&admission.MachineSet{},
	} {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("set up webhook %T: %w", hook, err)
		}
	}
	return nil
}

// contracts are the versions of the provider contract that this core understands, the preferred one first.
var contracts = []string{"v1beta2", "v1beta1"}

// servedVersion reads from the labels of a provider's CRD which apiVersion a v1beta1 reference to that kind shall
// carry. Under each contract the label lists the versions that follow it, joined by underscores; the newest is meant.
func servedVersion(ctx context.Context, c client.Reader, gk schema.GroupKind) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName(contract.CalculateCRDName(gk.Group, gk.Kind))
	if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return "", fmt.Errorf("read the CRD of %s: %w", gk, err)
	}
	for _, agreed := range contracts {
		label := crd.Labels[clusterv1.GroupVersion.Group+"/"+agreed]
		if label == "" {
			continue
		}
		newest := slices.MaxFunc(strings.Split(label, "_"), apiversion.CompareKubeAwareVersionStrings)
		return schema.GroupVersion{Group: gk.Group, Version: newest}.String(), nil
	}
	return "", fmt.Errorf("choose a version of %s: CRD %s has no label for contract %s", gk, crd.Name, strings.Join(contracts, " or "))
}
