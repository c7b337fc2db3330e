package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/golden"
)

// noon is the beginning of every story.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

var inC1 = client.ObjectKey{Namespace: "default", Name: "c1"}

// fixture is a management cluster with a cluster c1. Each story adds objects.
type fixture struct {
	t     testing.TB
	objs  []client.Object
	nodes []corev1.Node // of c1
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "c1"}}
	for _, is := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{
			Type: is, Status: metav1.ConditionTrue, LastTransitionTime: at(20 * time.Hour),
		})
	}
	return &fixture{t: t, objs: []client.Object{cluster}}
}

// workers adds healthy machines w1, w2 and so on.
func (s *fixture) workers(n int) *fixture {
	for i := 1; i <= n; i++ {
		s.machine(fmt.Sprintf("w%d", i), "MachineSet", "md-0")
	}
	return s
}

// machine adds a healthy machine and its node.
func (s *fixture) machine(name, kind, owner string, edits ...func(*clusterv1.Machine)) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: at(10 * time.Hour), Finalizers: []string{"machine.cluster.x-k8s.io"},
		Labels: map[string]string{"pool": owner, "name": name, clusterv1.ClusterNameLabel: "c1"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(owner), Controller: ptr.To(true)},
		},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "node-"+name
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, LastTransitionTime: at(9 * time.Hour),
	}}
	for _, edit := range edits {
		edit(m)
	}
	s.objs = append(s.objs, m)
	s.nodes = append(s.nodes, *aNode("node-"+name, nil))
}

// aNode returns a healthy node.
func aNode(name string, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: at(9 * time.Hour)}}
	node.Status.NodeInfo.BootID = "boot-0-of-" + name
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: at(8 * time.Hour)},
	}
	return node
}

// silent makes the nodes of workers Ready=Unknown.
func (s *fixture) silent(ago time.Duration, names ...string) *fixture {
	for i := range s.nodes {
		for _, name := range names {
			if s.nodes[i].Name == "node-"+name {
				s.nodes[i].Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: at(ago)},
				}
			}
		}
	}
	return s
}

// onMetal puts all machines on hosts.
func (s *fixture) onMetal() *fixture {
	for _, obj := range s.objs {
		m, is := obj.(*clusterv1.Machine)
		if !is {
			continue
		}
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: m.Name}
		between := &metav1.PartialObjectMetadata{}
		between.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
		between.Namespace, between.Name, between.UID = m.Namespace, m.Name, types.UID("m3-"+m.Name)
		between.Annotations = map[string]string{infrav1.HostAnnotation: "default/host-" + m.Name}
		between.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}}
		h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "host-" + m.Name, UID: types.UID("host-" + m.Name)}}
		h.Labels = map[string]string{place.FailureDomainLabel: []string{"b07", "b08"}[len(s.objs)/2%2]}
		h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
		h.Spec.ConsumerRef = &corev1.ObjectReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "default", Name: m.Name,
		}
		s.objs = append(s.objs, between, h)
	}
	return s
}

// nodesHere adds nodes of the management cluster without a Machine.
func (s *fixture) nodesHere(n int) *fixture {
	for i := 1; i <= n; i++ {
		s.objs = append(s.objs, aNode(fmt.Sprintf("n%d", i), map[string]string{"rack": "a", "name": fmt.Sprintf("n%d", i)}))
	}
	return s
}

// existing adds the objects of a manifest, created a day ago.
func (s *fixture) existing(documents string) *fixture {
	for _, obj := range read(s.t, documents) {
		obj.SetCreationTimestamp(at(24 * time.Hour))
		s.objs = append(s.objs, obj)
	}
	return s
}

func (s *fixture) snapshot() *snapshot.Snapshot {
	s.t.Helper()
	w := snapshot.New()
	w.Taken = noon
	for _, obj := range s.objs {
		if u, is := obj.(*unstructured.Unstructured); is {
			w.Install(u.GroupVersionKind(), remediationrequest.KindOf(u.GroupVersionKind()))
		}
	}
	must.Do(s.t, w.Add(s.objs...))
	w.SetNodes(inC1, s.nodes)
	return w
}

// question returns a question with the defaults of the flags.
func question(edit func(*Question)) Question {
	q := Question{Namespace: "default", From: noon, Horizon: time.Hour, Takes: 10 * time.Minute}
	if edit != nil {
		edit(&q)
	}
	return q
}

// run simulates a manifest in the fixture.
func (s *fixture) run(manifest string, q Question) *cliv1.Simulation {
	s.t.Helper()
	return runIn(s.t, s.snapshot(), manifest, q)
}

func runIn(t testing.TB, w *snapshot.Snapshot, manifest string, q Question) *cliv1.Simulation {
	t.Helper()
	if manifest != "" {
		q.Manifest = read(t, manifest)
	}
	answer, err := Run(t.Context(), w, q)
	must.Do(t, err)
	return answer
}

func read(t testing.TB, manifest string) Manifest {
	t.Helper()
	m, err := Read(strings.NewReader(manifest), "check.yaml", "default")
	must.Do(t, err)
	return m
}

// printed prints an answer for terminals of 80 and 200 columns.
func printed(t *testing.T, answer *cliv1.Simulation) string {
	t.Helper()
	var out strings.Builder
	for _, width := range []int{80, 200} {
		fmt.Fprintf(&out, "==== %d columns\n", width)
		must.Do(t, Print(&out, answer, text.Layout{Width: width}))
	}
	return out.String()
}

// whole adds to the Metal3Machines a selector for hosts of the pool md-0.
func (s *fixture) whole() *fixture {
	for i, obj := range s.objs {
		if between, is := obj.(*metav1.PartialObjectMetadata); is && between.Kind == "Metal3Machine" {
			tree := map[string]any{"spec": map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"pool": "md-0"}}}}
			known, err := runtime.DefaultUnstructuredConverter.ToUnstructured(between)
			must.Do(s.t, err)
			maps.Copy(tree, known)
			s.objs[i] = &unstructured.Unstructured{Object: tree}
		}
		if h, is := obj.(*bmov1alpha1.BareMetalHost); is {
			h.Labels = map[string]string{"pool": "md-0"}
		}
	}
	return s
}

// spares adds free hosts of a pool, and a policy by which remediations wait for a spare host.
func (s *fixture) spares(n int, pool string) *fixture {
	policy := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spares"}}
	policy.Spec.WaitForSpare = &mendv1.PolicyWaitForSpare{TimeoutSeconds: 900}
	s.objs = append(s.objs, policy)
	for i := range n {
		name := fmt.Sprintf("spare-%d", i+1)
		h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		h.Labels = map[string]string{"pool": pool}
		h.Status.Provisioning.State = bmov1alpha1.StateAvailable
		s.objs = append(s.objs, h)
	}
	return s
}

// workersAs returns the manifest of a check of the workers, with these annotations and this remediation.
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
	workersCheck = workersAs(claimed, "  remediation:\n    triggerIf: {unhealthyLessThanOrEqualTo: 40%}\n")
	freely       = workersAs(claimed, "")
	pausedCheck  = workersAs(`cluster.x-k8s.io/paused: "true"`, "")
	powerCycle   = rebootTemplate + workersAs(claimed,
		"  remediation:\n    templateRef: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: reboot}\n")
)

// olderCheck is a check that selects all machines of c1.
var olderCheck = strings.NewReplacer("name: workers", "name: everything", "pool: md-0", "cluster.x-k8s.io/cluster-name: c1", "300", "600").
	Replace(workersAs(claimed, ""))

// rebootTemplate is the template for power cycles.
const rebootTemplate = `
# A template, and a check that names it.
apiVersion: kubemend.io/v1alpha1
kind: HostRemediationTemplate
metadata: {name: reboot}
spec: {template: {spec: {strategy: {type: Reboot, retryLimit: 1, timeoutSeconds: 300}}}}
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
metadata: {name: racks}
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

// kernelRule is a check whose only rule is about the condition KernelDeadlock, not Ready.
var kernelRule = rebootTemplate + strings.Replace(workersAs(claimed, "  remediation:\n    triggerIf: {unhealthyLessThanOrEqualTo: 50%}\n"+
	"    templateRef: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: reboot}\n"),
	"{type: Ready, status: Unknown, timeoutSeconds: 300}", `{type: KernelDeadlock, status: "True", timeoutSeconds: 600}`, 1)

const racksPolicy = `
apiVersion: kubemend.io/v1alpha1
kind: RemediationPolicy
metadata: {name: racks, namespace: kubemend-system}
spec:
  selector: {}
  limits:
  - {name: rack, groupBy: [{key: FailureDomain}], maxInFlight: 2, slowStart: Enabled}
  - {name: fleet, maxInFlight: 3}
---
`

// overrides hold c1 for 20 minutes, and allow more unhealthy machines of c1 for an hour.
const overrides = `
apiVersion: kubemend.io/v1alpha1
kind: RemediationOverride
metadata: {name: swap}
spec: {action: Hold, targetRef: {kind: Cluster, name: c1}, until: "2026-01-01T12:20:00Z", reason: switch swap, by: alice}
---
apiVersion: kubemend.io/v1alpha1
kind: RemediationOverride
metadata: {name: more}
spec: {action: Allow, targetRef: {kind: MachineHealthCheck, name: workers}, until: "2026-01-01T13:00:00Z", reason: power is back,
  allow: {maxUnhealthy: 60%, maxInFlight: 2}}
---
`

// window is racksPolicy with a window that denies remediations until 12:30.
var window = strings.Replace(racksPolicy, "spec:", "spec:\n  windows: [{action: Deny, schedule: 0 12 * * *, durationSeconds: 1800}]", 1)

// story is a fixture, a manifest and a question.
type story struct {
	fixture  func(*fixture) *fixture
	manifest string
	question func(*Question)
}

func fails(what ...string) func(*Question) { return func(q *Question) { q.Fail = what } }

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
		q.Fail, q.For = []string{"name in (w1,w2,w3)"}, 20*time.Minute
	}},
	"three of five fail under another limit": {workers(5), workersCheck, func(q *Question) {
		q.Fail, q.Set = []string{"3"}, []string{"maxUnhealthy=60%"}
	}},
	"two checks overlap": {func(s *fixture) *fixture { return s.workers(3).existing(olderCheck) }, workersCheck, fails("machine/w2")},
	"one has failed before and one is about to count": {func(s *fixture) *fixture {
		return s.workers(3).silent(10*time.Minute, "w1").silent(time.Minute, "w2")
	}, workersAs("", ""), nil},
	"no rule of the check matches what fails": {hosts(4), kernelRule, fails("machine/w1")},
	"a ladder is climbed": {nodesHere(5), ladder, func(q *Question) {
		q.Fail, q.Takes = []string{"name=n2"}, 15*time.Minute
	}},
	"a storm passes": {nodesHere(5), ladder, func(q *Question) {
		q.Fail, q.For = []string{"node/n1,node/n2,node/n3"}, 20*time.Minute
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
	}, freely, fails("machine/w1,machine/w2")},
	"one fails while no spare host fits": {func(s *fixture) *fixture {
		return s.workers(5).onMetal().whole().spares(2, "storage")
	}, freely, fails("machine/w1")},
	"a hold ends while an override allows more": {workers(5), overrides + workersCheck, fails("name in (w1,w2,w3)")},
	"a window opens in place of the policy that is there": {func(s *fixture) *fixture {
		return s.nodesHere(5).existing(racksPolicy)
	}, window + ladder, func(q *Question) { q.Fail, q.Takes = []string{"node/n1,node/n2"}, 15*time.Minute }},
	"a rack falls under a policy": {hosts(12), racksPolicy + workersAs(claimed, ""), fails("failuredomain/b07")},
}

func TestStories(t *testing.T) {
	golden.Stories(t, "stories", stories, func(t *testing.T, s story) string {
		return printed(t, s.fixture(newFixture(t)).run(s.manifest, question(s.question)))
	})
}

func TestTheDocumentOfASimulation(t *testing.T) {
	s := stories["one machine fails and is remediated"]
	data, err := json.MarshalIndent(s.fixture(newFixture(t)).run(s.manifest, question(s.question)), "", "  ")
	must.Do(t, err)
	golden.Compare(t, filepath.Join("testdata", "one-machine-fails-and-is-remediated.json"), string(data)+"\n")
}
