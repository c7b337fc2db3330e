package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Layout is how a report is printed.
type Layout struct {
	// Width is that of the terminal, in columns.
	Width int
	// Wide prints all columns and rows.
	Wide bool
	// Namespaces prints the namespaces of objects.
	Namespaces bool
	// NotInstalled says that there is no kind for records, so that nothing was counted.
	NotInstalled bool
	Paint        text.Painter
}

// indent is how far the numbers of a group are indented if its names take the line before.
const indent = 4

// printer collects the lines of a report.
type printer struct {
	Layout

	now   time.Time
	lines []string
}

// Print writes a report for a person.
func (r *Report) Print(out io.Writer, l Layout) error {
	p := &printer{Layout: l, now: r.Now}
	if l.NotInstalled {
		p.line(explain.NoRecordsKept)
	} else {
		p.line(explain.RemediationsCounted(r.Total.Remediations, r.Total.Open, r.Total.NotBegun, p.since(r.Since)))
	}
	if r.Observed > 0 {
		p.line(fmt.Sprintf("Left out: %d that kubemend observed (kubectl mend report shadow).", r.Observed))
	}
	if r.Total.Remediations > 0 {
		p.gap()
		p.groups(r)
	}
	p.repeated(r)
	p.shortCircuits(r)
	return p.write(out)
}

func (p *printer) line(s string) { p.lines = append(p.lines, text.Wrap(s, 2, p.Width)) }

// named is the name of an object, with its namespace where those are printed.
func (p *printer) named(r explain.Ref) string {
	if p.Namespaces {
		return named(r)
	}
	return r.Name
}

func (p *printer) slashed(r explain.Ref) string { return r.Kind + "/" + p.named(r) }

func (p *printer) gap() { p.lines = append(p.lines, "") }

func (p *printer) write(out io.Writer) error {
	for _, line := range p.lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
	}
	return nil
}

// since is a moment that may be missing, as people read it.
func (p *printer) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(p.now.Location()).Format(time.DateTime + " MST")
}

func (p *printer) ago(t time.Time) string { return duration.HumanDuration(p.now.Sub(t)) }

// groups is the table of all groups below the total. Names that leave no room for the numbers stand on a line of their own.
func (p *printer) groups(r *Report) {
	by := make([]string, 0, len(r.By))
	for _, d := range r.By {
		by = append(by, strings.ToUpper(string(d)))
	}
	names, numbers := [][]string{by}, [][]string{p.headings()}
	for i := range r.Groups {
		row := make([]string, 0, len(r.By))
		for _, d := range r.By {
			row = append(row, cmp.Or(r.Groups[i].value(d, p.named), "-"))
		}
		names, numbers = append(names, row), append(numbers, p.numbers(&r.Groups[i]))
	}
	if len(r.Groups) != 1 {
		names, numbers = append(names, append([]string{"all"}, make([]string, max(len(r.By)-1, 0))...)), append(numbers, p.numbers(&r.Total))
	}
	if len(r.By) == 0 {
		names = [][]string{nil, nil}
	}
	rows := make([][]string, len(names))
	for i := range names {
		rows[i] = slices.Concat(names[i], numbers[i])
	}
	lines := text.Table(rows)
	if !p.tooLong(lines) {
		p.lines = append(p.lines, lines...)
		return
	}
	below := text.Table(numbers)
	for i, name := range text.Table(names) {
		p.lines = append(p.lines, name, strings.Repeat(" ", indent)+below[i])
	}
}

func (p *printer) tooLong(lines []string) bool {
	return !p.Wide && slices.ContainsFunc(lines, func(line string) bool { return text.Columns(line) > p.Width })
}

// headings are those of the numbers of a group. Where there is room, there are more.
func (p *printer) headings() []string {
	if !p.roomy() {
		return []string{"BEGUN", "OPEN", "DETECT/P95", "BEGIN/P95", "BACK/P95"}
	}
	return []string{"BEGUN", "OPEN", "HEALED", "REPLACED", "GONE", "GIVEN UP", "WITHDRAWN", "DETECT (P95)", "BEGIN (P95)", "REPAIR (P95)", "BACK (P95)"}
}

// roomy reports whether all columns are printed.
func (p *printer) roomy() bool { return p.Wide || p.Width >= 140 }

func (p *printer) numbers(g *Group) []string {
	if !p.roomy() {
		return []string{number(g.Remediations), number(g.Open), g.Detect.cell("/"), g.Begin.cell("/"), g.Back.cell("/")}
	}
	return []string{
		number(g.Remediations), number(g.Open), number(g.Outcomes[mendv1.RecordHealed]), number(g.Outcomes[mendv1.RecordReplaced]),
		number(g.Outcomes[mendv1.RecordGone]), number(g.Outcomes[mendv1.RecordGivenUp]), number(g.Outcomes[mendv1.RecordCancelled]),
		g.Detect.cell(" ("), g.Begin.cell(" ("), g.Repair.cell(" ("), g.Back.cell(" ("),
	}
}

// cell is the mean and the 95th percentile.
func (s Summary) cell(between string) string {
	if s.Count == 0 {
		return "-"
	}
	is := duration.HumanDuration(s.Mean) + between + duration.HumanDuration(s.P95)
	if strings.HasSuffix(between, "(") {
		is += ")"
	}
	return is
}

// table is a heading with a table below it, whose last column is broken if it is long.
func (p *printer) table(heading string, rows [][]string) {
	p.gap()
	p.line(heading)
	lines := text.Table(rows)
	if !p.tooLong(lines) {
		p.lines = append(p.lines, lines...)
		return
	}
	heads, tails := make([][]string, len(rows)), make([]string, len(rows))
	for i, row := range rows {
		heads[i], tails[i] = row[:len(row)-1], row[len(row)-1]
	}
	for i, head := range text.Table(heads) {
		p.lines = append(p.lines, head, text.Hang(strings.Repeat(" ", indent), tails[i], indent, p.Width))
	}
}

func (p *printer) repeated(r *Report) {
	if len(r.Repeated) == 0 {
		return
	}
	rows := append(make([][]string, 0, 1+len(r.Repeated)), []string{"OBJECT", "TIMES", "LAST", "MODEL", "CAUSES"})
	for i := range r.Repeated {
		is := &r.Repeated[i]
		rows = append(rows, []string{
			p.slashed(is.Object), number(is.Most), p.ago(is.Last), cmp.Or(is.HostModel, "-"), cmp.Or(strings.Join(is.Causes, ", "), "-"),
		})
	}
	p.table(fmt.Sprintf("Remediated at least %d times within %s:", r.AtLeast, days(r.Within)), rows)
}

func (p *printer) shortCircuits(r *Report) {
	if len(r.ShortCircuits) == 0 {
		return
	}
	rows := append(make([][]string, 0, 1+len(r.ShortCircuits)), []string{"CHECK", "BEGAN", "FOR", "STATE", "REASON"})
	for i := range r.ShortCircuits {
		is := &r.ShortCircuits[i]
		state := "ended"
		if is.End.IsZero() {
			state = p.Paint.Bad("goes on")
		}
		rows = append(rows, []string{p.slashed(is.Check), p.ago(is.Begin), duration.HumanDuration(is.For), state, cmp.Or(is.Reason, "-")})
	}
	p.table("Short-circuited, by conditions (their last change) and events (of an hour):", rows)
}

// days is a duration as --within takes it.
func days(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return duration.HumanDuration(d)
}

// comparisons are all of them, in the order in which they are counted for a person.
var comparisons = []cliv1.Comparison{
	cliv1.BothBegin, cliv1.OnlyKubemendBegins, cliv1.OnlyOthersBegin, cliv1.HealedBeforeKubemend, cliv1.HealedAfterKubemend, cliv1.NotComparable,
}

// Print writes a shadow report for a person: the counts, and the failures with which kubemend would have dealt otherwise.
func (r *ShadowReport) Print(out io.Writer, l Layout) error {
	p := &printer{Layout: l, now: r.Now}
	if l.NotInstalled {
		p.line(explain.NoRecordsKept)
		return p.write(out)
	}
	p.line(explain.FailuresCompared(len(r.Shadows), p.since(r.Since)))
	if r.Active > 0 {
		p.line(fmt.Sprintf("Left out: %d that kubemend decided itself (kubectl mend report).", r.Active))
	}
	if len(r.Shadows) == 0 {
		return p.write(out)
	}
	p.gap()
	rows := make([][]string, 0, len(comparisons))
	for _, c := range comparisons {
		rows = append(rows, []string{number(r.Count[c]), explain.Comparison(string(c))})
	}
	p.lines = append(p.lines, text.Table(rows)...)
	p.gap()
	p.difference("later", r.Later, r.Count[cliv1.BothBegin])
	p.difference("earlier", r.Earlier, r.Count[cliv1.BothBegin])
	p.failures(r)
	return p.write(out)
}

// failures is the table of those that both would not have begun; of all, if that is asked for.
func (p *printer) failures(r *ShadowReport) {
	rows := [][]string{{"DECIDED", "COMPARISON", "TARGET", "OTHERS", "REASON"}}
	for i := range r.Shadows {
		s := &r.Shadows[i]
		if s.Comparison == cliv1.BothBegin && !p.Wide {
			continue
		}
		others := "-"
		if d, both := s.Difference(); both {
			others = signed(d)
		} else if !s.Begun.IsZero() {
			others = s.BegunBy
		}
		reason := s.Cause
		if s.BlockedBy != "" {
			reason = s.BlockedBy
		}
		rows = append(rows, []string{p.ago(s.Decided), string(s.Comparison), p.slashed(s.Target), cmp.Or(others, "-"), cmp.Or(reason, "-")})
	}
	if len(rows) > 1 {
		p.table(explain.FailuresThatDiffer(p.Wide), rows)
	}
}

// difference is how much later, or earlier, others began than kubemend would have, in how many of all that both would begin.
func (p *printer) difference(word string, is Summary, all int) {
	if is.Count > 0 {
		p.line(fmt.Sprintf("In %d of %d, others began %s %s than kubemend would have on average, 95%% of them within %s.",
			is.Count, all, duration.HumanDuration(is.Mean), word, duration.HumanDuration(is.P95)))
	}
}

// signed is how much later others began.
func signed(d time.Duration) string {
	if d < 0 {
		return "-" + duration.HumanDuration(-d)
	}
	return "+" + duration.HumanDuration(d)
}
