package program

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
)

// contracts are the versions of the provider contract that Cluster API understands, the preferred one first.
var contracts = []string{"v1beta2", "v1beta1"}

// ServedVersion reads from the labels of a provider's CRD which apiVersion a v1beta1 reference to that kind shall
// carry. Under each contract the label lists the versions that follow it, joined by underscores; the newest is meant.
func ServedVersion(ctx context.Context, c client.Reader, gk schema.GroupKind) (string, error) {
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
