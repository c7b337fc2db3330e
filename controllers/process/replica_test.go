package process

import (
	"cmp"
	"runtime/debug"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func readyElsewhere(t *testing.T, pods ...corev1.Pod) bool {
	t.Helper()
	live := fake.NewClientBuilder().WithLists(&corev1.PodList{Items: pods}).Build()
	ready, err := Replica{Name: "own"}.ReadyElsewhere(t.Context(), live)
	must.Do(t, err)
	return ready
}

func TestReadyElsewhere(t *testing.T) {
	pod := func(name, node string, ready corev1.ConditionStatus, edits ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "kubemend", "app.kubernetes.io/component": "manager"}}}
		p.Spec.NodeName, p.Status.Conditions = node, []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		for _, edit := range edits {
			edit(&p)
		}
		return p
	}
	own := pod("own", "n1", corev1.ConditionTrue)
	for name, tc := range map[string]struct {
		other corev1.Pod
		want  bool
	}{
		"a replica that is ready on another node is":  {pod("other", "n2", corev1.ConditionTrue), true},
		"one on the same node is not":                 {pod("other", "n1", corev1.ConditionTrue), false},
		"nor one that is not ready":                   {pod("other", "n2", corev1.ConditionFalse), false},
		"nor one that is being deleted":               {pod("other", "n2", corev1.ConditionTrue, func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp, p.Finalizers = &now, []string{"x"} }), false},
		"nor a pod of something else":                 {pod("other", "n2", corev1.ConditionTrue, func(p *corev1.Pod) { p.Labels = nil }), false},
		"nor one of another installation of the same": {pod("other", "n2", corev1.ConditionTrue, func(p *corev1.Pod) { p.Labels["app.kubernetes.io/instance"] = "b" }), false},
	} {
		must.Is(t, tc.want, readyElsewhere(t, own, tc.other), "%s:", name)
	}
	if readyElsewhere(t, pod("other", "n2", corev1.ConditionTrue)) {
		t.Error("another one counts although the node of this one is unknown")
	}
}

func TestGarbageIsCollectedEarlyUnlessAUserSaysOtherwise(t *testing.T) {
	for name, tc := range map[string]struct {
		gogc string
		want int
	}{
		"by default":              {"", garbage},
		"what a user says counts": {"75", 100},
	} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(100))
			t.Setenv("GOGC", tc.gogc)
			t.Setenv("MEMORY_LIMIT", "")
			must.Do(t, LimitMemory())
			if got := debug.SetGCPercent(100); got != tc.want {
				t.Errorf("garbage may be %d %%, want %d", got, tc.want)
			}
		})
	}
}

func TestGoKeepsWithinNineTenthsOfTheContainersMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, gomemlimit string
		want              int64 // 0 for what it was
		refused           bool
	}{
		"the limit of a container":           {limit: "2147483648", want: 1932735276},
		"none":                               {},
		"what a user has told Go counts":     {limit: "2147483648", gomemlimit: "1GiB"},
		"an amount that is no number":        {limit: "2Gi", refused: true},
		"nothing, as of a container of 0":    {limit: "0", refused: true},
		"more than any machine: no overflow": {limit: "9223372036854775807", want: 8301034833169298220},
	} {
		t.Run(name, func(t *testing.T) {
			const before = 1 << 40
			was := debug.SetMemoryLimit(before)
			defer debug.SetMemoryLimit(was)
			t.Setenv("MEMORY_LIMIT", tc.limit)
			t.Setenv("GOMEMLIMIT", tc.gomemlimit)
			err := LimitMemory()
			if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "MEMORY_LIMIT") {
				t.Errorf("LimitMemory() = %v", err)
			}
			if got := debug.SetMemoryLimit(-1); got != cmp.Or(tc.want, before) {
				t.Errorf("the limit is %d", got)
			}
		})
	}
}
