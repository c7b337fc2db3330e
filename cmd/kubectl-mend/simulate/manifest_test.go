package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestWhatCannotBeReadIsSaidWithItsPlace(t *testing.T) {
	for name, tc := range map[string]struct{ manifest, want string }{
		"an unknown field": {
			workersCheck + "---" + strings.Replace(workersCheck, "clusterName: c1", "clusterName: c1\n  maxUnhealty: 40%", 1),
			`check.yaml: MachineHealthCheck workers: unknown field "spec.maxUnhealty"`,
		},
		"an unknown field of a template that is known": {
			strings.Replace(powerCycle, "retryLimit", "retries", 1),
			`HostRemediationTemplate reboot: unknown field "spec.template.spec.strategy.retries"`,
		},
		"a value of another type": {strings.Replace(workersCheck, "300", "soon", 1), "timeoutSeconds"},
		"a kind that is no check": {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}", "check.yaml: Pod p: expected a MachineHealthCheck"},
		"a version that is unknown": {
			strings.Replace(workersCheck, "v1beta2", "v1beta1", 1), "MachineHealthCheck workers: version v1beta1 is not known here",
		},
		"no kind":               {"metadata: {name: p}", "Object 'Kind' is missing"},
		"no name":               {strings.Replace(workersCheck, "name: workers", "labels: {}", 1), "MachineHealthCheck : metadata.name is missing"},
		"no YAML":               {"apiVersion: [", "read check.yaml: error parsing"},
		"nothing but a comment": {"# nothing\n---\n", "check.yaml: there is nothing in it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(tc.manifest), "check.yaml", "default")
			if err == nil {
				t.Fatal("it was read")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%q does not say %q", err, tc.want)
			}
		})
	}
}

func TestAManifestIsAppliedAsAnAPIServerWould(t *testing.T) {
	s := newFixture(t).workers(1).existing(olderCheck)
	s.objs[len(s.objs)-1].SetLabels(map[string]string{"team": "a"})
	w := s.snapshot()
	key := client.ObjectKey{Namespace: "default", Name: "everything"}
	was := &clusterv1.MachineHealthCheck{}
	if err := w.ReadOnly().Get(t.Context(), key, was); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(olderCheck, "timeoutSeconds: 600", "timeoutSeconds: 60", 1)
	runIn(t, w, changed+"---"+workersAs("", "")+"---"+ladder, question(func(q *Question) { q.Horizon = 0 }))
	is, fresh, nodeCheck := &clusterv1.MachineHealthCheck{}, &clusterv1.MachineHealthCheck{}, &nhcv1.NodeHealthCheck{}
	for name, obj := range map[string]client.Object{"everything": is, "workers": fresh} {
		if err := w.ReadOnly().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.ReadOnly().Get(t.Context(), client.ObjectKey{Name: "racks"}, nodeCheck); err != nil {
		t.Fatal(err)
	}
	if is.UID != was.UID || !is.CreationTimestamp.Equal(&was.CreationTimestamp) || is.Labels["team"] != "a" ||
		*is.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds != 60 {
		t.Errorf("the check that was there is not the same one with another spec: %+v", is.ObjectMeta)
	}
	if fresh.UID == "" || !fresh.CreationTimestamp.Time.Equal(noon) || fresh.Annotations[clusterv1.PausedAnnotation] != mendv1.Claim {
		t.Errorf("the new check is not one that was made now and claimed: %+v", fresh.ObjectMeta)
	}
	if len(nodeCheck.Spec.UnhealthyConditions) != 2 || nodeCheck.Spec.UnhealthyConditions[0].Duration.Duration != 5*time.Minute {
		t.Errorf("the defaults were not set: %+v", nodeCheck.Spec.UnhealthyConditions)
	}
}

func TestWhatOthersHavePutOnACheckStaysWhenItIsApplied(t *testing.T) {
	const bare = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: workers%s}
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-0}}
  checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]}
`
	claimed := map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	for name, tc := range map[string]struct {
		there    map[string]string
		manifest string // its annotations
		claimed  bool   // as is assumed
		starts   int
		atOnce   int
	}{
		"a pause":             {map[string]string{clusterv1.PausedAnnotation: "maintenance"}, "", false, 0, 0},
		"a claim":             {claimed, "", false, 3, 3},
		"no claim":            {nil, "", true, 3, 3},
		"a limit":             {map[string]string{mendv1.MaxInFlightAnnotation: "1"}, "", true, 3, 1},
		"one that is changed": {map[string]string{mendv1.MaxInFlightAnnotation: "1"}, `, annotations: {kubemend.io/max-in-flight: "2"}`, true, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).workers(5).existing(fmt.Sprintf(bare, ""))
			is := s.objs[len(s.objs)-1].(*clusterv1.MachineHealthCheck)
			is.Annotations = tc.there
			answer := s.run(fmt.Sprintf(bare, tc.manifest), question(func(q *Question) { q.Fail, q.Horizon = "name in (w1,w2,w3)", 2*time.Hour }))
			if says := strings.Join(answer.Assumptions, "\n"); strings.Contains(says, "workers is claimed: ") != tc.claimed {
				t.Errorf("it is assumed: %s", says)
			}
			atOnce := map[time.Duration]int{}
			for _, start := range answer.Starts {
				atOnce[start.After.Duration]++
			}
			if len(answer.Starts) != tc.starts || atOnce[5*time.Minute] != tc.atOnce {
				t.Errorf("%d remediations start, %d at once; want %d and %d", len(answer.Starts), atOnce[5*time.Minute], tc.starts, tc.atOnce)
			}
		})
	}
}
