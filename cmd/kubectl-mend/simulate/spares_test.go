package simulate

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const waitsForSpare = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: workers
  annotations:
    cluster.x-k8s.io/paused: kubemend
    kubemend.io/wait-for-spare: "true"
    kubemend.io/wait-for-spare-timeout: 15m
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-0}}
  checks:
    unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeoutSeconds: 300}
`

// whole makes the Metal3Machines known with all that they ask for, which is a host of the pool md-0.
func (s *fixture) whole() *fixture {
	for i, obj := range s.objs {
		if between, is := obj.(*metav1.PartialObjectMetadata); is && between.Kind == "Metal3Machine" {
			tree := &unstructured.Unstructured{Object: map[string]any{
				"spec": map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"pool": "md-0"}}},
			}}
			tree.SetGroupVersionKind(between.GroupVersionKind())
			tree.SetNamespace(between.Namespace)
			tree.SetName(between.Name)
			tree.SetUID(between.UID)
			tree.SetAnnotations(between.Annotations)
			tree.SetOwnerReferences(between.OwnerReferences)
			s.objs[i] = tree
		}
		if h, is := obj.(*bmov1alpha1.BareMetalHost); is {
			h.Labels = map[string]string{"pool": "md-0"}
		}
	}
	return s
}

// spares adds hosts of a pool that no machine has.
func (s *fixture) spares(n int, pool string) *fixture {
	for i := range n {
		name := fmt.Sprintf("spare-%d", i+1)
		h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		h.Labels = map[string]string{"pool": pool}
		h.Status.Provisioning.State = bmov1alpha1.StateAvailable
		s.objs = append(s.objs, h)
	}
	return s
}
