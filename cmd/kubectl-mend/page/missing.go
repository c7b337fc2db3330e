package page

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// Missing are the remediations that were begun and whose capacity is not back, by open RemediationRecords; the one that was due first comes
// first.
type Missing struct {
	// Known reports that the records could be read. There are none where their kind is not installed, and that says nothing.
	Known bool
	All   []records.Missing
}

const nodeCheckKind = "NodeHealthCheck"

// only are those that are wanted. A target that has several records is missing once.
func (m Missing) only(wanted func(*records.Missing) bool) Missing {
	found, counted := Missing{Known: m.Known}, map[mendv1.RecordRef]bool{}
	for i := range m.All {
		if one := &m.All[i]; wanted(one) && !counted[one.Target] {
			counted[one.Target] = true
			found.All = append(found.All, *one)
		}
	}
	return found
}

// askedBy is the check that asked for a remediation; empty if none did. A record says nothing of checks in another namespace.
func askedBy(m *records.Missing) explain.Ref {
	check := explain.Ref{Kind: m.Check.Kind, Namespace: m.Check.Namespace, Name: m.Check.Name}
	switch {
	case check.Kind == nodeCheckKind:
		check.Namespace = ""
	case check.Namespace != m.Namespace:
		return explain.Ref{}
	}
	return check
}

// addMissing adds what is not back of each check, and in all: of one cluster, or of all if that is empty, in a namespace, or in all.
// The records of a NodeHealthCheck are in the namespaces of its requests. That records could not be read, the notes of the page say.
func (s *Status) addMissing(ctx context.Context, a *inspect.Asker, namespace, cluster string) {
	namespaces := []string{namespace}
	if cluster == "" && namespace != "" { // NodeHealthChecks belong to no namespace and no cluster
		for _, check := range snapshot.All[nhcv1.NodeHealthCheck](a.Snapshot, "") {
			for _, ref := range snapshot.TemplatesOf(&check.Spec) {
				namespaces = append(namespaces, ref.Namespace)
			}
		}
	}
	slices.Sort(namespaces)
	found := Missing{Known: true}
	for _, namespace := range slices.Compact(namespaces) {
		list := &mendv1.RemediationRecordList{}
		if a.Reader().List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
			found.Known = false
		}
		for i := range list.Items {
			if one := records.MissingBy(&list.Items[i]); one != nil {
				found.All = append(found.All, *one)
			}
		}
	}
	records.OldestFirst(found.All)
	s.Missing = found.only(func(m *records.Missing) bool {
		here := namespace == "" || m.Namespace == namespace || m.Check.Kind == nodeCheckKind
		return here && (cluster == "" || m.Cluster == cluster)
	})
	for i := range s.Checks {
		s.Checks[i].Missing = found.only(func(m *records.Missing) bool { return askedBy(m) == s.Checks[i].Reference })
	}
}

// notBack prints what is missing, and what the oldest of it waits for; nothing if nothing is.
func (p *page) notBack(indent, heading string, m Missing) {
	if len(m.All) == 0 {
		return
	}
	oldest := &m.All[0]
	text := fmt.Sprintf("the capacity of %s %s, since %s", oldest.Target.Kind, oldest.Target.Name, p.moment(oldest.Due))
	if n := len(m.All); n > 1 {
		text = fmt.Sprintf("the capacity of %d remediations; of %s %s since %s", n, oldest.Target.Kind, oldest.Target.Name, p.moment(oldest.Due))
	}
	switch {
	case oldest.Reason == records.Unread:
		text += "; what it waits for is not known yet"
	case oldest.Message == "":
		text += ": " + oldest.Reason
	default:
		text += ": " + oldest.Reason + ": " + oldest.Message
	}
	p.line(indent, p.Paint.Waits(heading)+": "+text+".")
}

// besides is what is missing although none of the checks asked for its remediation: a check that was deleted, or a remediation that
// somebody made.
func (p *page) besides(s *Status) {
	others := s.Missing.only(func(m *records.Missing) bool {
		return !slices.ContainsFunc(s.Checks, func(r Row) bool { return r.Reference == askedBy(m) })
	})
	if len(others.All) > 0 {
		p.Add("")
	}
	p.notBack("", "Not back, and asked for by none of these checks", others)
}

// document is m for programs; nil if it is not known.
func (m Missing) document() *cliv1.MissingCapacity {
	if !m.Known {
		return nil
	}
	missing := &cliv1.MissingCapacity{Remediations: len(m.All)}
	if len(m.All) > 0 {
		oldest := &m.All[0]
		missing.Oldest = &cliv1.CapacityWait{
			Reference: cliv1.Reference{Kind: oldest.Target.Kind, Namespace: oldest.Target.Namespace, Name: oldest.Target.Name},
			Reason:    oldest.Reason, Since: cliv1.Moment(oldest.Since), Due: metav1.NewTime(oldest.Due.UTC()), Message: oldest.Message,
		}
	}
	return missing
}
