package packages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func answeredWebhooks(t *testing.T, all []object) []string {
	var found []string
	crds := map[string]bool{}
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		crds[o.GetName()] = true
	}
	for o, hooks := range webhooks(t, all) {
		for i := range hooks {
			service := hooks[i].ClientConfig.Service
			found = append(found, unanswered(t, all, o, service.Namespace, service.Name)...)
			for _, r := range hooks[i].Rules {
				if name := r.Resources[0] + "." + r.APIGroups[0]; !crds[name] {
					found = append(found, fmt.Sprintf("%s: %s are not of this package", id(o), name))
				}
			}
		}
	}
	return found
}

// webhooks are those of every configuration. Validating ones have all fields that mutating ones have, but one.
func webhooks(t *testing.T, all []object) map[*object][]admissionv1.MutatingWebhook {
	t.Helper()
	found := map[*object][]admissionv1.MutatingWebhook{}
	for _, o := range slices.Concat(ofKind(all, "MutatingWebhookConfiguration"), ofKind(all, "ValidatingWebhookConfiguration")) {
		found[o] = as[admissionv1.MutatingWebhookConfiguration](t, o).Webhooks
	}
	return found
}

// unanswered says why the API server could not ask the Service, or not trust its answer.
func unanswered(t *testing.T, all []object, o *object, serviceNamespace, service string) []string {
	t.Helper()
	var found []string
	if !slices.ContainsFunc(ofKind(all, "Service"), func(s *object) bool { return s.GetNamespace() == serviceNamespace && s.GetName() == service }) {
		found = append(found, fmt.Sprintf("%s: there is no Service %s/%s", id(o), serviceNamespace, service))
	}
	d, _ := manager(t, all)
	for _, c := range ofKind(all, "Certificate") {
		names, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "dnsNames")
		secret, _, _ := unstructured.NestedString(c.Object, "spec", "secretName")
		issuer, _, _ := unstructured.NestedString(c.Object, "spec", "issuerRef", "name")
		mounted := d != nil && slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret })
		issued := slices.ContainsFunc(ofKind(all, "Issuer"), func(i *object) bool { return i.GetName() == issuer })
		if slices.Contains(names, service+"."+serviceNamespace+".svc") && mounted && issued &&
			o.GetAnnotations()[injectCAFrom] == c.GetNamespace()+"/"+c.GetName() {
			return found
		}
	}
	return append(found, fmt.Sprintf("%s: the Service has no certificate that it trusts", id(o)))
}

func convertedKinds(t *testing.T, all []object) []string {
	var found []string
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		crd := as[apiextensionsv1.CustomResourceDefinition](t, o)
		c := crd.Spec.Conversion
		switch {
		case len(crd.Spec.Versions) == 1:
			if c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
				found = append(found, id(o)+": it has one version, and is converted")
			}
		case c == nil || c.Strategy != apiextensionsv1.WebhookConverter || ptr.Deref(c.Webhook.ClientConfig.Service.Path, "") != "/convert":
			found = append(found, id(o)+": it has several versions, and the manager is not asked to convert them")
		default:
			found = append(found, unanswered(t, all, o, c.Webhook.ClientConfig.Service.Namespace, c.Webhook.ClientConfig.Service.Name)...)
		}
	}
	return found
}

// movedTemplates: nothing owns a template, so clusterctl move takes it along by this label alone.
func movedTemplates(_ *testing.T, all []object) []string {
	var found []string
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		_, moved := o.GetLabels()[moveLabel]
		if moved != strings.Contains(o.GetName(), "templates.") {
			found = append(found, fmt.Sprintf("%s: moved: %t", id(o), moved))
		}
	}
	return found
}

// discoveredKinds: clusterctl move looks for objects of kinds with this label alone, and clusterctl itself adds it only to
// what it installs. Without it requests and their templates stay behind, and the mark by which a request blocks the move is
// not seen. What belongs to no namespace belongs to the management cluster, and stays there.
func discoveredKinds(t *testing.T, all []object) []string {
	t.Helper()
	var found []string
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		_, discovered := o.GetLabels()[clusterctlv1.ClusterctlLabel]
		if scope := as[apiextensionsv1.CustomResourceDefinition](t, o).Spec.Scope; discovered != (scope == apiextensionsv1.NamespaceScoped) {
			found = append(found, fmt.Sprintf("%s: scope %s, discovered by clusterctl: %t", id(o), scope, discovered))
		}
	}
	return found
}

// protectedMemory: only kubemend may write what it remembers in annotations; and a policy without a binding refuses nothing.
func protectedMemory(t *testing.T, all []object) []string {
	t.Helper()
	var found []string
	for _, o := range ofKind(all, "ValidatingAdmissionPolicy") {
		memory := fmt.Sprint(o.Object)
		for _, key := range []string{mendv1.PowerCycleAnnotation, mendv1.RebootedForAnnotation, mendv1.MarkedForAnnotation} {
			if !strings.Contains(memory, "'"+key+"'") {
				found = append(found, fmt.Sprintf("%s does not protect %s", id(o), key))
			}
		}
		for _, b := range ofKind(all, "ValidatingAdmissionPolicyBinding") {
			if as[admissionv1.ValidatingAdmissionPolicyBinding](t, b).Spec.PolicyName == o.GetName() {
				return found
			}
		}
	}
	return append(found, "no policy protects what kubemend remembers")
}
