package explain

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestToolsAreKnownByWhatTheyWriteOnAnObject(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		want                string
	}{
		"an object that no tool applies has none": {labels: map[string]string{"app.kubernetes.io/managed-by": "somebody", "app.kubernetes.io/instance": "shop"}},
		"a Kustomization of Flux": {
			labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
			want:   "Flux (Kustomization flux-system/fleet)",
		},
		"a HelmRelease of Flux is no release besides": {
			labels:      map[string]string{"helm.toolkit.fluxcd.io/name": "fleet", "helm.toolkit.fluxcd.io/namespace": "flux-system", "app.kubernetes.io/managed-by": "Helm"},
			annotations: map[string]string{"meta.helm.sh/release-name": "fleet", "meta.helm.sh/release-namespace": "metal"},
			want:        "Flux (HelmRelease flux-system/fleet)",
		},
		"an Application of Argo CD, by its annotation": {
			annotations: map[string]string{"argocd.argoproj.io/tracking-id": "fleet:cluster.x-k8s.io/MachineHealthCheck:metal/workers"}, want: "Argo CD (Application fleet)",
		},
		"an Application of Argo CD, by its label": {labels: map[string]string{"argocd.argoproj.io/instance": "fleet"}, want: "Argo CD (Application fleet)"},
		"a release of Helm": {
			labels:      map[string]string{"app.kubernetes.io/managed-by": "Helm"},
			annotations: map[string]string{"meta.helm.sh/release-name": "fleet", "meta.helm.sh/release-namespace": "metal"}, want: "Helm (release metal/fleet)",
		},
		"what says no more than Helm":                  {labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}, want: "Helm"},
		"a topology, whose label has no value":         {labels: map[string]string{"topology.cluster.x-k8s.io/owned": ""}, want: "the topology controller of Cluster API"},
		"a name that would spoil a screen is left out": {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "\x1b[2J:a/b:c/d"}, want: "Argo CD"},
		"and one whose namespace would has no such":    {annotations: map[string]string{"meta.helm.sh/release-name": "a", "meta.helm.sh/release-namespace": "\n"}, want: "Helm (release a)"},
		"a label that Argo CD writes, and others":      {labels: map[string]string{"app.kubernetes.io/instance": "fleet"}, want: "a tool such as Argo CD (instance fleet)"},
		"several tools": {
			labels:      map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"},
			annotations: map[string]string{"argocd.argoproj.io/tracking-id": "fleet:a/b:c/d"}, want: "Flux (Kustomization fleet), Argo CD (Application fleet)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			check := &clusterv1.MachineHealthCheck{}
			check.Labels, check.Annotations = tc.labels, tc.annotations
			var got []string
			for _, a := range AppliersOf(check) {
				got = append(got, a.String())
			}
			if strings.Join(got, ", ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOnlyFluxEndsAClaimAndOnlyOneUnderAKubectlName(t *testing.T) {
	flux := map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"}
	for name, tc := range map[string]struct {
		labels         map[string]string
		writer, paused string
		ends           bool
	}{
		"by kubectl annotate":          {flux, "kubectl-annotate", mendv1.Claim, true},
		"by an older kubectl mend":     {flux, "kubectl-mend", mendv1.Claim, true},
		"by kubectl mend":              {flux, mendv1.CommandLineFieldOwner, mendv1.Claim, false},
		"from Git":                     {flux, "kustomize-controller", mendv1.Claim, false},
		"without Flux":                 {nil, "kubectl-annotate", mendv1.Claim, false},
		"a pause is no claim":          {flux, "kubectl-annotate", "true", false},
		"its writer may not be known":  {flux, "", mendv1.Claim, false},
		"no HelmRelease takes it over": {map[string]string{"helm.toolkit.fluxcd.io/name": "fleet"}, "kubectl-annotate", mendv1.Claim, false},
	} {
		t.Run(name, func(t *testing.T) {
			check := &clusterv1.MachineHealthCheck{}
			check.Labels, check.Annotations = tc.labels, map[string]string{clusterv1.PausedAnnotation: tc.paused}
			if got := ClaimEnds(check, tc.writer); (got != "") != tc.ends {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestOfTheLabelItIsSaidWhatBelongsIntoGit(t *testing.T) {
	flux := map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for name, tc := range map[string]struct {
		labels  map[string]string
		release bool
		want    string
	}{
		"nothing if no tool applies the object": {},
		"what Flux leaves alone": {labels: flux, want: "Flux (Kustomization flux-system/fleet) applies the Cluster, and leaves the label alone as long as Git says " +
			"nothing of it: put kubemend.io/machine-health-checks: act into metadata.labels there, and a Cluster that is made anew has it too"},
		"what is written again": {labels: flux, release: true, want: "Flux (Kustomization flux-system/fleet) applies the Cluster: if Git has the label " +
			"kubemend.io/machine-health-checks, remove it there, or it is written again"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{}
			cluster.Labels = tc.labels
			if got := strings.Join(LabelInGit(cluster, "Cluster", tc.release), "|"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFluxEndsALabelUnderAKubectlName(t *testing.T) {
	cluster := &clusterv1.Cluster{}
	if got := LabelEnds(cluster, "kubectl-label"); got != "" {
		t.Errorf("without Flux: %q", got)
	}
	cluster.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"}
	if got := LabelEnds(cluster, mendv1.CommandLineFieldOwner); got != "" {
		t.Errorf("by kubectl mend: %q", got)
	}
	if got := LabelEnds(cluster, "kubectl-label"); !strings.HasPrefix(got, "Flux (Kustomization fleet) removes it at its next reconcile") {
		t.Errorf("by kubectl label: %q", got)
	}
}
