package page

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Document is e for programs.
func (e *Explanation) Document() *cliv1.Explanation {
	d := &cliv1.Explanation{
		TypeMeta: cliv1.TypeOf("Explanation"), Subject: e.Subject, Time: metav1.NewTime(e.At.UTC()),
		Phase: e.Answer.Phase(), Reason: e.Answer.Reason, Message: e.Verdict,
		Facts: e.Facts, NotSelectedBy: e.NotSelectedBy, Unread: e.Unread, Notes: e.Notes, Next: *e.Next.Document(), Todo: e.Todo.Document(),
	}
	for i := range e.Checks {
		d.Checks = append(d.Checks, e.Checks[i].Document(e.Checks[i].answer))
	}
	for i := range e.Owners {
		d.Owners = append(d.Owners, e.Owners[i].MachineOwner)
	}
	for i := range e.Capacity {
		if len(e.Owners) > 0 && e.Capacity[i].missing() == nil { // of owners, those that are to come back
			continue
		}
		d.Capacity = append(d.Capacity, e.Capacity[i].Document())
	}
	for i := range e.Remediations {
		d.Remediations = append(d.Remediations, e.Remediations[i].Document())
	}
	return d
}

// Document is s for programs.
func (s *Status) Document() *cliv1.Status {
	d := s.Status.DeepCopy()
	d.CapacityMissing = s.Missing.document()
	d.Managers, d.Items = make([]cliv1.Manager, 0, len(s.Managers)), make([]cliv1.Check, 0, len(s.Checks))
	for i := range s.Managers {
		d.Managers = append(d.Managers, manager(&s.Managers[i]))
	}
	for i := range s.Checks {
		r := &s.Checks[i]
		check := r.document
		check.ClaimedBy, check.CapacityMissing = r.ClaimedBy, r.Missing.document()
		d.Items = append(d.Items, check)
	}
	for _, cluster := range s.Uncovered {
		d.Notes = append(d.Notes, "Not covered by checks: "+cluster)
	}
	for _, name := range s.OutOfService {
		d.Notes = append(d.Notes, "Host out of service: "+name)
	}
	return d
}

func manager(m *managerlease.Manager) cliv1.Manager {
	manager := cliv1.Manager{
		Namespace: m.Namespace, Holder: m.Holder, Alive: m.Alive, Renewed: cliv1.Moment(m.Renewed), Ended: cliv1.Moment(m.Gone),
		Trusted: m.Unverified == "", Namespaces: m.Within, Message: m.Unverified,
	}
	a := m.Announcement
	if a == nil {
		return manager
	}
	manager.Version, manager.Started, manager.Unclaimed, manager.WatchNamespace = a.Version, cliv1.Moment(a.Started.Time), a.Unclaimed, a.Namespace
	manager.WatchFilter, manager.Outside, manager.Teardown = a.WatchFilter, a.Outside, a.Teardown
	manager.ClockAheadSeconds = a.ClockAheadSeconds
	for _, k := range a.Kinds {
		manager.Kinds = append(manager.Kinds, cliv1.ServedKind{CRD: k.CRD, Served: k.Reason == "", Reason: k.Reason, Message: k.Because})
	}
	return manager
}
