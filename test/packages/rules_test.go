package packages

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	namespace    = "kubemend-system"
	injectCAFrom = "cert-manager.io/inject-ca-from"
	moveLabel    = "clusterctl.cluster.x-k8s.io/move"
)

// rules apply to every package, whichever tool renders it. A rule returns what is wrong.
var rules = map[string]func(*testing.T, []object) []string{
	"every object has kubemend's labels":                            labelled,
	"the manager is a Deployment that clusterctl and Tilt know":     oneManager,
	"the manager has no more power over its node than it needs":     secured,
	"the loss of a replica is harmless":                             redundant,
	"the manager knows every flag that it is given":                 knownFlags,
	"selectors select the manager":                                  selectedManager,
	"webhooks are answered, and their certificates can be verified": answeredWebhooks,
	"kinds of several versions are converted":                       convertedKinds,
	"templates move with their cluster":                             movedTemplates,
	"clusterctl discovers the kinds that move":                      discoveredKinds,
	"what kubemend remembers is protected":                          protectedMemory,
}

func labelled(_ *testing.T, all []object) []string {
	var found []string
	for i := range all {
		if got := all[i].GetLabels()["cluster.x-k8s.io/provider"]; got != "addon-kubemend" {
			found = append(found, fmt.Sprintf("%s: provider %q", id(&all[i]), got))
		}
	}
	return found
}

// manager returns the only Deployment and its only container "manager"; nil for what does not exist.
func manager(t *testing.T, all []object) (*appsv1.Deployment, *corev1.Container) {
	t.Helper()
	deployments := ofKind(all, "Deployment")
	if len(deployments) != 1 {
		return nil, nil
	}
	d := as[appsv1.Deployment](t, deployments[0])
	if c := d.Spec.Template.Spec.Containers; len(c) == 1 && c[0].Name == "manager" {
		return d, &c[0]
	}
	return d, nil
}

func oneManager(t *testing.T, all []object) []string {
	d, c := manager(t, all)
	if c == nil {
		return []string{"there is no Deployment with just one container, named manager"}
	}
	var found []string
	if image, _, _ := strings.Cut(c.Image, ":"); image != tiltProvider(t).Config.Image {
		found = append(found, fmt.Sprintf("the image is %s, and for Tilt %s", image, tiltProvider(t).Config.Image))
	}
	if d.Name != "kubemend-controller-manager" {
		found = append(found, fmt.Sprintf("the Deployment is %s, and in the documentation kubemend-controller-manager", d.Name))
	}
	if !slices.Equal(c.Command, []string{"/manager"}) {
		found = append(found, fmt.Sprintf("the command is %q, and in the image /manager", c.Command))
	}
	if account := d.Spec.Template.Spec.ServiceAccountName; account != "kubemend-manager" {
		found = append(found, "it runs as "+account+", and kubemend-manager has the rights")
	}
	return found
}

func secured(t *testing.T, all []object) []string {
	d, c := manager(t, all)
	if c == nil || c.SecurityContext == nil || d.Spec.Template.Spec.SecurityContext == nil {
		return []string{"there is no security context"}
	}
	pod, own := d.Spec.Template.Spec, c.SecurityContext
	hostPath := func(v corev1.Volume) bool { return v.HostPath != nil }
	return broken(map[string]bool{
		// the image sets a non-root user; OpenShift chooses another one
		"runs as root": !ptr.Deref(own.RunAsNonRoot, false) || !ptr.Deref(pod.SecurityContext.RunAsNonRoot, false) ||
			own.RunAsUser != nil,
		"writes to its root file system": !ptr.Deref(own.ReadOnlyRootFilesystem, false),
		"gains privileges":               ptr.Deref(own.AllowPrivilegeEscalation, true) || ptr.Deref(own.Privileged, false),
		"keeps capabilities": own.Capabilities == nil || !slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			len(own.Capabilities.Add) > 0,
		"calls the kernel without seccomp": pod.SecurityContext.SeccompProfile == nil ||
			pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault,
		"shares something with its node": pod.HostNetwork || pod.HostPID || pod.HostIPC || slices.ContainsFunc(pod.Volumes, hostPath),
		"asks for no resources":          c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero(),
	})
}

func broken(faults map[string]bool) []string {
	maps.DeleteFunc(faults, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(faults))
}

func redundant(t *testing.T, all []object) []string {
	d, c := manager(t, all)
	if c == nil {
		return []string{"there is no manager"}
	}
	pod := d.Spec.Template.Spec
	return broken(map[string]bool{
		"there is one replica":    ptr.Deref(d.Spec.Replicas, 1) < 2,
		"all replicas act":        flags(c)["leader-elect"] != "true",
		"replicas are not spread": len(pod.TopologySpreadConstraints) == 0,
		"control-plane nodes are shunned": !slices.ContainsFunc(pod.Tolerations,
			func(t corev1.Toleration) bool { return t.Key == "node-role.kubernetes.io/control-plane" }),
		"drains may evict all at once":     len(ofKind(all, "PodDisruptionBudget")) != 1,
		"it has no probes":                 c.LivenessProbe == nil || c.ReadinessProbe == nil,
		"it yields to everything else":     pod.PriorityClassName == "",
		"it is killed before it has ended": ptr.Deref(pod.TerminationGracePeriodSeconds, 30) <= 30,
	})
}

// flags returns the flags of the container. A flag without a value is "true".
func flags(c *corev1.Container) map[string]string {
	given := map[string]string{}
	for _, arg := range c.Args {
		name, value, has := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !has {
			value = "true"
		}
		given[name] = value
	}
	return given
}

func knownFlags(t *testing.T, all []object) []string {
	_, c := manager(t, all)
	if c == nil {
		return []string{"there is no manager"}
	}
	var found []string
	known := programFlags(t)
	for _, arg := range c.Args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if _, is := known[name]; !is || !strings.HasPrefix(arg, "--") {
			found = append(found, arg+" is no flag of the manager")
		}
	}
	if !slices.IsSorted(c.Args) {
		found = append(found, "the flags are not sorted")
	}
	for flag, port := range map[string]string{"webhook-port": "webhook", "diagnostics-address": "metrics", "health-addr": "health"} {
		want := path.Base(strings.ReplaceAll(cmp.Or(flags(c)[flag], known[flag]), ":", "/"))
		if !slices.ContainsFunc(c.Ports,
			func(p corev1.ContainerPort) bool { return p.Name == port && fmt.Sprint(p.ContainerPort) == want }) {
			found = append(found, fmt.Sprintf("there is no port %s, %s, where --%s listens", port, want, flag))
		}
	}
	mounted := slices.ContainsFunc(c.VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.MountPath == flags(c)["webhook-cert-dir"] && m.ReadOnly })
	if !mounted {
		found = append(found, "--webhook-cert-dir is no folder that is mounted")
	}
	return found
}

func selectedManager(t *testing.T, all []object) []string {
	d, c := manager(t, all)
	if c == nil {
		return []string{"there is no manager"}
	}
	pod := labels.Set(d.Spec.Template.Labels)
	selectors := map[string]map[string]string{id(ofKind(all, "Deployment")[0]): d.Spec.Selector.MatchLabels}
	for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
		selectors["spread over "+s.TopologyKey] = s.LabelSelector.MatchLabels
	}
	for _, o := range ofKind(all, "PodDisruptionBudget") {
		selectors[id(o)] = as[policyv1.PodDisruptionBudget](t, o).Spec.Selector.MatchLabels
	}
	var ports []string
	for _, o := range ofKind(all, "NetworkPolicy") {
		p := as[networkingv1.NetworkPolicy](t, o)
		selectors[id(o)] = p.Spec.PodSelector.MatchLabels
		for _, from := range p.Spec.Ingress {
			for _, port := range from.Ports {
				ports = append(ports, port.Port.String())
			}
		}
	}
	for _, o := range ofKind(all, "Service") {
		s := as[corev1.Service](t, o)
		selectors[id(o)] = s.Spec.Selector
		ports = append(ports, s.Spec.Ports[0].TargetPort.String())
	}
	var found []string
	for of, selector := range selectors {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pod) {
			found = append(found, of+" selects other pods")
		}
	}
	for _, port := range ports {
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
			found = append(found, "the container has no port "+port)
		}
	}
	return found
}

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

// webhooks returns the webhooks of every configuration. MutatingWebhook has all fields of ValidatingWebhook.
func webhooks(t *testing.T, all []object) map[*object][]admissionv1.MutatingWebhook {
	t.Helper()
	found := map[*object][]admissionv1.MutatingWebhook{}
	for _, o := range slices.Concat(ofKind(all, "MutatingWebhookConfiguration"), ofKind(all, "ValidatingWebhookConfiguration")) {
		found[o] = as[admissionv1.MutatingWebhookConfiguration](t, o).Webhooks
	}
	return found
}

// unanswered returns why the API server could not reach the Service or not verify its certificate.
func unanswered(t *testing.T, all []object, o *object, serviceNamespace, service string) []string {
	t.Helper()
	var found []string
	if !slices.ContainsFunc(ofKind(all, "Service"),
		func(s *object) bool { return s.GetNamespace() == serviceNamespace && s.GetName() == service }) {
		found = append(found, fmt.Sprintf("%s: there is no Service %s/%s", id(o), serviceNamespace, service))
	}
	d, _ := manager(t, all)
	for _, c := range ofKind(all, "Certificate") {
		names, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "dnsNames")
		secret, _, _ := unstructured.NestedString(c.Object, "spec", "secretName")
		issuer, _, _ := unstructured.NestedString(c.Object, "spec", "issuerRef", "name")
		mounted := d != nil && slices.ContainsFunc(d.Spec.Template.Spec.Volumes,
			func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret })
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

// movedTemplates: templates, policies and overrides have no owner, so clusterctl move moves them only if their CRD has this label.
func movedTemplates(_ *testing.T, all []object) []string {
	var found []string
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		_, moved := o.GetLabels()[moveLabel]
		ownerless := strings.Contains(o.GetName(), "templates.") || strings.HasPrefix(o.GetName(), "remediationpolic") ||
			strings.HasPrefix(o.GetName(), "remediationoverride")
		if moved != ownerless {
			found = append(found, fmt.Sprintf("%s: moved: %t", id(o), moved))
		}
	}
	return found
}

// discoveredKinds: clusterctl move looks only for kinds whose CRD has this label, and clusterctl adds the label only to what it installs.
// Without the label, requests and templates stay behind, and a request cannot block the move. Cluster-scoped objects belong to the
// management cluster and must stay there.
func discoveredKinds(t *testing.T, all []object) []string {
	t.Helper()
	var found []string
	for _, o := range ofKind(all, "CustomResourceDefinition") {
		_, discovered := o.GetLabels()[clusterctlv1.ClusterctlLabel]
		scope := as[apiextensionsv1.CustomResourceDefinition](t, o).Spec.Scope
		if discovered != (scope == apiextensionsv1.NamespaceScoped) {
			found = append(found, fmt.Sprintf("%s: scope %s, discovered by clusterctl: %t", id(o), scope, discovered))
		}
	}
	return found
}

// protectedMemory: only kubemend may write the annotations in which it stores its progress. A policy without a binding has no effect.
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
