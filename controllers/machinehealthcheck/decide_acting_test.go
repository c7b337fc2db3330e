package machinehealthcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func checkIn(mode Mode) *Facts {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check", Annotations: map[string]string{}}}
	check.Spec.ClusterName = "c1"
	return &Facts{Mode: mode, Check: check, Cluster: &clusterv1.Cluster{}}
}

func TestAPersonLearnsHowACheckComesToBeActedOn(t *testing.T) {
	annotated := func(f *Facts) { f.Check.Annotations[clusterv1.PausedAnnotation] = "maintenance" }
	clusterPaused := func(f *Facts) { f.Cluster.Spec.Paused = ptr.To(true) }
	for name, tc := range map[string]struct {
		mode  Mode
		given []func(*Facts)
		want  string
	}{
		"an active check needs nothing, whatever its annotation was": {Active, []func(*Facts){annotated, clusterPaused}, ""},
		"the annotation of a paused check must go": {Paused, []func(*Facts){annotated},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check"},
		"a paused Cluster must go on": {Paused, []func(*Facts){clusterPaused}, "When it is to go on, set spec.paused of Cluster c1 to false"},
		"of two pauses both must end": {Paused, []func(*Facts){annotated, clusterPaused},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check, and set spec.paused of Cluster c1 to false"},
		"an unclaimed check can be claimed": {Observed, nil, "If kubemend is to act on it, claim the check: kubectl mend claim mhc/check -n ns"},
	} {
		t.Run(name, func(t *testing.T) {
			f := checkIn(tc.mode)
			for _, change := range tc.given {
				change(f)
			}
			if got := f.Enable(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAClaimedCheckWithoutTheLabelOfTheManagerHasNoController(t *testing.T) {
	f := checkIn(Ignored)
	f.WatchFilter = "blue"
	if got, because, _ := f.Acting(); got != cliv1.ModeCore || because != "The label cluster.x-k8s.io/watch-filter of the check, or of "+
		"its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for" {
		t.Errorf("unclaimed, got %s, because %q", got, because)
	}
	f.Check.Annotations[clusterv1.PausedAnnotation] = mendv1.Claim
	want := "The check is claimed for kubemend, so Cluster API core leaves it alone, and the label cluster.x-k8s.io/watch-filter of the check, " +
		"or of its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for"
	if got, because, _ := f.Acting(); got != cliv1.ModeNone || because != want {
		t.Errorf("claimed, got %s, because %q", got, because)
	}
}

func TestTheModeNamesTheControllerThatActs(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    Mode
		want    cliv1.Mode
		because string
	}{
		"kubemend acts on a check that it acts on": {Active, cliv1.ModeActing, ""},
		"Cluster API acts on an ignored check": {Ignored, cliv1.ModeCore,
			"The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: Cluster API core acts on it"},
		"Cluster API acts on an observed check": {Observed, cliv1.ModeObserving,
			"The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges"},
		"without a Cluster no controller acts":      {NoCluster, cliv1.ModeNone, "There is no Cluster c1 in namespace ns"},
		"nor with a selector that cannot be parsed": {BadSelector, cliv1.ModeNone, "The spec.selector of the check cannot be read"},
		"nor while its user has paused it and its Cluster": {Paused, cliv1.ModePaused,
			`Cluster c1 is paused (spec.paused), and the check has the annotation cluster.x-k8s.io/paused: ""`},
	} {
		t.Run(name, func(t *testing.T) {
			f := checkIn(tc.mode)
			f.Check.Annotations[clusterv1.PausedAnnotation], f.Cluster.Spec.Paused = "", ptr.To(true)
			if got, because, _ := f.Acting(); got != tc.want || because != tc.because {
				t.Errorf("got %s, because %q; want %s, because %q", got, because, tc.want, tc.because)
			}
		})
	}
}
