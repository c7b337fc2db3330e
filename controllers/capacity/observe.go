package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Observer reads what capacity waits for.
type Observer struct {
	// Management reads the management cluster. Mapper knows its kinds.
	Management client.Reader
	Mapper     meta.RESTMapper
	// Machines replaces the function Machines, and may return only Notable Machines if notable is set; nil to use that function.
	Machines func(ctx context.Context, s *Subject, notable bool) ([]*clusterv1.Machine, error)
	// NodeReady returns the condition Ready of a Machine's node if the caller knows it; otherwise the Machine's own condition counts.
	NodeReady func(machine *clusterv1.Machine) (ready metav1.Condition, known bool)
}

// machinesUnread is in Unread if the machines of the owner could not be read.
const machinesUnread = "Machines"

type reading struct {
	*Observer
	*Facts
}

// Observe returns the facts about s. It fails only on errors that say nothing about an object, such as an API server that does not answer.
func (o *Observer) Observe(ctx context.Context, s Subject, now time.Time) (*Facts, error) {
	r := &reading{o, &Facts{Subject: s, now: now}}
	if s.Machine != nil {
		r.old = r.seen(s.Machine)
	}
	for _, step := range []func(context.Context) error{
		r.readCluster, r.readNamespace, r.readOwner, r.readMachines, r.readChecks, r.readHosts,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(r.Unread)
	r.Unread = slices.Compact(r.Unread)
	return r.Facts, nil
}

// get reads an object. If the caller may not read it, known is false and its kind is added to Unread.
func (r *reading) get(ctx context.Context, name string, obj client.Object, kinds string) (exists, known bool, err error) {
	err = r.Management.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, obj)
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, true, nil
	}
	return false, false, r.note(kinds, err)
}

// list reads objects of the namespace. If the caller may not read them, known is false and their kind is added to Unread.
func (r *reading) list(ctx context.Context, list client.ObjectList, kinds string, options ...client.ListOption) (known bool, err error) {
	err = r.Management.List(ctx, list, append(options, client.InNamespace(r.Namespace))...)
	if err == nil {
		return true, nil
	}
	return false, r.note(kinds, err)
}

// note adds a kind to Unread if the caller may not read it, or if the kind does not exist. It returns any other error.
func (r *reading) note(kinds string, err error) error {
	if !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) && !errors.Is(err, explain.ErrUnread) {
		return fmt.Errorf("read %s in %s: %w", kinds, r.Namespace, err)
	}
	r.Unread = append(r.Unread, kinds)
	return nil
}

// seen returns machine with the condition of its node as the caller knows it.
func (r *reading) seen(machine *clusterv1.Machine) *clusterv1.Machine {
	if r.NodeReady == nil || !machine.Status.NodeRef.IsDefined() {
		return machine
	}
	ready, known := r.NodeReady(machine)
	if !known {
		return machine
	}
	machine = machine.DeepCopy()
	ready.Type = clusterv1.MachineNodeReadyCondition
	meta.RemoveStatusCondition(&machine.Status.Conditions, ready.Type)
	machine.Status.Conditions = append(machine.Status.Conditions, ready)
	return machine
}

func (r *reading) readCluster(ctx context.Context) error {
	if r.Cluster == "" {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	exists, known, err := r.get(ctx, r.Cluster, cluster, "Clusters")
	if exists {
		r.cluster = cluster
	}
	r.clusterDeleted = known && (!exists || !cluster.DeletionTimestamp.IsZero())
	return err
}

// readNamespace reads the Namespace of a machine that is being deleted, or gone; only its metadata, because the command line has no more.
func (r *reading) readNamespace(ctx context.Context) error {
	if r.old != nil && r.old.DeletionTimestamp.IsZero() {
		return nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.Management.Get(ctx, client.ObjectKey{Name: r.Namespace}, namespace)
	r.namespaceDeleted = err == nil && !namespace.DeletionTimestamp.IsZero()
	if client.IgnoreNotFound(err) != nil {
		return r.note("Namespaces", err)
	}
	return nil
}

// readOwner reads what creates the machines. All owners have spec.replicas and conditions of the same types, if their provider sets them
// (Cluster API's contract of control planes). The name of a MachineDeployment comes from its MachineSets, since a Machine's label has a
// hash in place of a long name (Cluster API, internal/util/labels/format).
func (r *reading) readOwner(ctx context.Context) error {
	kind, name, sets := r.Owner.Kind, r.Owner.Name, &clusterv1.MachineSetList{}
	switch {
	case kind == "":
		return nil
	case r.Deployment != "":
		kind, name = machineDeploymentKind, r.Deployment
		if _, err := r.list(ctx, sets, "MachineSets", client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: name}); err != nil {
			return err
		}
		if len(sets.Items) > 0 && metav1.GetControllerOf(&sets.Items[0]) != nil {
			name = metav1.GetControllerOf(&sets.Items[0]).Name
		}
	}
	r.owner.ref = rule.Ref{Kind: kind, Namespace: r.Namespace, Name: name}
	r.owner.maker = r.owner.ref
	obj, err := r.newOwner(kind)
	if err != nil {
		return r.note(kind+"s", err)
	}
	exists, known, err := r.get(ctx, name, obj, kind+"s")
	r.owner.known, r.owner.gone = known, known && (!exists || !obj.GetDeletionTimestamp().IsZero())
	if err != nil || !exists {
		return err
	}
	r.owner.says(obj)
	for i := range sets.Items {
		if set := &sets.Items[i]; set.Annotations[clusterv1.RevisionAnnotation] == obj.GetAnnotations()[clusterv1.RevisionAnnotation] {
			r.owner.maker.Kind, r.owner.maker.Name = machineSetKind, set.Name
			r.owner.paused, r.owner.conditions = isPaused(set), set.Status.Conditions
		}
	}
	return nil
}

// says copies from an owner what it says about itself.
func (o *owner) says(obj client.Object) {
	o.paused = isPaused(obj)
	switch obj := obj.(type) {
	case *clusterv1.MachineSet:
		o.replicas, o.conditions = obj.Spec.Replicas, obj.Status.Conditions
	case *clusterv1.MachineDeployment:
		o.replicas, o.conditions = obj.Spec.Replicas, obj.Status.Conditions
	case *unstructured.Unstructured:
		o.conditions, _ = conditions.UnstructuredGetAll(obj)                                   // conditions of another form do not count
		if replicas, has, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas"); has { // nor do replicas that are no number
			o.replicas = ptr.To(int32(replicas))
		}
	}
	o.rollingOut = cond(o.conditions, clusterv1.RollingOutCondition).Status == metav1.ConditionTrue
}

// newOwner returns an empty owner of a kind; for kinds of other projects in the version that is served.
func (r *reading) newOwner(kind string) (client.Object, error) {
	switch kind {
	case machineSetKind:
		return &clusterv1.MachineSet{}, nil
	case machineDeploymentKind:
		return &clusterv1.MachineDeployment{}, nil
	case kubeadmKind: // a snapshot may have the object but not its kind
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(controlplanev1.GroupVersion.WithKind(kind))
		return obj, nil
	}
	return r.served(r.Owner.Group, kind)
}

// served returns an empty object of a kind without a Go type here, in the version that is served.
func (r *reading) served(group, kind string) (*unstructured.Unstructured, error) {
	mapping, err := r.Mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(mapping.GroupVersionKind)
	return obj, nil
}

// readMachines reads the other machines of the owner. If the machine exists and is not being deleted, Notable machines suffice.
func (r *reading) readMachines(ctx context.Context) error {
	if r.Owner.Kind == "" {
		return nil
	}
	var machines []*clusterv1.Machine
	var err error
	if r.Machines != nil {
		machines, err = r.Machines(ctx, &r.Subject, r.old != nil && r.old.DeletionTimestamp.IsZero() && len(r.Lost) == 0)
	} else {
		machines, err = Machines(ctx, r.Management, &r.Subject)
	}
	if err != nil {
		return r.note(machinesUnread, err)
	}
	r.others = make([]*clusterv1.Machine, 0, len(machines))
	for _, machine := range machines {
		if r.old == nil || machine.Name != r.old.Name {
			r.others = append(r.others, r.seen(machine))
		}
	}
	if len(r.Lost) > 0 {
		named := make(map[string]*clusterv1.Machine, len(r.others))
		for _, machine := range r.others {
			named[machine.Name] = machine
		}
		r.named = named
		r.Lost = slices.DeleteFunc(slices.Clone(r.Lost), func(l Subject) bool { return l.Name == r.Name || r.other(l.Name) != nil })
	}
	return nil
}

// Machines lists the Machines of the owner of s that options select, the oldest first.
func Machines(ctx context.Context, reader client.Reader, s *Subject, options ...client.ListOption) ([]*clusterv1.Machine, error) {
	list, ofCluster := &clusterv1.MachineList{}, client.MatchingLabels{}
	if s.Cluster != "" { // the record of a NodeHealthCheck has no Cluster
		ofCluster[clusterv1.ClusterNameLabel] = format.MustFormatValue(s.Cluster)
	}
	if err := reader.List(ctx, list, append(options, ofCluster, client.InNamespace(s.Namespace))...); err != nil {
		return nil, err
	}
	var machines []*clusterv1.Machine
	for i := range list.Items {
		if machine := &list.Items[i]; s.owns(machine) {
			machines = append(machines, machine)
		}
	}
	slices.SortFunc(machines, byAge)
	return machines, nil
}

// readChecks reads the MachineHealthChecks if a machine has no node, because one of them may wait for the node.
func (r *reading) readChecks(ctx context.Context) error {
	if !slices.ContainsFunc(r.all(), func(m *clusterv1.Machine) bool { return !m.Status.NodeRef.IsDefined() }) {
		return nil
	}
	checks := &clusterv1.MachineHealthCheckList{}
	_, err := r.list(ctx, checks, "MachineHealthChecks")
	r.checks = checks.Items
	return err
}

// readHosts reads the hosts of the namespace if a machine on bare metal has no node, or waits for its infrastructure to be deleted. It runs
// last, because it also reads what the machine that the story is about needs of a host.
func (r *reading) readHosts(ctx context.Context) error {
	concerned := slices.DeleteFunc(r.all(), func(m *clusterv1.Machine) bool {
		const deletes = clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason
		awaited := !m.Status.NodeRef.IsDefined() && m.DeletionTimestamp.IsZero()
		return !onMetal(m) || !awaited && cond(m.Status.Conditions, clusterv1.MachineDeletingCondition).Reason != deletes
	})
	if len(concerned) == 0 {
		return nil
	}
	list := &bmov1alpha1.BareMetalHostList{}
	var err error
	if r.hostsKnown, err = r.list(ctx, list, "BareMetalHosts"); err != nil {
		return err
	}
	r.hosts = list.Items
	slices.SortFunc(r.hosts, func(a, b bmov1alpha1.BareMetalHost) int { return cmp.Compare(a.Name, b.Name) })
	followed := r.decide().Machine // only what this machine needs: hundreds of others may wait for hosts
	for _, machine := range concerned {
		told := machine.Name == followed || machine == r.old
		if told && r.hostOf(machine) == nil && machine.DeletionTimestamp.IsZero() {
			if err := r.readWants(ctx, machine); err != nil {
				return err
			}
		}
	}
	return nil
}

// readWants reads what a machine without a host needs of one. This stays unknown if its Metal3Machine was read without its spec, or has an
// invalid hostSelector.
func (r *reading) readWants(ctx context.Context, machine *clusterv1.Machine) error {
	ref := machine.Spec.InfrastructureRef
	between, err := r.served(ref.APIGroup, ref.Kind)
	if err != nil {
		return r.note("Metal3Machines", err)
	}
	exists, _, err := r.get(ctx, ref.Name, between, "Metal3Machines")
	if err != nil || !exists {
		return err
	}
	found, err := spare.WantsBy(between, machine)
	if _, whole := between.Object["spec"]; !whole || err != nil {
		r.Unread = append(r.Unread, "Metal3Machines")
		return nil //nolint:nilerr // it is in Unread
	}
	if r.wants == nil {
		r.wants = map[string]spare.Wants{}
	}
	r.wants[machine.Name] = found
	return nil
}
