// Package capacity reads what tells whether the capacity of a machine is back: its deletion, its owner, the machines that its owner has made since, their
// hosts. Package decide/capacity decides what follows, and package explain renders it.
//
// It decides and writes nothing. It reads with the rights of its caller; what cannot be read is in Facts.Unread, and never taken for missing.
package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Observer reads facts about capacity.
type Observer struct {
	// Management reads the management cluster, Mapper knows its kinds. Of MachineSets, MachineDeployments, KubeadmControlPlanes and other objects that
	// Machines consist of only a few are read at a time, by name or label.
	Management client.Reader
	Mapper     meta.RESTMapper
	// Workload reads a workload cluster itself; nil if the caller has no such reader. Then the pods that block a drain are those that Cluster API quotes.
	Workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
	// NodeReady is the condition Ready of the node of a Machine, as the caller knows it; without it, or without an answer, that of the Machine counts.
	NodeReady func(m *clusterv1.Machine) (is capacity.Condition, known bool)
}

// Subject is the machine whose capacity is asked for. What is in it is all that can be known of a machine that is gone: keep it from Of.
type Subject struct {
	Namespace, Name, Cluster string
	// Began is when its remediation began; zero if it has none. Gone is since when it does not exist any more.
	Began, Gone time.Time
	// Owner is what makes its machines: a MachineSet or a control plane. Without a Kind it has none. Deployment is the MachineDeployment of its MachineSet.
	Owner      Owner
	Deployment string
	// LabelKey and LabelValue select the machines of the owner.
	LabelKey, LabelValue string
	// Host is the BareMetalHost that it had.
	Host string
	// Lost are other machines of the same owner that are gone.
	Lost []capacity.Loss
	// Found is the machine that was found to replace it before; empty if that was not kept.
	Found string
	// Created is when it was created.
	Created time.Time
}

// Lacking is a machine that an owner of a Cluster lacks. Of a MachineDeployment, its MachineSets need not be known.
func Lacking(namespace, cluster string, owner Owner) Subject {
	s := Subject{Namespace: namespace, Cluster: cluster, Owner: owner, LabelKey: clusterv1.ClusterNameLabel, LabelValue: cluster}
	if owner.Kind == machineDeploymentKind {
		s.Owner, s.Deployment = Owner{Group: owner.Group, Kind: machineSetKind}, owner.Name
		s.LabelKey, s.LabelValue = clusterv1.MachineDeploymentNameLabel, owner.Name
	}
	return s
}

// Owner names the controller of a Machine.
type Owner struct{ Group, Kind, Name string }

// ErrNotKept is the error of a Subject that is gone, and of which nothing was kept.
var ErrNotKept = errors.New("the machine is gone, and its owner is not known")

// Of is m as a Subject whose remediation began then.
func Of(m *clusterv1.Machine, began time.Time) Subject {
	s := Subject{Namespace: m.Namespace, Name: m.Name, Cluster: m.Spec.ClusterName, Began: began, Created: m.CreationTimestamp.Time}
	if owner := metav1.GetControllerOf(m); owner != nil {
		s.Owner = Owner{groupOf(owner.APIVersion), owner.Kind, owner.Name}
	}
	s.Deployment = m.Labels[clusterv1.MachineDeploymentNameLabel]
	s.LabelKey, s.LabelValue = clusterv1.ClusterNameLabel, m.Spec.ClusterName
	for _, key := range []string{clusterv1.MachineDeploymentNameLabel, clusterv1.MachineControlPlaneNameLabel, clusterv1.MachineSetNameLabel} {
		if value := m.Labels[key]; value != "" {
			s.LabelKey, s.LabelValue = key, value
			break
		}
	}
	return s
}

// young is how long a machine that has no Ready node may be one that has not had one yet.
const young = time.Hour

// Concerns reports whether there may be a story about m: it is being deleted, its owner was asked to replace it, or it has had no Ready node yet. Of all
// other machines nothing needs to be read.
func Concerns(m *clusterv1.Machine, now time.Time) bool {
	ready := conditions.Get(m, clusterv1.MachineNodeReadyCondition)
	switch {
	case !m.DeletionTimestamp.IsZero(), conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition), !m.Status.NodeRef.IsDefined():
		return true
	}
	return ready != nil && ready.Status != metav1.ConditionTrue && now.Sub(m.CreationTimestamp.Time) < young
}

// owns reports whether m is a machine of the owner of s: of its MachineDeployment, if there is one.
func (s *Subject) owns(m *clusterv1.Machine) bool {
	if s.Deployment != "" {
		return m.Labels[clusterv1.MachineDeploymentNameLabel] == s.Deployment
	}
	owner := metav1.GetControllerOf(m)
	return owner != nil && s.Owner == Owner{groupOf(owner.APIVersion), owner.Kind, owner.Name}
}

// reading is one observation.
type reading struct {
	*Observer
	Subject

	facts capacity.Facts
	// old is the machine; nil if it is gone. all are the machines of its owner, with it.
	old     *clusterv1.Machine
	all     []*clusterv1.Machine
	cluster *clusterv1.Cluster
}

// Observe returns the facts about s. The error is one of the management cluster that says nothing about the object, such as that it does not answer.
func (o *Observer) Observe(ctx context.Context, s Subject, now time.Time) (capacity.Facts, error) {
	r := &reading{Observer: o, Subject: s, facts: capacity.Facts{
		Now: now, Began: s.Began, Cluster: s.Cluster, Namespace: s.Namespace, Lost: s.Lost, Found: s.Found,
	}}
	for _, step := range []func(context.Context) error{
		r.readMachine, r.readCluster, r.readOwner, r.readMachines, r.readTimeouts, r.readHosts, r.readRemains, r.readWorkload,
	} {
		if err := step(ctx); err != nil {
			return capacity.Facts{}, err
		}
	}
	slices.Sort(r.facts.Unread)
	r.facts.Unread = slices.Compact(r.facts.Unread)
	return r.facts, nil
}

// namespaces are the kind of objects that are in no namespace.
const namespaces = "Namespaces"

// get reads an object; false if it does not exist, or may not be read, which is noted.
func (r *reading) get(ctx context.Context, name string, obj client.Object, kinds string) (exists, known bool, err error) {
	key := client.ObjectKey{Namespace: r.Namespace, Name: name}
	if kinds == namespaces {
		key.Namespace = ""
	}
	err = r.Management.Get(ctx, key, obj)
	switch {
	case err == nil:
		return true, true, nil
	case apierrors.IsNotFound(err):
		return false, true, nil
	}
	return false, false, r.unread(kinds, err)
}

// list reads objects of the namespace; what may not be read is noted.
func (r *reading) list(ctx context.Context, list client.ObjectList, kinds string, options ...client.ListOption) (known bool, err error) {
	err = r.Management.List(ctx, list, append(options, client.InNamespace(r.Namespace))...)
	if err == nil {
		return true, nil
	}
	return false, r.unread(kinds, err)
}

// unread notes that a kind could not be read, and returns the error if it is another one than that the caller may not, or that there is no such kind.
func (r *reading) unread(kinds string, err error) error {
	if !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) && !errors.Is(err, explain.ErrUnread) {
		return fmt.Errorf("read %s in %s: %w", kinds, r.Namespace, err)
	}
	r.facts.Unread = append(r.facts.Unread, kinds)
	return nil
}

// readMachine reads the machine itself. Of a machine without a name no more is known than that its owner lacks it.
func (r *reading) readMachine(ctx context.Context) error {
	if r.Name == "" && r.LabelKey != "" {
		r.facts.Old = capacity.Machine{Gone: true}
		return nil
	}
	m := &clusterv1.Machine{}
	exists, known, err := r.get(ctx, r.Name, m, capacity.MachinesUnread)
	if err != nil {
		return err
	}
	r.facts.Old = capacity.Machine{Name: r.Name, Gone: known, GoneAt: r.Gone, Created: r.Created, Set: r.setName(), Host: r.Host}
	if !exists || !r.Created.IsZero() && !r.Created.Equal(m.CreationTimestamp.Time) { // another one of its name
		if r.LabelKey == "" {
			return fmt.Errorf("read Machine %s/%s: %w", r.Namespace, r.Name, ErrNotKept)
		}
		return nil
	}
	r.old, r.facts.Old = m, r.machine(m)
	if r.LabelKey == "" {
		lost, found := r.Lost, r.Found
		r.Subject = Of(m, r.Began)
		r.Lost, r.Found, r.facts.Cluster = lost, found, r.Cluster
	}
	return nil
}

func (r *reading) setName() string {
	if r.Owner.Kind == machineSetKind {
		return r.Owner.Name
	}
	return ""
}

// readCluster reads the Cluster, and the Namespace of a machine that is being deleted, or gone.
func (r *reading) readCluster(ctx context.Context) error {
	cluster, f := &clusterv1.Cluster{}, &r.facts
	var exists, known bool
	var err error
	if r.Cluster != "" { // else it was not kept
		if exists, known, err = r.get(ctx, r.Cluster, cluster, "Clusters"); err != nil {
			return err
		}
	}
	switch {
	case exists:
		r.cluster = cluster
		f.ClusterPaused, f.ClusterDeleting = ptr.Deref(cluster.Spec.Paused, false), moment(cluster.DeletionTimestamp)
		f.InitializedAt = whenTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition)
		f.ReadyAt = whenTrue(cluster, clusterv1.ClusterInfrastructureReadyCondition)
		f.Initialized = conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition) ||
			ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
	case known:
		f.ClusterDeleting = f.Now // it is gone
	default:
		f.Initialized = true // no reason is made of what is not known
	}
	if r.old != nil && r.old.DeletionTimestamp.IsZero() {
		return nil
	}
	namespace := &metav1.PartialObjectMetadata{} // of a Namespace no more is read, here and by the command line
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if exists, _, err = r.get(ctx, r.Namespace, namespace, namespaces); err == nil && exists {
		f.NamespaceDeleting = moment(namespace.DeletionTimestamp)
	}
	return err
}

// readMachines reads the machines of the owner.
func (r *reading) readMachines(ctx context.Context) error {
	if r.Owner.Kind == "" {
		return nil
	}
	list := &clusterv1.MachineList{}
	if _, err := r.list(ctx, list, capacity.MachinesUnread, client.MatchingLabels{r.LabelKey: r.LabelValue}); err != nil {
		return err
	}
	for i := range list.Items {
		m := &list.Items[i]
		if !r.owns(m) {
			continue
		}
		r.all = append(r.all, m)
		if m.Name != r.Name || r.old == nil {
			r.facts.Others = append(r.facts.Others, r.machine(m))
		}
	}
	if r.facts.Owner.Kubeadm != nil {
		*r.facts.Owner.Kubeadm = kubeadmFacts(r.facts.Owner.Kubeadm, r.old, r.all)
	}
	return nil
}
