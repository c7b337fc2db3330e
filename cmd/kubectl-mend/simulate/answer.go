package simulate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/policy"
)

// note adds to the answer which remediations have started since the last call, and what the limits of the checks say now.
func (s *simulation) note(checks []explain.Check) {
	s.acting = map[string][]reconcile.Request{}
	for i := range checks {
		check := &checks[i]
		if check.Mode == cliv1.ModeActing {
			key := types.NamespacedName{Namespace: check.Namespace, Name: check.Name}
			s.acting[check.Kind] = append(s.acting[check.Kind], reconcile.Request{NamespacedName: key})
		}
		for j := range check.Targets {
			s.noteTarget(check, &check.Targets[j])
		}
		if s.concerns(check.Reference) {
			s.noteLimit(check)
		}
	}
}

// noteTarget notes whether the remediation of a target has started, or why it has not if the target is unhealthy.
func (s *simulation) noteTarget(check *explain.Check, judged *explain.Target) {
	ref, now := judged.Reference, s.clock.Now()
	t := s.targets[ref]
	if t == nil {
		t = &target{}
		s.targets[ref] = t
	}
	t.counts = t.counts || s.concerns(check.Reference) && judged.Skipped == ""
	if judged.State == cliv1.StateUnhealthy {
		delete(s.unnoticed, s.nodeOf(check, judged))
	}
	waits := judged.State == cliv1.StateUnhealthy && !judged.InFlight && len(judged.Blockers) > 0
	if judged.StartsNow || waits && slices.Contains(place.Reasons, cmp.Or(judged.Blockers[0].Cause, judged.Blockers[0].Reason)) {
		t.starting = &cliv1.SimulatedStart{
			After: s.after(), Time: metav1.NewTime(now.UTC()), Target: ref, Check: check.Reference, Action: judged.Action.Message,
		}
	}
	if waits && t.counts {
		by := check.Reference
		t.waiting = &cliv1.SimulatedTarget{Reference: ref, Check: &by, Reason: judged.Blockers[0].Reason, Message: judged.Blockers[0].Text}
	}
	if judged.InFlight {
		s.noteFlight(check, judged, t)
	}
}

// noteFlight adds the remediation of a target to the answer if it has just started.
func (s *simulation) noteFlight(check *explain.Check, judged *explain.Target, t *target) {
	if t.starting != nil && t.counts {
		if t.ends.IsZero() {
			key := types.NamespacedName{Namespace: check.Namespace, Name: check.Name}
			t.starting.Groups = s.policies.Ledger.GroupsOf(policy.Check{Kind: check.Kind, NamespacedName: key}, judged.Name)
		}
		s.answer.Starts, t.remediated = append(s.answer.Starts, *t.starting), true
	}
	t.starting = nil
	if t.ends.IsZero() && check.Mode == cliv1.ModeActing {
		t.node, t.ends = s.nodeOf(check, judged), s.clock.Now().Add(s.Takes)
	}
	t.waiting = nil
}

// noteLimit adds what the limits of a check say, if that has changed.
func (s *simulation) noteLimit(check *explain.Check) {
	parts := []string{cmp.Or(check.Message, check.Allowance())}
	changed := check.Blocked()
	if check.Mode != cliv1.ModeActing {
		changed, parts = changed+string(check.Mode), append([]string{"kubemend does not act on it: " + check.ModeMessage}, parts...)
	}
	for _, name := range []string{mendv1.TargetsExclusive, mendv1.RemediationTemplateAvailable} {
		cond := meta.FindStatusCondition(check.Conditions, name)
		if cond != nil && cond.Status == metav1.ConditionFalse && cond.Message != check.Message {
			changed, parts = changed+cond.Reason, append(parts, cond.Message)
		}
	}
	if check.NodesUnknown != nil && check.NodesUnknown.Message != check.Message {
		parts = append(parts, check.NodesUnknown.Message)
	}
	for _, unread := range check.ReadErrors {
		parts = append(parts, explain.CouldNotBeRead(unread))
	}
	if before, noted := s.limits[check.Reference]; noted && before == changed {
		return
	}
	s.limits[check.Reference] = changed
	s.answer.Limits = append(s.answer.Limits, cliv1.SimulatedLimit{
		After: s.after(), Time: metav1.NewTime(s.clock.Now().UTC()), Check: check.Reference, Reason: check.Blocked(),
		Message: strings.Join(parts, ". "),
	})
}

func (s *simulation) after() metav1.Duration {
	return metav1.Duration{Duration: s.clock.Since(s.From).Truncate(time.Second)}
}

func (s *simulation) conclude() {
	for _, t := range s.targets {
		if t.counts {
			s.answer.Targets++
		}
		if t.remediated {
			s.answer.Remediated++
		} else if t.waiting != nil {
			s.answer.NotStarted = append(s.answer.NotStarted, *t.waiting)
		}
	}
	for node := range s.unnoticed {
		s.answer.NotStarted = append(s.answer.NotStarted, cliv1.SimulatedTarget{
			Reference: cliv1.Reference{Kind: "Node", Name: node.name},
			Reason:    "NotUnhealthy", Message: "No check counts it as unhealthy in this time",
		})
	}
	slices.SortFunc(s.answer.NotStarted, func(a, b cliv1.SimulatedTarget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// page is an answer that is being laid out.
type page struct{ text.Page }

// Print writes an answer for a person, in the zone of its Time. The first line sums it up.
func Print(out io.Writer, answer *cliv1.Simulation, layout text.Layout) error {
	p, begin := &page{text.Page{Layout: layout}}, answer.Time.Time
	p.Hang("", p.Paint.Strong(headline(answer)), 0)
	rows := make([][]string, 0, len(answer.Starts))
	for _, start := range answer.Starts {
		rows = append(rows, []string{text.Clock(start.Time.Time, begin), short(start.Target), short(start.Check), start.Action})
	}
	p.rows("Would start", rows)
	p.rows("Would start in each group", groups(answer))
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

// notStarted returns a row for each reason, with all targets that wait for it.
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

// groups returns a row for each limit group of a policy, with how many of its remediations start when.
func groups(answer *cliv1.Simulation) [][]string {
	starts := map[cliv1.LimitGroup]map[time.Time]int{}
	for _, start := range answer.Starts {
		for _, g := range start.Groups {
			if starts[g] == nil {
				starts[g] = map[time.Time]int{}
			}
			starts[g][start.Time.Time]++
		}
	}
	rows := make([][]string, 0, len(starts))
	for g, at := range starts {
		says := make([]string, 0, len(at))
		for _, moment := range slices.SortedFunc(maps.Keys(at), time.Time.Compare) {
			says = append(says, fmt.Sprintf("%s: %d", text.Clock(moment, answer.Time.Time), at[moment]))
		}
		rows = append(rows, []string{short(g.Policy), g.Limit, cmp.Or(g.Group, "-"), strings.Join(says, ", ")})
	}
	slices.SortFunc(rows, slices.Compare)
	return rows
}

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

// rows prints a heading and rows. The last cell of a row is a text, which is printed beside the others or, without room, below them.
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

var shorts = map[string]string{"Machine": "machine", "Node": "node", "MachineHealthCheck": "mhc", "NodeHealthCheck": "nhc",
	policyKind: "policy", overrideKind: "override"}

// short returns an object as the command line names it, after its namespace: metal/mhc/workers. It is empty for an object without a name.
func short(object cliv1.Reference) string {
	switch {
	case object.Name == "":
		return ""
	case object.Namespace == "":
		return shorts[object.Kind] + "/" + object.Name
	}
	return object.Namespace + "/" + shorts[object.Kind] + "/" + object.Name
}
