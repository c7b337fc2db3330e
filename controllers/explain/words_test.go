package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestASentenceGoesOnInAnotherOne(t *testing.T) {
	for sentence, want := range map[string]string{
		"":                            "",
		"The check is being deleted":  "the check is being deleted",
		"No request can be made":      "no request can be made",
		"Cluster c1 is being deleted": "Cluster c1 is being deleted",
		"Metal3Remediation w1 exists": "Metal3Remediation w1 exists",
		"the workload did not move":   "the workload did not move",
	} {
		must.Is(t, want, Clause(sentence), "%q goes on as", sentence)
	}
}

func TestUnmatched(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	of := func(all ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: all}
	}
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		labels   map[string]string
		want     string
	}{
		"an empty selector matches all":               {},
		"what matches is not explained":               {metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, map[string]string{"a": "b"}, ""},
		"a label that is missing":                     {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}, nil, "has no label pool: needs pool=x"},
		"a label that is another":                     {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}, map[string]string{"pool": "y"}, `label pool is "y": needs pool=x`},
		"a label of a role that has a value":          {metav1.LabelSelector{MatchLabels: map[string]string{"role": ""}}, map[string]string{"role": "y"}, `label role is "y": needs role=`},
		"none of several values":                      {of(expression("pool", "In", "z", "x")), map[string]string{"pool": "y"}, `label pool is "y": needs pool in (x,z)`},
		"none of several values, since it is missing": {of(expression("pool", "In", "z", "x")), nil, "has no label pool: needs pool in (x,z)"},
		"one of the values that it must not have":     {of(expression("pool", "NotIn", "y", "x")), map[string]string{"pool": "y"}, `label pool is "y": needs pool notin (x,y)`},
		"a label that has to be there":                {of(expression("pool", "Exists")), nil, "has no label pool: needs pool"},
		"a label that must not be there":              {of(expression("pool", "DoesNotExist")), map[string]string{"pool": ""}, "has label pool, which it must not have"},
		"all that fails, sorted by key": {
			metav1.LabelSelector{MatchLabels: map[string]string{"b": "1", "a": "1"}, MatchExpressions: of(expression("z", "Exists"), expression("c", "Exists")).MatchExpressions}, nil,
			"has no label a: needs a=1; has no label b: needs b=1; has no label c: needs c; has no label z: needs z",
		},
		"a selector that cannot be read": {of(expression("pool", "Like")), nil, `the selector is invalid: "Like" is not a valid label selector operator`},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, Unmatched(tc.selector, tc.labels), "Unmatched() =")
		})
	}
}

func TestUnmatchedIsEmptyWhereverKubernetesSelects(t *testing.T) {
	key, val := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "y"})
	expressions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: key.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Like",
		}).Draw(t, "operator")}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(val, 0, 3).Draw(t, "values")
		}
		return r
	}), 0, 3)
	some := rapid.MapOfN(key, val, 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		selector := metav1.LabelSelector{MatchLabels: some.Draw(t, "matchLabels"), MatchExpressions: expressions.Draw(t, "matchExpressions")}
		is := some.Draw(t, "labels")
		parsed, err := metav1.LabelSelectorAsSelector(&selector)
		selects := err == nil && parsed.Matches(labels.Set(is))
		if why := Unmatched(selector, is); (why == "") != selects {
			t.Fatalf("Unmatched() = %q, and Kubernetes selects: %v", why, selects)
		}
	})
}

func TestToolsAreKnownByWhatTheyWriteOnAnObject(t *testing.T) {
	for _, tc := range []struct {
		labels, annotations map[string]string
		want                string
	}{
		{labels: map[string]string{"app.kubernetes.io/managed-by": "somebody"}},
		{labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"}, want: "Flux"},
		{annotations: map[string]string{"argocd.argoproj.io/tracking-id": "fleet:a/b:metal/workers"}, want: "Argo CD"},
		{labels: map[string]string{"topology.cluster.x-k8s.io/owned": ""}, want: "the topology controller of Cluster API"},
		{
			labels:      map[string]string{"helm.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/name": "fleet"},
			annotations: map[string]string{"meta.helm.sh/release-name": "fleet"}, want: "Flux, Helm",
		},
	} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
		must.Is(t, tc.want, strings.Join(AppliersOf(check), ", "))
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
		"that is very long":       {`{"by":"` + long + `"}`, Attribution{By: long[:509] + "..."}, true},
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
	must.Is(t, "by alice at 2026-01-01T12:00:00Z: NIC drops packets", is.Text())
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

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// If the node of a machine does not appear, its page names the node that is probably the machine's.
func TestANodeThatIsNotTheMachinesIsNamedAsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		given health.Other
		want  string
	}{
		"another provider ID": {health.Other{Name: "n", Wanted: "p://a"}, `Node n has the provider ID "", and Cluster API looks for "p://a"`},
		"several of it":       {health.Other{Name: "n", ProviderID: "P://a", Wanted: "p://a"}, `Several nodes have the provider ID "p://a", among them n`},
	} {
		f := health.Finding{Reason: health.NodeStartup, Limit: time.Minute, Other: tc.given}
		found := Findings(health.Verdict{Findings: []health.Finding{f}}, time.Time{}.Add(time.Hour))
		if len(found) != 1 || !strings.Contains(found[0].Message, tc.want) || f.Text() != "Node failed to report startup in 1m0s" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
