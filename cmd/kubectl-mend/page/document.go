package page

import (
	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/document"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Document is e for programs.
func (e *Explanation) Document() *cliv1.Explanation {
	d := &cliv1.Explanation{
		TypeMeta: cliv1.TypeOf("Explanation"), Subject: document.Reference(e.Subject), Time: document.Time(e.At),
		Phase: e.Answer.Phase(), Reason: e.Answer.Reason, Message: e.Verdict,
		Unread: e.Unread, Notes: e.Notes, Next: document.Step(e.Next), Todo: document.OptionalStep(e.Todo),
	}
	for _, f := range e.Facts {
		d.Facts = append(d.Facts, cliv1.Fact{Name: f.Name, Value: f.Value})
	}
	for i := range e.Checks {
		c := &e.Checks[i]
		is := document.Check(&c.Check, c.answer)
		for _, g := range c.NotHealthy {
			is.NotHealthy = append(is.NotHealthy, document.Group(g.Class, g.Names))
		}
		d.Checks = append(d.Checks, is)
	}
	for _, u := range e.NotSelectedBy {
		d.NotSelectedBy = append(d.NotSelectedBy, cliv1.NotSelected{Reference: document.Reference(u.Ref), Message: u.Why})
	}
	for i := range e.Owners {
		o := &e.Owners[i]
		d.Owners = append(d.Owners, cliv1.MachineOwner{
			Reference: document.Reference(o.Ref), Replicas: o.Replicas, Machines: o.Machines, Ready: o.Ready, RollingOut: o.RollingOut,
		})
	}
	for i := range e.Capacity {
		if len(e.Owners) > 0 && e.Capacity[i].missing() == nil { // of owners, those that are to come back
			continue
		}
		d.Capacity = append(d.Capacity, document.Capacity(&e.Capacity[i].Story, e.Subject.Namespace, e.Capacity[i].Unread))
	}
	for i := range e.Remediations {
		d.Remediations = append(d.Remediations, document.Remediation(&e.Remediations[i]))
	}
	return d
}

// Document is s for programs.
func (s *Status) Document() *cliv1.Status {
	d := &cliv1.Status{
		TypeMeta: cliv1.TypeOf("Status"), Time: document.Time(s.At), Managers: make([]cliv1.Manager, 0, len(s.Managers)), ManagersUnknown: s.ManagersUnknown,
		Items: make([]cliv1.Check, 0, len(s.Checks)), Unread: s.Unread, CapacityMissing: s.Missing.document(), Notes: s.Notes,
	}
	for i := range s.Managers {
		d.Managers = append(d.Managers, manager(&s.Managers[i]))
	}
	for i := range s.Checks {
		r := &s.Checks[i]
		is := r.document
		is.ClaimedBy, is.CapacityMissing = r.ClaimedBy, r.Missing.document()
		d.Items = append(d.Items, is)
	}
	for _, cluster := range s.Uncovered {
		d.Notes = append(d.Notes, "Not covered by checks: "+cluster)
	}
	for _, name := range s.OutOfService {
		d.Notes = append(d.Notes, "Host out of service: "+name)
	}
	for _, c := range s.Unreachable {
		d.Unreachable = append(d.Unreachable, cliv1.UnreachableCluster{Namespace: c.Namespace, Name: c.Name, Since: document.Time(c.Since), Message: c.Why})
	}
	return d
}

func manager(m *managerlease.Manager) cliv1.Manager {
	is := cliv1.Manager{
		Namespace: m.Namespace, Holder: m.Holder, Alive: m.Alive, Renewed: document.Moment(m.Renewed), Ended: document.Moment(m.Gone),
		Trusted: !m.Unbound && m.Unverified == "", Namespaces: m.Within, Message: m.Trouble,
	}
	if is.Message == "" {
		is.Message = m.Unverified
	}
	a := m.Announcement
	if a == nil {
		return is
	}
	is.Version, is.Started, is.Unclaimed, is.WatchNamespace = a.Version, document.Moment(a.Started.Time), a.Unclaimed, a.Namespace
	is.WatchFilter, is.Outside, is.Teardown = a.WatchFilter, a.Outside, a.Teardown
	for _, k := range a.Kinds {
		is.Kinds = append(is.Kinds, cliv1.ServedKind{CRD: k.CRD, Served: k.Reason == "", Reason: k.Reason, Message: k.Because})
	}
	return is
}
