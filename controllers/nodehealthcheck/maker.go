package nodehealthcheck

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// makerOf is the NodeHealthCheck that made obj: what its mark says, and where a half of that is missing, or all of it, its owner reference.
// The reference alone would not do: when the check goes, the garbage collector of Kubernetes takes it away from what a Machine owns as well.
// (docs/adr/0022-requests-carry-their-maker.md)
func makerOf(obj metav1.Object) remediationrequest.Maker {
	by := remediationrequest.NodeCheckOf(obj)
	for _, o := range obj.GetOwnerReferences() {
		if o.Kind != "NodeHealthCheck" || o.APIVersion != nhcv1.GroupVersion.String() {
			continue
		}
		if (by.UID == "" || by.UID == o.UID) && (by.Name == "" || by.Name == o.Name) {
			return remediationrequest.Maker{Name: o.Name, UID: o.UID}
		}
	}
	return by
}

// within reports whether obj is where the requests of w's check are: in a namespace of its templates, or of one whose request the status lists.
// Anybody who may write an object in any other one could give it the check's mark. What has no namespace only administrators make.
// (docs/adr/0038-requests-count-where-templates-are.md)
func (w *observed) within(obj *unstructured.Unstructured) bool {
	namespace := obj.GetNamespace()
	return namespace == "" || w.requests.within[namespace]
}

// namespacesOf are those of the templates that check names, and of the requests that its status lists: these are of templates that it named.
func namespacesOf(check *nhcv1.NodeHealthCheck) map[string]bool {
	all := map[string]bool{}
	templates, _ := templatesOf(&check.Spec)
	for _, m := range templates {
		all[m.ref.Namespace] = true
	}
	for i := range check.Status.UnhealthyNodes {
		for _, r := range check.Status.UnhealthyNodes[i].Remediations {
			all[r.Resource.Namespace] = true
		}
	}
	return all
}

// made reports whether w's check made obj: that very check, and none of its name that was there before. Of what does not say any more which
// one it was, the status does.
func (w *observed) made(obj *unstructured.Unstructured) bool {
	if !w.within(obj) {
		return false
	}
	by := makerOf(obj)
	if by.UID != "" {
		return by.UID == w.check.UID
	}
	_, listed := w.requests.known[obj.GetUID()]
	return listed && (by.Name == "" || by.Name == w.check.Name)
}

// orphans reports whether a check made obj that had the name of w's, and is gone.
func (w *observed) orphans(obj *unstructured.Unstructured) bool {
	return w.within(obj) && makerOf(obj).Name == w.check.Name && !w.made(obj)
}
