package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// What is refused, in the words of medik8s.
const (
	selectorProhibited = "selector update prohibited due to running remediation"
	templateProhibited = "remediation template update prohibited due to running remediation"
	ladderProhibited   = "escalating remediations update prohibited due to running remediation"
	deletionProhibited = "deletion prohibited due to running remediation"
	invalidSelector    = "Invalid selector: %v"
	duplicateKind      = "Using multiple templates of same kind is not supported for this template: duplicate template kind: %s"
	wrongTopology      = "Unsupported control plane topology"
)

// topologies are the control planes of OpenShift whose nodes may be remediated. (medik8s, reference 1.4.)
var topologies = []string{"HighlyAvailable", "SingleReplica", "HighlyAvailableArbiter", "External"}

// change is what a write changes of the fields that depend on other objects. Changes of all others are judged by the schema alone.
type change struct{ selector, template, ladder bool }

func changeOf(was, is *nhcv1.NodeHealthCheckSpec) change {
	return change{
		selector: !equality.Semantic.DeepEqual(was.Selector, is.Selector),
		template: !equality.Semantic.DeepEqual(was.RemediationTemplate, is.RemediationTemplate),
		ladder:   !equality.Semantic.DeepEqual(inOrder(was.EscalatingRemediations), inOrder(is.EscalatingRemediations)),
	}
}

// inOrder sorts steps as they are taken. Where they stand in the list means nothing.
func inOrder(steps []nhcv1.EscalatingRemediation) []nhcv1.EscalatingRemediation {
	return slices.SortedStableFunc(slices.Values(steps), func(a, b nhcv1.EscalatingRemediation) int { return a.Order - b.Order })
}

// facts are what a refusal depends on besides the check. What was not needed, or could not be found out, is the zero value.
type facts struct {
	// remediating are the requests that the check has made and that still exist, each with its node.
	remediating []string
	// topology is that of the control plane on OpenShift, and nil elsewhere.
	topology *string
	// alone are the kinds of templates that are named more than once, and of which there may be only one.
	alone []string
}

// refusals are the reasons for which a write is refused.
func refusals(spec *nhcv1.NodeHealthCheckSpec, c change, f facts) []string {
	var reasons []string
	if c.selector {
		if _, err := metav1.LabelSelectorAsSelector(&spec.Selector); err != nil {
			reasons = append(reasons, fmt.Sprintf(invalidSelector, err))
		}
	}
	for _, kind := range f.alone {
		reasons = append(reasons, fmt.Sprintf(duplicateKind, kind))
	}
	if f.topology != nil && !slices.Contains(topologies, *f.topology) {
		reasons = append(reasons, wrongTopology)
	}
	if len(f.remediating) == 0 {
		return reasons
	}
	for _, prohibited := range []struct {
		changed bool
		reason  string
	}{{c.selector, selectorProhibited}, {c.template, templateProhibited}, {c.ladder, ladderProhibited}} {
		if prohibited.changed {
			reasons = append(reasons, during(prohibited.reason, f.remediating))
		}
	}
	return reasons
}

// during is a prohibition that names what is running: the first few, since there may be as many as nodes.
func during(prohibition string, running []string) string {
	const few = 3
	text := prohibition + ": " + strings.Join(running[:min(few, len(running))], ", ")
	if more := len(running) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// repeated are the kinds of templates that more than one step uses, in the order of the list and the version of the first. A kind is one
// of its group: templates that share no more than the name of their kind have different remediators.
func repeated(steps []nhcv1.EscalatingRemediation) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	seen := map[schema.GroupKind][]schema.GroupVersionKind{}
	for i := range steps {
		kind := steps[i].RemediationTemplate.GroupVersionKind()
		seen[kind.GroupKind()] = append(seen[kind.GroupKind()], kind)
		if same := seen[kind.GroupKind()]; len(same) == 2 {
			kinds = append(kinds, same[0])
		}
	}
	return kinds
}

// place is where requests of one kind are; the namespace is empty if the kind has none.
type place struct {
	kind      schema.GroupVersionKind
	namespace string
}

// listing is a request that a status lists.
type listing struct {
	node string
	ref  corev1.ObjectReference
}

func (l listing) String() string {
	name := l.ref.Name
	if l.ref.Namespace != "" {
		name = l.ref.Namespace + "/" + name
	}
	return fmt.Sprintf("%s (%s %s)", l.node, l.ref.Kind, name)
}

// listed are the requests of a status by place. Left out is what names no kind or no object, since there can be no such request.
func listed(status *nhcv1.NodeHealthCheckStatus) map[place][]listing {
	requests := map[place][]listing{}
	for i := range status.UnhealthyNodes {
		for _, r := range status.UnhealthyNodes[i].Remediations {
			kind := r.Resource.GroupVersionKind()
			if kind.Kind == "" || kind.Version == "" || r.Resource.Name == "" {
				continue
			}
			at := place{kind, r.Resource.Namespace}
			requests[at] = append(requests[at], listing{status.UnhealthyNodes[i].Name, r.Resource})
		}
	}
	return requests
}

// same reports whether an object is the one that a reference names. A reference without a UID names whatever has its name.
func same(o metav1.Object, ref corev1.ObjectReference) bool {
	if ref.UID == "" {
		return o.GetName() == ref.Name
	}
	return o.GetUID() == ref.UID
}
