package page

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	decide "github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// goneMachine explains a machine that does not exist: by the record of its remediation, or by the machine that was made for it.
func goneMachine(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	subject, began := keptOf(a, key)
	if subject == nil {
		return nil, explain.NoSuch("Machine", key.Namespace, key.Name)
	}
	f, err := a.Capacity(ctx, *subject)
	if err != nil {
		return nil, err
	}
	s := decide.Decide(f)
	e := &Explanation{Subject: explain.Ref{Kind: "Machine", Namespace: key.Namespace, Name: key.Name}, Gone: true, At: a.Now, Notes: notes(a)}
	e.Facts = explain.GoneFacts(subject.Cluster, subject.Owner.Kind, subject.Owner.Name, began)
	e.Capacity = []Capacity{{Story: s, Unread: f.Unread}}
	e.answer(explain.GoneAnswer(&s))
	e.Next, e.Todo = cmp.Or(explain.CapacityNext(&s), explain.NodeTodo(&s), explain.NothingNext), explain.CapacityTodo(&s)
	return e, nil
}

// keptOf is what is known of a machine that does not exist, and when its remediation began; nil if nothing is.
func keptOf(a *inspect.Asker, key client.ObjectKey) (*capacity.Subject, time.Time) {
	var newest *mendv1.RemediationRecord
	for _, r := range snapshot.All[mendv1.RemediationRecord](a.Snapshot, key.Namespace) {
		if m := r.Spec.Target.Machine; m != nil && m.Name == key.Name && (newest == nil || newest.Spec.Decided.Before(&r.Spec.Decided)) {
			newest = r
		}
	}
	if newest != nil {
		return recorded(newest), newest.Spec.Decided.Time
	}
	for _, m := range snapshot.All[clusterv1.Machine](a.Snapshot, key.Namespace) {
		if replaced, at := capacity.Replaces(m); replaced == key.Name {
			subject := capacity.Of(m, at)
			subject.Name, subject.Created = key.Name, time.Time{}
			return &subject, at
		}
	}
	return nil, time.Time{}
}

// recorded is the machine of a record. Since when it is gone, the record may say.
func recorded(r *mendv1.RemediationRecord) *capacity.Subject {
	target := &r.Spec.Target
	s := &capacity.Subject{Namespace: r.Namespace, Name: target.Machine.Name, Cluster: target.ClusterName}
	if at, said := records.WentAt(r); said {
		s.Gone = at
	} else {
		s.Began = at // when it was last there: what replaces it was made since
	}
	s.LabelKey, s.LabelValue = clusterv1.ClusterNameLabel, target.ClusterName
	s.Deployment = r.Labels[clusterv1.MachineDeploymentNameLabel]
	if o := target.Owner; o != nil {
		s.Owner = capacity.Owner{Group: schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).Group, Kind: o.Kind, Name: o.Name}
	}
	if target.Host != nil {
		s.Host = target.Host.Name
	}
	return s
}
