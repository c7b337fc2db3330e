package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const (
	// syncingRequests is how long to wait for the first list of a kind of requests.
	syncingRequests = time.Second
	// missingKind is how long to wait for a kind that is not installed: no event says when it is.
	missingKind = 30 * time.Second
)

// templateOf returns what check says of its template, as if the template and its requests were known.
func templateOf(check *clusterv1.MachineHealthCheck) Template {
	ref := check.Spec.Remediation.TemplateRef
	if !ref.IsDefined() {
		return Template{Known: true}
	}
	kind := remediationrequest.KindOf(remediationrequest.TemplateKind(ref))
	return Template{External: true, Known: true, Kind: kind.Kind, TemplateKind: ref.Kind, Name: ref.Name}
}

// observeRemediation reads the check's template and its requests. After an error the requests stay unknown, but the machines are judged.
func (r *Reconciler) observeRemediation(ctx context.Context, state *observed) {
	if state.Template = templateOf(state.Check); !state.Template.External {
		return
	}
	state.Template.Known = false
	if err := r.observeTemplate(ctx, state); err != nil {
		state.Template.Known = false
		if !errors.Is(err, explain.ErrUnread) {
			state.Trouble = append(state.Trouble, err)
		}
	}
}

func (r *Reconciler) observeTemplate(ctx context.Context, state *observed) error {
	ref, template := state.Check.Spec.Remediation.TemplateRef, &state.Template
	kind := remediationrequest.TemplateKind(ref)
	state.requestKind = remediationrequest.KindOf(kind)
	if refusal := remediationrequest.Refusal(kind); refusal != nil {
		template.Refused = true
		template.Missing, template.Fix = "spec.remediation.templateRef: "+refusal.Error(), "Name a remediation template there"
		return nil //nolint:nilerr // the refusal is told as what is missing
	}
	for _, kind := range []schema.GroupVersionKind{kind, state.requestKind} {
		if ready, err := r.observeKind(ctx, state, kind); !ready {
			return err
		}
	}
	found, err := r.Requests.Cached(ctx, kind, client.ObjectKey{Namespace: state.Check.Namespace, Name: ref.Name})
	if err != nil {
		return err
	}
	if !found { // the cache may be behind: read live
		if err := r.readTemplate(ctx, state); remediationrequest.Missing(err) {
			template.Missing, template.Fix = fmt.Sprintf("%s %s/%s does not exist", ref.Kind, state.Check.Namespace, ref.Name), "Make it"
		} else if err != nil {
			return err
		}
	}
	return r.observeRequests(ctx, state)
}

// observeRequests reads the requests of the kind that the check names. While the cache does not show all requests that this process
// created, the reconcile is repeated. If that lasts, the machines are judged, but no remediation begins.
func (r *Reconciler) observeRequests(ctx context.Context, state *observed) error {
	var err error
	if state.requests, err = r.Requests.List(ctx, state.requestKind, state.Check.Namespace); err != nil {
		return err
	}
	// A request that this process may have created and the cache does not show would not count against limits: too many would begin.
	created := r.requested.Of(state.requestKind.GroupKind())
	for _, req := range state.requests {
		if created.Stale(req) {
			err = consistency.ErrStale
		}
	}
	if err == nil {
		err = created.Unseen(ctx, r.Live, state.requestKind, state.Check.Namespace)
	}
	lost := state.before.lost
	switch {
	case err == nil && !lost.IsZero() && state.Now.Before(lost.Add(begin.Settles)):
		state.Template.Syncing = true
		state.lookAgainIn(lost.Add(begin.Settles).Sub(state.Now))
	case !errors.Is(err, consistency.ErrStale):
		state.Template.Known = err == nil
		return err
	case state.before.stale < standsStill:
		state.lagging = true
	default:
		state.Template.Syncing = true
		state.lookAgainIn(syncingRequests)
	}
	return nil
}

// requestOf returns the request for the machine of that name; nil if there is none, or if that is not known.
func (state *observed) requestOf(machine string) *remediationrequest.Metadata {
	if !state.Template.Known {
		return nil
	}
	return state.requests[machine]
}

// attachRequests gives the targets their requests. A request of another check on which kubemend acts is left to that check.
func (state *observed) attachRequests() {
	for _, target := range state.Targets {
		req := state.requestOf(target.Name)
		if req == nil {
			continue
		}
		maker, _ := remediationrequest.MadeBy(req)
		madeBy := func(other Opinion) bool { return other.Check == maker.Name }
		if other := first(target.Others, madeBy); other != nil && remediationrequest.IsFor(req, target.Machine) {
			other.InFlight = true
			continue
		}
		target.Request = req
		target.Ownership = state.ownership(target)
	}
}

// observeKind reports whether objects of that kind can be read. If they cannot be until a person acts, the check says why.
func (r *Reconciler) observeKind(ctx context.Context, state *observed, kind schema.GroupVersionKind) (bool, error) {
	ready, err := r.Kinds.Ready(ctx, kind)
	switch {
	case remediationrequest.Missing(err):
		state.Template.Missing, state.Template.Fix = "the kind "+kind.GroupKind().String()+" is not installed", "Install the kind"
	case apierrors.IsForbidden(err) && !errors.Is(err, explain.ErrUnread):
		state.Template.Missing = "kubemend has no right to list the kind " + kind.GroupKind().String()
		state.Template.Fix = "Give it that right"
	default:
		if state.Template.Syncing = err == nil && !ready; state.Template.Syncing {
			state.lookAgainIn(syncingRequests)
		}
		return ready, err
	}
	state.lookAgainIn(missingKind)
	return false, nil
}

// readTemplate reads the template live: the cache has only its metadata.
func (r *Reconciler) readTemplate(ctx context.Context, state *observed) error {
	if state.template == nil && state.templateErr == nil {
		ref := state.Check.Spec.Remediation.TemplateRef
		state.template, state.templateErr = r.Requests.Template(ctx, ref, state.Check.Namespace)
	}
	return state.templateErr
}

// tryTemplate finds out for which machines that are not healthy no request can be created from the template.
func (state *observed) tryTemplate(plan *Plan) {
	state.Read.Template = true
	for _, decision := range plan.Open {
		target := decision.Target
		if decision.Verdict.State == health.Healthy || target.Request != nil {
			continue
		}
		if _, err := state.requestFor(target.Machine); err != nil {
			target.Unusable = err
		}
	}
}

// ownership returns how the request of target, which has its name, relates to the check. A request counts only for the Machine whose UID it
// names. A request left by a deleted Machine of the same name is garbage-collected with that Machine.
//
// A request that is not marked and was cloned from a template of the named kind is from Cluster API core, before the check was claimed. The
// check may have named another template then. It is adopted, since no other controller would ever delete the request, unless another check
// of the machine names the template: then the request most likely belongs to that check.
func (state *observed) ownership(target *Target) Ownership {
	req, ref := target.Request, state.Check.Spec.Remediation.TemplateRef
	maker, marked := remediationrequest.MadeBy(req)
	template := req.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	others := func(other Overlap) bool {
		return template != ref.Name && other.template == template && other.selector.Matches(labels.Set(target.Machine.Labels))
	}
	switch {
	case !remediationrequest.IsFor(req, target.Machine):
		return ForeignRequest
	case marked && maker.Name == state.Check.Name && maker.UID == state.Check.UID:
		return OwnRequest
	case marked && maker.Name != state.Check.Name, !marked && !remediationrequest.ClonedFrom(req, remediationrequest.TemplateKind(ref)),
		slices.ContainsFunc(state.Overlaps, others):
		return ForeignRequest
	}
	return AdoptableRequest
}

var cycleKinds = [][]schema.GroupVersionKind{
	{mendv1.GroupVersion.WithKind("HostRemediation")},
	{infrav1.GroupVersion.WithKind("Metal3Remediation"), infrav1beta1.GroupVersion.WithKind("Metal3Remediation")},
}

var errListing = errors.New("its first list is under way")

// observeCycles finds the power cycles of the targets that a person or a NodeHealthCheck requested. During a power cycle the node goes and
// comes back, and may even be deleted; the machine must not be replaced because of that.
//
// While the power cycles cannot be read, no remediation begins for machines on hosts, for ten minutes at most. Kinds that are not
// installed, or that kubemend may not list, have none. While all machines are healthy, the API server is not asked.
func (r *Reconciler) observeCycles(ctx context.Context, state *observed) {
	state.unread, state.Read.Cycles = map[schema.GroupKind]time.Time{}, true
	for _, versions := range cycleKinds {
		kind := versions[0].GroupKind()
		cycles, err := r.cyclesOf(ctx, state, versions)
		if err != nil {
			if until := state.unreadUntil(kind, err); state.Now.Before(until) && until.After(state.CyclesUnread) {
				state.CyclesUnread = until
			}
		}
		for _, name := range slices.Sorted(maps.Keys(cycles)) {
			req := cycles[name]
			if !CycleUnderWay(req, state.Now) {
				continue
			}
			for _, owner := range req.OwnerReferences {
				// The first power cycle that the check did not request counts.
				if target := find(owner.Name, state.Targets); target != nil && target.Cycle == nil && target.Machine.UID == owner.UID &&
					(target.Request == nil || target.Request.UID != req.UID) {
					target.Cycle = req
				}
			}
		}
	}
}

// unreadUntil notes that a kind of power cycles, or a host, cannot be read, and returns until when that blocks machines on hosts.
func (state *observed) unreadUntil(kind schema.GroupKind, err error) time.Time {
	since, before := state.before.unread[kind]
	if !before {
		since = state.Now
	}
	state.unread[kind] = since
	until := since.Add(CyclesUnreadFor)
	if errors.Is(err, errListing) {
		state.lookAgainIn(syncingRequests)
	} else {
		state.Trouble = append(state.Trouble, err)
	}
	if state.Now.Before(until) {
		state.recheck = health.Earliest(state.recheck, until)
	}
	return until
}

// cyclesOf returns the power cycles of a kind, in the version that can be read. There are none if the kind is not installed or may not be
// listed. One version may fail while another works: a broken conversion webhook affects only versions that are not stored.
func (r *Reconciler) cyclesOf(
	ctx context.Context, state *observed, versions []schema.GroupVersionKind,
) (map[string]*remediationrequest.Metadata, error) {
	if state.Template.Known && state.requestKind.GroupKind() == versions[0].GroupKind() {
		return state.requests, nil // read already: not in a second version
	}
	for _, kind := range r.Kinds.InUse() {
		if kind.GroupKind() == versions[0].GroupKind() {
			return r.Requests.List(ctx, kind, state.Check.Namespace)
		}
	}
	if r.Installed != nil {
		if there, err := r.Installed(ctx, strings.ToLower(versions[0].Kind)+"s."+versions[0].Group); err != nil || !there {
			return nil, err
		}
	}
	var failed error
	for _, kind := range versions {
		ready, err := r.Kinds.Ready(ctx, kind)
		switch {
		case remediationrequest.Missing(err), apierrors.IsForbidden(err), errors.Is(err, explain.ErrUnread):
		case err != nil:
			failed = errors.Join(failed, err)
		case !ready:
			return nil, errListing
		default:
			return r.Requests.List(ctx, kind, state.Check.Namespace)
		}
	}
	return nil, failed
}
