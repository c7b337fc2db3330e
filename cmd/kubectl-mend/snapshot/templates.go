package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// named are the kinds of templates that the checks name with the requests that are made from them, and the requests of former templates: of every
// kind of remediation that has a template. What was tried to be read before is not read again.
func (r *reading) named() []query {
	kinds := naming{}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		namespace := r.Namespace
		if !r.reads(client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}) {
			namespace = check.Namespace
		}
		if ref := check.Spec.Remediation.TemplateRef; ref.IsDefined() {
			kinds.add(remediationrequest.TemplateKind(ref), namespace, false)
		}
	}
	for _, check := range All[nhcv1.NodeHealthCheck](r.snapshot, "") {
		for _, ref := range templatesOf(check) {
			kinds.add(ref.GroupVersionKind(), ref.Namespace, true)
		}
	}
	for _, ref := range r.Templates {
		kinds.add(ref.GroupVersionKind(), ref.Namespace, ref.Namespace != r.Namespace)
	}
	for gk, res := range r.served {
		template := schema.GroupKind{Group: gk.Group, Kind: gk.Kind + remediationrequest.TemplateSuffix}
		if _, templated := r.served[template]; templated && strings.HasSuffix(gk.Kind, "Remediation") && custom(gk.Group) && res.namespaced {
			kinds.add(template.WithVersion(res.versions[0]), r.Namespace, false)
		}
	}
	return r.untried(kinds)
}

// untried are the queries for kinds that were not tried to be read before, in a stable order.
func (r *reading) untried(kinds naming) []query {
	queries := make([]query, 0, len(kinds))
	for _, gk := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }) {
		q := *kinds[gk]
		slices.Sort(q.instead)
		q.instead = slices.DeleteFunc(slices.Compact(q.instead), func(namespace string) bool { return namespace == "" || r.done(gk, namespace) })
		if !r.done(gk, q.namespace) {
			queries = append(queries, q)
		}
	}
	return queries
}

// naming are the kinds that checks name, and where they are to be read.
type naming map[schema.GroupKind]*query

// add adds the kind of a template, and that of the requests made from it: in one namespace, or everywhere. Where not everything
// may be read it is the namespaces that were named.
func (n naming) add(template schema.GroupVersionKind, namespace string, everywhere bool) {
	if remediationrequest.Refusal(template) != nil {
		return // the controllers read no objects of such a kind
	}
	for _, gvk := range []schema.GroupVersionKind{template, remediationrequest.KindOf(template)} {
		q := n[gvk.GroupKind()]
		if q == nil {
			q = &query{gvk: gvk, namespace: namespace, anyVersion: true}
			n[gvk.GroupKind()] = q
		}
		if everywhere || q.namespace != namespace {
			q.namespace = ""
		}
		q.instead = append(q.instead, namespace)
	}
}

// templatesOf are the templates that a check names, and the kinds of requests that its status lists, as if there were a template of each.
func templatesOf(check *nhcv1.NodeHealthCheck) []corev1.ObjectReference {
	refs := TemplatesOf(&check.Spec)
	for i := range check.Status.UnhealthyNodes {
		for _, was := range check.Status.UnhealthyNodes[i].Remediations {
			ref := was.Resource
			ref.Kind += remediationrequest.TemplateSuffix
			refs = append(refs, ref)
		}
	}
	return refs
}

// TemplatesOf are the templates that a NodeHealthCheck names.
func TemplatesOf(spec *nhcv1.NodeHealthCheckSpec) []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	if spec.RemediationTemplate != nil {
		refs = append(refs, *spec.RemediationTemplate)
	}
	for i := range spec.EscalatingRemediations {
		refs = append(refs, spec.EscalatingRemediations[i].RemediationTemplate)
	}
	return refs
}
