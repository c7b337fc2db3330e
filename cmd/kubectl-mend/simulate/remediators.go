package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/partners/remediator"
)

// requestKind is a kind of requests, and whether those who carry it out are simulated by their controller.
type requestKind struct {
	schema.GroupVersionKind

	ours bool
}

// crdOf is the name of the CustomResourceDefinition of a kind, as those are called that kubemend may act on.
func crdOf(kind schema.GroupVersionKind) string {
	return strings.ToLower(kind.Kind) + "s." + kind.Group
}

// requestKinds are the kinds of requests that the checks make, sorted.
func (s *engine) requestKinds(ctx context.Context) ([]requestKind, error) {
	var kinds []requestKind
	add := func(template schema.GroupVersionKind) {
		gvk := remediationrequest.KindOf(template)
		same := func(k requestKind) bool { return k.GroupKind() == gvk.GroupKind() }
		if remediationrequest.Refusal(template) != "" || slices.ContainsFunc(kinds, same) {
			return
		}
		k := requestKind{GroupVersionKind: gvk}
		for _, ours := range s.kindsOnMetal() {
			k.ours = k.ours || ours.GroupKind() == gvk.GroupKind()
		}
		kinds = append(kinds, k)
	}
	checks := &clusterv1.MachineHealthCheckList{}
	if err := s.client.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	for i := range checks.Items {
		if ref := checks.Items[i].Spec.Remediation.TemplateRef; ref.IsDefined() {
			add(remediationrequest.TemplateKind(ref))
		}
	}
	nodeChecks := &nhcv1.NodeHealthCheckList{}
	if err := s.client.List(ctx, nodeChecks, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	for i := range nodeChecks.Items {
		for _, ref := range snapshot.TemplatesOf(&nodeChecks.Items[i].Spec) {
			add(ref.GroupVersionKind())
		}
	}
	slices.SortFunc(kinds, func(a, b requestKind) int { return cmp.Compare(a.GroupKind().String(), b.GroupKind().String()) })
	return kinds, nil
}

// not simulated names the kinds of requests whose remediators are not simulated; empty if there are none.
func (o *environment) others() string {
	var names []string
	for _, k := range o.kinds {
		if !k.ours {
			names = append(names, k.Kind)
		}
	}
	return strings.Join(names, ", ")
}

// requests are the metadata of the requests of a kind, shared.
func (s *engine) requests(ctx context.Context, kind requestKind) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

// remediators makes those that are not simulated by their controller work on what they are asked for, and release what is deleted.
func (o *environment) remediators(ctx context.Context) error {
	for _, kind := range o.kinds {
		if kind.ours {
			continue
		}
		requests, err := o.requests(ctx, kind)
		if err != nil {
			return err
		}
		for i := range requests {
			if err := o.remediator(ctx, kind.GroupVersionKind, client.ObjectKeyFromObject(&requests[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// remediator takes the next step about a request.
func (o *environment) remediator(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) error {
	stored, err := o.snapshot.Stored(kind, key)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if !stored.GetDeletionTimestamp().IsZero() {
		free := stored.DeepCopyObject().(client.Object)
		free.SetFinalizers(nil)
		if err := o.state.Put(free); err != nil {
			return fmt.Errorf("release %s %s: %w", kind.Kind, key, err)
		}
		return nil
	}
	if _, bare := stored.(*metav1.PartialObjectMetadata); bare || o.RemediationTakes == 0 {
		return nil // how far one has come is not known if only its metadata was read
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(kind)
	if err := o.client.Get(ctx, key, is); err != nil {
		return fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
	}
	now := o.clock.Now()
	step := remediator.Next(is, o.RemediationTakes, now)
	if step.Acts {
		if err := o.recovers(ctx, is); err != nil {
			return err
		}
		step.Report = &remediator.Finished
	}
	if at := now.Add(step.After); step.After > 0 && !o.awake[is.GetUID()].Equal(at) {
		o.awake[is.GetUID()] = at
		o.in(step.After, func(ctx context.Context) error { return o.remediator(ctx, kind, key) })
	}
	if step.Report == nil {
		return nil
	}
	if err := step.Report.Set(is, now); err != nil {
		return err
	}
	if err := o.state.Put(is); err != nil {
		return fmt.Errorf("report on %s %s: %w", kind.Kind, key, err)
	}
	return nil
}

// recovers brings the node back that a request is about.
func (o *environment) recovers(ctx context.Context, req *unstructured.Unstructured) error {
	p, err := o.nodeOfRequest(ctx, req)
	if err != nil || p.name == "" {
		return err
	}
	if node, err := o.node(p); node == nil || err != nil {
		return err
	}
	delete(o.faults, p)
	if err := o.ready(p, "boot-of-"+string(req.GetUID())); err != nil {
		return err
	}
	o.eventLog.assumed(p.ref(), "NodeRecovers", "The node is Ready again: %s %s was carried out", req.GetKind(), req.GetName())
	return nil
}

// nodeOfRequest is the node that a request is about: that which it names, or that of its machine; else the one of its name.
func (o *environment) nodeOfRequest(ctx context.Context, req *unstructured.Unstructured) (nodeKey, error) {
	name, isNode := req.GetAnnotations()[nhcv1.NodeNameAnnotation]
	if !isNode {
		m := &clusterv1.Machine{}
		err := o.client.Get(ctx, client.ObjectKeyFromObject(req), m, client.UnsafeDisableDeepCopy)
		if err == nil {
			p, _ := nodeKeyOf(m)
			return p, nil
		}
		if !apierrors.IsNotFound(err) {
			return nodeKey{}, fmt.Errorf("read machine %s: %w", req.GetName(), err)
		}
		name = req.GetName()
	}
	node, err := o.node(nodeKey{name: name})
	if node == nil || err != nil {
		return nodeKey{}, err
	}
	return nodeKeyIn(o.snapshot, node), nil
}
