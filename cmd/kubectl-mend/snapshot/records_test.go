package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// recordOf is a record of a machine of a cluster, made so many seconds after noon.
func recordOf(machine, cluster string, seconds int) *mendv1.RemediationRecord {
	at := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, seconds, 0, time.UTC))
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: machine + "-1", CreationTimestamp: at, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
	}}
	r.Spec.Target = mendv1.RecordTarget{ClusterName: cluster, Machine: &mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: machine}}
	return r
}

func TestRecordsAreReadWhereTheyAre(t *testing.T) {
	open := func(name, namespace string) *mendv1.RemediationRecord {
		r := recordOf(name, "prod", 1)
		r.Namespace, r.Labels, r.Status = namespace, map[string]string{mendv1.RecordOpenLabel: "true"}, mendv1.RemediationRecordStatus{}
		return r
	}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "templates", Name: "reboot"}
	w := New()
	put(t, w, open("a", "metal"), recordOf("b", "test", 3), open("c", "templates"), open("d", "other"), check)
	for name, tc := range map[string]struct {
		scope Scope
		want  string
	}{
		"all":                                   {Scope{Records: true}, "a b c d"},
		"those of one cluster":                  {Scope{Records: true, Cluster: "test"}, "b"},
		"those of all namespaces that are open": {Scope{Restless: true}, "a c d"},
		"those of a namespace, and of the checks of nodes": {Scope{Restless: true, Namespace: "metal"}, "a c"},
		"those of a namespace":                             {Scope{Namespace: "other"}, "c d"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := recorded(t, w, tc.scope); got != tc.want {
				t.Errorf("it has %q, want %q", got, tc.want)
			}
		})
	}
}

// A page says of a machine that it was power-cycled, however old that is.
func TestOfAnOldMachineTheRecordsAreReadThatAreAboutIt(t *testing.T) {
	old := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "a", UID: "uid-a", CreationTimestamp: metav1.NewTime(time.Now().Add(-2 * recordsKept)),
	}}
	old.Spec.ClusterName = "prod"
	about, w := recordOf("a", "prod", 1), New()
	about.Labels[mendv1.RecordTargetLabel] = "uid-a"
	put(t, w, old, about, recordOf("b", "prod", 2))
	read, err := sourceOf(w, clock.RealClock{}, Scope{Records: true, Namespace: "metal", Cluster: "prod", Machine: "a"}).read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := All[mendv1.RemediationRecord](read, ""); len(got) != 1 || got[0].Name != about.Name {
		t.Errorf("read are %v", got)
	}
}

// recorded are the machines of the records that are read of w within a scope, in order.
func recorded(t *testing.T, w *Snapshot, scope Scope) string {
	t.Helper()
	read, err := sourceOf(w, clock.RealClock{}, scope).read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &mendv1.RemediationRecordList{}
	for _, namespace := range []string{scope.Namespace, "templates"} { // where the requests of the check are
		if err := read.ReadOnly().List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, r := range All[mendv1.RemediationRecord](read, "") {
		names = append(names, r.Spec.Target.Machine.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
