package nodes

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// of are the facts of a check of one template, without limits, with the given nodes and 20 healthy ones.
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
		f.Single, f.Templates = false, templates
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

func TestWhatBlocksARemediation(t *testing.T) {
	named := func(own bool, template string) func(*Node) {
		return func(n *Node) {
			n.Named = []Named{{Ref: Ref{"Reboot", "remediators", "a"}, ID: "r", Exists: true, Own: own, Template: template}}
		}
	}
	foreign := Foreign{Ref: Ref{"Reboot", "remediators", "theirs"}, ID: "f", Type: "Reboot.example.org"}
	replace := foreign
	replace.Type = "Replace.example.org"
	orphaned := func(n *Node) { n.Orphaned, n.Others = []Foreign{foreign}, []Foreign{foreign} }
	five := func(f *Facts) {
		f.ControlPlane = &ControlPlane{Nodes: []Member{{"a", false}, {"b", true}, {"c", true}, {"d", true}, {"e", true}}}
	}
	member := func(n *Node) { n.ControlPlane = true }
	for name, tc := range map[string]struct {
		given Facts
		want  []Reason // of the first node
	}{
		"nothing blocks an unhealthy node":     {of(lost()), nil},
		"a healthy node is not unhealthy":      {of(healthy()), []Reason{NotUnhealthy}},
		"a node that is gone":                  {of(gone()), []Reason{NodeGone}},
		"a pending node is within its timeout": {of(lost(since(time.Minute))), []Reason{WithinTimeout}},
		"a pending node knows what will block it": {
			of(lost(since(time.Minute), func(n *Node) { n.Excluded = true })), []Reason{WithinTimeout, NodeExcluded},
		},
		"a node that has left the selection": {of(lost(func(n *Node) { n.Selected, n.Excluded = false, true })), []Reason{NotSelected}},
		"one that OpenShift is ending":       {of(lost(func(n *Node) { n.Terminating = true })).with(func(f *Facts) { f.TerminatingLeft = true }), []Reason{NotJudged}},
		"one that is terminating otherwise":  {of(lost(func(n *Node) { n.Terminating = true })), nil},
		"one that its user has excluded":     {of(lost(func(n *Node) { n.Excluded = true })), []Reason{NodeExcluded}},
		"what its Machine says, the latest first": {
			of(lost(machine(func(m *Machine) {
				m.Unread, m.Deleting, m.Skipped, m.Paused, m.ClusterPaused = true, true, true, true, true
			}))),
			[]Reason{MachineUnread, ClusterPaused, MachinePaused, MachineSkipped, MachineDeleting},
		},
		"another check of its Machine":           {of(lost(machine(func(m *Machine) { m.WatchedBy = "capi/mhc" }))), []Reason{OverlappingCheck}},
		"an update of its Machine in place":      {of(lost(machine(func(m *Machine) { m.Updating = true }))), []Reason{MachineUpdating}},
		"a lease that another holder has":        {of(lost(func(n *Node) { n.Lease = leaseOf("NMO", time.Hour, 0, 0) })), []Reason{LeaseTaken}},
		"none that has expired":                  {of(lost(func(n *Node) { n.Lease = leaseOf("NMO", time.Minute, 0, time.Hour) })), nil},
		"nor one of the check":                   {of(lost(func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), nil},
		"a request of a check that is gone":      {of(lost(orphaned)), []Reason{OrphanedRequest}},
		"one of the same kind of another check":  {of(lost(func(n *Node) { n.Others = []Foreign{foreign} })), []Reason{ForeignRequest}},
		"none of another kind":                   {of(lost(func(n *Node) { n.Others = []Foreign{replace} })), nil},
		"the name, if another has it":            {of(lost(named(false, "reboot"))), []Reason{ForeignRequest}},
		"the name, if another template has it":   {of(lost(named(true, "other"))), []Reason{OtherTemplate}},
		"a template of Machines without one":     {of(lost()).with(steps(hostTemplate())), []Reason{TemplateOfMachines}},
		"a template elsewhere than its Machine":  {of(lost(machine(func(*Machine) {}))).with(steps(hostTemplate())), []Reason{TemplateElsewhere}},
		"none where its Machine is":              {of(lost(machine(func(m *Machine) { m.Namespace = "metal" }))).with(steps(hostTemplate())), nil},
		"a check that is disabled, and says why": {of(lost()).with(func(f *Facts) { f.Disabled = Disabled{"X", "x"} }), []Reason{CheckDisabled}},
		"a limit that cannot be read":            {of(lost()).with(func(f *Facts) { f.MaxUnhealthy = "many" }), []Reason{CheckDisabled, TooManyUnhealthy}},
		"a template that could not be read":      {of(lost()).with(func(f *Facts) { f.Templates[0].Usable = false }), []Reason{TemplateUnread}},
		"one that the reader may not read": {
			of(lost()).with(func(f *Facts) { f.Templates[0].Usable, f.Templates[0].Unread = false, true }), []Reason{TemplateNotSeen},
		},
		"a check that names none": {of(lost()).with(steps()), []Reason{NoTemplate}},
		"a pause, an upgrade, kubelets that are awaited and limits": {
			of(lost()).with(func(f *Facts) {
				f.PauseRequests, f.Upgrade.Unread, f.Since, f.Grace, f.MaxUnhealthy = []string{"me"}, true, epoch, time.Minute, "0"
			}),
			[]Reason{Paused, Upgrading, KubeletsAwaited, TooManyUnhealthy},
		},
		"a storm that is not over": {
			of(lost()).with(func(f *Facts) { f.Cooldown, f.Storm = ptr(time.Hour), budget.Storm{Active: true, CoolingSince: epoch} }), []Reason{StormNotOver},
		},
		"a control plane that was not read":       {of(lost(member)), []Reason{MembersNotSeen}},
		"nothing but that of the control plane":   {of(lost(member)).with(five), nil},
		"another node of the control plane first": {of(lost(member), lost(member, since(time.Hour))).with(five, func(f *Facts) { f.ControlPlane.Nodes[1].Ready = false }), []Reason{NotFirst}},
		"etcd": {
			of(lost(member)).with(five, func(f *Facts) {
				f.ControlPlane.Etcd = Etcd{There: true, Budgets: 1, Guards: map[string]string{"a": "guard"}}
			}),
			[]Reason{EtcdAtRisk},
		},
		"a remediation that is in progress":              {of(lost(asked())), []Reason{InProgress}},
		"one whose request is being deleted":             {of(lost(asked(deleting(0), func(r *Request) { r.Listed = true }))), []Reason{InProgress}},
		"a request of the last failure":                  {of(lost(asked(deleting(0), kept))), []Reason{StillDeleted}},
		"requests that cannot be read":                   {of(lost(func(n *Node) { n.Unseen = []Listed{{}} })), []Reason{RequestsUnread}},
		"a request that somebody deleted a moment ago":   {of(lost(func(n *Node) { n.Gone = []Listed{{Started: epoch.Add(-time.Second)}} })), []Reason{JustDeleted}},
		"none that was deleted long ago":                 {of(lost(func(n *Node) { n.Gone = []Listed{{Started: epoch.Add(-time.Hour)}} })), nil},
		"an escalation that came to nothing":             {of(lost(asked(succeeded(escalation.No)))).with(steps(reboot(0))), []Reason{NoTemplateLeft}},
		"a step that follows one that failed: nothing":   {of(lost(asked(succeeded(escalation.No)))).with(steps(reboot(0), reboot(0))), nil},
		"a step that follows, while the check is paused": {of(lost(asked(succeeded(escalation.No)))).with(steps(reboot(0), reboot(0)), func(f *Facts) { f.PauseRequests = []string{"me"} }), []Reason{Paused}},
		"a step of a template whose request is there": {
			of(lost(asked(succeeded(escalation.No)), func(n *Node) {
				n.Named = []Named{{}, {Ref: Ref{"Reboot", "remediators", "a"}, ID: "r", Exists: true, Own: true, Template: "reboot"}}
			})).with(steps(reboot(0), reboot(0))), []Reason{SameTemplate},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := &p.Decisions[0]
			if diff := cmp.Diff(tc.want, reasons(d.Blockers), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("blockers (-want +got):\n%s", diff)
			}
			if d.Starts() != (len(d.Blockers) == 0) {
				t.Errorf("starts: %t", d.Starts())
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestWhatIsDoneAboutRequests(t *testing.T) {
	delay := func(f *Facts) { f.HealthyDelay = 10 * time.Minute }
	listed := func(at time.Time) func(*Node) { return func(n *Node) { n.Listed = &Listing{HealthySince: at} } }
	remembered := func(f *Facts) { f.Memory.Recovered = map[string]bool{"r": true} }
	marked := func(r *Request) { r.DelayedMarked, r.Delayed = true, epoch.Add(-time.Minute) }
	one := []int{0}
	type done struct {
		End, Flag, Delay, Resume, Stop, Adopt, GiveUp []int
		Delayed                                       bool
		Lease                                         LeaseAction
		Start                                         int
	}
	for name, tc := range map[string]struct {
		given Facts
		want  done
	}{
		"the request of a healthy node ends":                     {of(healthy(asked())), done{End: one, Lease: TakeLease, Start: -1}},
		"with a healthy delay it is kept":                        {of(healthy(asked())).with(delay), done{Delay: one, Delayed: true, Lease: TakeLease, Start: -1}},
		"one that is listed without a moment, too":               {of(healthy(asked(), listed(time.Time{}))).with(delay), done{Delay: one, Delayed: true, Lease: TakeLease, Start: -1}},
		"it is kept for the delay":                               {of(healthy(asked(), listed(epoch))).with(delay), done{Delayed: true, Lease: TakeLease, Start: -1}},
		"and ends after it":                                      {of(healthy(asked(), listed(epoch.Add(-time.Hour)))).with(delay), done{End: one, Lease: TakeLease, Start: -1}},
		"a person ends a delay without end":                      {of(healthy(asked())).with(func(f *Facts) { f.HealthyDelay = -1 }), done{Delayed: true, Lease: TakeLease, Start: -1}},
		"by a confirmation":                                      {of(healthy(asked(), func(n *Node) { n.Confirmed = true })).with(func(f *Facts) { f.HealthyDelay = -1 }), done{End: one, Lease: TakeLease, Start: -1}},
		"one that is deleted already is waited for":              {of(healthy(asked(deleting(time.Minute)))), done{Lease: TakeLease, Start: -1}},
		"an old one is counted":                                  {of(lost(asked(func(r *Request) { r.Started = epoch.Add(-49 * time.Hour) }))), done{Flag: one, Lease: TakeLease, Start: -1}},
		"once":                                                   {of(lost(asked(func(r *Request) { r.Started, r.Flagged = epoch.Add(-49*time.Hour), true }))), done{Lease: TakeLease, Start: -1}},
		"a delay that was begun in vain is reverted":             {of(lost(asked(marked))).with(delay), done{Resume: one, Lease: TakeLease, Start: -1}},
		"what had succeeded ends when the node is bad once more": {of(lost(asked(succeeded(escalation.Yes)))).with(remembered), done{End: one, Lease: TakeLease, Start: -1}},
		"but not with an escalation":                             {of(lost(asked(succeeded(escalation.Yes)))).with(steps(reboot(0)), remembered), done{Lease: TakeLease, Start: -1}},
		"nor what was never seen to have":                        {of(lost(asked(succeeded(escalation.Yes)))), done{Lease: TakeLease, Start: -1}},
		"the request of a node that is gone ends":                {of(gone(asked())), done{End: one, Start: -1}},
		"its remediator is notified to stop, if it keeps it":     {of(gone(asked(kept, deleting(0)))), done{Stop: one, Start: -1}},
		"unless that is forbidden":                               {of(gone(asked(kept, deleting(0)))).with(func(f *Facts) { f.Memory.Unpatchable = map[string]bool{"r": true} }), done{Start: -1}},
		"one whose node is not known is left alone":              {of(gone(asked(func(r *Request) { r.Guessed = true }))), done{Start: -1}},
		"one that a remediator keeps waits for the node":         {of(gone(asked(kept))), done{Lease: TakeLease, Start: -1}},
		"one whose Machine is there, too":                        {of(gone(asked(func(r *Request) { r.MachineThere = true }))), done{Lease: TakeLease, Start: -1}},
		"a step that failed is given up":                         {of(lost(asked(succeeded(escalation.No)))).with(steps(reboot(0), reboot(0))), done{GiveUp: one, Start: 1, Lease: TakeLease}},
		"the first step takes the lease":                         {of(lost()), done{Start: 0, Lease: TakeLease}},
		"what is left of the last failure is adopted":            {of(lost(asked(deleting(0), kept))), done{Adopt: one, Start: -1, Lease: TakeLease}},
		"the lease of a healthy node is given back":              {of(healthy(func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), done{Lease: DropLease, Start: -1}},
		"of one that is gone after its last request":             {of(gone(func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), done{Lease: DropLease, Start: -1}},
		"and not before":                                         {of(gone(asked(deleting(0)), func(n *Node) { n.Lease = leaseOf(us, time.Hour, 0, 0) })), done{Start: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := &p.Decisions[0]
			got := done{d.End, d.Flag, d.Delay, d.Resume, d.Stop, d.Adopt, d.GiveUp, d.Delayed, d.Lease, d.Start}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheNodesForWhichARemediationStartsComeFirst(t *testing.T) {
	p := Decide(of(healthy(asked()), lost(since(20*time.Minute)), lost(since(30*time.Minute)), lost(func(n *Node) { n.Excluded = true }), healthy()))
	if want := []int{2, 1, 0, 3}; !slices.Equal(p.Order, want) {
		t.Errorf("order %v, want %v", p.Order, want)
	}
}

func TestTheFirstReasonThatDisablesACheckIsKept(t *testing.T) {
	p := Decide(of(lost()).with(func(f *Facts) { f.Disabled, f.MaxUnhealthy = Disabled{"Other", "x"}, "many" }))
	if p.Disabled.Reason != "Other" {
		t.Errorf("got %+v", p.Disabled)
	}
}

func TestTheLeaseOfANodeHasTheTermOfItsStep(t *testing.T) {
	for step, want := range map[int]time.Duration{0: 3 * time.Minute, 1: 20 * time.Minute, -1: defaultTerm} {
		f := of(lost(asked(func(r *Request) { r.Step = step }))).with(steps(reboot(0), reboot(0)))
		f.Templates[0].Timeout, f.Templates[1].Timeout = 3*time.Minute, 20*time.Minute
		p := Decide(f)
		if got := p.Decisions[0].Term.Length; step >= 0 && got != want || step < 0 && got == 0 {
			t.Errorf("of step %d: %s, want %s", step, got, want)
		}
	}
}
