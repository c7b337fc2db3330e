package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// requestKind is a kind of requests, and whether those who carry it out are played by their controller.
type requestKind struct {
	schema.GroupVersionKind

	played bool
}

// crdOf is the name of the CustomResourceDefinition of a kind, as those are called that kubemend may act on.
func crdOf(kind schema.GroupVersionKind) string {
	return strings.ToLower(kind.Kind) + "s." + kind.Group
}

// requestKinds are the kinds of requests that the checks make, sorted.
func (s *stage) requestKinds(ctx context.Context) ([]requestKind, error) {
	var kinds []requestKind
	add := func(template schema.GroupVersionKind) {
		gvk := remediationrequest.KindOf(template)
		same := func(k requestKind) bool { return k.GroupKind() == gvk.GroupKind() }
		if remediationrequest.Refusal(template) != "" || slices.ContainsFunc(kinds, same) {
			return
		}
		k := requestKind{GroupVersionKind: gvk}
		for _, played := range s.kindsOnMetal() {
			k.played = k.played || played.GroupKind() == gvk.GroupKind()
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

// unplayed names the kinds of requests whose remediators are not played; empty if there are none.
func (o *outside) unplayed() string {
	var names []string
	for _, k := range o.kinds {
		if !k.played {
			names = append(names, k.Kind)
		}
	}
	return strings.Join(names, ", ")
}

// requests are the metadata of the requests of a kind, shared.
func (s *stage) requests(ctx context.Context, kind requestKind) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

// remediators makes those that are not played by their controller begin with what they are asked for, and let go of what is deleted.
func (o *outside) remediators(ctx context.Context) error {
	for _, kind := range o.kinds {
		if kind.played {
			continue
		}
		requests, err := o.requests(ctx, kind)
		if err != nil {
			return err
		}
		for i := range requests {
			if err := o.remediator(ctx, kind, &requests[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *outside) remediator(ctx context.Context, kind requestKind, is *metav1.PartialObjectMetadata) error {
	if !is.DeletionTimestamp.IsZero() {
		free := is.DeepCopy()
		free.SetGroupVersionKind(kind.GroupVersionKind)
		free.Finalizers = nil
		if err := client.IgnoreNotFound(o.client.Patch(ctx, free, client.MergeFrom(is))); err != nil {
			return fmt.Errorf("let go of %s %s: %w", kind.Kind, is.Name, err)
		}
		return nil
	}
	if o.heard[is.UID] || o.RemediationTakes == 0 {
		return nil
	}
	o.heard[is.UID] = true
	key, uid := client.ObjectKeyFromObject(is), is.UID
	o.in(o.RemediationTakes, func(ctx context.Context) error {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(kind.GroupVersionKind)
		if err := o.client.Get(ctx, key, found); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
		}
		_, stopped := found.Annotations[nhcv1.TimedOutAnnotation]
		if found.UID != uid || stopped || !found.DeletionTimestamp.IsZero() {
			return nil
		}
		return o.cure(ctx, found)
	})
	return nil
}

// cure brings the node back that a request is about.
func (o *outside) cure(ctx context.Context, req *metav1.PartialObjectMetadata) error {
	p, err := o.placeOfRequest(ctx, req)
	if err != nil || p.name == "" {
		return err
	}
	if node, err := o.node(ctx, p); node == nil || err != nil {
		return err
	}
	delete(o.faults, p)
	if err := o.ready(ctx, p, "boot-of-"+string(req.UID)); err != nil {
		return err
	}
	o.eventLog.assumed(p.ref(), "NodeRecovers", "The node is Ready again: %s %s was carried out", req.Kind, req.Name)
	return nil
}

// placeOfRequest is the node that a request is about: that which it names, or that of its machine; else the one of its name.
func (o *outside) placeOfRequest(ctx context.Context, req *metav1.PartialObjectMetadata) (place, error) {
	name, isNode := req.Annotations[nhcv1.NodeNameAnnotation]
	if !isNode {
		m := &clusterv1.Machine{}
		err := o.client.Get(ctx, client.ObjectKeyFromObject(req), m, client.UnsafeDisableDeepCopy)
		if err == nil {
			p, _ := placeOf(m)
			return p, nil
		}
		if !apierrors.IsNotFound(err) {
			return place{}, fmt.Errorf("read machine %s: %w", req.Name, err)
		}
		name = req.Name
	}
	node, err := o.node(ctx, place{name: name})
	if node == nil || err != nil {
		return place{}, err
	}
	return placeIn(o.world, node), nil
}
