package report

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/document"
)

// Document is a report for programs.
func (r *Report) Document() *cliv1.Report {
	d := &cliv1.Report{
		TypeMeta: cliv1.TypeOf("Report"), Time: document.Time(r.Now), Since: document.Moment(r.Since),
		Total: r.Total.document(), Items: make([]cliv1.ReportGroup, 0, len(r.Groups)),
		Repeated: make([]cliv1.RepeatedlyRemediated, 0, len(r.Repeated)), RepeatedAtLeast: r.AtLeast, RepeatedWithin: metav1.Duration{Duration: r.Within},
		ShortCircuits: make([]cliv1.ShortCircuit, 0, len(r.ShortCircuits)), Observed: r.Observed, ReadErrors: r.ReadErrors,
	}
	for _, by := range r.By {
		d.By = append(d.By, string(by))
	}
	for i := range r.Groups {
		d.Items = append(d.Items, r.Groups[i].document())
	}
	for i := range r.Repeated {
		is := &r.Repeated[i]
		d.Repeated = append(d.Repeated, cliv1.RepeatedlyRemediated{
			Reference: document.Reference(is.Object), Cluster: is.Cluster, HostModel: is.HostModel, Remediations: is.Remediations, Most: is.Most,
			First: document.Time(is.First), Last: document.Time(is.Last), Causes: is.Causes,
		})
	}
	for i := range r.ShortCircuits {
		is := &r.ShortCircuits[i]
		d.ShortCircuits = append(d.ShortCircuits, cliv1.ShortCircuit{
			Check: document.Reference(is.Check), Cluster: is.Cluster, Reason: is.Reason, Begin: document.Time(is.Begin), End: document.Moment(is.End),
			Seconds: seconds(is.For), Source: is.Source,
		})
	}
	return d
}

func (g *Group) document() cliv1.ReportGroup {
	return cliv1.ReportGroup{
		Cluster: document.Optional(g.Cluster), Check: document.Optional(g.Check), Cause: g.Cause, HostModel: g.HostModel, FailureDomain: g.FailureDomain,
		Remediations: g.Remediations, Open: g.Open, NotBegun: g.NotBegun,
		Healed: g.Outcomes[mendv1.RecordHealed], Replaced: g.Outcomes[mendv1.RecordReplaced], Gone: g.Outcomes[mendv1.RecordGone],
		GivenUp: g.Outcomes[mendv1.RecordGivenUp], Withdrawn: g.Outcomes[mendv1.RecordCancelled],
		TimeToDetect: g.Detect.document(), TimeToBegin: g.Begin.document(), TimeToRepair: g.Repair.document(), TimeToCapacityBack: g.Back.document(),
	}
}

// document is nil if there is nothing to sum up.
func (s Summary) document() *cliv1.DurationSummary {
	if s.Count == 0 {
		return nil
	}
	return &cliv1.DurationSummary{Count: s.Count, MeanSeconds: seconds(s.Mean), P95Seconds: seconds(s.P95), MaxSeconds: seconds(s.Max)}
}

func seconds(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }

// Document is a shadow report for programs.
func (r *ShadowReport) Document() *cliv1.ShadowReport {
	d := &cliv1.ShadowReport{
		TypeMeta: cliv1.TypeOf("ShadowReport"), Time: document.Time(r.Now), Since: document.Moment(r.Since),
		Both: r.Count[cliv1.BothBegin], OnlyKubemend: r.Count[cliv1.OnlyKubemendBegins], OnlyOthers: r.Count[cliv1.OnlyOthersBegin],
		HealedBefore: r.Count[cliv1.HealedBeforeKubemend], HealedAfter: r.Count[cliv1.HealedAfterKubemend], Unknown: r.Count[cliv1.NotComparable],
		OthersLater: r.Later.document(), OthersEarlier: r.Earlier.document(), Items: make([]cliv1.Shadow, 0, len(r.Shadows)),
		ReadErrors: slices.Clone(r.ReadErrors),
	}
	for i := range r.Shadows {
		s := &r.Shadows[i]
		is := cliv1.Shadow{
			Record: document.Reference(s.Record), Comparison: s.Comparison, Target: document.Reference(s.Target), Cluster: s.Cluster.Name,
			Check: document.Optional(s.Check), Cause: s.Cause, UnhealthySince: document.Moment(s.UnhealthySince),
			WouldBegin: document.Moment(s.WouldBegin()), BlockedBy: s.BlockedBy, Begun: document.Moment(s.Begun), BegunBy: s.BegunBy,
			CapacityBack: document.Moment(s.CapacityBack), Outcome: string(s.Outcome),
		}
		if difference, both := s.Difference(); both {
			is.DifferenceSeconds = new(seconds(difference))
		}
		d.Items = append(d.Items, is)
	}
	return d
}
