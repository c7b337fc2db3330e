package page

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// isOK reports whether a check needs no attention: a controller acts on it, all its targets are healthy, nothing blocks remediation, and
// the capacity of all its remediations is back.
func isOK(c *explain.Check) bool {
	acted := c.Mode == cliv1.ModeActing || c.ActsElsewhere()
	underWay, _ := c.Remediations()
	return acted && !c.NotCounted() && c.NodesUnknown == nil && c.Counts.NotHealthy() == 0 &&
		c.Blocked() == "" && !c.Next.Manual && underWay == 0 &&
		!anyMissing(c.CapacityMissing) && len(c.ReadErrors) == 0 && c.Flaw() == nil
}

// Print writes s for a person.
func (s *Status) Print(out io.Writer, l text.Layout) error {
	p := &page{Page: text.Page{Layout: l}}
	p.Now = s.Time.Time
	p.checks(s)
	if anyMissing(s.besides) {
		p.Add("")
	}
	p.notBack("", "Missing after remediations that none of these checks requested", s.besides)
	p.list("Not covered by checks", s.Uncovered)
	if len(s.OutOfService) > 0 {
		p.list("Hosts out of service", s.OutOfService)
		p.line("  To do: ", "Repair each, then remove its marks: kubectl mend reset host/NAME -n NAMESPACE.")
	}
	p.list("Notes", s.Notes)
	if len(s.Policies)+len(s.Managers) > 0 {
		p.Add("")
	}
	for _, says := range s.Policies {
		p.line("", says+".")
	}
	for i := range s.Managers {
		p.manager(&s.Managers[i])
	}
	return p.Print(out)
}

// PrintManagers writes the managers for a person.
func PrintManagers(out io.Writer, managers []managerlease.Manager, l text.Layout) error {
	p := &page{Page: text.Page{Layout: l}}
	for i := range managers {
		p.manager(new(managerOf(&managers[i])))
	}
	if len(managers) == 0 {
		p.line("", "No manager of kubemend has announced itself.")
	}
	return p.Print(out)
}

func (p *page) manager(m *cliv1.Manager) {
	switch {
	case !m.Alive:
		gone := ptr.Deref(m.Ended, metav1.Time{}).Time
		p.line("", fmt.Sprintf("Manager %s: %s since %s.", m.Namespace, p.Paint.Bad("not running"), p.moment(gone)))
		return
	case m.Version == "" && m.Started == nil:
		p.line("", fmt.Sprintf("Manager %s/%s: %s, without an announcement.", m.Namespace, m.Holder, p.Paint.Good("running")))
		return
	}
	runs := p.Paint.Good("running")
	if m.Outside {
		runs += " outside of the cluster"
	}
	parts := []string{fmt.Sprintf("Manager %s/%s: %s, %s, unclaimed checks: %s", m.Namespace, m.Holder, runs, m.Version, m.Unclaimed)}
	ahead := time.Duration(m.ClockAheadSeconds) * time.Second
	for _, part := range []struct {
		so   bool
		says string
	}{
		{m.WatchNamespace != "", "only namespace " + m.WatchNamespace},
		{m.WatchFilter != "", "only what has the label " + clusterv1.WatchLabel + ": " + m.WatchFilter},
		{len(m.Namespaces) > 0, "it has rights in namespace " + strings.Join(m.Namespaces, ", ") + " alone"},
		{m.Message != "", p.Paint.Waits("it is not known whether this is a manager: " + m.Message)},
		{m.Teardown, p.Paint.Waits("it is in teardown, and starts nothing")},
		{ahead > 0, p.Paint.Bad("its clock is " + explain.Brief(ahead) + " ahead of that of the API server")},
		{ahead < 0, p.Paint.Bad("its clock is " + explain.Brief(-ahead) + " behind that of the API server")},
	} {
		if part.so {
			parts = append(parts, part.says)
		}
	}
	p.line("", strings.Join(parts, "; ")+".")
	for _, kind := range m.Kinds {
		if !kind.Served {
			p.line("  Does not serve: ", kind.CRD+": "+kind.Message+".")
		}
	}
}

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
	rows := make([]*explain.Check, 0, len(s.Checks))
	for i := range s.Checks {
		check := &s.Checks[i]
		if isOK(check) {
			ok++
		}
		if !isOK(check) || !p.NotOK {
			rows = append(rows, check)
		}
	}
	summary := s.troubles() + fmt.Sprintf("%d of %d checks OK at %s.", ok, len(s.Checks), s.Time.Format(time.TimeOnly+" MST"))
	if anyMissing(s.CapacityMissing) {
		summary += " The capacity of " + explain.Count(s.CapacityMissing.Remediations, "remediation") + " is not back."
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

// rows prints the table of these checks, and remarks below each row. Without -o wide the remarks include the controller, unless that is
// kubemend, and the reason, because a terminal has no room for their columns.
func (p *page) rows(s *Status, rows []*explain.Check) {
	clusters := map[client.ObjectKey]bool{}
	for i := range s.Checks {
		if c := &s.Checks[i]; c.Cluster != "" {
			clusters[client.ObjectKey{Namespace: c.Namespace, Name: c.Cluster}] = true
		}
	}
	several := len(clusters) > 1
	columns := []struct {
		head  string
		shown bool
		cell  func(*explain.Check) string
	}{
		{"CLUSTER", several, func(c *explain.Check) string { return clusterName(c, p.Namespaces) }},
		{"CHECK", true, func(c *explain.Check) string { return checkName(c, p.Namespaces && !several) }},
		{"CONTROLLER", p.Wide, p.controller},
		{"HEALTHY", true, healthy},
		{"PENDING", p.Wide, func(c *explain.Check) string { return counted(c, c.Counts.Pending+c.Counts.Starting) }},
		{"UNHEALTHY", p.Wide, func(c *explain.Check) string { return counted(c, c.Counts.Unhealthy) }},
		{"UNKNOWN", p.Wide, func(c *explain.Check) string { return counted(c, c.Counts.Unknown) }},
		{"ALLOWED", true, allowance},
		{"REMEDIATING", true, remediatingOf},
		{"LIMIT", p.Wide, func(c *explain.Check) string { return c.Limits.Spec }},
		{"REASON", p.Wide, p.reason},
	}
	cells := make([][]string, 1+len(rows))
	for _, column := range columns {
		if !column.shown {
			continue
		}
		cells[0] = append(cells[0], column.head)
		for i, c := range rows {
			cells[i+1] = append(cells[i+1], column.cell(c))
		}
	}
	lines := text.Table(cells)
	if !p.Wide {
		lines = text.Fit(cells, map[bool]int{false: 1, true: 2}[several], p.Width)
	}
	p.Add(lines[0])
	for i, c := range rows {
		p.Add(lines[i+1])
		if !p.Wide && c.Mode != cliv1.ModeActing {
			p.line("  Controller: ", p.controller(c)+".")
		}
		if reason := p.reason(c); !p.Wide && reason != none {
			p.line("  Reason: ", reason+".")
		}
		p.below(c)
	}
}

// below prints of a check that is not OK what its row does not show, and its next step.
func (p *page) below(c *explain.Check) {
	if isOK(c) {
		return
	}
	if c.Counts.NotHealthy() > 0 && !c.NodesNotReadable() {
		p.line("  ", explain.NotHealthy(c.Counts)+".")
	}
	if c.ModeMessage != "" && !c.TextHasMode() && !c.ActsElsewhere() {
		p.line("  ", c.ModeMessage+".")
	}
	if c.NodesUnknown != nil {
		p.line("  ", c.NodesUnknown.Message+".")
	} else if c.Message != "" && c.Reason != clusterv1.MachineHealthCheckTooManyUnhealthyReason {
		p.line("  ", c.Message+".")
	}
	if flaw := c.Flaw(); flaw != nil {
		p.line("  ", explain.FlawText(flaw)+".")
	}
	p.notBack("  ", "Not back", c.CapacityMissing)
	if !c.ActsElsewhere() || !c.Next.At.IsZero() || c.Next.Manual { // else the remarks have the controller that acts
		p.step("  ", c.Next)
	}
}

const (
	unknown = "?" // the cell of a value that is not known
	none    = "-" // the cell of a value that does not exist
)

func counted(c *explain.Check, n int) string {
	if c.NotCounted() {
		return unknown
	}
	return strconv.Itoa(n)
}

// remediatingOf returns how many targets are being remediated. The Machines show that even if the user may not read the nodes.
func remediatingOf(c *explain.Check) string {
	if c.NotCounted() && !c.NodesNotReadable() {
		return unknown
	}
	underWay, _ := c.Remediations()
	return strconv.Itoa(underWay)
}

func checkName(c *explain.Check, namespaces bool) string {
	short := map[string]string{"MachineHealthCheck": "mhc/", "NodeHealthCheck": "nhc/"}[c.Kind] + c.Name
	if namespaces && c.Namespace != "" {
		return c.Namespace + "/" + short
	}
	return short
}

func clusterName(c *explain.Check, namespaces bool) string {
	if namespaces && c.Cluster != "" {
		return c.Namespace + "/" + c.Cluster
	}
	return cmp.Or(c.Cluster, none)
}

func (p *page) controller(c *explain.Check) string {
	if c.Mode == cliv1.ModeActing {
		return p.Paint.Good(c.Mode.Controller())
	}
	return p.Paint.Waits(c.Mode.Controller())
}

// reason returns why no remediation starts. Unknown nodes come first, because a limit may be exceeded only because of them.
func (p *page) reason(c *explain.Check) string {
	switch {
	case c.NodesUnknown != nil:
		return p.Paint.Waits(c.NodesUnknown.Reason)
	case c.Blocked() != "":
		return p.Paint.Bad(c.Reason)
	}
	return none
}

func healthy(c *explain.Check) string {
	if c.NotCounted() || c.NodesUnknown != nil && c.Counts.Unknown > 0 {
		return unknown
	}
	return fmt.Sprintf("%d/%d", c.Counts.Healthy, c.Counts.Total())
}

// allowance returns how many targets may be not healthy while remediations still start; for unhealthyInRange, the range.
func allowance(c *explain.Check) string {
	switch {
	case c.Limits.AtMost == nil || c.NotCounted() && !c.NodesNotReadable():
		return unknown
	case c.Limits.AtLeast > 0:
		return fmt.Sprintf("%d-%d", c.Limits.AtLeast, *c.Limits.AtMost)
	}
	return strconv.Itoa(*c.Limits.AtMost)
}
