package nodehealthcheck

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
	"github.com/kubemend/kubemend/controllers/workload"
)

// nodeAnnotations are those that are read. A node has many more.
var nodeAnnotations = []string{
	nhcv1.ConfirmedHealthyAnnotation, clusterv1.MachineAnnotation, clusterv1.ClusterNamespaceAnnotation, clusterv1.ClusterNameAnnotation,
	openshift.DesiredConfig, openshift.CurrentConfig, openshift.MachineAnnotation,
}

// SlimNode is the transform of the node cache: what package workload keeps, all labels, and the annotations that are read.
func SlimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slimmed, err := workload.SlimNode(obj)
	slim, ok := slimmed.(*corev1.Node)
	if err != nil || !ok {
		return slimmed, err
	}
	slim.Labels = make(map[string]string, len(node.Labels))
	for key, value := range node.Labels {
		slim.Labels[workload.Interned(key)] = workload.Interned(value)
	}
	for _, key := range nodeAnnotations {
		if value, has := node.Annotations[key]; has {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, key, value)
		}
	}
	return slim, nil
}

// Slim is the transform of everything else in the controller's cache. Of a request it keeps its metadata and its conditions, of a template
// and of what is OpenShift's also the spec.
func Slim(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		if o, isObject := obj.(metav1.Object); isObject {
			o.SetManagedFields(nil)
		}
		return obj, nil
	}
	kept := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": u.Object["metadata"]}
	if kind := u.GroupVersionKind(); !isRequest(kind) {
		kept["spec"] = u.Object["spec"]
	}
	if conditions, found, err := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions"); err == nil && found {
		kept["status"] = map[string]any{"conditions": conditions}
	}
	slim := &unstructured.Unstructured{Object: kept}
	slim.SetManagedFields(nil)
	unstructured.RemoveNestedField(slim.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	return slim, nil
}
