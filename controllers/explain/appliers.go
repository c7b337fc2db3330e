package explain

import (
	"cmp"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// appliers are what tools write on what they apply, as labels or annotations with the name of what they apply it from.
var appliers = []struct{ key, tool, kind string }{
	{"kustomize.toolkit.fluxcd.io/name", "Flux", "Kustomization"},
	{"helm.toolkit.fluxcd.io/name", "Flux", "HelmRelease"},
	{"argocd.argoproj.io/tracking-id", "Argo CD", "Application"}, // application:group/kind:namespace/name
	{"argocd.argoproj.io/instance", "Argo CD", "Application"},
	{"meta.helm.sh/release-name", "Helm", "release"},
	{clusterv1.ClusterTopologyOwnedLabel, "the topology controller of Cluster API", ""},
}

// plainName is what may be printed: anybody may write an annotation.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// AppliersOf are the tools that apply an object, as its labels and annotations say, each with what it applies the object from.
func AppliersOf(o metav1.Object) []string {
	var found []string
	for _, applier := range appliers {
		annotation, annotated := o.GetAnnotations()[applier.key]
		label, labelled := o.GetLabels()[applier.key]
		if !annotated && !labelled {
			continue
		}
		text, name := applier.tool, cmp.Or(annotation, label)
		name, _, _ = strings.Cut(name, ":")
		if applier.kind != "" && plainName.MatchString(name) {
			text += " (" + applier.kind + " " + name + ")"
		}
		found = append(found, text)
	}
	return found
}
