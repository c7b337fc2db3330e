package page

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// OK reports whether there is no trouble with a check: a controller acts on it, all of its targets are healthy, nothing blocks remediation,
// and the capacity of all that it has begun is back.
func (r *Row) OK() bool {
	acted := r.Mode == explain.Acting || r.ActsElsewhere()
	return acted && !r.NotCounted() && r.NodesUnknown == nil && r.Counts.NotHealthy() == 0 && (r.Reason == "" || r.Blocked() == string(budget.AtWork)) &&
		!r.Next.Manual && r.Remediating == 0 && len(r.Missing.All) == 0 && len(r.ReadErrors) == 0 && r.Flaw() == nil
}

// Print writes s for a person.
func (s *Status) Print(out io.Writer, l text.Layout) error {
	p := &page{Page: text.Page{Layout: l}}
	p.Now = s.At
	p.checks(s)
	p.besides(s)
	p.list("Not covered by checks", s.Uncovered)
	if len(s.OutOfService) > 0 {
		p.list("Hosts out of service", s.OutOfService)
		p.line("  To do: ", "Repair each, then remove its marks: kubectl mend reset host/NAME -n NAMESPACE.")
	}
	p.list("Notes", s.Notes)
	if len(s.Managers) > 0 {
		p.Add("")
	}
	for _, m := range s.Managers {
		p.manager(m)
	}
	return p.Print(out)
}

// PrintManagers writes for a person which managers there are.
func PrintManagers(out io.Writer, managers []managerlease.Manager, l text.Layout) error {
	p := &page{Page: text.Page{Layout: l}}
	for _, m := range managers {
		p.manager(m)
	}
	if len(managers) == 0 {
		p.line("", "No manager of kubemend has announced itself.")
	}
	return p.Print(out)
}

// manager is whether a manager runs and with which flags, and what it does not serve.
func (p *page) manager(m managerlease.Manager) {
	announced := m.Announcement
	switch {
	case !m.Alive:
		p.line("", fmt.Sprintf("Manager %s: %s since %s.", m.Namespace, p.Paint.Bad("not running"), p.moment(m.Gone)))
		return
	case announced == nil:
		p.line("", fmt.Sprintf("Manager %s/%s: %s, without an announcement.", m.Namespace, m.Holder, p.Paint.Good("running")))
		return
	}
	runs := p.Paint.Good("running")
	if announced.Outside {
		runs += " outside of the cluster"
	}
	parts := []string{fmt.Sprintf("Manager %s/%s: %s, %s, unclaimed checks: %s", m.Namespace, m.Holder, runs, announced.Version, announced.Unclaimed)}
	if announced.Namespace != "" {
		parts = append(parts, "only namespace "+announced.Namespace)
	}
	if announced.WatchFilter != "" {
		parts = append(parts, "only what has the label "+clusterv1.WatchLabel+": "+announced.WatchFilter)
	}
	if len(m.Within) > 0 {
		parts = append(parts, "it has rights in namespace "+strings.Join(m.Within, ", ")+" alone")
	}
	if m.Unverified != "" {
		parts = append(parts, p.Paint.Waits("whether it is one cannot be seen: "+m.Unverified))
	}
	if announced.Teardown {
		parts = append(parts, p.Paint.Waits("it is in teardown, and starts nothing"))
	}
	if ahead := announced.ClockAhead(); ahead > 0 {
		parts = append(parts, p.Paint.Bad("its clock is "+explain.Brief(ahead)+" ahead of that of the API server"))
	} else if ahead < 0 {
		parts = append(parts, p.Paint.Bad("its clock is "+explain.Brief(-ahead)+" behind that of the API server"))
	}
	p.line("", strings.Join(parts, "; ")+".")
	for _, kind := range announced.Kinds {
		if kind.Reason != "" {
			p.line("  Does not serve: ", kind.CRD+": "+kind.Because+".")
		}
	}
}

// checks is the answer, the table, and how many checks are not listed.
func (p *page) checks(s *Status) {
	if len(s.Unread) > 0 {
		p.line("", p.Paint.Waits(strings.Join(s.Unread, " and ")+" could not be read: there may be some")+".")
	}
	if len(s.Checks) == 0 {
		if len(s.Unread) == 0 {
			p.line("", s.troubles()+"There are no checks here.")
		}
		return
	}
	ok := 0
	rows := make([]*Row, 0, len(s.Checks))
	for i := range s.Checks {
		r := &s.Checks[i]
		if r.OK() {
			ok++
		}
		if !r.OK() || !p.NotOK {
			rows = append(rows, r)
		}
	}
	summary := s.troubles() + fmt.Sprintf("%d of %d checks OK at %s.", ok, len(s.Checks), s.At.Format(time.TimeOnly+" MST"))
	if missing := len(s.Missing.All); missing > 0 {
		summary += " The capacity of " + explain.Count(missing, "remediation") + " is not back."
	}
	p.line("", summary)
	if len(rows) > 0 {
		p.Add("")
		p.rows(s, rows)
	}
	if left := len(s.Checks) - len(rows); left > 0 {
		p.Add("")
		p.line("", explain.Number(left, "check")+" OK and not listed: --all lists all.")
	}
}

// rows is the table of these rows, and below each row what it cannot say. On a terminal, whose lines hold the numbers alone, that is also
// the controller, unless it is kubemend, and the reason.
func (p *page) rows(s *Status, rows []*Row) {
	clusters := map[client.ObjectKey]bool{}
	for i := range s.Checks {
		if r := &s.Checks[i]; r.Cluster != "" {
			clusters[client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster}] = true
		}
	}
	names := []string{"CHECK"}
	if len(clusters) > 1 {
		names = []string{"CLUSTER", "CHECK"}
	}
	cells := make([][]string, 0, 1+len(rows))
	if p.Wide {
		cells = append(cells, append(slices.Clone(names),
			"CONTROLLER", "HEALTHY", "PENDING", "UNHEALTHY", "UNKNOWN", "ALLOWED", "REMEDIATING", "LIMIT", "REASON"))
	} else {
		cells = append(cells, append(slices.Clone(names), "HEALTHY", "ALLOWED", "REMEDIATING"))
	}
	for _, r := range rows {
		named := []string{checkName(r, p.Namespaces)}
		if len(names) > 1 {
			named = []string{clusterName(r, p.Namespaces), checkName(r, false)}
		}
		healthy, allowed, remediating := healthy(&r.Check), allowance(&r.Check), remediatingOf(r)
		if p.Wide {
			cells = append(cells, append(named, p.controller(r), healthy, counted(r, r.Counts.Pending+r.Counts.Starting),
				counted(r, r.Counts.Unhealthy), counted(r, r.Counts.Unknown), allowed, remediating, r.Limits.Spec, p.reason(r)))
		} else {
			cells = append(cells, append(named, healthy, allowed, remediating))
		}
	}
	lines := text.Table(cells)
	if !p.Wide {
		lines = text.Fit(cells, len(names), p.Width)
	}
	p.Add(lines[0])
	for i, r := range rows {
		p.Add(lines[i+1])
		if !p.Wide && r.Mode != explain.Acting {
			p.line("  Controller: ", p.controller(r)+".")
		}
		if reason := p.reason(r); !p.Wide && reason != none {
			p.line("  Reason: ", reason+".")
		}
		p.below(r)
	}
}

// below is what the row of a check cannot show, and what is next.
func (p *page) below(r *Row) {
	if r.OK() {
		return
	}
	for _, remark := range r.Remarks() {
		p.line("  ", remark+".")
	}
	p.notBack("  ", "Not back", r.Missing)
	if !r.ActsElsewhere() || !r.Next.At.IsZero() || r.Next.Manual { // else the remarks say who acts
		p.step("  ", r.Next)
	}
}

const (
	// unknown is in the cell of what is not known.
	unknown = "?"
	// none is in the cell of what there is nothing of.
	none = "-"
)

// counted is how many targets of a check there are of a kind.
func counted(r *Row, n int) string {
	if r.NotCounted() {
		return unknown
	}
	return strconv.Itoa(n)
}

// remediatingOf is how many targets are being remediated: that is known by the machines, also of nodes that the user may not read.
func remediatingOf(r *Row) string {
	if r.NotCounted() && !r.NodesNotReadable() {
		return unknown
	}
	return strconv.Itoa(r.Remediating)
}

func checkName(r *Row, namespaces bool) string {
	short := map[string]string{"MachineHealthCheck": "mhc/", "NodeHealthCheck": "nhc/"}[r.Kind] + r.Name
	if namespaces && r.Namespace != "" {
		return r.Namespace + "/" + short
	}
	return short
}

// clusterName is the Cluster of a check; NodeHealthChecks have none.
func clusterName(r *Row, namespaces bool) string {
	if namespaces && r.Cluster != "" {
		return r.Namespace + "/" + r.Cluster
	}
	return cmp.Or(r.Cluster, none)
}

// controller is which controller acts on a check.
func (p *page) controller(r *Row) string {
	if r.Mode == explain.Acting {
		return p.Paint.Good(r.Mode.Controller())
	}
	return p.Paint.Waits(r.Mode.Controller())
}

// reason is why no remediation starts: that the nodes are unreachable goes before what the limits make of that.
func (p *page) reason(r *Row) string {
	switch {
	case r.NodesUnknown != nil:
		return p.Paint.Waits(r.NodesUnknown.Reason)
	case r.Check.Blocked() == string(budget.AtWork):
		return p.Paint.Waits(string(budget.AtWork))
	case r.Reason != "":
		return p.Paint.Bad(r.Reason)
	}
	return none
}

// healthy is how many targets are healthy, of how many.
func healthy(c *explain.Check) string {
	if c.NotCounted() || c.NodesUnknown != nil && c.Counts.Unknown > 0 {
		return unknown
	}
	return fmt.Sprintf("%d/%d", c.Counts.Healthy, c.Counts.Total())
}

// allowance is how many targets may be not healthy before no remediation starts any more; with a range, how many have to be.
func allowance(c *explain.Check) string {
	switch {
	case c.Limits.AtMost == nil || c.NotCounted() && !c.NodesNotReadable():
		return unknown
	case c.Limits.AtLeast > 0:
		return fmt.Sprintf("%d-%d", c.Limits.AtLeast, *c.Limits.AtMost)
	}
	return strconv.Itoa(*c.Limits.AtMost)
}
