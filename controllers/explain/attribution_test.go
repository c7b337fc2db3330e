package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
