package explain

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Attribution is who asked for something with `kubectl mend`, when and why, by an annotation. A user who may write the object can forge it.
type Attribution struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// longestAttribution is how many bytes of a name, and of a reason, are shown at most.
const longestAttribution = 512

// AttributionOf returns what an annotation of o says; false if o does not have it, or if it names no user.
func AttributionOf(o metav1.Object, annotation string) (Attribution, bool) {
	var a Attribution
	if json.Unmarshal([]byte(o.GetAnnotations()[annotation]), &a) != nil || a.By == "" {
		return Attribution{}, false
	}
	a.By, a.Reason = health.Short(a.By, longestAttribution), health.Short(a.Reason, longestAttribution)
	return a, true
}

// Text returns who, when and why: "by alice at 2026-01-01T12:00:00Z: the NIC drops packets".
func (a Attribution) Text() string {
	text := "by " + a.By
	if !a.At.IsZero() {
		text += " at " + stamp(a.At)
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

// Attributions returns who asked with `kubectl mend` for something about o.
func Attributions(o metav1.Object) []cliv1.Fact {
	var facts []cliv1.Fact
	for _, annotated := range []cliv1.Fact{
		{Name: "remediation requested", Value: mendv1.RequestedAnnotation}, {Name: "reset", Value: mendv1.ResetAnnotation},
	} {
		if by, has := AttributionOf(o, annotated.Value); has {
			facts = append(facts, cliv1.Fact{Name: annotated.Name, Value: by.Text()})
		}
	}
	return facts
}

// Note returns the text of an event about what a user did: "reset by alice: the NIC drops packets".
func (a Attribution) Note(did string) string { return joined(": ", did+" by "+a.By, a.Reason) }

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// appliers are the labels and annotations that tools write on the objects that they apply.
var appliers = []struct{ key, tool string }{
	{"kustomize.toolkit.fluxcd.io/name", "Flux"},
	{"helm.toolkit.fluxcd.io/name", "Flux"},
	{"argocd.argoproj.io/tracking-id", "Argo CD"},
	{"argocd.argoproj.io/instance", "Argo CD"},
	{"meta.helm.sh/release-name", "Helm"},
	{clusterv1.ClusterTopologyOwnedLabel, "the topology controller of Cluster API"},
}

// AppliersOf returns the tools that apply an object, according to its labels and annotations.
func AppliersOf(o metav1.Object) []string {
	var found []string
	for _, applier := range appliers {
		_, annotated := o.GetAnnotations()[applier.key]
		_, labelled := o.GetLabels()[applier.key]
		if (annotated || labelled) && !slices.Contains(found, applier.tool) {
			found = append(found, applier.tool)
		}
	}
	return found
}
