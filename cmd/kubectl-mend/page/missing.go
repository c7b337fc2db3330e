package page

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/record"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/records"
)

// Missing are the remediations that were begun and whose capacity is not back, by open RemediationRecords; the one that was due first comes first.
type Missing struct {
	// Known reports that the records could be read. There are none where their kind is not installed, and that says nothing.
	Known bool
	All   []records.Missing
}

const nodeCheckKind = "NodeHealthCheck"

// only are those that are wanted. A target that has several records is missing once.
func (m Missing) only(wanted func(*records.Missing) bool) Missing {
	is, counted := Missing{Known: m.Known}, map[mendv1.RecordRef]bool{}
	for i := range m.All {
		if one := &m.All[i]; wanted(one) && !counted[one.Target] {
			counted[one.Target] = true
			is.All = append(is.All, *one)
		}
	}
	return is
}

// askedBy is the check that asked for a remediation; empty if none did. A record says nothing of checks in another namespace.
func askedBy(m *records.Missing) explain.Ref {
	is := explain.Ref{Kind: m.Check.Kind, Namespace: m.Check.Namespace, Name: m.Check.Name}
	switch {
	case is.Kind == nodeCheckKind:
		is.Namespace = ""
	case is.Namespace != m.Namespace:
		return explain.Ref{}
	}
	return is
}

// capacities reads what is missing, each namespace once.
type capacities struct {
	reader client.Reader
	// nodes are the namespaces in which the records of each NodeHealthCheck are: those of its requests.
	nodes map[string][]string
	read  map[string]Missing
}

func capacitiesOf(a *inspect.Asker) *capacities {
	c := &capacities{reader: a.Reader(), nodes: map[string][]string{}, read: map[string]Missing{}}
	for _, check := range snapshot.All[nhcv1.NodeHealthCheck](a.Snapshot, "") {
		for _, ref := range snapshot.TemplatesOf(&check.Spec) {
			c.nodes[check.Name] = append(c.nodes[check.Name], ref.Namespace)
		}
	}
	return c
}

// in is what is missing by the records of some namespaces, or of all if one of them is empty. That they could not be read, the notes of the page say.
func (c *capacities) in(ctx context.Context, namespaces ...string) Missing {
	slices.Sort(namespaces)
	is := Missing{Known: true}
	for _, namespace := range slices.Compact(namespaces) {
		one, done := c.read[namespace]
		if !done {
			one = c.list(ctx, namespace)
			c.read[namespace] = one
		}
		is.Known, is.All = is.Known && one.Known, append(is.All, one.All...)
		if namespace == "" { // which is the first one, and has the others
			break
		}
	}
	records.OldestFirst(is.All)
	return is
}

func (c *capacities) list(ctx context.Context, namespace string) Missing {
	list := &mendv1.RemediationRecordList{}
	is := Missing{Known: c.reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) == nil}
	for i := range list.Items {
		if one := records.MissingBy(&list.Items[i]); one != nil {
			is.All = append(is.All, *one)
		}
	}
	return is
}

// of is what is missing of a check.
func (c *capacities) of(ctx context.Context, check *explain.Check) Missing {
	namespaces := []string{check.Namespace}
	if check.Kind == nodeCheckKind {
		namespaces = c.nodes[check.Name]
	}
	return c.in(ctx, namespaces...).only(func(one *records.Missing) bool { return askedBy(one) == check.Reference })
}

// all is what is missing of one cluster, or of all if that is empty, in a namespace, or in all. NodeHealthChecks belong to no namespace and no cluster.
func (c *capacities) all(ctx context.Context, namespace, cluster string) Missing {
	namespaces := []string{namespace}
	if cluster == "" {
		for _, more := range c.nodes {
			namespaces = append(namespaces, more...)
		}
	}
	return c.in(ctx, namespaces...).only(func(m *records.Missing) bool {
		here := namespace == "" || m.Namespace == namespace || m.Check.Kind == nodeCheckKind
		return here && (cluster == "" || m.Cluster == cluster)
	})
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
	case oldest.Reason == string(record.Unread):
		text += "; what it waits for is not known yet"
	case oldest.Message == "":
		text += ": " + oldest.Reason
	default:
		text += ": " + oldest.Reason + ": " + oldest.Message
	}
	p.line(indent, p.paint.Waits(heading)+": "+text+".")
}

// besides is what is missing although none of the checks asked for its remediation: a check that was deleted, or a remediation that somebody made.
func (p *page) besides(s *Status) {
	is := s.Missing.only(func(m *records.Missing) bool {
		return !slices.ContainsFunc(s.Checks, func(r Row) bool { return r.Reference == askedBy(m) })
	})
	if len(is.All) > 0 {
		p.gap()
	}
	p.notBack("", "Not back, and asked for by none of these checks", is)
}

// count is how many remediations; ? if that is not known.
func (m Missing) count() string {
	if !m.Known {
		return unknown
	}
	return strconv.Itoa(len(m.All))
}

// document is m for programs; nil if it is not known.
func (m Missing) document() *cliv1.MissingCapacity {
	if !m.Known {
		return nil
	}
	is := &cliv1.MissingCapacity{Remediations: len(m.All)}
	if len(m.All) > 0 {
		oldest := &m.All[0]
		is.Oldest = &cliv1.CapacityWait{
			Reference: cliv1.Reference{Kind: oldest.Target.Kind, Namespace: oldest.Target.Namespace, Name: oldest.Target.Name},
			Reason:    oldest.Reason, Since: cliv1.Moment(oldest.Since), Due: metav1.NewTime(oldest.Due.UTC()), Message: oldest.Message,
		}
	}
	return is
}
