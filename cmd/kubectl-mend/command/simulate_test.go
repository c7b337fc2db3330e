package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

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
		wants string // on either stream
	}{
		"a manifest from the standard input": {[]string{"-f", "-", "-n", "ns"}, Done, "None of 0 machines would be remediated"},
		"and for all namespaces":             {[]string{"-f", "-", "-A", "-o", "json"}, Done, `"starts"`},
		"one of another namespace":           {[]string{"-f", "-", "-n", "other"}, Misused, "say -n ns, or -A"},
		"no such file":                       {[]string{"-f", "nowhere.yaml", "-n", "ns"}, Failed, "nowhere.yaml"},
		"a failure of nothing":               {[]string{"--for", "20m"}, Misused, "--fail"},
		"a failure of none":                  {[]string{"-f", "-", "-n", "ns", "--fail", "1"}, Failed, `--fail "1": the checks select 0 healthy nodes`},
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

// silentC1 is a recorded cluster with a machine whose first node is waited for since long.
const silentC1 = `{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "kubemend.io/v1alpha1", "kind": "Snapshot", "taken": "2026-01-01T12:00:00Z", "kinds": {
  "Cluster.cluster.x-k8s.io": {"plural": "clusters", "versions": ["v1beta2"], "namespaced": true, "answers": [{}]},
  "Machine.cluster.x-k8s.io": {"plural": "machines", "versions": ["v1beta2"], "namespaced": true, "answers": [{}]},
  "MachineHealthCheck.cluster.x-k8s.io": {"plural": "machinehealthchecks", "versions": ["v1beta2"], "namespaced": true, "answers": [{}]},
  "Lease.coordination.k8s.io": {"plural": "leases", "versions": ["v1"], "namespaced": true, "answers": [{}]}},
  "workloadClusters": {"ns/c1": {}}},
 {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c1", "namespace": "ns", "uid": "c1"}, "status": {"conditions": [
  {"type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
  {"type": "InfrastructureReady", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
 {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "namespace": "ns", "uid": "m",
  "labels": {"cluster.x-k8s.io/cluster-name": "c1"}, "creationTimestamp": "2026-01-01T01:00:00Z",
  "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "md", "uid": "md", "controller": true}]}, "spec": {"clusterName": "c1"}}]}`

func TestSimulateEndsWithACodeWhenSomethingWouldHappen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	must.Do(t, os.WriteFile(file, []byte(silentC1), 0o600))
	check, _, _ := strings.Cut(checkOfC1, "  remediation:")
	for name, tc := range map[string]struct {
		manifest string
		most     string
		code     int
		wants    string
	}{
		"as many as may":                       {check, "1", WouldStart, ""},
		"more than may":                        {check, "0", Refused, "--at-most allows 0"},
		"any number":                           {check, "-1", WouldStart, ""},
		"a field that the kind does not have":  {check + "  maxUnhealthy: 1\n", "0", Failed, `unknown field "spec.maxUnhealthy"`},
		"a check whose cluster does not exist": {strings.ReplaceAll(check, "c1", "c2"), "0", Done, ""},
		"a check that is paused": {
			strings.Replace(check, "{name: all,", `{name: all, annotations: {cluster.x-k8s.io/paused: "yes"},`, 1), "0", Done, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, _, errOut := recorder(t, &snapshot.Scope{})
			o.In = strings.NewReader(tc.manifest)
			if code := run(t, o, "simulate", "-f", "-", "--from", file, "--at-most", tc.most); code != tc.code {
				t.Errorf("it ends with %d, want %d: %s", code, tc.code, errOut)
			}
			if !strings.Contains(errOut.String(), tc.wants) {
				t.Errorf("%q is not in %q", tc.wants, errOut)
			}
		})
	}
}
