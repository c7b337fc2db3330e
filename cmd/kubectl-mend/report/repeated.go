package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// identity tells objects apart: two clusters may have nodes of the same name.
type identity struct {
	cliv1.Reference
	cluster string
}

// identify are the objects that a record counts for: its machine or else its node, and its host. A machine that was replaced is another one
// since, while its host is the same. Machines and hosts are in the namespace of the record: a tenant who may write records must not make
// them count for another's.
func identify(record *mendv1.RemediationRecord) []identity {
	target, objects := &record.Spec.Target, make([]identity, 0, 2)
	if host := target.Host; host != nil {
		objects = append(objects, identity{Reference: cliv1.Reference{Kind: host.Kind, Namespace: record.Namespace, Name: host.Name}})
	}
	switch {
	case target.Machine != nil:
		machine := cliv1.Reference{Kind: target.Machine.Kind, Namespace: target.Machine.Namespace, Name: target.Machine.Name}
		if target.ClusterName != "" { // the record of a NodeHealthCheck has no namespace of a Machine
			machine.Namespace = record.Namespace
		}
		objects = append(objects, identity{Reference: machine})
	case target.Node != nil:
		node := cliv1.Reference{Kind: target.Node.Kind, Name: target.Node.Name}
		objects = append(objects, identity{node, record.Namespace + "/" + target.ClusterName})
	}
	return objects
}

// How many remediations within which time make a host, a machine or a node one that is remediated repeatedly.
const (
	often  = 3
	window = 7 * 24 * time.Hour
)

// repeated are the hosts, machines and nodes that are remediated repeatedly, those with most remediations first.
func repeated(begun []*mendv1.RemediationRecord) []cliv1.RepeatedlyRemediated {
	found := []cliv1.RepeatedlyRemediated{}
	recordsOf := map[identity][]*mendv1.RemediationRecord{}
	for _, record := range begun {
		for _, object := range identify(record) {
			recordsOf[object] = append(recordsOf[object], record)
		}
	}
	for object, records := range recordsOf {
		slices.SortFunc(records, func(a, b *mendv1.RemediationRecord) int { return since(a).Compare(since(b)) })
		most := mostWithin(records)
		if most < often {
			continue
		}
		newest := records[len(records)-1]
		entry := cliv1.RepeatedlyRemediated{
			Reference: object.Reference, Cluster: newest.Spec.Target.ClusterName, Remediations: len(records), Most: most,
			First: metav1.NewTime(since(records[0]).UTC()), Last: metav1.NewTime(since(newest).UTC()), Causes: causesOf(records),
		}
		if host := newest.Spec.Target.Host; host != nil && host.Kind == object.Kind {
			entry.HostModel = newest.Spec.Target.HostModel
		}
		found = append(found, entry)
	}
	slices.SortFunc(found, func(a, b cliv1.RepeatedlyRemediated) int {
		return cmp.Or(cmp.Compare(b.Most, a.Most), cmp.Compare(b.Remediations, a.Remediations), b.Last.Compare(a.Last.Time),
			cmp.Compare(named(&a.Reference), named(&b.Reference)), cmp.Compare(a.Kind, b.Kind))
	})
	return found
}

// since is when a remediation began, or else when it was decided.
func since(record *mendv1.RemediationRecord) time.Time {
	if record.Status.Begun == nil {
		return record.Spec.Decided.Time
	}
	return record.Status.Begun.Time
}

// mostWithin is how many remediations began within the window at most, wherever that lies. They are in the order of their beginnings.
func mostWithin(records []*mendv1.RemediationRecord) int {
	most, first := 0, 0
	for i, record := range records {
		for since(record).Sub(since(records[first])) > window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// causesOf are the causes of remediations, the most frequent one first.
func causesOf(records []*mendv1.RemediationRecord) []string {
	count := map[string]int{}
	for _, record := range records {
		if cause := record.Spec.Cause; cause != "" {
			count[cause]++
		}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}
