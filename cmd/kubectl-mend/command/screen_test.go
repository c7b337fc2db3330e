package command

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// obey is what somebody writes wherever an API server takes any text: a title, an empty screen, a line that looks like one of ours.
const obey = "Stopped\x1b]0;owned\x07\x1b[2J\u202e\r\x9b31m\nDo this: kubectl delete cluster c1"

// hostileWorld is one in which everybody who may write text has written that.
func hostileWorld(_ context.Context, _ snapshot.Scope) (*snapshot.World, error) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid"} }
	long := metav1.NewTime(recordedAt.Add(-24 * 60 * 60 * 1e9))
	w := snapshot.New()
	w.Taken = recordedAt
	w.Lacks("BareMetalHosts in all namespaces", obey)
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: obey, Message: obey, LastTransitionTime: long}}
	w.SetNodes(client.ObjectKey{Namespace: "ns", Name: "c1"}, []corev1.Node{node})
	cluster := &clusterv1.Cluster{ObjectMeta: meta("c1")}
	cluster.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Is", LastTransitionTime: long},
		{Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: metav1.ConditionTrue, Reason: obey, Message: obey, LastTransitionTime: long},
		{Type: clusterv1.InfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Is", LastTransitionTime: long},
	}
	m := &clusterv1.Machine{ObjectMeta: meta("m")}
	m.Labels = map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "n"
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: obey, Message: obey, LastTransitionTime: long,
	}}
	check := &clusterv1.MachineHealthCheck{ObjectMeta: meta("check")}
	check.Annotations = map[string]string{clusterv1.PausedAnnotation: obey}
	check.Spec.ClusterName = "c1"
	check.Spec.Selector.MatchLabels = m.Labels
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "Unknown", TimeoutSeconds: ptr.To[int32](60)}}
	lease := &coordinationv1.Lease{ObjectMeta: meta("manager.kubemend.io")}
	lease.Annotations = map[string]string{"kubemend.io/manager": `{"version":"v1\u001b[2J","mode":"\u001b[31m"}`}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(obey), &metav1.MicroTime{Time: recordedAt}
	event := &eventsv1.Event{
		ObjectMeta: meta("e"), Reason: obey, Note: obey, ReportingController: "kubemend.io/" + obey, Type: "Warning", EventTime: metav1.NewMicroTime(recordedAt),
		Regarding: corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Namespace: "ns", Name: "m", UID: "uid"},
	}
	err := w.Add(cluster, m, check, lease, event)
	return w, err
}

func TestNoCommandPrintsWhatATerminalWouldObey(t *testing.T) {
	file, recorded := filepath.Join(t.TempDir(), obey), filepath.Join(t.TempDir(), "world")
	o, _, errOut := recorder(t, &snapshot.Scope{})
	o.read = hostileWorld
	if code := run(t, o, "record", "-A", "-o", recorded); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, line := range [][]string{
		{"status", "-A"}, {"status", "-A", "-o", "wide"}, {"explain", "machine/m", "-n", "ns"}, {"explain", "mhc/check", "-n", "ns"},
		{"explain", "node/n", "-n", "ns", "--cluster", "c1"}, {"history", "-A", "--from", recorded}, {"history", "-A", "--from", recorded, "-o", "wide"},
		{"simulate", "-A", "--fail", "machine/ns/m"},
		{"explain", "machine/" + obey, "-n", "ns"}, {"status", obey, "-A"}, {"explain", obey}, {obey}, {"status", "--" + obey},
		{"status", "--from", file}, {"history", "--since", obey}, {"record", "-A", "-o", file},
	} {
		o, out, errOut := recorder(t, &snapshot.Scope{})
		o.read = hostileWorld
		run(t, o, line...)
		shown := out.String() + errOut.String()
		if shown == "" {
			t.Errorf("%q: it prints nothing", line)
		}
		if pages := slices.Contains(line, "ns") || slices.Contains(line, recorded); pages && !strings.Contains(shown, `\x1b]0;owned\a`) {
			t.Errorf("%q: what is hostile is left out: %s", line, shown)
		}
		for _, r := range shown {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Errorf("%q: %q reaches the terminal: %q", line, r, shown)
				break
			}
		}
		if strings.Contains(out.String(), "\nDo this:") {
			t.Errorf("%q: a line of ours is forged:\n%s", line, out)
		}
	}
}

// A program has to get what there is.
func TestJSONIsWhatThereIs(t *testing.T) {
	o, out, errOut := recorder(t, &snapshot.Scope{})
	o.read = hostileWorld
	if code := run(t, o, "explain", "machine/m", "-n", "ns", "-o", "json"); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	var page any
	if err := json.Unmarshal(out.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `with reason Stopped\u001b]0;owned\u0007`) {
		t.Errorf("it is not as it was written:\n%s", out)
	}
}
