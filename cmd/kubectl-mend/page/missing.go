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

const nodeCheckKind = "NodeHealthCheck"

// missingOf is the capacity of those remediations that are wanted; nil if there is none among records of which not all could be read. A
// target that has several records is missing once.
func missingOf(found []records.Missing, known bool, wanted func(*records.Missing) bool) *cliv1.MissingCapacity {
	missing, counted := &cliv1.MissingCapacity{}, map[mendv1.RecordRef]bool{}
	for i := range found {
		one := &found[i]
		if !wanted(one) || counted[one.Target] {
			continue
		}
		if missing.Oldest == nil {
			missing.Oldest = &cliv1.CapacityWait{
				Reference: cliv1.Reference{Kind: one.Target.Kind, Namespace: one.Target.Namespace, Name: one.Target.Name},
				Reason:    one.Reason, Since: cliv1.Moment(one.Since), Due: metav1.NewTime(one.Due), Message: one.Message,
			}
		}
		counted[one.Target] = true
		missing.Remediations++
	}
	if !known && missing.Remediations == 0 {
		return nil
	}
	return missing
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

// recordsMissing are the records of capacity that is not back in a namespace, or in all if that is empty, those due first come first; known
// is false if some could not be read, which the notes of the page say. The records of a NodeHealthCheck are in the namespaces of its
// requests.
func recordsMissing(ctx context.Context, a *inspect.Asker, namespace, cluster string) (found []records.Missing, known bool) {
	namespaces := []string{namespace}
	if cluster == "" && namespace != "" { // NodeHealthChecks belong to no namespace and no cluster
		for _, check := range snapshot.All[nhcv1.NodeHealthCheck](a.Snapshot, "") {
			for _, ref := range snapshot.TemplatesOf(&check.Spec) {
				namespaces = append(namespaces, ref.Namespace)
			}
		}
	}
	slices.Sort(namespaces)
	known = true
	for _, namespace := range slices.Compact(namespaces) {
		list := &mendv1.RemediationRecordList{}
		if a.Reader().List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
			known = false
		}
		for i := range list.Items {
			if one := records.MissingBy(&list.Items[i]); one != nil {
				found = append(found, *one)
			}
		}
	}
	records.OldestFirst(found)
	return found, known
}

// addMissing adds what is not back of each check, and in all: of one cluster, or of all if that is empty, in a namespace, or in all.
func (s *Status) addMissing(ctx context.Context, a *inspect.Asker, namespace, cluster string) {
	found, known := recordsMissing(ctx, a, namespace, cluster)
	inScope := func(m *records.Missing) bool {
		here := namespace == "" || m.Namespace == namespace || m.Check.Kind == nodeCheckKind
		return here && (cluster == "" || m.Cluster == cluster)
	}
	s.CapacityMissing = missingOf(found, known, inScope)
	asked := map[mendv1.RecordRef]bool{}
	for i := range s.Checks {
		s.Checks[i].CapacityMissing = missingOf(found, known, func(m *records.Missing) bool {
			wanted := askedBy(m) == s.Checks[i].Reference
			asked[m.Target] = asked[m.Target] || wanted
			return wanted
		})
	}
	s.besides = missingOf(found, known, func(m *records.Missing) bool { return inScope(m) && !asked[m.Target] })
}

// notBack prints what is missing, and what the oldest of it waits for; nothing if nothing is.
func (p *page) notBack(indent, heading string, missing *cliv1.MissingCapacity) {
	if !anyMissing(missing) {
		return
	}
	oldest := missing.Oldest
	text := fmt.Sprintf("the capacity of %s %s, since %s", oldest.Kind, oldest.Name, p.moment(oldest.Due.Time))
	if n := missing.Remediations; n > 1 {
		text = fmt.Sprintf("the capacity of %d remediations; of %s %s since %s", n, oldest.Kind, oldest.Name, p.moment(oldest.Due.Time))
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

func anyMissing(missing *cliv1.MissingCapacity) bool {
	return missing != nil && missing.Remediations > 0
}
