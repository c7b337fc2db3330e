package simulate

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/golden"
)

// workersAs is a check of the workers with annotations, and with how it remediates.
func workersAs(annotations, remediation string) string {
	return `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: workers
  annotations: {` + annotations + `}
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-0}}
  checks:
    unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeoutSeconds: 300}
` + remediation
}

const claimed = "cluster.x-k8s.io/paused: kubemend"

var (
	workersCheck  = workersAs(claimed, "  remediation:\n    triggerIf: {unhealthyLessThanOrEqualTo: 40%}\n")
	oneAtATime    = workersAs(claimed+`, kubemend.io/max-in-flight: "1"`, "")
	waitsForSpare = workersAs(claimed+`, kubemend.io/wait-for-spare: "true", kubemend.io/wait-for-spare-timeout: 15m`, "")
	pausedCheck   = workersAs(`cluster.x-k8s.io/paused: "true"`, "")
	powerCycle    = rebootTemplate + workersAs(claimed,
		"  remediation:\n    templateRef: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: reboot}\n")
)

const olderCheck = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: everything
  annotations: {cluster.x-k8s.io/paused: kubemend}
spec:
  clusterName: c1
  selector: {matchLabels: {cluster.x-k8s.io/cluster-name: c1}}
  checks:
    unhealthyNodeConditions:
    - {type: Ready, status: Unknown, timeoutSeconds: 600}
`

// rebootTemplate is the template that checks of a power cycle name.
const rebootTemplate = `
# A template, and a check that names it.
apiVersion: kubemend.io/v1alpha1
kind: HostRemediationTemplate
metadata:
  name: reboot
spec:
  template:
    spec:
      strategy: {type: Reboot, retryLimit: 1, timeoutSeconds: 300}
---
`

const ladder = `
apiVersion: remediators.example.org/v1
kind: RebootTemplate
metadata: {name: reboot, namespace: remediators}
spec: {template: {spec: {}}}
---
apiVersion: remediators.example.org/v1
kind: ReplaceTemplate
metadata: {name: replace, namespace: remediators}
spec: {template: {spec: {}}}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: racks
spec:
  selector: {matchLabels: {rack: a}}
  minHealthy: 51%
  stormCooldownDuration: 5m
  escalatingRemediations:
  - order: 1
    timeout: 10m
    remediationTemplate: {apiVersion: remediators.example.org/v1, kind: RebootTemplate, name: reboot, namespace: remediators}
  - order: 2
    timeout: 20m
    remediationTemplate: {apiVersion: remediators.example.org/v1, kind: ReplaceTemplate, name: replace, namespace: remediators}
`

// kernelRule has no rule for Ready: only the condition of its one rule makes a machine unhealthy.
const kernelRule = rebootTemplate + `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: workers
  annotations: {cluster.x-k8s.io/paused: kubemend, kubemend.io/max-in-flight: "1"}
spec:
  clusterName: c1
  selector: {matchLabels: {pool: md-0}}
  checks:
    unhealthyNodeConditions:
    - {type: KernelDeadlock, status: "True", timeoutSeconds: 600}
  remediation:
    triggerIf: {unhealthyLessThanOrEqualTo: 50%}
    templateRef: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: reboot}
`

// story is a fixture, what is applied to it, and what is asked.
type story struct {
	fixture  func(*fixture) *fixture
	manifest string
	question func(*Question)
}

func fails(what string) func(*Question) { return func(q *Question) { q.Fail = what } }

func workers(n int) func(*fixture) *fixture {
	return func(s *fixture) *fixture { return s.workers(n) }
}

func hosts(n int) func(*fixture) *fixture {
	return func(s *fixture) *fixture { return s.workers(n).onMetal() }
}

func nodesHere(n int) func(*fixture) *fixture {
	return func(s *fixture) *fixture { return s.nodesHere(n) }
}

func planes(s *fixture) *fixture {
	for _, name := range []string{"cp1", "cp2", "cp3"} {
		s.machine(name, "KubeadmControlPlane", "cp", func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" })
	}
	return s.existing(olderCheck)
}

var stories = map[string]story{
	"one machine fails and is remediated": {workers(5), workersCheck, fails("machine/w2")},
	"three of five fail and nothing starts until they are back": {workers(5), workersCheck, func(q *Question) {
		q.Fail, q.For = "name in (w1,w2,w3)", 20*time.Minute
	}},
	"three of five fail under another limit": {workers(5), workersCheck, func(q *Question) {
		q.Fail, q.Set = "3", []string{"maxUnhealthy=60%", "maxInFlight=2"}
	}},
	"three fail and are remediated one at a time": {workers(5), oneAtATime, func(q *Question) {
		q.Fail, q.Horizon = "machine/w1,node/node-w2,machine/w3", 2*time.Hour
	}},
	"two checks overlap": {func(s *fixture) *fixture { return s.workers(3).existing(olderCheck) }, workersCheck, fails("machine/w2")},
	"one has failed before and one is about to count": {func(s *fixture) *fixture {
		return s.workers(3).silent(10*time.Minute, "w1").silent(time.Minute, "w2")
	}, workersAs("", ""), nil},
	"no rule of the check matches what fails": {hosts(4), kernelRule, fails("machine/w1")},
	"a ladder is climbed": {nodesHere(5), ladder, func(q *Question) {
		q.Fail, q.Takes = "name=n2", 15*time.Minute
	}},
	"a storm passes": {nodesHere(5), ladder, func(q *Question) {
		q.Fail, q.For = "node/n1,node/n2,node/n3", 20*time.Minute
	}},
	"a check that is paused": {
		func(s *fixture) *fixture { return s.workers(2).silent(10*time.Minute, "w1") }, pausedCheck, nil,
	},
	"the checks that are there": {
		func(s *fixture) *fixture { return s.workers(3).existing(workersCheck) }, "", fails("machine/w3"),
	},
	"a control plane is remediated one machine at a time": {planes, "", fails("machine/cp1,machine/cp2")},
	"two fail while one spare host is free": {func(s *fixture) *fixture {
		return s.workers(5).onMetal().whole().spares(1, "md-0")
	}, waitsForSpare, fails("machine/w1,machine/w2")},
	"one fails while no spare host fits": {func(s *fixture) *fixture {
		return s.workers(5).onMetal().whole().spares(2, "storage")
	}, waitsForSpare, fails("machine/w1")},
}

func TestStories(t *testing.T) {
	golden.Stories(t, "stories", stories, func(t *testing.T, s story) string {
		return printed(t, s.fixture(newFixture(t)).run(s.manifest, question(s.question)))
	})
}

func TestTheDocumentOfASimulation(t *testing.T) {
	s := stories["one machine fails and is remediated"]
	data, err := json.MarshalIndent(s.fixture(newFixture(t)).run(s.manifest, question(s.question)), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, filepath.Join("testdata", "one-machine-fails-and-is-remediated.json"), string(data)+"\n")
}
