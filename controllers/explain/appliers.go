package explain

import (
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Applier is a tool that applies an object from elsewhere, as the object's labels and annotations say.
type Applier struct {
	Tool string
	// From names what the tool applies the object from; empty if that is not known.
	From string
}

// The tools.
const (
	fluxTool     = "Flux"
	argoTool     = "Argo CD"
	helmTool     = "Helm"
	topologyTool = "the topology controller of Cluster API"
	someTool     = "a tool such as Argo CD"
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

// String is the tool, and what it applies the object from.
func (a Applier) String() string {
	if a.From == "" {
		return a.Tool
	}
	return a.Tool + " (" + a.From + ")"
}

// AppliersOf are the tools that apply an object.
func AppliersOf(o metav1.Object) []Applier {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	var all []Applier
	add := func(tool, kind, namespace, name string) {
		if name != "" {
			all = append(all, Applier{Tool: tool, From: from(kind, namespace, name)})
		}
	}
	add(fluxTool, "Kustomization", labels[fluxKustomization+"namespace"], labels[fluxKustomization+"name"])
	add(fluxTool, "HelmRelease", labels[fluxHelmRelease+"namespace"], labels[fluxHelmRelease+"name"])
	application, _, _ := strings.Cut(annotations[argoTracking], ":")
	if application == "" {
		application = labels[argoInstance]
	}
	add(argoTool, "Application", "", application)
	if labels[fluxHelmRelease+"name"] == "" { // which is a release of Helm as well
		release := annotations[helmRelease+"name"]
		add(helmTool, "release", annotations[helmRelease+"namespace"], release)
		if release == "" && labels[managedBy] == helmTool {
			all = append(all, Applier{Tool: helmTool})
		}
	}
	if _, owned := labels[clusterv1.ClusterTopologyOwnedLabel]; owned {
		all = append(all, Applier{Tool: topologyTool})
	}
	if len(all) == 0 && labels[managedBy] == "" {
		add(someTool, "instance", "", labels[anyInstance])
	}
	return all
}

// plainName is what may be printed: anybody may write an annotation.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

func from(kind, namespace, name string) string {
	switch {
	case !plainName.MatchString(name):
		return ""
	case plainName.MatchString(namespace):
		return kind + " " + namespace + "/" + name
	}
	return kind + " " + name
}

// How a claim is written in Git: on a check, and on a Cluster for all its checks.
const (
	claimLine = clusterv1.PausedAnnotation + ": " + mendv1.Claim
	claimAll  = mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct
)

// claimInGit is what a user has to do where a tool applies the check that is claimed.
func (a Applier) claimInGit(check *clusterv1.MachineHealthCheck) string {
	if a.Tool == topologyTool {
		return fmt.Sprintf("%s makes the check, and when it makes it anew there is no claim: give Cluster %s the label %s, in Git too, and kubemend claims "+
			"all its checks", a, check.Spec.ClusterName, claimAll)
	}
	return fmt.Sprintf("%s applies the check, and leaves the claim alone as long as Git says nothing of the annotation: put %s into "+
		"metadata.annotations there, and a check that is made anew is claimed too", a, claimLine)
}

// releaseInGit is what a user has to do where a tool applies the check that is released; empty if nothing.
func (a Applier) releaseInGit() string {
	if a.Tool == topologyTool {
		return ""
	}
	return fmt.Sprintf("%s applies the check: if Git has the annotation %s, remove it there, or it is written again", a, clusterv1.PausedAnnotation)
}

// ClaimEnds is why the claim of a check, which that field manager wrote, will not last, and what to do; empty if it will.
func ClaimEnds(check *clusterv1.MachineHealthCheck, writer string) string {
	if check.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim || !takenByFlux(check, writer) {
		return ""
	}
	return fmt.Sprintf("%s removes the claim at its next reconcile, since it was written as %s: put %s into metadata.annotations in Git, or release the check "+
		"and claim it again with kubectl mend", AppliersOf(check)[0], writer, claimLine)
}

// ClaimsEnd says of how many checks Flux removes the claim; first is one of them.
func ClaimsEnd(n int, first Ref) string {
	claims := "claims of %d checks"
	if n == 1 {
		claims = "claim of %d check"
	}
	return fmt.Sprintf("Flux removes the "+claims+" at its next reconcile; what to do says kubectl mend explain mhc/%s -n %s", n, first.Name, first.Namespace)
}

// takenByFlux reports whether Flux takes what that field manager wrote on an object for its own, and removes it if Git says nothing of it.
func takenByFlux(o metav1.Object, writer string) bool {
	const taken = "kubectl" // at the beginning of the names whose fields it takes
	return strings.HasPrefix(writer, taken) && o.GetLabels()[fluxKustomization+"name"] != ""
}

// LabelInGit is what a user has to do in Git where tools apply the object whose label claims checks, as clauses. The label is written now, or removed.
func LabelInGit(o metav1.Object, kind string, release bool) []string {
	appliers := AppliersOf(o)
	all := make([]string, 0, len(appliers))
	for _, a := range appliers {
		if release {
			all = append(all, fmt.Sprintf("%s applies the %s: if Git has the label %s, remove it there, or it is written again", a, kind, mendv1.ClaimLabel))
			continue
		}
		all = append(all, fmt.Sprintf("%s applies the %s, and leaves the label alone as long as Git says nothing of it: put %s into metadata.labels there, "+
			"and a %s that is made anew has it too", a, kind, claimAll, kind))
	}
	return all
}

// LabelEnds is why the label of an object, which that field manager wrote, will not last, and what to do; empty if it will.
func LabelEnds(o metav1.Object, writer string) string {
	if !takenByFlux(o, writer) {
		return ""
	}
	return fmt.Sprintf("%s removes it at its next reconcile, since it was written as %s: put it into metadata.labels in Git", AppliersOf(o)[0], writer)
}
