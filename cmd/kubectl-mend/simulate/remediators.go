package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/partners/remediator"
)

// requestKind is a kind of requests, and whether their controller is simulated.
type requestKind struct {
	schema.GroupVersionKind

	ours bool
}

// requestKinds are the kinds of requests that the checks make, sorted.
func (s *engine) requestKinds() []requestKind {
	var kinds []requestKind
	add := func(template schema.GroupVersionKind) {
		k := requestKind{GroupVersionKind: remediationrequest.KindOf(template)}
		same := func(other schema.GroupKind) bool { return other == k.GroupKind() }
		if remediationrequest.Refusal(template) != nil || slices.ContainsFunc(kinds, func(o requestKind) bool { return same(o.GroupKind()) }) {
			return
		}
		k.ours = slices.ContainsFunc(s.kindsOnMetal(), func(o remediation.Kind) bool { return same(o.GroupKind()) })
		kinds = append(kinds, k)
	}
	for _, check := range snapshot.All[clusterv1.MachineHealthCheck](s.snapshot, "") {
		if ref := check.Spec.Remediation.TemplateRef; ref.IsDefined() {
			add(remediationrequest.TemplateKind(ref))
		}
	}
	for _, check := range snapshot.All[nhcv1.NodeHealthCheck](s.snapshot, "") {
		for _, ref := range snapshot.TemplatesOf(&check.Spec) {
			add(ref.GroupVersionKind())
		}
	}
	slices.SortFunc(kinds, func(a, b requestKind) int { return cmp.Compare(a.GroupKind().String(), b.GroupKind().String()) })
	return kinds
}

// crdOf is the name of the CustomResourceDefinition of a kind, as those are called that kubemend may act on.
func crdOf(kind schema.GroupVersionKind) string {
	return strings.ToLower(kind.Kind) + "s." + kind.Group
}

// remediators makes those whose controllers are not simulated work on their requests, and release what is deleted.
func (o *environment) remediators(ctx context.Context) {
	for _, kind := range o.kinds {
		if kind.ours {
			continue
		}
		for _, req := range o.snapshot.Objects(kind.GroupVersionKind, "") {
			o.remediator(ctx, kind.GroupVersionKind, client.ObjectKeyFromObject(req))
		}
	}
}

// remediator takes the next step about a request.
func (o *environment) remediator(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) {
	stored, err := o.snapshot.Stored(kind, key)
	if err != nil {
		return // it is gone
	}
	if !stored.GetDeletionTimestamp().IsZero() {
		released := stored.DeepCopyObject().(client.Object)
		released.SetFinalizers(nil)
		o.put(released)
		return
	}
	if _, bare := stored.(*metav1.PartialObjectMetadata); bare || o.RemediationTakes == 0 {
		return // the progress of a request is unknown if only its metadata was read
	}
	is, now := &unstructured.Unstructured{}, o.clock.Now()
	is.SetGroupVersionKind(kind)
	if err := o.client.Get(ctx, key, is); err != nil {
		o.note(err)
		return
	}
	step := remediator.Next(is, o.RemediationTakes, now)
	if step.Acts {
		o.recovers(is)
		step.Report = &remediator.Finished
	}
	if at := now.Add(step.After); step.After > 0 && !o.resumes[is.GetUID()].Equal(at) {
		o.resumes[is.GetUID()] = at
		o.in(step.After, func(ctx context.Context) { o.remediator(ctx, kind, key) })
	}
	if step.Report != nil {
		o.note(step.Report.Set(is, now))
		o.put(is)
	}
}

// recovers makes the node Ready that a request is about.
func (o *environment) recovers(req *unstructured.Unstructured) {
	p := o.nodeOfRequest(req)
	if o.node(p) == nil {
		return
	}
	delete(o.faults, p)
	o.ready(p, "boot-of-"+string(req.GetUID()))
	o.eventLog.assumed(p.ref(), "NodeRecovers", fmt.Sprintf("The node is Ready again: %s was carried out", explain.Ref{Kind: req.GetKind(),
		Name: req.GetName()}))
}

// nodeOfRequest is the node that a request is about: that which it names, or that of its machine; else the one of its name.
func (o *environment) nodeOfRequest(req *unstructured.Unstructured) nodeKey {
	name, isNode := req.GetAnnotations()[nhcv1.NodeNameAnnotation]
	if !isNode {
		if m := snapshot.One[clusterv1.Machine](o.snapshot, client.ObjectKeyFromObject(req)); m != nil {
			p, _ := nodeKeyOf(m)
			return p
		}
		name = req.GetName()
	}
	if node := o.node(nodeKey{name: name}); node != nil {
		return nodeKeyIn(o.snapshot, node)
	}
	return nodeKey{}
}
