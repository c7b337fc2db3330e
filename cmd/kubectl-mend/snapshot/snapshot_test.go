package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/workload"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newSnapshot returns a snapshot of noon, and its clock.
func newSnapshot(t testing.TB, objs ...client.Object) (*Snapshot, *clocktesting.FakePassiveClock) {
	t.Helper()
	w, at := New(), clocktesting.NewFakePassiveClock(noon)
	w.Clock = at
	put(t, w, objs...)
	return w, at
}

func put(t testing.TB, w *Snapshot, objs ...client.Object) {
	t.Helper()
	must.Do(t, w.Add(objs...))
}

func aMachine(name string, changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7", Generation: 2,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c1", "pool": "a"},
		},
		Spec:   clusterv1.MachineSpec{ClusterName: "c1"},
		Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "node-of-" + name}},
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

func bare(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

func whole(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

var (
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
	poisonKind  = schema.GroupVersionKind{Group: "remediators.example.com", Version: "v1", Kind: "Poison"}
)

func TestWhatIsNotThereIsSaidAsAnAPIServerSaysIt(t *testing.T) {
	hostKind := bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	w, _ := newSnapshot(t, aMachine("m"))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: hostKind.Group, Resource: "baremetalhosts"}, "", errors.New("no"))
	w.Forbid(hostKind, "", forbidden)
	w.Forbid(machineKind, "ns", forbidden) // before the list of all namespaces, which has succeeded
	w.Install(leaseGVK)
	w.kinds[leaseGVK.GroupKind()].remember(question{Name: "manager.kubemend.io"}, nil)
	w.Forbid(leaseGVK, "medik8s-leases", forbidden)
	w.Forbid(podGVK, "ns", forbidden)
	c := w
	want := []string{"BareMetalHosts in all namespaces: forbidden: no", "Leases in namespace medik8s-leases: forbidden: no",
		"Pods in namespace ns: forbidden: no"}
	must.Equal(t, want, w.Missing(), "missing")
	for name, tc := range map[string]struct {
		err  error
		want func(error) bool
	}{
		"all of a kind of which nothing may be read": {c.List(t.Context(), &corev1.PodList{}), apierrors.IsForbidden},
		"leases of a namespace, where those of one name may be read": {
			c.List(t.Context(), &coordinationv1.LeaseList{}, client.InNamespace("medik8s-leases")), apierrors.IsForbidden,
		},
		"an object that is not there":            {c.Get(t.Context(), key("other"), &clusterv1.Machine{}), apierrors.IsNotFound},
		"a kind that is not installed":           {c.Get(t.Context(), key("m"), &mendv1.HostRemediation{}), meta.IsNoMatchError},
		"a kind that is not installed, its list": {c.List(t.Context(), &mendv1.HostRemediationList{}), meta.IsNoMatchError},
		"a kind that may not be read":            {c.Get(t.Context(), key("m"), &bmov1alpha1.BareMetalHost{}), apierrors.IsForbidden},
		"a kind that may not be listed":          {c.List(t.Context(), &bmov1alpha1.BareMetalHostList{}), apierrors.IsForbidden},
		"the kind of an index alone": {w.IndexField(t.Context(), &mendv1.HostRemediation{}, "f", nil), func(err error) bool {
			return err == nil && meta.IsNoMatchError(c.List(t.Context(), &mendv1.HostRemediationList{}))
		}},
		"a field without an index": {c.List(t.Context(), &clusterv1.MachineList{}, client.MatchingFields{"spec.x": "y"}), apierrors.IsBadRequest},
		"a mapping of a kind that is there": {func() error {
			m, err := w.RESTMapper().RESTMapping(machineKind.GroupKind())
			if err == nil && m.Resource.Resource != "machines" {
				err = fmt.Errorf("its resource is %s", m.Resource)
			}
			return err
		}(), func(err error) bool { return err == nil }},
		"a mapping of one that is not": {func() error {
			_, err := w.RESTMapper().RESTMapping(poisonKind.GroupKind())
			return err
		}(), meta.IsNoMatchError},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.want(tc.err) {
				t.Errorf("the error is %v", tc.err)
			}
		})
	}
}

func TestAListHoldsWhatWasSelected(t *testing.T) {
	w, _ := newSnapshot(t, aMachine("b"), aMachine("a", func(m *clusterv1.Machine) { m.Labels["pool"], m.Labels["cp"] = "b", "" }),
		aMachine("c", func(m *clusterv1.Machine) { m.Spec.ClusterName = "c2" }),
		aMachine("d", func(m *clusterv1.Machine) { m.Namespace = "other" }))
	indexByCluster(t, w)
	for name, tc := range map[string]struct {
		options []client.ListOption
		want    []string
	}{
		"everything":                     {nil, []string{"a", "b", "c", "d"}},
		"a namespace":                    {[]client.ListOption{client.InNamespace("ns")}, []string{"a", "b", "c"}},
		"a label":                        {[]client.ListOption{client.MatchingLabels{"pool": "a"}}, []string{"b", "c", "d"}},
		"that there is a label":          {[]client.ListOption{client.HasLabels{"cp"}}, []string{"a"}},
		"an index":                       {[]client.ListOption{client.MatchingFields{"cluster": "c1"}}, []string{"a", "b", "d"}},
		"an index in a namespace":        {[]client.ListOption{client.InNamespace("ns"), client.MatchingFields{"cluster": "c1"}}, []string{"a", "b"}},
		"an index and a label":           {[]client.ListOption{client.MatchingFields{"cluster": "c1"}, client.MatchingLabels{"pool": "b"}}, []string{"a"}},
		"a name":                         {[]client.ListOption{client.MatchingFields{"metadata.name": "c"}}, []string{"c"}},
		"two fields":                     {[]client.ListOption{client.MatchingFields{"cluster": "c1", "metadata.name": "d"}}, []string{"d"}},
		"fewer than there are, all same": {[]client.ListOption{client.Limit(1), client.InNamespace("ns")}, []string{"a", "b", "c"}},
		"nothing":                        {[]client.ListOption{client.InNamespace("empty")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, options := range [][]client.ListOption{tc.options, append(tc.options, client.UnsafeDisableDeepCopy)} {
				list := &clusterv1.MachineList{}
				must.Do(t, w.List(t.Context(), list, options...))
				var got []string
				for i := range list.Items {
					got = append(got, list.Items[i].Name)
				}
				must.Equal(t, tc.want, got)
			}
			metadata := &metav1.PartialObjectMetadataList{}
			metadata.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
			if err := w.List(t.Context(), metadata, tc.options...); err != nil || len(metadata.Items) != len(tc.want) {
				t.Errorf("as metadata %d, %v", len(metadata.Items), err)
			}
			trees := &unstructured.UnstructuredList{}
			trees.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
			if err := w.List(t.Context(), trees, tc.options...); err != nil || len(trees.Items) != len(tc.want) {
				t.Errorf("as trees %d, %v", len(trees.Items), err)
			}
		})
	}
}

func indexByCluster(t testing.TB, w *Snapshot) {
	t.Helper()
	err := w.IndexField(context.Background(), &clusterv1.Machine{}, "cluster", func(o client.Object) []string {
		return []string{o.(*clusterv1.Machine).Spec.ClusterName}
	})
	must.Do(t, err)
}

func TestAClusterThatWasNotSeenIsDown(t *testing.T) {
	w, _ := newSnapshot(t)
	w.SetNodes(key("lost"), []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	w.SetUnseen(key("lost"), "its API server does not answer", noon)
	for _, name := range []string{"lost", "never"} {
		view, err := (Clusters{Snapshot: w}).View(t.Context(), key(name), noon)
		if err != nil || view.Link != workload.Down {
			t.Errorf("%s: link %d (%v)", name, view.Link, err)
		}
		if _, err := (Clusters{Snapshot: w}).NodesExist(t.Context(), key(name), []string{"a"}); err == nil {
			t.Errorf("%s: nodes are said to be there or not", name)
		}
	}
	if why, since, unseen := w.Unseen(key("lost")); why != "its API server does not answer" || !since.Equal(noon) || !unseen {
		t.Errorf("unseen %t since %s: %s", unseen, since, why)
	}
	if got := w.Workloads(); len(got) != 1 {
		t.Errorf("to ask for a cluster makes it known: %v", got)
	}
}

// again saves and loads a snapshot.
func again(t testing.TB, w *Snapshot) *Snapshot {
	t.Helper()
	loaded, err := Load(bytes.NewReader(saved(t, w)))
	must.Do(t, err)
	return loaded
}

func saved(t testing.TB, w *Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	must.Do(t, w.Save(&file))
	return file.Bytes()
}

func TestARecordHoldsOnlyWhatIsRead(t *testing.T) {
	raw := aManagementCluster(t, map[string]*Snapshot{"c1": nil})
	raw.SetNodes(key("c1"), []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{junk: secret}}}})
	for name, w := range map[string]*Snapshot{"as it was read": everything(t), "as somebody has filled it": raw} {
		content := string(saved(t, w))
		if at := strings.Index(content, secret); at >= 0 {
			t.Errorf("%s:\n%s", name, content[max(0, at-600):at+len(secret)])
		}
		for _, word := range []string{"managedFields", "last-applied", junk, "kubeconfig", "userData", "dataSecretName", "topology"} {
			if strings.Contains(content, word) {
				t.Errorf("%s there is %q in it", name, word)
			}
		}
	}
}

func TestALoadedSnapshotIsTheOneThatWasSaved(t *testing.T) {
	w := everything(t)
	w.SetUnseen(key("c3"), "it was lost", noon.Add(-time.Hour))
	file := saved(t, w)
	loaded := again(t, w)
	if diff := cmp.Diff(string(file), string(saved(t, loaded))); diff != "" {
		t.Errorf("saved again, it differs (-first +second):\n%s", diff)
	}
	if why, since, unseen := loaded.Unseen(key("c3")); !unseen || why != "it was lost" || !since.Equal(noon.Add(-time.Hour)) {
		t.Errorf("unseen %t since %s: %s", unseen, since, why)
	}
	kcp := One[controlplanev1.KubeadmControlPlane](loaded, key("cp"))
	if loaded.Node(key("c1"), "node-of-m") == nil || kcp == nil || *kcp.Spec.Remediation.MaxRetry != 3 {
		t.Errorf("it has no nodes, or not the rules of a control plane: %v", kcp)
	}
}

func TestWhatIsNoSnapshotIsNotLoaded(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"nothing":        {"", "load a record: it was not written by `kubectl mend record`"},
		"something else": {"kind: Pod\napiVersion: v1\n", "load a record: it was not written by `kubectl mend record`"},
		"a picture":      {"\x89PNG\r\n", "load a record: it was not written by `kubectl mend record`"},
		"no List":        {`{"kind":"Snapshot","apiVersion":"kubemend.io/v1alpha1"}`, "load a record: it was not written by `kubectl mend record`"},
		"one of a later version": {
			`{"kind":"List","items":[{"kind":"Snapshot","apiVersion":"kubemend.io/v1"}]}`,
			"load a record: it is of version kubemend.io/v1, and only kubemend.io/v1alpha1 is known here: another release of kubectl-mend has written it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(strings.NewReader(tc.file)); err == nil || err.Error() != tc.want {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// In an object of an unknown kind a field may have any type. A record keeps the value or leaves the field out.
func TestFieldsOfAnotherTypeSpoilNoRecord(t *testing.T) {
	w := New()
	put(t, w, tree2(poisonKind, "ns", "n", map[string]any{"status": "well"}), tree2(templateKind, "ns", "t", map[string]any{"spec": "none"}),
		tree2(templateKind, "ns", "u", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": secret}}}))
	if objs := again(t, w).Objects(templateKind, ""); len(objs) != 2 || bytes.Contains(saved(t, w), []byte(secret)) {
		t.Errorf("recorded are %v", objs)
	}
}

// The output of `kubectl get clusters,machines -A -o yaml` counts as all objects of these kinds.
func TestAListOfKubectlIsRead(t *testing.T) {
	w, err := Load(strings.NewReader(`apiVersion: v1
kind: List
items:
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: Machine
  metadata: {name: m, namespace: ns, labels: {cluster.x-k8s.io/cluster-name: c1}}
  spec: {clusterName: c1}
`))
	must.Do(t, err)
	machine := One[clusterv1.Machine](w, key("m"))
	if machine == nil || machine.Spec.ClusterName != "c1" || !w.Clock.Now().Equal(w.Taken) {
		t.Errorf("there is %v, at %s of %s", machine, w.Clock.Now(), w.Taken)
	}
	if err := w.Get(t.Context(), key("other"), &clusterv1.Machine{}); !apierrors.IsNotFound(err) {
		t.Errorf("a machine that is not there: %v", err)
	}
}

// A file may come from anybody. A file that can be loaded can be saved and loaded again with the same content, but without Secrets and
// ConfigMaps.
func FuzzLoad(f *testing.F) {
	const begin = `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"kubemend.io/v1alpha1","kind":"Snapshot","taken":"2026-01-01T12:00:00Z"`
	for _, rest := range []string{
		`}]}`, `,"missing":["x"]}]}`, `,"kinds":{"Secret":{"plural":"secrets","versions":["v1"],"namespaced":true,"answers":[{}]}}},` +
			`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"data":{"a":"c2VjcmV0"}}]}`,
		`,"kinds":{"Cluster.cluster.x-k8s.io":{"plural":"clusters","versions":["v1beta2"],"namespaced":true,"answers":[{}]}}},` +
			`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"namespace":"ns","name":"c"}}]}`,
		`,"kinds":{"Thing.example.org":{"plural":"things","versions":["v1"],"namespaced":true,` +
			`"answers":[{"namespace":"ns","why":{"message":"no"}}]}}}]}`,
		`,"workloadClusters":{"ns/c":{"nodes":{"n":{"metadata":{"name":"n"}},"m":null}},"ns/d":{"unseen":"lost"},"e":null}}]}`,
		`,"kinds":{"":null}}]}`, `,"kinds":{"A":{"versions":[""]}},"workloadClusters":{"":{}}}]}`,
	} {
		f.Add([]byte(begin + rest))
	}
	f.Add([]byte("kind: List\napiVersion: v1\nitems: [{kind: Snapshot, apiVersion: kubemend.io/v1alpha1}]\n"))
	f.Add([]byte("kind: List\napiVersion: v1\nitems: [{kind: Cluster, apiVersion: cluster.x-k8s.io/v1beta2, metadata: {name: c, namespace: ns}}, null]\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		w, err := Load(bytes.NewReader(file))
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		if err := w.Save(&once); err != nil {
			t.Fatalf("what was loaded cannot be saved: %v", err)
		}
		first := bytes.Clone(once.Bytes())
		if bytes.Contains(first, []byte(`"kind": "Secret"`)) {
			t.Errorf("a Secret goes on:\n%s", first)
		}
		again, err := Load(bytes.NewReader(once.Bytes()))
		if err != nil {
			t.Fatalf("what was saved cannot be loaded: %v\n%s", err, first)
		}
		must.Do(t, again.Save(&twice))
		if second := twice.Bytes(); !bytes.Equal(first, second) {
			t.Errorf("saved again, it differs: first\n%s\nsecond\n%s", first, second)
		}
	})
}
