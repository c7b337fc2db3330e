package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const (
	// syncingRequests is how long to wait for the first list of a kind of requests.
	syncingRequests = time.Second
	// missingKind is how long to wait for a kind that is not installed. Nothing tells when it is.
	missingKind = 30 * time.Second
)

// remediation is how the check has its machines remediated by requests.
type remediation struct {
	kind schema.GroupVersionKind // of the requests
	// template is the template, or templateErr why there is none of use, if it was read: it is where a request is to be made, and where the cache does not
	// have it.
	read        bool
	template    *unstructured.Unstructured
	templateErr error
}

// byRequests says that the machines of the check are remediated by requests that are made from a template.
func (w *observed) byRequests(ref clusterv1.MachineHealthCheckRemediationTemplateReference) {
	w.remediation = remediation{kind: remediationrequest.KindOf(remediationrequest.TemplateKind(ref))}
	w.Kind = w.remediation.kind.Kind
	w.Template = machines.Template{External: true, Kind: w.Kind, TemplateKind: ref.Kind, Name: ref.Name}
}

// missing says why there is no template, and what a person can do about that, as the beginning of a sentence.
func (w *observed) missing(why, fix string) { w.Template.Missing, w.Template.Fix = why, fix }

// observeRemediation finds the check's template and the requests that exist. What cannot be read is trouble, and leaves the
// requests unknown; the machines are judged all the same.
func (r *Reconciler) observeRemediation(ctx context.Context, w *observed) {
	w.Kind, w.Template = "Owner", machines.Template{Known: true}
	ref := w.Check.Spec.Remediation.TemplateRef
	if err := r.nameKinds(ctx, w, ref); err != nil {
		w.Trouble = append(w.Trouble, err)
	}
	if ref.IsDefined() {
		err := r.observeTemplate(ctx, w, ref)
		if w.Template.Unread = errors.Is(err, explain.ErrUnread); err != nil {
			w.Template.Known = false
		}
		if err != nil && !w.Template.Unread {
			w.Trouble = append(w.Trouble, err)
		}
	}
	r.observeOrphans(ctx, w)
}

// nameKinds makes known which kinds the check names. What it named before is watched no longer than somebody needs it.
func (r *Reconciler) nameKinds(ctx context.Context, w *observed, ref clusterv1.MachineHealthCheckRemediationTemplateReference) error {
	template := remediationrequest.TemplateKind(ref)
	if !ref.IsDefined() || remediationrequest.Refusal(template) != nil {
		return r.Kinds.Named(ctx, client.ObjectKeyFromObject(w.Check))
	}
	return r.Kinds.Named(ctx, client.ObjectKeyFromObject(w.Check), template, remediationrequest.KindOf(template))
}

// requestsOf returns the requests of a kind in the check's namespace, by name, which are listed once in a reconcile. They are shared.
func (r *Reconciler) requestsOf(ctx context.Context, w *observed, kind schema.GroupVersionKind) (map[string]*remediationrequest.Metadata, error) {
	if all, listed := w.requests[kind]; listed {
		return all, nil
	}
	all, err := r.Requests.List(ctx, kind, w.Check.Namespace)
	if err != nil {
		return nil, err
	}
	if w.requests == nil {
		w.requests = map[schema.GroupVersionKind]map[string]*remediationrequest.Metadata{}
	}
	w.requests[kind] = all
	return all, nil
}

func (r *Reconciler) observeTemplate(ctx context.Context, w *observed, ref clusterv1.MachineHealthCheckRemediationTemplateReference) error {
	templateKind := remediationrequest.TemplateKind(ref)
	w.byRequests(ref)
	if refusal := remediationrequest.Refusal(templateKind); refusal != nil {
		w.Template.Refused = true
		w.missing("spec.remediation.templateRef: "+refusal.Error(), "Name a remediation template there")
		return nil //nolint:nilerr // the refusal is told as what is missing
	}
	for _, kind := range []schema.GroupVersionKind{templateKind, w.remediation.kind} {
		if ready, err := r.observeKind(ctx, w, kind); !ready {
			return err
		}
	}
	found, err := r.Requests.Cached(ctx, templateKind, client.ObjectKey{Namespace: w.Check.Namespace, Name: ref.Name})
	if err != nil {
		return err
	}
	if !found {
		if err := r.confirmMissing(ctx, w); err != nil {
			return err
		}
	}
	if _, err := r.requestsOf(ctx, w, w.remediation.kind); err != nil {
		return err
	}
	w.Template.Known = true
	return nil
}

// requestOf is the request for the machine of that name, of the kind that the check names; nil if there is none, or if that is not known.
func (w *observed) requestOf(machine string) *remediationrequest.Metadata {
	if !w.Template.Known {
		return nil
	}
	return w.requests[w.remediation.kind][machine]
}

// attachRequests gives the targets their requests.
func (w *observed) attachRequests() {
	if !w.Template.Known {
		return
	}
	requests := w.requests[w.remediation.kind]
	for _, target := range w.Targets {
		if target.Request = requests[target.Name]; target.Request != nil {
			target.Ownership = w.ownership(target)
		}
	}
}

// observeKind reports whether objects of that kind can be read. If they never can as things stand, the check says why.
func (r *Reconciler) observeKind(ctx context.Context, w *observed, kind schema.GroupVersionKind) (bool, error) {
	ready, err := r.Kinds.Ready(ctx, kind)
	switch {
	case remediationrequest.Missing(err):
		w.missing("the kind "+kind.GroupKind().String()+" is not installed", "Install the kind")
		w.lookAgainIn(missingKind)
		return false, nil
	case apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread):
		w.missing("kubemend has no right to list the kind "+kind.GroupKind().String(), "Give it that right")
		w.lookAgainIn(missingKind)
		return false, nil
	case err == nil && !ready:
		w.Template.Syncing = true
		w.lookAgainIn(syncingRequests)
	}
	return ready, err
}

// confirmMissing asks the API server itself for a template that the cache does not have.
func (r *Reconciler) confirmMissing(ctx context.Context, w *observed) error {
	err := r.readTemplate(ctx, w)
	if remediationrequest.Missing(err) {
		ref := w.Check.Spec.Remediation.TemplateRef
		w.missing(fmt.Sprintf("%s %s/%s does not exist", ref.Kind, w.Check.Namespace, ref.Name), "Make it")
		return nil
	}
	return err
}

// readTemplate reads the template itself, of which the cache has no more than the metadata.
func (r *Reconciler) readTemplate(ctx context.Context, w *observed) error {
	if !w.remediation.read {
		w.remediation.template, w.remediation.templateErr = r.Requests.Template(ctx, w.Check.Spec.Remediation.TemplateRef, w.Check.Namespace)
		w.remediation.read = true
	}
	return w.remediation.templateErr
}

// tryTemplate finds out for which machines that are not healthy no request can be made from the template.
func (w *observed) tryTemplate(plan *machines.Plan) {
	w.Read.Template = true
	for _, i := range plan.Open {
		target := w.Targets[i]
		if plan.Decisions[i].Verdict.State == health.Healthy || target.Request != nil {
			continue
		}
		if _, err := w.requestFor(target.Machine); err != nil {
			target.Unusable = err
		}
	}
}

// observeOrphans finds the requests of this check that none of its targets needs any more. A request that exists in several
// versions of its kind is one request.
func (r *Reconciler) observeOrphans(ctx context.Context, w *observed) {
	for _, kind := range r.Kinds.InUse() {
		requests, err := r.requestsOf(ctx, w, kind)
		if err != nil {
			w.Trouble = append(w.Trouble, err)
			continue
		}
		if len(requests) == 0 {
			continue
		}
		orphans := map[string]*remediationrequest.Metadata{}
		for name, req := range requests {
			if maker, marked := remediationrequest.MadeBy(req); marked && maker.Name == w.Check.Name && req.DeletionTimestamp.IsZero() {
				orphans[name] = req
			}
		}
		if w.Template.External && kind.GroupKind() == w.remediation.kind.GroupKind() {
			maps.DeleteFunc(orphans, func(name string, _ *remediationrequest.Metadata) bool {
				return find(name, w.Targets) != nil
			})
		}
		for _, name := range slices.Sorted(maps.Keys(orphans)) {
			w.orphans = append(w.orphans, orphans[name])
		}
	}
}

// ownership is that of the request that there is for t. One that was cloned from a template which another check of the machine names is that
// check's, as far as anybody knows.
func (w *observed) ownership(t *machines.Target) machines.Ownership {
	is := ownershipOf(w.Check, t.Machine, t.Request)
	template := t.Request.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	if is == machines.AdoptableRequest && template != w.Check.Spec.Remediation.TemplateRef.Name {
		for _, other := range w.others {
			if other.template == template && other.selector.Matches(labels.Set(t.Machine.Labels)) {
				return machines.ForeignRequest
			}
		}
	}
	return is
}

// ownershipOf finds out how req, which has the name of m, relates to check. A request counts only for the Machine whose UID it names: one that a
// deleted Machine of the same name has left belongs to no Machine that exists, and goes with its own.
//
// A request without mark that was cloned from a template of the kind that the check names was made by Cluster API core before the check
// was claimed, also if the check named another template then. It is adopted, since no other controller would ever end it.
func ownershipOf(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine, req *remediationrequest.Metadata) machines.Ownership {
	maker, marked := remediationrequest.MadeBy(req)
	switch {
	case !remediationrequest.IsFor(req, m):
		return machines.ForeignRequest
	case marked && maker.Name == check.Name && maker.UID == check.UID:
		return machines.OwnRequest
	case marked && maker.Name == check.Name:
		return machines.AdoptableRequest
	case !marked && remediationrequest.ClonedFrom(req, remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef)):
		return machines.AdoptableRequest
	default:
		return machines.ForeignRequest
	}
}
