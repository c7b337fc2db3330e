package snapshot

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// again is w after it was saved and loaded.
func again(t testing.TB, w *Snapshot) *Snapshot {
	t.Helper()
	loaded, err := Load(bytes.NewReader(saved(t, w)))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func saved(t testing.TB, w *Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := w.Save(&file); err != nil {
		t.Fatal(err)
	}
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
		"nothing":        {"", "load a record: it is no file that `kubectl mend record` has written"},
		"something else": {"kind: Pod\napiVersion: v1\n", "load a record: it is no file that `kubectl mend record` has written"},
		"a picture":      {"\x89PNG\r\n", "load a record: it is no file that `kubectl mend record` has written"},
		"no List":        {`{"kind":"Snapshot","apiVersion":"kubemend.io/v1alpha1"}`, "load a record: it is no file that `kubectl mend record` has written"},
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

// Nothing says of what type the fields are of a kind that is not known: a record has what is in them, or goes without.
func TestFieldsOfAnotherTypeSpoilNoRecord(t *testing.T) {
	w := New()
	put(t, w, tree2(poisonKind, "ns", "n", map[string]any{"status": "well"}), tree2(templateKind, "ns", "t", map[string]any{"spec": "none"}),
		tree2(templateKind, "ns", "u", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": secret}}}))
	if objs := again(t, w).Objects(templateKind, ""); len(objs) != 2 || bytes.Contains(saved(t, w), []byte(secret)) {
		t.Errorf("recorded are %v", objs)
	}
}

// What `kubectl get clusters,machines -A -o yaml` writes is read as all that there is.
func TestAListOfKubectlIsRead(t *testing.T) {
	w, err := Load(strings.NewReader(`apiVersion: v1
kind: List
items:
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: Machine
  metadata: {name: m, namespace: ns, labels: {cluster.x-k8s.io/cluster-name: c1}}
  spec: {clusterName: c1}
`))
	if err != nil {
		t.Fatal(err)
	}
	machine := One[clusterv1.Machine](w, key("m"))
	if machine == nil || machine.Spec.ClusterName != "c1" || !w.Clock.Now().Equal(w.Taken) {
		t.Errorf("there is %v, at %s of %s", machine, w.Clock.Now(), w.Taken)
	}
	if err := w.ReadOnly().Get(t.Context(), key("other"), &clusterv1.Machine{}); !apierrors.IsNotFound(err) {
		t.Errorf("a machine that is not there: %v", err)
	}
}

// A file may come from anybody. One that can be loaded is, saved again, a file that can be loaded, with the same content; and no Secret or
// ConfigMap that somebody put into it goes on.
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
		if err := again.Save(&twice); err != nil {
			t.Fatal(err)
		}
		if second := twice.Bytes(); !bytes.Equal(first, second) {
			t.Errorf("saved again, it differs: first\n%s\nsecond\n%s", first, second)
		}
	})
}
