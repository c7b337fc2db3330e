package migration

import (
	"testing"

	"github.com/kubemend/kubemend/test/must"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestTheMigratorFindsTheKindsThatWeHaveInstalled(t *testing.T) {
	const metal3, nodeCheck = "metal3remediations.infrastructure.cluster.x-k8s.io", "nodehealthchecks.remediation.medik8s.io"
	for name, row := range map[string]struct {
		crd    string
		labels map[string]string
		found  bool
	}{
		"a kind of our group is ours, however installed": {"hostremediations.kubemend.io", nil, true},
		"a kind of another group is ours with our label": {metal3, map[string]string{"cluster.x-k8s.io/provider": "addon-kubemend"}, true},
		"one with the label of CAPM3 is CAPM3's":         {metal3, map[string]string{"cluster.x-k8s.io/provider": "infrastructure-metal3"}, false},
		"one that OLM has installed is medik8s'":         {nodeCheck, map[string]string{"operators.coreos.com/node-healthcheck-operator.medik8s": ""}, false},
		"one without a label is not ours":                {nodeCheck, nil, false},
		"a group that only ends like ours is not ours":   {"widgets.notkubemend.io", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			must.Do(t, apiextensionsv1.AddToScheme(scheme))
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: row.crd, Labels: row.labels}}
			found := &metav1.PartialObjectMetadata{}
			found.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			err := ownCRDs{fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd).Build()}.Get(t.Context(), client.ObjectKeyFromObject(crd), found)
			if got := err == nil; got != row.found || !got && !apierrors.IsNotFound(err) {
				t.Errorf("found: %t (%v), want %t", got, err, row.found)
			}
		})
	}
}
