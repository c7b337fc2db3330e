package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Host explains a BareMetalHost: its machine, and the remediations that act on its power.
func Host(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	h := &bmov1alpha1.BareMetalHost{}
	if err := Read(ctx, a.Snapshot, key, h, "BareMetalHost"); err != nil {
		return nil, err
	}
	m, err := a.Hosts().MachineOf(ctx, h)
	if err != nil {
		return nil, err
	}
	e := explanation(a, explain.Ref{})
	e.answer(explain.NoMachineOfHost)
	if m != nil {
		if e, err = Machine(ctx, a, client.ObjectKeyFromObject(m)); err != nil {
			return nil, err
		}
		e.Facts = append([]cliv1.Fact{{Name: "machine", Value: m.Name}}, e.Facts...)
	}
	e.Subject = explain.Ref{Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}
	holding, unknown := a.RemediationsHolding(ctx, h)
	orphaned, foreign := e.hostFacts(h, unknown)
	for _, r := range holding {
		if !slices.ContainsFunc(e.Remediations, func(known explain.Remediation) bool { return known.Reference == r.Reference }) {
			e.Remediations = append(e.Remediations, r)
		}
	}
	if m == nil {
		e.remediatedBefore(a, func(target *mendv1.RecordTarget) bool { return target.Host != nil && target.Host.Name == h.Name })
		e.Next = cmp.Or(explain.CyclesNext(e.Remediations, false), explain.NothingNext)
		if len(e.Remediations) > 0 {
			e.answer(e.Remediations[0].Answer())
		}
	} else if len(e.Remediations) > 0 {
		e.Next = e.next()
	}
	e.Todo = e.todo()
	if len(e.Remediations) == 0 { // else the host's power annotations belong to these
		e.keptOff(h, orphaned, foreign)
	}
	if hosts.Unhealthy(h) {
		e.outOfService(h)
	}
	return e, nil
}

var onOff = map[bool]string{true: "on", false: "off"}

// hostFacts adds facts about the power of h. BMO reboots a host once for the annotation reboot.metal3.io, and keeps it off while it has
// that annotation with a suffix. unknown are the UIDs of remediations that h names and that do not exist. orphaned are the annotations that
// these remediations have set; foreign are those that no remediation has set.
func (e *Explanation) hostFacts(h *bmov1alpha1.BareMetalHost, unknown []types.UID) (orphaned, foreign []string) {
	e.fact("power", onOff[h.Status.PoweredOn])
	e.fact("desired power", onOff[h.Spec.Online])
	marks := hosts.AllMarks(h)
	for _, name := range slices.Sorted(maps.Keys(h.Annotations)) {
		effect, of := "asked to be off by", ""
		switch uid, marked := marks[name]; {
		case !strings.HasPrefix(name, bmov1alpha1.RebootAnnotationPrefix):
			continue
		case name == infrav1.RebootAnnotation:
			effect = "asked to reboot by"
		case !marked:
			foreign = append(foreign, name)
		case slices.Contains(unknown, uid):
			orphaned, of = append(orphaned, name), ", of a remediation that does not exist"
		}
		e.fact(effect, name+of)
	}
	if hosts.Unhealthy(h) {
		e.fact("out of service", "it is marked unhealthy, and no machine is put on it")
	}
	e.fact("error", h.Status.ErrorMessage)
	e.Facts = append(e.Facts, explain.Attributions(h)...)
	return orphaned, foreign
}

// keptOff explains what annotations do to the power of h that belong to no existing remediation, and what a user has to do.
func (e *Explanation) keptOff(h *bmov1alpha1.BareMetalHost, orphaned, foreign []string) {
	if !h.Spec.Online || len(orphaned)+len(foreign) == 0 {
		return
	}
	action, happens := explain.KeptPoweredOff, "the host stays powered off"
	if h.Status.PoweredOn {
		action, happens = explain.AboutToBePoweredOff, "the Bare Metal Operator powers the host off"
	}
	reason := string(powercycle.HostKeptOffReason)
	if a := e.Answer; a.Action == "" {
		a.Action, a.Reason, a.Implied, a.Detail = action, reason, true, strings.Join(slices.Concat(foreign, orphaned), ", ")
		e.answer(a)
	}
	if len(orphaned) > 0 {
		happens += "; a manager of kubemend removes " + strings.Join(orphaned, ", ") +
			" when its --orphan-grace-period (5m unless set) is over"
	}
	e.Next, e.Todo = explain.Step{Reason: reason, Text: happens}, explain.Step{}
	if len(foreign) > 0 {
		todo := "if the host is to be on, remove " + strings.Join(foreign, ", ") + " from it"
		e.Todo = explain.Step{Reason: reason, Manual: true, Text: todo}
	}
}

// outOfService adds that a user has to repair h, which is marked so that no machine is put on it. The answer says so unless it already says
// that something is wrong.
func (e *Explanation) outOfService(h *bmov1alpha1.BareMetalHost) {
	marked := explain.Answer{State: explain.IsBlocked, Reason: explain.HostOutOfService, Detail: e.Answer.Detail}
	switch {
	case e.Answer == explain.NoMachineOfHost:
		e.answer(marked)
	case e.Answer.State == explain.IsHealthy && e.Answer.Action == "":
		marked.Detail = "its Machine is healthy"
		e.answer(marked)
	}
	repair := explain.Step{Reason: explain.HostOutOfService, Manual: true,
		Text: fmt.Sprintf("repair the host, then remove its marks: kubectl mend reset host/%s -n %s", h.Name, h.Namespace)}
	if e.Next == explain.NothingNext {
		e.Next = repair
	} else {
		e.Todo = cmp.Or(e.Todo, repair)
	}
}

// Remediation explains a HostRemediation or a Metal3Remediation.
func Remediation(ctx context.Context, a *inspect.Asker, kind string, key client.ObjectKey) (*Explanation, error) {
	found, err := a.Remediation(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, explain.NoSuch(kind, key.Namespace, key.Name) + ", or it asks for nothing"
	}
	e := explanation(a, found.Reference)
	e.Remediations, e.Next = []explain.Remediation{*found}, cmp.Or(found.Next, explain.NothingNext)
	e.answer(found.Answer())
	e.fact("machine", ptr.Deref(found.Machine, explain.Ref{}).Name)
	e.fact("node", found.Node)
	e.fact("host", found.Host)
	e.fact("requested", found.Requested)
	return e, nil
}

// inFlight prints what remediates t, since when, and what it reports.
func (p *page) inFlight(c *explain.Check, t *explain.Target) {
	var parts []string
	for _, request := range t.Requests {
		parts = append(parts, request.String())
	}
	if t.OwnerAsked {
		parts = append(parts, t.Owner)
	}
	remediation := strings.Join(parts, ", then ")
	if !t.InFlightSince.IsZero() {
		remediation += ", since " + p.moment(t.InFlightSince.Time)
	}
	p.line("  Remediation: ", strings.TrimPrefix(remediation, ", ")+".")
	label := "  Reported: "
	if c.Kind == "MachineHealthCheck" {
		label = "  Machine condition: "
	}
	if t.Message != "" {
		p.line(label, t.Message+".")
	}
}

// blockers prints the blockers of a target of c, or of a remediation if c is nil, in the order in which the controller checks them, without
// WithinTimeout, which the findings show.
func (p *page) blockers(c *explain.Check, blockers []explain.Blocker) {
	number := 0
	for i := range blockers {
		b := &blockers[i]
		if b.Reason == explain.WithinTimeout {
			continue
		}
		number++
		if number == 1 {
			p.line("  ", "Blocked by:")
		}
		first := fmt.Sprintf("  %d. ", number)
		if c != nil && len(c.Targets) > 1 && (c.PartOf(b) == explain.SameAsLimit || p.again(b.Text)) {
			p.line(first, b.Name()+", as above.")
			continue
		}
		p.line(first, p.blocker(c, b)+".")
		if c != nil && b.Reason == c.Blocked() {
			p.groups("     ", c.NotHealthy)
		}
		p.fix("     ", b.Fix)
	}
}

// blocker returns b in one sentence. For too many unhealthy targets it prints the numbers of c.
func (p *page) blocker(c *explain.Check, b *explain.Blocker) string {
	why := b.Text
	if c != nil && b.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
		why = c.Numbers()
	}
	if !b.Until.IsZero() {
		why += ", until " + p.moment(b.Until)
	}
	if b.Reason == "" { // a condition that the manager wrote may have only a text
		return why
	}
	return b.Name() + ": " + why
}

// cycle returns the table of the steps of a power cycle: when each finished step began and how long it took, and since and until when the
// current step goes on. It is nil before the first step and after the last.
func (p *page) cycle(r *explain.Remediation) [][]string {
	span := func(began *metav1.Time, until time.Time) []string {
		if began.IsZero() {
			return []string{"-", "-"}
		}
		return []string{text.Clock(began.Time, p.Now), duration.HumanDuration(max(until.Sub(began.Time), 0))}
	}
	rows := make([][]string, 0, len(explain.CycleSteps))
	going, began := false, r.AttemptStarted
	for _, step := range explain.CycleSteps {
		row, cond := []string{"  " + step.Name}, meta.FindStatusCondition(r.Conditions, step.Done)
		switch {
		case slices.Contains(step.States, powercycle.State(r.State)):
			going = true
			row = append([]string{p.Paint.Strong("> " + step.Name)}, span(r.StateSince, p.Now)...)
			if r.Deadline != nil {
				row = append(row, "until "+p.moment(r.Deadline.Time))
			}
		case going || cond == nil:
		case cond.Status == metav1.ConditionTrue:
			row = append(row, span(began, cond.LastTransitionTime.Time)...)
			began = &cond.LastTransitionTime
		default:
			row = append(row, "-", "-", cond.Reason)
			began = &cond.LastTransitionTime
		}
		rows = append(rows, row)
	}
	if !going {
		return nil
	}
	return rows
}

// remediation prints a remediation of the subject, or the subject itself. With -o wide it also prints the evidence.
func (p *page) remediation(r *explain.Remediation) {
	rows, state, does := p.cycle(r), r.State, r.Message
	switch attempt := fmt.Sprintf("ttempt %d of %d", r.Attempt, r.Attempts); {
	case rows != nil:
		state, does = "a"+attempt, strings.TrimPrefix(r.Message, "A"+attempt+": ")
	case r.Reason != r.State:
		does = r.Reason + ": " + r.Message
	}
	if r.Reference == p.subject {
		p.Heading("Power cycle: " + state)
	} else {
		p.Heading(r.Reference.String() + ": " + state)
	}
	inCourse := rows != nil && r.Answer().State == explain.InProgress                         // what such a step waits for is no blocker
	if does != "" && (inCourse || len(r.Blockers) == 0 || r.Blockers[0].Reason != r.Reason) { // else the first blocker says the same
		p.line("  ", does+".")
	}
	switch {
	case rows != nil:
		p.Add("  " + strings.Join(text.Table(rows), "\n  "))
	case r.StateSince != nil && r.Deadline != nil:
		p.line("  ", "In this step since "+p.moment(r.StateSince.Time)+", deadline "+p.moment(r.Deadline.Time)+".")
	case r.StateSince != nil:
		p.line("  ", "In this step since "+p.moment(r.StateSince.Time)+".")
	}
	p.evidence(r)
	if !inCourse {
		p.blockers(nil, r.Blockers)
	}
}

// evidence prints for -o wide the evidence of r that its message does not contain.
func (p *page) evidence(r *explain.Remediation) {
	for _, e := range r.Evidence {
		if p.Wide && !strings.Contains(r.Message, e) {
			p.line("  - ", e)
		}
	}
}
