package simulate

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

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
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// noon is when every story begins.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

var inC1 = client.ObjectKey{Namespace: "default", Name: "c1"}

// fixture is a management cluster with a cluster c1, to which a story adds what it needs.
type fixture struct {
	t    testing.TB
	objs []client.Object
	// nodes are those of c1.
	nodes []corev1.Node
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

// workers adds machines w1, w2 and so on that are healthy.
func (s *fixture) workers(n int) *fixture {
	for i := 1; i <= n; i++ {
		s.machine(fmt.Sprintf("w%d", i), "MachineSet", "md-0")
	}
	return s
}

// machine adds one that is healthy.
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

// aNode returns one that is healthy.
func aNode(name string, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: at(9 * time.Hour)}}
	node.Status.NodeInfo.BootID = "boot-0-of-" + name
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: at(8 * time.Hour)},
	}
	return node
}

// silent makes the node of a worker silent for that long.
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
		h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
		h.Spec.ConsumerRef = &corev1.ObjectReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "default", Name: m.Name,
		}
		s.objs = append(s.objs, between, h)
	}
	return s
}

// nodesHere adds nodes of the management cluster that no Machine is known of.
func (s *fixture) nodesHere(n int) *fixture {
	for i := 1; i <= n; i++ {
		s.objs = append(s.objs, aNode(fmt.Sprintf("n%d", i), map[string]string{"rack": "a", "name": fmt.Sprintf("n%d", i)}))
	}
	return s
}

// existing adds the objects of a manifest as they are.
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
			install(w, u.GroupVersionKind())
		}
	}
	if err := w.Add(s.objs...); err != nil {
		s.t.Fatal(err)
	}
	w.SetNodes(inC1, s.nodes)
	return w
}

// question is that of a story, with the defaults of the flags.
func question(edit func(*Question)) Question {
	q := Question{Namespace: "default", From: noon, Horizon: time.Hour, Takes: 10 * time.Minute}
	if edit != nil {
		edit(&q)
	}
	return q
}

// run answers a question about a manifest in the fixture.
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
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func read(t testing.TB, manifest string) Manifest {
	t.Helper()
	m, err := Read(strings.NewReader(manifest), "check.yaml", "default")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// printed is an answer on terminals of two widths.
func printed(t *testing.T, answer *cliv1.Simulation) string {
	t.Helper()
	var out strings.Builder
	for _, width := range []int{80, 200} {
		fmt.Fprintf(&out, "==== %d columns\n", width)
		if err := Print(&out, answer, text.Layout{Width: width}); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// whole makes the Metal3Machines known with all that they ask for, which is a host of the pool md-0.
func (s *fixture) whole() *fixture {
	for i, obj := range s.objs {
		if between, is := obj.(*metav1.PartialObjectMetadata); is && between.Kind == "Metal3Machine" {
			tree := map[string]any{"spec": map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"pool": "md-0"}}}}
			known, err := runtime.DefaultUnstructuredConverter.ToUnstructured(between)
			if err != nil {
				s.t.Fatal(err)
			}
			maps.Copy(tree, known)
			s.objs[i] = &unstructured.Unstructured{Object: tree}
		}
		if h, is := obj.(*bmov1alpha1.BareMetalHost); is {
			h.Labels = map[string]string{"pool": "md-0"}
		}
	}
	return s
}

// spares adds hosts of a pool that no machine has.
func (s *fixture) spares(n int, pool string) *fixture {
	for i := range n {
		name := fmt.Sprintf("spare-%d", i+1)
		h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		h.Labels = map[string]string{"pool": pool}
		h.Status.Provisioning.State = bmov1alpha1.StateAvailable
		s.objs = append(s.objs, h)
	}
	return s
}
