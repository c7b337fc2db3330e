// Package repeats finds out from RemediationRecords what was remediated again and again.
package repeats

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	// Forgotten is how long a target, or its replacement, has to be healthy before earlier remediations no longer count.
	Forgotten = time.Hour
	// Remembered is how long a closed record counts. With waits of up to an hour it takes this long to reach the longest wait.
	Remembered = 12 * time.Hour
	// together is the time within which remediations count as one: Machines that were created at the same time fail for the same reason.
	together  = 30 * time.Second
	recovered = "Recovered" // EndedBy of a record whose target was healthy before anything was done to it
)

// Loop is how often something was remediated without being healthy for an hour in between.
type Loop struct {
	Times       int
	Since, Last time.Time // when the first and the last of these remediations were begun
}

// Until returns when the next remediation may begin after a new failure: 1, 2, 4 ... minutes later, and at most most. It is zero if there
// was no remediation before.
func (l Loop) Until(failed time.Time, most time.Duration) time.Time {
	if l.Times == 0 {
		return time.Time{}
	}
	if failed.Before(l.Last) {
		failed = l.Last
	}
	return failed.Add(min(time.Minute<<min(l.Times-1, 10), most))
}

// Of returns the loop of a target from its records; since is when the present failure began, or now if that is not known.
func Of(records []mendv1.RemediationRecord, since time.Time) Loop {
	begun := slices.DeleteFunc(slices.Clone(records), func(record mendv1.RemediationRecord) bool {
		return record.Status.Begun == nil || record.Status.Outcome == mendv1.RecordCancelled || record.Status.EndedBy == recovered
	})
	slices.SortFunc(begun, func(a, b mendv1.RemediationRecord) int { return a.Status.Begun.Compare(b.Status.Begun.Time) })
	var loop Loop
	var healthy *metav1.Time // since when, after the last remediation; a target that was given up may have recovered
	var group time.Time      // when the first remediation of the current group was begun
	for i := range begun {
		spec, status := &begun[i].Spec, &begun[i].Status
		if healthy != nil && cmp.Or(spec.UnhealthySince, spec.Due, &spec.Decided).Sub(healthy.Time) >= Forgotten {
			loop = Loop{}
		}
		if loop.Times == 0 {
			loop.Since = status.Begun.Time
		}
		if loop.Times == 0 || status.Begun.Sub(group) >= together {
			loop.Times, group = loop.Times+requests(status), status.Begun.Time
		}
		loop.Last, healthy = status.Begun.Time, cmp.Or(status.CapacityBack, status.Ended)
	}
	if healthy != nil && since.Sub(healthy.Time) >= Forgotten {
		return Loop{}
	}
	return loop
}

// requests returns the most requests of one kind in a remediation: a remediator that deletes its request after success gets a new one.
func requests(status *mendv1.RemediationRecordStatus) int {
	most, count := 1, map[string]int{}
	for _, request := range status.Requests {
		count[request.Kind]++
		most = max(most, count[request.Kind])
	}
	return most
}

// SubjectsOf returns the objects that a record counts for, as kind/name: the owner of a Machine that never had a Node, a host that was
// power-cycled, and the node of a NodeHealthCheck.
func SubjectsOf(record *mendv1.RemediationRecord) []string {
	var subjects []string
	target, byRequest := &record.Spec.Target, record.Spec.Remediator == mendv1.RemediatedByRequest
	if target.Machine != nil && target.Owner != nil && target.Node == nil {
		subjects = append(subjects, target.Owner.Kind+"/"+target.Owner.Name)
	}
	if target.Host != nil && byRequest {
		subjects = append(subjects, target.Host.Kind+"/"+target.Host.Name)
	}
	if target.Node != nil && target.ClusterName == "" && byRequest {
		subjects = append(subjects, target.Node.Kind+"/"+target.Node.Name)
	}
	return subjects
}
