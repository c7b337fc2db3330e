package remediationrequest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestARequestThatIsAdoptedNamesItsMakerAndItsRecord(t *testing.T) {
	for record, want := range map[string]map[string]string{
		"":      {mendv1.MadeByAnnotation: "check"},
		"m-123": {mendv1.MadeByAnnotation: "check", mendv1.RecordAnnotation: "m-123"},
	} {
		var written metav1.PartialObjectMetadata
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
				data, err := patch.Data(obj)
				if err != nil {
					return err
				}
				return json.Unmarshal(data, &written)
			},
		}).Build()
		req := NewMetadata()
		req.Namespace, req.Name, req.ResourceVersion = "ns", "m", "7"
		by := types.NamespacedName{Namespace: "ns", Name: record}
		if err := (&Requests{Client: c}).Adopt(t.Context(), req, Maker{Name: "check", UID: "check-uid"}, by); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, written.Annotations); diff != "" || written.ResourceVersion != "7" {
			t.Errorf("record %q: it writes resourceVersion %q, and (-want +got):\n%s", record, written.ResourceVersion, diff)
		}
	}
}
