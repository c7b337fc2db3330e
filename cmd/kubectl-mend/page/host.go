package page

import (
	"cmp"
	"context"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Host explains a BareMetalHost: its machine, and who acts on its power.
func Host(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	h := &bmov1alpha1.BareMetalHost{}
	if err := read(ctx, a, key, h, "BareMetalHost"); err != nil {
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
		e.Facts = append([]explain.Fact{{Name: "machine", Value: m.Name}}, e.Facts...)
	}
	e.Subject = explain.Ref{Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}
	holding, unknown, err := a.RemediationsHolding(ctx, h)
	if err != nil {
		return nil, err
	}
	e.hostFacts(h, unknown)
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
	if len(e.Remediations) == 0 { // else the annotations are of these
		holds := explain.HoldsOf(h, unknown)
		e.answer(holds.Held(e.Answer, h))
		if next, todo := holds.Next(h); next != (explain.Step{}) {
			e.Next, e.Todo = next, todo
		}
	}
	e.outOfService(explain.OutOfService(h))
	return e, nil
}

// outOfService adds what a person has to do about a host that no machine is put on, if there is anything.
func (e *Explanation) outOfService(repair explain.Step) {
	if repair == (explain.Step{}) {
		return
	}
	e.answer(e.Answer.OutOfService(repair.Reason))
	if e.Next == explain.NothingNext {
		e.Next = repair
	} else {
		e.Todo = cmp.Or(e.Todo, repair)
	}
}

// Remediation explains the remediation of a kind and name.
func Remediation(ctx context.Context, a *inspect.Asker, kind string, key client.ObjectKey) (*Explanation, error) {
	found, err := a.Remediations(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, explain.NoSuch(kind, key.Namespace, key.Name) + ", or none that asks for anything"
	}
	e := explanation(a, found[0].Reference)
	e.Remediations, e.Next = found, cmp.Or(found[0].Next, explain.NothingNext)
	e.answer(found[0].Answer())
	e.fact("machine", ptr.Deref(found[0].Machine, explain.Ref{}).Name)
	e.fact("node", found[0].Node)
	e.fact("host", found[0].Host)
	e.fact("requested", found[0].Requested)
	return e, nil
}
