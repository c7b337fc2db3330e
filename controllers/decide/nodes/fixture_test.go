package nodes

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const us = "us"

func leaseOf(holder string, length, acquired, renewed time.Duration) *Lease {
	return &Lease{Holder: holder, Own: holder == us, Duration: length, Acquired: epoch.Add(-acquired), Renewed: epoch.Add(-renewed)}
}

const bad, unknown, good = "False", "Unknown", "True"

// ready is a node whose Ready condition has that status since then.
func ready(status string, at time.Duration) Node {
	return Node{Exists: true, Reported: true, Conditions: []health.Signal{
		{Source: health.OnNode, Type: "Ready", Status: status, Since: epoch.Add(at)},
	}}
}

// of are the facts of a check of one template, without limits, with the given nodes: a, b, c and so on.
func of(nodes ...Node) Facts {
	f := Facts{
		Now: epoch, Check: "nhc", Single: true, MaxUnhealthy: "100%", Templates: []Template{reboot(0)},
		Policy: health.Policy{Rules: []health.Rule{{Source: health.OnNode, Type: "Ready", Status: unknown, For: 5 * time.Minute}}},
	}
	for i := range nodes {
		nodes[i].Name = string(rune('a' + i))
		nodes[i].ID = "uid-" + nodes[i].Name
	}
	f.Nodes = nodes
	return f
}

func (f Facts) with(changes ...func(*Facts)) Facts {
	for _, change := range changes {
		change(&f)
	}
	return f
}

func reboot(timeout time.Duration) Template {
	return Template{
		Ref: Ref{"RebootTemplate", "remediators", "reboot"}, RequestKind: "Reboot", Type: "Reboot.example.org", Usable: true, Timeout: timeout, ForOpenShift: true,
	}
}

func hostTemplate() Template {
	return Template{
		Ref: Ref{"HostRemediationTemplate", "metal", "host"}, RequestKind: "HostRemediation", Type: "HostRemediation.kubemend.io", Usable: true, OfMachines: true,
	}
}

// steps are a check's escalation with five minutes for each step.
func steps(templates ...Template) func(*Facts) {
	return func(f *Facts) {
		f.Single, f.Templates = false, slices.Clone(templates)
		for i := range f.Templates {
			f.Templates[i].Timeout, f.Templates[i].Order, f.Templates[i].HasOrder = 5*time.Minute, i, true
		}
	}
}

// lost is a node whose kubelet has been silent for ten minutes.
func lost(changes ...func(*Node)) Node {
	n := ready(unknown, -10*time.Minute)
	n.Selected, n.Machine = true, &Machine{}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func since(ago time.Duration) func(*Node) {
	return func(n *Node) {
		for i := range n.Conditions {
			n.Conditions[i].Since = epoch.Add(-ago)
		}
	}
}

func healthy(changes ...func(*Node)) Node {
	n := Node{Exists: true, Reported: true, Selected: true}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func gone(changes ...func(*Node)) Node {
	var n Node
	for _, change := range changes {
		change(&n)
	}
	return n
}

// asked is a node with a request that was made a minute ago.
func asked(changes ...func(*Request)) func(*Node) {
	return func(n *Node) {
		r := Request{Ref: Ref{"Reboot", "remediators", "a"}, ID: "r", Template: "reboot", Started: epoch.Add(-time.Minute)}
		for _, change := range changes {
			change(&r)
		}
		n.Requests = append(n.Requests, r)
	}
}

func machine(change func(*Machine)) func(*Node) {
	return func(n *Node) {
		n.Machine = &Machine{Ref: Ref{"Machine", "capi", "m"}, Cluster: "home"}
		change(n.Machine)
	}
}

func deleting(ago time.Duration) func(*Request) {
	return func(r *Request) { r.Deleting = epoch.Add(-ago) }
}

func kept(r *Request) { r.Kept = true }

func succeeded(is escalation.Status) func(*Request) {
	return func(r *Request) { r.Succeeded = is }
}

func reasons(all []Blocker) []Reason {
	var is []Reason
	for _, b := range all {
		is = append(is, b.Reason)
	}
	return is
}

func ptr[T any](v T) *T { return &v }

func pausedBy(who string) func(*Facts) { return func(f *Facts) { f.PauseRequests = []string{who} } }

// limit is how many nodes may be unhealthy.
func limit(maxUnhealthy string) func(*Facts) {
	return func(f *Facts) { f.MaxUnhealthy = maxUnhealthy }
}

// awaited are kubelets that have had no time to report.
func awaited(f *Facts) { f.Since, f.Grace = epoch, 50*time.Second }

func storm(f *Facts) {
	f.Cooldown, f.Storm = ptr(time.Hour), budget.Storm{Active: true, CoolingSince: epoch}
}

func delay(d time.Duration) func(*Facts) { return func(f *Facts) { f.HealthyDelay = d } }

func on(step int) func(*Request) { return func(r *Request) { r.Step = step } }

func started(ago time.Duration) func(*Request) {
	return func(r *Request) { r.Started = epoch.Add(-ago) }
}

func failed(r *Request) { r.Succeeded = escalation.No }

func excluded(n *Node)   { n.Excluded = true }
func unselected(n *Node) { n.Selected = false }
func member(n *Node)     { n.ControlPlane = true }

// leaving is a Node that is being deleted, and kept by a finalizer, for that long.
func leaving(d time.Duration) func(*Node) {
	return func(n *Node) { n.Deleting, n.Finalizers = epoch.Add(-d), []string{"karpenter.sh/termination"} }
}

func leased(l *Lease) func(*Node) { return func(n *Node) { n.Lease = l } }

// deleted are requests for the node that somebody has deleted, and that the status lists.
func deleted(all ...Listed) func(*Node) { return func(n *Node) { n.Gone = append(n.Gone, all...) } }

// unseen is a request for the node that cannot be read now.
func unseen(n *Node) { n.Unseen = append(n.Unseen, Listed{Started: epoch.Add(-time.Minute)}) }

// orphaned is a request for the node of a check of the same name that was deleted.
func orphaned(n *Node) {
	o := Foreign{Ref: Ref{"Reboot", "remediators", "theirs"}, ID: "f", Type: "Reboot.example.org"}
	n.Orphaned, n.Others = []Foreign{o}, []Foreign{o}
}

// listed says since when the status of the check says that the node is healthy, or gone.
func listed(healthySince time.Time) func(*Node) {
	return func(n *Node) { n.Listed = &Listing{HealthySince: healthySince} }
}
