package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// WriteCSV writes the groups as a table for spreadsheets, or the total if there are none: times in seconds, and nothing where none is known.
func (r *Report) WriteCSV(out io.Writer) error {
	heads := make([]string, 0, len(r.By)+20)
	for _, by := range r.By {
		heads = append(heads, strings.ReplaceAll(string(by), "-", "_"))
	}
	heads = append(heads, "remediations", "open", "healed", "replaced", "gone", "given_up", "withdrawn", "not_begun")
	for _, span := range []string{"detect", "begin", "repair", "capacity_back"} {
		heads = append(heads, span+"_count", span+"_mean_seconds", span+"_p95_seconds", span+"_max_seconds")
	}
	groups := r.Groups
	if len(r.By) == 0 {
		groups = []Group{r.Total}
	}
	rows := append(make([][]string, 0, 1+len(groups)), heads)
	for i := range groups {
		g := &groups[i]
		row := make([]string, 0, len(heads))
		for _, by := range r.By {
			row = append(row, plain(g.value(by, named)))
		}
		row = append(row, number(g.Remediations), number(g.Open), number(g.Outcomes[mendv1.RecordHealed]), number(g.Outcomes[mendv1.RecordReplaced]),
			number(g.Outcomes[mendv1.RecordGone]), number(g.Outcomes[mendv1.RecordGivenUp]), number(g.Outcomes[mendv1.RecordCancelled]), number(g.NotBegun))
		for _, s := range []Summary{g.Detect, g.Begin, g.Repair, g.Back} {
			row = append(row, s.cells()...)
		}
		rows = append(rows, row)
	}
	return write(out, rows)
}

// WriteCSV writes each failure as a row.
func (r *ShadowReport) WriteCSV(out io.Writer) error {
	rows := append(make([][]string, 0, 1+len(r.Shadows)), []string{
		"record", "comparison", "target", "cluster", "check", "cause", "unhealthy_since", "would_begin", "blocked_by", "begun", "begun_by",
		"difference_seconds", "capacity_back", "outcome",
	})
	for i := range r.Shadows {
		s := &r.Shadows[i]
		difference := ""
		if d, both := s.Difference(); both {
			difference = number(seconds(d))
		}
		rows = append(rows, []string{
			plain(named(s.Record)), string(s.Comparison), plain(slashed(s.Target)), plain(named(s.Cluster)), plain(named(s.Check)), plain(s.Cause),
			stamp(s.UnhealthySince),
			stamp(s.WouldBegin()), plain(s.BlockedBy), stamp(s.Begun), plain(s.BegunBy), difference, stamp(s.CapacityBack), string(s.Outcome),
		})
	}
	return write(out, rows)
}

func write(out io.Writer, rows [][]string) error {
	if err := csv.NewWriter(out).WriteAll(rows); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// cells are count, mean, 95th percentile and maximum.
func (s Summary) cells() []string {
	if s.Count == 0 {
		return []string{"0", "", "", ""}
	}
	return []string{number(s.Count), number(seconds(s.Mean)), number(seconds(s.P95)), number(seconds(s.Max))}
}

// plain is a text that no spreadsheet takes for a formula: host models come from hardware, and causes from workload clusters.
func plain(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

func number(n int) string { return strconv.Itoa(n) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// named is the name of an object behind its namespace.
func named(r explain.Ref) string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

// slashed is an object as KIND/NAME.
func slashed(r explain.Ref) string {
	if r.Name == "" {
		return ""
	}
	return r.Kind + "/" + r.Name
}

// value is what the remediations of g share in a dimension.
func (g *Group) value(by Dimension, named func(explain.Ref) string) string {
	switch by {
	case ByCluster:
		return named(g.Cluster)
	case ByCheck:
		return named(g.Check)
	case ByCause:
		return g.Cause
	case ByHostModel:
		return g.HostModel
	case ByFailureDomain:
		return g.FailureDomain
	}
	return ""
}
