package document

import (
	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Capacity is s, in a namespace, of which some kinds could not be read.
func Capacity(s *capacity.Story, namespace string, unread []string) cliv1.Capacity {
	is := cliv1.Capacity{
		Machine: s.Old, About: s.Machine, Stage: string(s.Stage), Reason: explain.CapacityReason(s),
		Owner: objectOf(s.Owner, namespace), WaitsFor: objectOf(s.WaitsFor, namespace),
		Since: Moment(s.Since), Deadline: Moment(s.Deadline), Overdue: s.Overdue, Unread: unread,
		Next: OptionalStep(explain.CapacityNext(s)), Todo: OptionalStep(explain.CapacityTodo(s)), Message: explain.Capacity(s),
	}
	if r := s.Replacement; r.Name != "" {
		is.Replacement = &cliv1.Replacement{Name: r.Name, By: string(r.By), Guess: r.Guess()}
	}
	for _, h := range s.Args.Hosts {
		is.Hosts = append(is.Hosts, cliv1.HostRefusal{Name: h.Name, Reason: string(h.Why), Message: explain.HostAnswer(h)})
	}
	return is
}

// clusterWide are the kinds of objects that have no namespace.
var clusterWide = map[string]bool{"Node": true, "VolumeAttachment": true}

// objectOf names an object of a story: in its namespace, or in that of the machine.
func objectOf(o capacity.Object, namespace string) *cliv1.Reference {
	switch {
	case o == capacity.Object{}:
		return nil
	case o.Namespace != "":
		namespace = o.Namespace
	case clusterWide[o.Kind]:
		namespace = ""
	}
	return &cliv1.Reference{Kind: o.Kind, Namespace: namespace, Name: o.Name}
}
