package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// printer lays out a report. With Wide each outcome has a column.
type printer struct {
	text.Page

	report *cliv1.Report
}

// Print writes a report for a person.
func Print(out io.Writer, report *cliv1.Report, layout text.Layout) error {
	p := &printer{text.Page{Layout: layout}, report}
	p.Hang("", p.headline(), 2)
	if report.Total.Remediations > 0 {
		p.Add("")
		p.groups()
	}
	if len(report.Repeated) > 0 {
		p.Add("")
		p.repeated()
	}
	return p.Print(out)
}

func (p *printer) headline() string {
	total, s := &p.report.Total, "Remediations"
	if p.report.Since != nil {
		s += p.report.Since.UTC().Format(" since " + time.DateTime + " MST")
	}
	s += fmt.Sprintf(": %d", total.Remediations)
	if total.Open > 0 {
		s += fmt.Sprintf(", %d of them open", total.Open)
	}
	if total.NotBegun > 0 {
		s += fmt.Sprintf("; %d decided and not begun", total.NotBegun)
	}
	return s + "."
}

// named returns the name of an object, with its namespace if namespaces are printed.
func (p *printer) named(object *cliv1.Reference) string {
	if object == nil || p.Namespaces {
		return named(object)
	}
	return object.Name
}

func (p *printer) groups() {
	heads := make([]string, 0, len(p.report.By)+8)
	for _, by := range p.report.By {
		heads = append(heads, strings.ToUpper(by))
	}
	heads = append(heads, "BEGUN", "OPEN")
	if p.Wide {
		heads = append(heads, "HEALED", "REPLACED", "GONE", "GIVEN-UP", "WITHDRAWN")
	}
	rows := append(make([][]string, 0, len(p.report.Items)+2), append(heads, "DETECT/P95", "BEGIN/P95", "BACK/P95"))
	for i := range p.report.Items {
		group := &p.report.Items[i]
		values := map[string]string{ByCluster: p.named(group.Cluster), ByCheck: p.named(group.Check), ByCause: group.Cause}
		names := make([]string, 0, len(heads))
		for _, by := range p.report.By {
			names = append(names, cmp.Or(values[by], "-"))
		}
		rows = append(rows, append(names, p.numbers(group)...))
	}
	if len(p.report.Items) != 1 {
		names := make([]string, len(p.report.By), len(heads))
		if len(names) > 0 {
			names[0] = "all"
		}
		rows = append(rows, append(names, p.numbers(&p.report.Total)...))
	}
	p.Table(rows, len(p.report.By))
}

func (p *printer) numbers(group *cliv1.ReportGroup) []string {
	counts := []int{group.Remediations, group.Open}
	if p.Wide {
		counts = append(counts, group.Healed, group.Replaced, group.Gone, group.GivenUp, group.Withdrawn)
	}
	cells := make([]string, 0, len(counts)+3)
	for _, count := range counts {
		cells = append(cells, strconv.Itoa(count))
	}
	for _, times := range []*cliv1.DurationSummary{group.TimeToDetect, group.TimeToBegin, group.TimeToCapacityBack} {
		if times == nil {
			cells = append(cells, "-")
			continue
		}
		cells = append(cells, human(times.MeanSeconds)+"/"+human(times.P95Seconds))
	}
	return cells
}

func human(seconds int) string { return duration.HumanDuration(time.Duration(seconds) * time.Second) }

func (p *printer) repeated() {
	p.Hang("", fmt.Sprintf("Remediated at least %d times within %.0f days:", p.report.RepeatedAtLeast,
		p.report.RepeatedWithin.Hours()/24), 2)
	rows := append(make([][]string, 0, 1+len(p.report.Repeated)), []string{"OBJECT", "TIMES", "LAST", "MODEL", "CAUSES"})
	for i := range p.report.Repeated {
		entry := &p.report.Repeated[i]
		rows = append(rows, []string{
			entry.Kind + "/" + p.named(&entry.Reference), strconv.Itoa(entry.Most),
			duration.HumanDuration(p.report.Time.Sub(entry.Last.Time)),
			cmp.Or(entry.HostModel, "-"), cmp.Or(strings.Join(entry.Causes, ", "), "-"),
		})
	}
	p.Table(rows, 1)
}
