package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestToolsAreKnownByWhatTheyWriteOnAnObject(t *testing.T) {
	for _, tc := range []struct {
		labels, annotations map[string]string
		want                string
	}{
		{labels: map[string]string{"app.kubernetes.io/managed-by": "somebody"}},
		{labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"}, want: "Flux (Kustomization fleet)"},
		{annotations: map[string]string{"argocd.argoproj.io/tracking-id": "fleet:a/b:metal/workers"}, want: "Argo CD (Application fleet)"},
		{labels: map[string]string{"topology.cluster.x-k8s.io/owned": ""}, want: "the topology controller of Cluster API"},
		{annotations: map[string]string{"argocd.argoproj.io/tracking-id": "\x1b[2J:a/b:c/d"}, want: "Argo CD"}, // it would spoil a screen
		{
			labels:      map[string]string{"helm.toolkit.fluxcd.io/name": "fleet"},
			annotations: map[string]string{"meta.helm.sh/release-name": "fleet"}, want: "Flux (HelmRelease fleet), Helm (release fleet)",
		},
	} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
		if got := strings.Join(AppliersOf(check), ", "); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
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
