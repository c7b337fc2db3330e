package page

import (
	"cmp"
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// goneMachine explains a machine that does not exist: by the record of its remediation, or by the machine that was made for it.
func goneMachine(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	subject, began := keptOf(a, key)
	if subject == nil {
		return nil, explain.NoSuch("Machine", key.Namespace, key.Name)
	}
	facts, err := a.Capacity(ctx, *subject)
	if err != nil {
		return nil, err
	}
	s := facts.Story()
	e := explanation(a, explain.Ref{Kind: "Machine", Namespace: key.Namespace, Name: key.Name})
	e.Gone = true
	e.fact("exists", "no")
	e.fact("cluster", subject.Cluster)
	if subject.Owner.Name != "" {
		e.fact("owner", subject.Owner.Kind+" "+subject.Owner.Name)
	}
	e.since("remediation", cliv1.Moment(began))
	e.Capacity = []Capacity{{Story: s}}
	e.answer(goneAnswer(&s))
	if e.Next, e.Todo = cmp.Or(s.Next, nodeTodo(&s), explain.NothingNext), s.Todo; e.Next == e.Todo {
		e.Todo = explain.Step{}
	}
	return e, nil
}

// goneAnswer is the answer about a machine that does not exist any more.
func goneAnswer(s *capacity.Story) explain.Answer {
	switch s.Stage {
	case capacity.Back:
		return explain.Answer{State: explain.IsReplaced, Reason: s.Reason, Implied: true, Detail: s.Replacement.Name, Since: s.Since}
	case capacity.NotReplaced:
		return explain.Answer{State: explain.IsNotReplaced, Reason: s.Reason}
	}
	a := waiting(explain.Answer{State: explain.CapacityMissing}, s)
	if s.Todo.Text != "" {
		a.State = explain.CapacityBlocked
	}
	return a
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
func recorded(record *mendv1.RemediationRecord) *capacity.Subject {
	s := records.SubjectOf(record)
	s.Namespace = record.Namespace
	if at, said := records.WentAt(record); said {
		s.Gone = at
	} else {
		s.Began = at // when it was last there: what replaces it was made since
	}
	return &s
}
