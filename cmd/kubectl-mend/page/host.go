package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
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
// that annotation with a suffix. orphaned are annotations that remediations have set which do not exist any more, whose UIDs are unknown;
// foreign are those that no remediation has set.
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
	action, text := explain.KeptPoweredOff, "the host stays powered off"
	if h.Status.PoweredOn {
		action, text = explain.AboutToBePoweredOff, "the Bare Metal Operator powers the host off"
	}
	reason := string(powercycle.HostKeptOffReason)
	if a := e.Answer; a.Action == "" {
		a.Action, a.Reason, a.Implied, a.Detail = action, reason, true, strings.Join(slices.Concat(foreign, orphaned), ", ")
		e.answer(a)
	}
	if len(orphaned) > 0 {
		text += fmt.Sprintf("; a manager of kubemend removes %s when its --orphan-grace-period (5m unless set) is over",
			strings.Join(orphaned, ", "))
	}
	e.Next, e.Todo = explain.Step{Reason: reason, Text: text}, explain.Step{}
	if len(foreign) > 0 {
		e.Todo = explain.Step{Reason: reason, Manual: true, Text: "if the host is to be on, remove " + strings.Join(foreign, ", ") + " from it"}
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
