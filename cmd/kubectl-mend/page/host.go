package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	bmhost "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Host explains a BareMetalHost: its machine, and who acts on its power.
func Host(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	h := &bmov1alpha1.BareMetalHost{}
	switch err := a.Reader().Get(ctx, key, h); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no BareMetalHost %s in namespace %s", key.Name, key.Namespace)
	case meta.IsNoMatchError(err):
		return nil, errors.New("BareMetalHosts are not installed in the management cluster")
	case err != nil:
		return nil, fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	m, err := a.Hosts().MachineOf(ctx, h)
	if err != nil {
		return nil, err
	}
	e := &Explanation{At: a.Now, Notes: notes(a), Verdict: "It belongs to no Machine"}
	if m != nil {
		if e, err = Machine(ctx, a, client.ObjectKeyFromObject(m)); err != nil {
			return nil, err
		}
		e.Is = append([]Fact{{"machine", m.Name}}, e.Is...)
	}
	e.Subject = explain.Ref{Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}
	holding, unknown, err := a.RemediationsHolding(ctx, h)
	if err != nil {
		return nil, err
	}
	e.Is = append(e.Is, power(h, unknown)...)
	e.add(holding)
	if m == nil {
		e.Next = cmp.Or(e.ofRemediations(false), nothing)
	} else if len(e.Remediations) > 0 {
		e.Next = e.next()
	}
	return e, nil
}

// power is what a host says of its power. Unknown are remediations that act on it, and of which no more is known.
func power(h *bmov1alpha1.BareMetalHost, unknown []types.UID) []Fact {
	is := map[bool]string{true: "on", false: "off"}
	facts := []Fact{{"power", is[h.Status.PoweredOn]}, {"its owner wants it", is[h.Spec.Online]}}
	marks := bmhost.AllMarks(h)
	for _, name := range slices.Sorted(maps.Keys(h.Annotations)) {
		if uid, marked := marks[name]; marked && slices.Contains(unknown, uid) {
			facts = append(facts, Fact{acts(name), name + ", of a remediation that is not known"})
		} else if strings.HasPrefix(name, bmov1alpha1.RebootAnnotationPrefix) {
			facts = append(facts, Fact{acts(name), name})
		}
	}
	if h.Status.ErrorMessage != "" {
		facts = append(facts, Fact{"error", h.Status.ErrorMessage})
	}
	return facts
}

// acts is what an annotation does to the power of its host: without a name behind it, reboot.metal3.io asks for a reboot, and is gone when that
// is done.
func acts(annotation string) string {
	switch annotation {
	case infrav1.RebootAnnotation:
		return "asked to reboot by"
	case mendv1.RebootedForAnnotation:
		return "rebooted for"
	}
	return "held off by"
}

// add adds remediations that are not there yet.
func (e *Explanation) add(remediations []explain.Remediation) {
	known := map[explain.Ref]bool{}
	for i := range e.Remediations {
		known[e.Remediations[i].Ref] = true
	}
	for i := range remediations {
		if !known[remediations[i].Ref] {
			e.Remediations = append(e.Remediations, remediations[i])
		}
	}
}

// Remediation explains the remediations of that name, of the kind called so or, if that is empty, of any.
func Remediation(ctx context.Context, a *inspect.Asker, kind string, key client.ObjectKey) (*Explanation, error) {
	found, err := a.Remediations(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	if kind == "" {
		kind = "Metal3Remediation or HostRemediation"
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no %s %s in namespace %s, or none that asks for anything", kind, key.Name, key.Namespace)
	}
	e := &Explanation{Subject: found[0].Ref, At: a.Now, Remediations: found, Notes: notes(a), Verdict: found[0].Text, Next: found[0].Next}
	for _, f := range []Fact{{"machine", found[0].Machine.Name}, {"node", found[0].Node}, {"host", found[0].Host}} {
		if f.Value != "" {
			e.Is = append(e.Is, f)
		}
	}
	return e, nil
}
