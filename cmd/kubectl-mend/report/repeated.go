package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/explain"
)

// Repeated is a host, a machine or a node that was remediated again and again.
type Repeated struct {
	Object    explain.Ref
	Cluster   string
	HostModel string
	// Remediations are all of the report, and Most how many of them began within the window that has most.
	Remediations, Most int
	First, Last        time.Time
	// Causes are those of the remediations, the most frequent one first.
	Causes []string
}

// repeatedly are the hosts, machines and nodes of which at least q.AtLeast remediations began within q.Within, those with most
// first. A machine that was replaced is another one since, while its host is the same.
func repeatedly(begun []*Remediation, q Question) []Repeated {
	if q.AtLeast < 1 {
		return nil
	}
	of := map[identity][]*Remediation{}
	for _, r := range begun {
		of[identify(r, r.Target)] = append(of[identify(r, r.Target)], r)
		if r.Host != r.Target {
			of[identify(r, r.Host)] = append(of[identify(r, r.Host)], r)
		}
	}
	delete(of, identity{})
	var all []Repeated
	for is, its := range of {
		if len(its) < q.AtLeast {
			continue
		}
		slices.SortFunc(its, func(a, b *Remediation) int { return a.since().Compare(b.since()) })
		most := mostWithin(its, q.Within)
		if most < q.AtLeast {
			continue
		}
		newest := its[len(its)-1]
		one := Repeated{
			Object: is.Ref, Cluster: newest.Cluster.Name, Remediations: len(its), Most: most, First: its[0].since(), Last: newest.since(),
			Causes: causesOf(its),
		}
		if is.Ref == newest.Host {
			one.HostModel = newest.HostModel
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Repeated) int {
		return cmp.Or(cmp.Compare(b.Most, a.Most), cmp.Compare(b.Remediations, a.Remediations), b.Last.Compare(a.Last), compareRefs(a.Object, b.Object))
	})
	return all
}

// identity is what tells objects apart: two clusters may have nodes of the same name.
type identity struct {
	explain.Ref
	cluster explain.Ref
}

func identify(r *Remediation, object explain.Ref) identity {
	if object.Kind == "Node" {
		return identity{object, r.Cluster}
	}
	return identity{Ref: object}
}

// mostWithin is how many remediations began within a window at most, wherever that lies. They are in the order of their beginnings.
func mostWithin(all []*Remediation, window time.Duration) int {
	most, first := 0, 0
	for i, r := range all {
		for r.since().Sub(all[first].since()) > window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func causesOf(all []*Remediation) []string {
	count := map[string]int{}
	for _, r := range all {
		if r.Cause != "" {
			count[r.Cause]++
		}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
}
