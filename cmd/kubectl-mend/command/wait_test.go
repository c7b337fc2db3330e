package command

import (
	"bytes"
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// standingMachine returns a reader of a cluster with Machine ns/m and its check. The node has had this status of Ready for ago. Without a
// status there is no machine.
func standingMachine(ready corev1.ConditionStatus, ago time.Duration) func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
	return func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
		long, since := metav1.NewTime(time.Now().Add(-24*time.Hour)), metav1.NewTime(time.Now().Add(-ago))
		is := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", CreationTimestamp: long, Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}}
		}
		w := snapshot.New()
		cluster, check, m := &clusterv1.Cluster{ObjectMeta: is("c1")}, &clusterv1.MachineHealthCheck{ObjectMeta: is("check")}, &clusterv1.Machine{ObjectMeta: is("m")}
		for _, kind := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.InfrastructureReadyCondition} {
			cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: long})
		}
		check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c1", check.Labels
		check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "Unknown", TimeoutSeconds: ptr.To[int32](60)}}
		m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "n"
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: since}}
		w.SetNodes(client.ObjectKey{Namespace: "ns", Name: "c1"}, []corev1.Node{node})
		objects := []client.Object{cluster, check}
		if ready != "" {
			objects = append(objects, m)
		}
		err := w.Add(objects...)
		return w, err
	}
}

// deployed adds MachineDeployment md with replicas to the cluster of standingMachine, makes the machine, if any, one of its machines, and
// adds a record of it.
func deployed(is func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error), replicas int32) func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
	return func(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
		w, err := is(ctx, scope)
		if err != nil {
			return nil, err
		}
		in := map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "md"}
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: in} }
		md, set := &clusterv1.MachineDeployment{ObjectMeta: meta("md")}, &clusterv1.MachineSet{ObjectMeta: meta("md-1")}
		md.Spec.ClusterName, md.Spec.Replicas, set.Spec.ClusterName, set.Spec.Replicas = "c1", &replicas, "c1", &replicas
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment", Name: "md", Controller: ptr.To(true)}}
		record := &mendv1.RemediationRecord{ObjectMeta: meta("m-1")}
		record.Spec.Decided = metav1.Now()
		record.Spec.Target = mendv1.RecordTarget{
			ClusterName: "c1", Machine: &mendv1.RecordRef{Kind: "Machine", Name: "m"},
			Owner: &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-1"},
		}
		for _, m := range snapshot.All[clusterv1.Machine](w, "ns") {
			m.Labels = in
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-1", Controller: ptr.To(true)}}
		}
		err = w.Add(md, set, record)
		return w, err
	}
}

// waiter returns Options whose reads return these clusters, one after the other, and the last again and again.
func waiter(t *testing.T, is ...func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error)) (o *Options, out, errOut *bytes.Buffer) {
	t.Helper()
	o, out, errOut = recorder(t, &snapshot.Scope{})
	reads := 0
	o.read = func(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
		read := is[min(reads, len(is)-1)]
		reads++
		return read(ctx, scope)
	}
	return o, out, errOut
}

func TestWaitEndsWhenWhatItWaitsForIsSo(t *testing.T) {
	healthy, pending := standingMachine(corev1.ConditionTrue, time.Hour), standingMachine(corev1.ConditionUnknown, time.Second)
	bad, gone := standingMachine(corev1.ConditionUnknown, time.Hour), standingMachine("", 0)
	wanted, missing, enough := deployed(healthy, 1), deployed(gone, 1), deployed(gone, 0)
	refused := func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
		return nil, &url.Error{Op: "Get", URL: "https://management", Err: syscall.ECONNREFUSED}
	}
	type reads = []func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error)
	for name, tc := range map[string]struct {
		is   reads
		args string
		code int
		out  string
		says string
	}{
		"what is so at once":                       {reads{healthy}, "machine/m --for=healthy", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"what becomes so":                          {reads{pending, pending, healthy}, "machine m --for=Healthy --timeout=1m", Done, "machine.cluster.x-k8s.io/m condition met\n", "machine/m is Pending (NodeCondition)\n"},
		"also past a moment without an API server": {reads{pending, refused, healthy}, "machine/m --for=healthy --timeout=1m", Done, "machine.cluster.x-k8s.io/m condition met\n", "connection refused\nmachine/m is not known\n"},
		"either way to be unhealthy":               {reads{pending, bad}, "machine/m --for=unhealthy --timeout=1m", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"a phase":                                  {reads{bad}, "mhc/check --for=blocked --timeout=-1s", Done, "machinehealthcheck.cluster.x-k8s.io/check condition met\n", ""},
		"healthy again is remediated":              {reads{bad, healthy}, "machine/m --for=remediated", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"so is a machine that is gone":             {reads{bad, gone}, "machine/m --for=remediated", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"but that is not healthy":                  {reads{bad, gone}, "machine/m --for=healthy", Failed, "", "there is no Machine m in namespace ns"},
		"several":                                  {reads{healthy}, "machine m m --for=healthy", Done, strings.Repeat("machine.cluster.x-k8s.io/m condition met\n", 2), ""},
		"all machines of a deployment":             {reads{missing, wanted}, "md/md --for=healthy", Done, "machinedeployment.cluster.x-k8s.io/md condition met\n", ""},
		"that is their capacity":                   {reads{missing, wanted}, "md/md --for=capacity-back", Done, "machinedeployment.cluster.x-k8s.io/md condition met\n", ""},
		"that of a Cluster":                        {reads{missing, wanted}, "cluster/c1 --for=capacity-back", Done, "cluster.cluster.x-k8s.io/c1 condition met\n", ""},
		"not while one lacks":                      {reads{missing}, "md/md --for=capacity-back --timeout=0", Failed, "", "timed out waiting for capacity-back on md/md: it is Remediating ("},
		"an owner that does not exist":             {reads{wanted}, "md/other --for=healthy --timeout=0", Failed, "", "there is no MachineDeployment other in namespace ns"},
		"the capacity of a healthy machine":        {reads{pending, healthy}, "machine/m --for=capacity-back", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"that of a machine with a record":          {reads{missing}, "machine/m --for=capacity-back --timeout=0", Failed, "", "timed out waiting for capacity-back on machine/m: it is Remediating ("},
		"of which no other is to come":             {reads{missing, enough}, "machine/m --for=capacity-back", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"a machine with a record is gone as well":  {reads{wanted, missing}, "machine/m --for=remediated --timeout=0", Done, "machine.cluster.x-k8s.io/m condition met\n", ""},
		"no time at all":                           {reads{pending}, "machine/m --for=healthy --timeout=0", Failed, "", "timed out waiting for healthy on machine/m: it is Pending (NodeCondition)"},
		"too little time":                          {reads{bad}, "machine/m --for=healthy --timeout=10ms", Failed, "", "timed out waiting for healthy on machine/m: it is Blocked (NoManager)"},
		"nothing to wait for":                      {reads{bad}, "machine/m", Misused, "", `--for "": expected healthy, remediated, capacity-back, unhealthy, pending,`},
		"what is no phase":                         {reads{bad}, "machine/m --for=well", Misused, "", `--for "well": expected healthy,`},
		"nothing that waits":                       {reads{bad}, "--for=healthy", Misused, "", "expected machine/NAME, node/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			o, out, errOut := waiter(t, tc.is...)
			code := run(t, o, append([]string{"wait", "-n", "ns"}, strings.Fields(tc.args)...)...)
			if code != tc.code || out.String() != tc.out || !strings.Contains(errOut.String(), tc.says) {
				t.Errorf("exit code %d, want %d: %s%s", code, tc.code, out, errOut)
			}
		})
	}
}

func TestAnInterruptEndsAWait(t *testing.T) {
	o, _, errOut := waiter(t, standingMachine(corev1.ConditionUnknown, time.Hour))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	root := o.root("dev")
	root.SetArgs([]string{"wait", "machine/m", "-n", "ns", "--for=healthy", "--timeout=1h"})
	if code := Run(ctx, root, o.IOStreams); code != Failed || !strings.Contains(errOut.String(), "interrupted while waiting for healthy on machine/m") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

const checkOfC1 = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: all, namespace: ns}
spec:
  clusterName: c1
  selector: {matchLabels: {cluster.x-k8s.io/cluster-name: c1}}
  remediation:
    templateRef: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: reboot}
`

func TestSimulate(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		code  int
		wants string // on the standard output or the standard error
	}{
		"a manifest from the standard input": {[]string{"-f", "-", "-n", "ns"}, Done, "None of 0 machines would be remediated"},
		"and for all namespaces":             {[]string{"-f", "-", "-A", "-o", "json"}, Done, `"starts"`},
		"one of another namespace":           {[]string{"-f", "-", "-n", "other"}, Misused, "say -n ns, or -A"},
		"no such file":                       {[]string{"-f", "nowhere.yaml", "-n", "ns"}, Failed, "nowhere.yaml"},
		"a failure of nothing":               {[]string{"--for", "20m"}, Misused, "--fail"},
		"a failure of none":                  {[]string{"-f", "-", "-n", "ns", "--fail", "1"}, Failed, `--fail "1": expected at least 1 and at most 0, the number of healthy nodes`},
		"a selector as of kubectl": {
			[]string{"-f", "-", "-n", "ns", "--fail", "-l", "zone=b"}, Failed, `--fail "zone=b": it selects no machine or node`,
		},
		"a time that is negative": {[]string{"--horizon", "-1h"}, Misused, "--horizon"},
		"no time":                 {[]string{"--takes", "0s"}, Misused, "--takes 0s: expected a second at least"},
		"a limit that is none":    {[]string{"--at-most", "-2"}, Misused, "--at-most"},
		"a limit of no name":      {[]string{"--set", "few=2"}, Misused, "--set few=2: expected NAME=VALUE, where NAME is one of maxUnhealthy"},
		"a limit of no value":     {[]string{"--set", "maxUnhealthy=few"}, Misused, "--set maxUnhealthy=few: "},
		"a range that is none":    {[]string{"--set", "unhealthyInRange=3-5"}, Misused, "--set unhealthyInRange=3-5: "},
		"a limit of other checks": {
			[]string{"-f", "-", "-n", "ns", "--set", "minHealthy=2"}, Failed, "none of the checks that are simulated can have that limit",
		},
		"the checks of one cluster":   {[]string{"--cluster", "c1", "-n", "ns"}, Done, ""},
		"a cluster that is not there": {[]string{"--cluster", "c9", "-n", "ns"}, Failed, "there is no Cluster c9 in namespace ns"},
		"an argument":                 {[]string{"check.yaml"}, Misused, "check.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			o, out, errOut := recorder(t, &snapshot.Scope{})
			o.In = strings.NewReader(checkOfC1)
			if code := run(t, o, append([]string{"simulate"}, tc.args...)...); code != tc.code {
				t.Errorf("it ends with %d, want %d: %s", code, tc.code, errOut)
			}
			if said := out.String() + errOut.String(); !strings.Contains(said, tc.wants) {
				t.Errorf("%q is not in:\n%s", tc.wants, said)
			}
		})
	}
}

func TestSimulateEndsWithACodeWhenSomethingWouldHappen(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for line, tc := range map[string]struct {
		code  int
		wants string
	}{
		"--at-most 3 --set maxUnhealthy=60%":                  {WouldStart, ""},
		"--at-most 2 --set maxUnhealthy=60%":                  {Refused, "--at-most allows 2"},
		"--set maxUnhealthy=60%":                              {WouldStart, ""},
		"--at-most 0":                                         {Done, ""},
		"--at-most 0 --cluster c1 --fail-domain b07 --for 1s": {Failed, `is called "failuredomain/b07"`},
	} {
		code, _, problems := mended(t, strings.Fields("simulate -A --from ../../../docs/cli/samples/three-of-five.json "+line)...)
		if code != tc.code || !strings.Contains(problems, tc.wants) {
			t.Errorf("%s: it ends with %d, want %d and %q: %s", line, code, tc.code, tc.wants, problems)
		}
	}
}
