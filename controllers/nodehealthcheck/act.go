package nodehealthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// writers is how many nodes of one check are worked on at the same time.
const writers = 16

// outcome is what became of a step.
type outcome struct {
	step
	// asked says that a request was to be created; made is that, nil if it was not.
	asked bool
	made  *unstructured.Unstructured
	// ended are the requests that were deleted, flagged those that were counted, gaveUp says that giveUp was given up.
	ended, flagged []*found
	gaveUp         bool
	// untold is the error for which a remediator could not be told to stop.
	untold error
	// untellable are requests that may not be told to stop.
	untellable []*found
	// again says that somebody else was faster, and that the next reconcile will see what they did.
	again bool
	// refused is the error for which no request could be made.
	refused error
	err     error
}

// act carries out all steps, each on its own: what fails for one node holds up no other.
func (r *Reconciler) act(ctx context.Context, w *observed, steps []step) []outcome {
	outcomes := make([]outcome, len(steps))
	var work errgroup.Group
	work.SetLimit(writers)
	for i, s := range steps {
		work.Go(func() error {
			outcomes[i] = r.carryOut(ctx, w, s)
			return nil
		})
	}
	_ = work.Wait() // errors are in the outcomes
	w.trouble = append(w.trouble, r.endLeftovers(ctx, w)...)
	return outcomes
}

// carryOut takes the node before it begins, tells the former remediator to stop before it asks the next one, and gives the node back last.
// Whatever fails in between, the next reconcile goes on from there.
func (r *Reconciler) carryOut(ctx context.Context, w *observed, s step) outcome {
	o := outcome{step: s}
	r.mark(ctx, w, &o)
	if s.start >= 0 && !s.target.begun() {
		leave, may := r.enter(ctx, w, &o)
		if !may {
			return o
		}
		defer leave()
	}
	if s.unconfirm {
		o.try(r.unconfirm(ctx, s.target.node))
	}
	taken, leased := r.lease(ctx, w, s)
	o.try(leased)
	if len(s.giveUp) > 0 && !r.giveUp(ctx, w, &o) || s.start < 0 {
		return o
	}
	if leased != nil {
		if !o.again { // somebody else was not only faster
			o.refused = leased
		}
		return o
	}
	r.ask(ctx, w, &o)
	if o.refused != nil && taken != nil && !s.target.begun() && !o.mayHaveMade() { // nobody is at work: others may be
		o.try(r.giveBack(ctx, taken))
	}
	return o
}

// enter makes sure that the first request for a node may be made, and returns what has to be done when it was, or could not be.
func (r *Reconciler) enter(ctx context.Context, w *observed, o *outcome) (leave func(), may bool) {
	leave = func() {}
	if controlPlane(o.target.node) {
		if again := r.memory.seat.take(o.target.name, w.now, r.Clock.Now()); !again.IsZero() {
			o.lookAgainAt(again, "")
			return leave, false
		}
		leave = func() { r.memory.seat.leave(r.Clock.Now(), o.mayHaveMade()) }
	}
	doubt, err := r.confirm(ctx, w, o.target)
	switch {
	case err == nil && doubt == "":
		return leave, true
	case err == nil && r.memory.of(w.check.Name).failed >= doubtful:
		err = fmt.Errorf("the manager's cache does not show what the API server says: %s", doubt)
	}
	o.again = err == nil
	o.refuse(err)
	leave()
	return leave, false
}

// ask makes the request of a step.
func (r *Reconciler) ask(ctx context.Context, w *observed, o *outcome) {
	o.asked = true
	made, err := r.begin(ctx, w, o.step)
	if errors.Is(err, remediationrequest.ErrAppeared) {
		o.again, err = true, nil
	}
	o.made = made
	o.refuse(err)
}

// refuse notes that no request could be made, if err says why.
func (o *outcome) refuse(err error) {
	if err != nil {
		o.refused, o.err = err, errors.Join(o.err, err)
	}
}

// mayHaveMade reports whether there may be a request now. An API server that refuses one has made none; after other errors it may have.
func (o *outcome) mayHaveMade() bool {
	return o.asked && !apierrors.IsForbidden(o.refused) && !apierrors.IsInvalid(o.refused)
}

// mark writes on the requests of a node what a step says of them, and ends those that are over.
func (r *Reconciler) mark(ctx context.Context, w *observed, o *outcome) {
	for _, f := range o.flag {
		if o.try(r.note(ctx, w, f, annotations{nhcv1.OldRequestAnnotation: nhcv1.OldRequestFlag})) {
			o.flagged = append(o.flagged, f)
		}
	}
	for _, f := range o.resume {
		set := annotations{nhcv1.HealthyDelayAnnotation: nil}
		if w.classic() && f.recovered {
			set[mendv1.RelapsedAnnotation] = moment(w.now)
		}
		o.try(r.note(ctx, w, f, set))
	}
	for _, f := range o.delay {
		o.try(r.note(ctx, w, f, annotations{nhcv1.HealthyDelayAnnotation: moment(w.now)}))
	}
	for _, f := range o.stop {
		err := r.annotate(ctx, f, annotations{nhcv1.TimedOutAnnotation: moment(w.now)})
		if apierrors.IsForbidden(err) {
			o.untellable = append(o.untellable, f)
		}
		if !w.classic() || !apierrors.IsForbidden(err) {
			o.try(err)
		}
	}
	for _, f := range o.end {
		if o.try(r.Requests.Delete(ctx, metadataOf(f.obj))) {
			r.memory.written.forget(f.obj.GetUID())
			o.ended = append(o.ended, f)
		}
	}
}

// try notes an error, and reports whether there was none. That somebody else was faster is none.
func (o *outcome) try(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		o.again = true
	case err != nil:
		o.err = errors.Join(o.err, err)
	}
	return err == nil
}

// lease does what a step says about the lease of its node, and returns that if it was taken or renewed.
func (r *Reconciler) lease(ctx context.Context, w *observed, s step) (*coordinationv1.Lease, error) {
	switch s.lease {
	case takeLease, renewLease:
		return r.take(ctx, w, s.target, s.term)
	case dropLease:
		return nil, r.giveBack(ctx, s.target.lease)
	default:
		return nil, nil
	}
}

// giveUp tells the remediators to stop, if they have to be told. That it was given up is in the annotation first, and in the status afterwards:
// a crash in between loses nothing.
func (r *Reconciler) giveUp(ctx context.Context, w *observed, o *outcome) bool {
	o.gaveUp = true
	for _, f := range o.giveUp {
		if !o.tell {
			continue
		}
		if err := r.annotate(ctx, f, annotations{nhcv1.TimedOutAnnotation: moment(w.now)}); !o.try(err) {
			o.gaveUp, o.untold = false, err
		}
	}
	return o.gaveUp
}

// begin makes the request of the rung that a step begins.
func (r *Reconciler) begin(ctx context.Context, w *observed, s step) (*unstructured.Unstructured, error) {
	t, m := s.target, &w.remedies[s.start]
	ask := remediationrequest.Ask{
		Name: m.nameFor(w.check, t), Node: t.name, ControlPlane: controlPlane(t.node),
		By: remediationrequest.Maker{Name: w.check.Name, UID: w.check.UID}, Owners: []metav1.OwnerReference{ownerOf(w.check)},
	}
	owner, err := r.machineOwner(ctx, m, t)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		ask.Owners = append(ask.Owners, *owner)
	}
	req, err := remediationrequest.ForNode(ask, m.object)
	if err != nil {
		return nil, err
	}
	if err := r.Requests.Create(ctx, req); err != nil {
		return nil, err
	}
	r.memory.written.note(req, true, w.now)
	return req, nil
}

// nameFor is the name of a request: that of the Machine for what is about Machines, else that of the node; where there may be several
// requests for one node, one that no other template's request has.
func (m remedy) nameFor(check *nhcv1.NodeHealthCheck, t *target) string {
	name := t.name
	if machine := m.machineFor(t); machine != nil {
		name = machine.Name
	}
	if m.several() {
		return remediationrequest.UniqueName(name, string(check.UID), m.ref.Namespace, m.ref.Name)
	}
	return name
}

func ownerOf(check *nhcv1.NodeHealthCheck) metav1.OwnerReference {
	no := false
	return metav1.OwnerReference{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: check.Name, UID: check.UID, Controller: &no}
}

// machineOwner is the Machine behind the node, if it can own a request; nil if none can.
func (r *Reconciler) machineOwner(ctx context.Context, m *remedy, t *target) (*metav1.OwnerReference, error) {
	if obj := m.machineFor(t); obj != nil {
		return &metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: obj.Name, UID: obj.UID}, nil
	}
	return r.openshiftMachine(ctx, m, t)
}

// annotations are what annotations of a request are to be, by their keys; nil removes one.
type annotations map[string]any

// moment is how annotations hold one.
func moment(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// note annotates a request with what is known without it as well: that it was counted as old is remembered, and since when its node is well is in
// the check's status. So it does not matter that roles of remediators from before there were ladders do not grant to patch. With a ladder it
// does: there a remediator has to be told to stop.
func (r *Reconciler) note(ctx context.Context, w *observed, f *found, set annotations) error {
	err := r.annotate(ctx, f, set)
	if w.classic() && apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// annotate sets and removes annotations of a request. The rest of the request is its remediator's.
func (r *Reconciler) annotate(ctx context.Context, f *found, set annotations) error {
	keys := strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return fmt.Errorf("encode annotations %s: %w", keys, err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(f.obj.GroupVersionKind())
	obj.SetNamespace(f.obj.GetNamespace())
	obj.SetName(f.obj.GetName())
	err = r.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil // it has ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("annotate %s %s with %s: %w", obj.GetKind(), client.ObjectKeyFromObject(f.obj), keys, err)
	}
	if obj.GetUID() == f.obj.GetUID() {
		r.memory.written.note(obj, false, time.Time{})
	}
	return nil
}

// +kubebuilder:rbac:groups=core,resources=nodes,verbs=patch

// unconfirm removes the annotation by which a person confirmed that node is well.
func (r *Reconciler) unconfirm(ctx context.Context, node *corev1.Node) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, nhcv1.ConfirmedHealthyAnnotation)
	err := r.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, client.RawPatch(types.MergePatchType, []byte(patch)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove annotation %s from node %s: %w", nhcv1.ConfirmedHealthyAnnotation, node.Name, err)
	}
	return nil
}

// metadataOf is the identity of obj.
func metadataOf(obj *unstructured.Unstructured) *remediationrequest.Metadata {
	m := &remediationrequest.Metadata{}
	m.SetGroupVersionKind(obj.GroupVersionKind())
	m.Namespace, m.Name, m.UID = obj.GetNamespace(), obj.GetName(), obj.GetUID()
	return m
}
