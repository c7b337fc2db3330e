package explain

import (
	"cmp"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// What the tools write on what they apply.
const (
	fluxKustomization = "kustomize.toolkit.fluxcd.io/"
	fluxHelmRelease   = "helm.toolkit.fluxcd.io/"
	argoTracking      = "argocd.argoproj.io/tracking-id" // application:group/kind:namespace/name
	argoInstance      = "argocd.argoproj.io/instance"
	helmRelease       = "meta.helm.sh/release-"
	managedBy         = "app.kubernetes.io/managed-by"
	anyInstance       = "app.kubernetes.io/instance" // the default of Argo CD before v3, and of others
)

// AppliersOf are the tools that apply an object, as its labels and annotations say, each with what it applies the object from.
func AppliersOf(o metav1.Object) []string {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	var appliers []string
	add := func(tool, kind, namespace, name string) {
		if name != "" {
			appliers = append(appliers, tool+source(kind, namespace, name))
		}
	}
	add("Flux", "Kustomization", labels[fluxKustomization+"namespace"], labels[fluxKustomization+"name"])
	add("Flux", "HelmRelease", labels[fluxHelmRelease+"namespace"], labels[fluxHelmRelease+"name"])
	application, _, _ := strings.Cut(annotations[argoTracking], ":")
	add("Argo CD", "Application", "", cmp.Or(application, labels[argoInstance]))
	if labels[fluxHelmRelease+"name"] == "" { // a HelmRelease of Flux is a release of Helm as well
		release := annotations[helmRelease+"name"]
		add("Helm", "release", annotations[helmRelease+"namespace"], release)
		if release == "" && labels[managedBy] == "Helm" {
			appliers = append(appliers, "Helm")
		}
	}
	if _, owned := labels[clusterv1.ClusterTopologyOwnedLabel]; owned {
		appliers = append(appliers, "the topology controller of Cluster API")
	}
	if len(appliers) == 0 && labels[managedBy] == "" {
		add("a tool such as Argo CD", "instance", "", labels[anyInstance])
	}
	return appliers
}

// plainName is what may be printed: anybody may write an annotation.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// source names what a tool applies an object from, in parentheses; empty if the name may not be printed.
func source(kind, namespace, name string) string {
	switch {
	case !plainName.MatchString(name):
		return ""
	case plainName.MatchString(namespace):
		return " (" + kind + " " + namespace + "/" + name + ")"
	}
	return " (" + kind + " " + name + ")"
}
