package simulate

import (
	"cmp"
	"fmt"
	"io"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// page is an answer being laid out.
type page struct{ text.Page }

// Print writes an answer for a person, in the zone of its Time: first what it comes to.
func Print(out io.Writer, answer *cliv1.Simulation, layout text.Layout) error {
	p, begin := &page{text.Page{Layout: layout}}, answer.Time.Time
	p.Hang("", p.Paint.Strong(headline(answer)), 0)
	rows := make([][]string, 0, len(answer.Starts))
	for _, start := range answer.Starts {
		rows = append(rows, []string{text.Clock(start.Time.Time, begin), short(start.Target), short(start.Check), start.Action})
	}
	p.rows("Would start", rows)
	p.rows("Would not start", notStarted(answer.NotStarted))
	rows = nil
	for _, limit := range answer.Limits {
		rows = append(rows, []string{text.Clock(limit.Time.Time, begin), short(limit.Check), cmp.Or(limit.Reason, "-"), limit.Message})
	}
	p.rows("Limits", rows)
	p.Heading("Assumed")
	for _, sentence := range answer.Assumptions {
		p.Hang("  - ", sentence+".", 4)
	}
	return p.Print(out)
}

// notStarted has one row for all targets that wait for the same.
func notStarted(targets []cliv1.SimulatedTarget) [][]string {
	var reasons [][3]string
	names := map[[3]string][]string{}
	for _, target := range targets {
		reason := [3]string{"-", target.Reason, target.Message}
		if target.Check != nil {
			reason[0] = short(*target.Check)
		}
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], short(target.Reference))
	}
	rows := make([][]string, 0, len(reasons))
	for _, reason := range reasons {
		rows = append(rows, []string{reason[0], reason[1], text.FirstOf(names[reason], mostNames) + ": " + reason[2]})
	}
	return rows
}

// headline is what a simulation comes to.
func headline(answer *cliv1.Simulation) string {
	kinds := map[string]bool{}
	for _, limit := range answer.Limits {
		kinds[limit.Check.Kind] = true
	}
	target := "machines"
	switch {
	case len(kinds) > 1:
		target = "machines and nodes"
	case kinds["NodeHealthCheck"]:
		target = "nodes"
	}
	if len(answer.Starts) == 0 {
		end := text.Clock(answer.Time.Add(answer.Horizon.Duration), answer.Time.Time)
		return fmt.Sprintf("None of %d %s would be remediated until %s", answer.Targets, target, end)
	}
	first := text.Clock(answer.Starts[0].Time.Time, answer.Time.Time)
	return fmt.Sprintf("%d of %d %s would be remediated, the first at %s", answer.Remediated, answer.Targets, target, first)
}

// rows writes a heading, and rows of which the last cell is a text: behind the others where there is room, else below them.
func (p *page) rows(heading string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.Heading(heading)
	leads := make([][]string, 0, len(rows))
	for _, row := range rows {
		leads = append(leads, append(row[:len(row)-1:len(row)-1], ""))
	}
	table := text.Table(leads)
	widest := text.Widest(table)
	for i, lead := range table {
		if sentence := rows[i][len(rows[i])-1]; widest <= p.Width/3 {
			p.Hang("  "+text.Pad(lead, widest+3), sentence, widest+5)
		} else {
			p.Add("  " + lead)
			p.Hang("      ", sentence, 6)
		}
	}
}

// shorts are the short names of kinds.
var shorts = map[string]string{"Machine": "machine", "Node": "node", "MachineHealthCheck": "mhc", "NodeHealthCheck": "nhc"}

// short is an object as it is called on the command line, with its namespace in front; empty for none.
func short(object cliv1.Reference) string {
	switch {
	case object.Name == "":
		return ""
	case object.Namespace == "":
		return shorts[object.Kind] + "/" + object.Name
	}
	return object.Namespace + "/" + shorts[object.Kind] + "/" + object.Name
}
