package explain

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
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

func TestAnAttributionIsReadAsFarAsItIsOne(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat("a", 600)
	for name, tc := range map[string]struct {
		value string
		want  Attribution
		known bool
	}{
		"a whole one":             {`{"by":"alice","at":"2026-01-01T12:00:00Z","reason":"NIC"}`, Attribution{"alice", at, "NIC"}, true},
		"without time and reason": {`{"by":"alice"}`, Attribution{By: "alice"}, true},
		"that names no user":      {`{"reason":"NIC"}`, Attribution{}, false},
		"that is none":            {"alice", Attribution{}, false},
		"that is empty":           {"", Attribution{}, false},
		"that is very long":       {`{"by":"` + long + `"}`, Attribution{By: long[:512] + "..."}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mendv1.RequestedAnnotation: tc.value}}}
			if got, known := AttributionOf(m, mendv1.RequestedAnnotation); got != tc.want || known != tc.known {
				t.Errorf("got %+v, %t; want %+v", got, known, tc.want)
			}
			if facts := Attributions(m); (len(facts) == 1) != tc.known {
				t.Errorf("the facts are %v", facts)
			}
		})
	}
	is := Attribution{"alice", at, "NIC drops packets"}
	if got, want := is.Text(), "by alice at 2026-01-01T12:00:00Z: NIC drops packets"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhyAManagerDoesNotActIsOneClause(t *testing.T) {
	m := managerlease.Manager{
		Namespace: "ns", Gone: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Within: []string{"fleet"}, Unverified: "no", Trouble: "broken",
		Announcement: &managerlease.Announcement{Namespace: "other", WatchFilter: "blue"},
	}
	const another = "start a manager for namespace metal"
	for reason, want := range map[managerlease.OffReason][2]string{
		"": {},
		managerlease.Unbound: {"the lease in ns is not believed, since no binding with the label app.kubernetes.io/name=kubemend binds a ServiceAccount " +
			"kubemend-manager of that namespace to the ClusterRole kubemend-manager-role", "start the manager of kubemend"},
		managerlease.NotRunning:     {"the one in ns is gone since 2026-01-01T12:00:00Z"},
		managerlease.Unverified:     {"whether the lease in ns is a manager's cannot be seen (no)"},
		managerlease.OtherRights:    {"the one in ns has rights in namespace fleet alone", another},
		managerlease.NotUnderstood:  {"what the one in ns says cannot be understood (broken)"},
		managerlease.NotAnnounced:   {"the one in ns is of a release that does not say what it watches"},
		managerlease.OtherNamespace: {"the one in ns watches namespace other alone", another},
		managerlease.OtherLabel: {
			"the one in ns watches only objects with the label cluster.x-k8s.io/watch-filter: blue",
			"give it, or its Cluster, the label cluster.x-k8s.io/watch-filter: blue",
		},
		managerlease.InTeardown: {"the one in ns is in teardown, and starts nothing"},
	} {
		because, fix := managerOff(managerlease.Off{Reason: reason, Manager: m, Namespace: "metal", OrCluster: true})
		if because != want[0] || fix != want[1] {
			t.Errorf("%s: got %q and %q, want %q", reason, because, fix, want)
		}
	}
}

func TestWhyItIsNotKnownWhetherCoreRuns(t *testing.T) {
	in := func(reason managerlease.OffReason) managerlease.Off {
		return managerlease.Off{Reason: reason, Manager: managerlease.Manager{Namespace: "elsewhere", Unverified: "no"}}
	}
	for want, c := range map[string]CoreLease{
		"list the leases controller-leader-election-capi: forbidden":                                                  {Err: errors.New("forbidden")},
		"there is no lease controller-leader-election-capi in any namespace, so it does not run, or elects no leader": {NoLease: true},
		"the lease in elsewhere is not believed, since no binding with the label cluster.x-k8s.io/provider=cluster-api binds a ServiceAccount capi-manager " +
			"of that namespace to the ClusterRole capi-manager-role; whether the lease in elsewhere is core's cannot be seen (no)": {
			Leases: []managerlease.Off{in(managerlease.Unbound), in(managerlease.Unverified)},
		},
	} {
		if got := c.text(); got != want || !c.Unseen() {
			t.Errorf("unseen: %t; got %q, want %q", c.Unseen(), got, want)
		}
	}
}

func TestWhatIsNotKnownOfOtherManagers(t *testing.T) {
	c := Claim{Reason: UnseenManagers, ClaimedCheck: ClaimedCheck{Check: &clusterv1.MachineHealthCheck{}}, Unlisted: Unlisted{Err: errors.New("forbidden"), Usual: true}}
	const want = "it cannot be seen whether a manager of kubemend is there to take it: of other namespaces than kubemend-system: forbidden"
	if got := c.Text(); got != want || !c.Refused() {
		t.Errorf("refused: %t; got %q, want %q", c.Refused(), got, want)
	}
}

func TestAManagerOfWhichNoTimeIsKnownDoesNotRun(t *testing.T) {
	never := managerlease.Manager{Namespace: "never"}
	gone := managerlease.Manager{Namespace: "gone", Gone: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	for name, tc := range map[string]struct {
		managers []managerlease.Manager
		want     string
	}{
		"alone":          {[]managerlease.Manager{never}, "The manager of kubemend in namespace never does not run"},
		"before another": {[]managerlease.Manager{never, gone}, "The manager of kubemend in namespace gone has not run since 2026-01-01T12:00:00Z"},
		"after another":  {[]managerlease.Manager{gone, never}, "The manager of kubemend in namespace gone has not run since 2026-01-01T12:00:00Z"},
	} {
		if because, _ := NoManagerActs(tc.managers, nil); because != tc.want {
			t.Errorf("%s: %q, want %q", name, because, tc.want)
		}
	}
}
