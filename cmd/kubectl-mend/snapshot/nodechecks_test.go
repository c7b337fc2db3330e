package snapshot

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var itself = client.ObjectKey{Namespace: "mgmt", Name: "itself"}

// thatManagesItself returns a management cluster whose own Cluster is in namespace mgmt, with another Cluster.
func thatManagesItself(t testing.TB) *Snapshot {
	t.Helper()
	w := aManagementCluster(t, map[string]*Snapshot{"c1": workloadOf(t)})
	in := func(o client.Object, namespace string) client.Object {
		o.SetNamespace(namespace)
		return o
	}
	of := func(cluster string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			m.Namespace, m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel] = itself.Namespace, cluster, cluster
		}
	}
	check := func(name, cluster string) *clusterv1.MachineHealthCheck {
		is := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: itself.Namespace, Name: name}}
		is.Spec.ClusterName = cluster
		is.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: "remediators.example.com/v1", Kind: "CureTemplate", Name: "p",
		}
		return is
	}
	cure := poisonKind.GroupVersion().WithKind("CureTemplate")
	w.Install(cure)
	w.Install(poisonKind.GroupVersion().WithKind("Cure"))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp", Annotations: map[string]string{
		clusterv1.MachineAnnotation: "cp", clusterv1.ClusterNamespaceAnnotation: itself.Namespace, clusterv1.ClusterNameAnnotation: itself.Name,
	}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: itself.Namespace, Name: itself.Name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: itself.Name},
	}}
	workloads[w][itself.Name] = workloadOf(t)
	put(t, w, node, secret, in(aCluster(itself.Name), itself.Namespace), in(aCluster("another"), itself.Namespace),
		aMachine("cp", of(itself.Name)), aMachine("far", of("another")), check("near", itself.Name), check("far", "another"),
		tree2(cure, itself.Namespace, "p", map[string]any{}))
	return w
}

func TestWhatNodeHealthChecksLookAtIsReadWhereverItIs(t *testing.T) {
	from := thatManagesItself(t)
	for name, scope := range map[string]Scope{
		"another namespace":                      {Namespace: "ns"},
		"another cluster":                        {Cluster: "c1"},
		"another cluster in its namespace":       {Namespace: itself.Namespace, Cluster: "another"},
		"everything, where there is nothing new": {},
	} {
		t.Run(name, func(t *testing.T) {
			w := readAll(t, from, scope)
			template := whole(poisonKind.GroupVersion().WithKind("CureTemplate"))
			for what, obj := range map[string]client.Object{
				"cp": &clusterv1.Machine{}, itself.Name: &clusterv1.Cluster{}, "near": &clusterv1.MachineHealthCheck{}, "p": template,
			} {
				if err := w.Get(t.Context(), client.ObjectKey{Namespace: itself.Namespace, Name: what}, obj); err != nil {
					t.Errorf("%T %s: %v", obj, what, err)
				}
			}
			for _, cluster := range w.Workloads() {
				if !scope.reads(cluster) {
					t.Errorf("the nodes of cluster %s were read", cluster)
				}
			}
			if missing := w.Missing(); len(missing) > 1 { // the other Cluster has no kubeconfig
				t.Errorf("missing are %v", missing)
			}
		})
	}
}

func TestMachinesOfNodesThatMayNotBeReadAreMissing(t *testing.T) {
	from := thatManagesItself(t)
	forbid(from, machineGVK, "machines", "")
	from.Forbid(machineGVK, "ns", nil)
	w := readAll(t, from, Scope{Namespace: "ns"})
	err := w.Get(t.Context(), client.ObjectKey{Namespace: itself.Namespace, Name: "cp"}, &clusterv1.Machine{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the Machine of the node: %v", err)
	}
	want := []string{`Machines in namespace mgmt: forbidden: User "u" may not`}
	must.Equal(t, want, w.Missing(), "missing")
}

func TestThatRemediationsMayNotBeLookedForIsSaid(t *testing.T) {
	w, _ := newSnapshot(t, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1"}})
	for kind, plural := range map[string]string{"FormerRemediation": "formerremediations", "FormerMachine": "formermachines"} {
		gvk := poisonKind.GroupVersion().WithKind(kind)
		w.Install(gvk.GroupVersion().WithKind(kind + "Template"))
		forbid(w, gvk, plural, "")
	}
	w.Install(mendv1.GroupVersion.WithKind("HostRemediationTemplate"))
	forbid(w, mendv1.GroupVersion.WithKind("HostRemediation"), "hostremediations", "") // always read, so Missing has it
	want := []string{
		`FormerRemediations in namespace ns: forbidden: User "u" may not`, `HostRemediations in namespace ns: forbidden: User "u" may not`,
	}
	must.Equal(t, want, readAll(t, w, Scope{Namespace: "ns"}).Missing(), "missing")
}

func TestAReadThatIsInterruptedGivesNoSnapshot(t *testing.T) {
	discovered, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) {
		interrupt()
		<-in.Context().Done() // ends when the client cancels
	}))
	t.Cleanup(server.Close)
	if w, err := Read(discovered, &rest.Config{Host: server.URL}, clock.RealClock{}, Scope{}); w != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("while kinds are discovered it gives %v, %v", w, err)
	}
	if w, err := sourceOf(aManagementCluster(t, nil), clock.RealClock{}, Scope{}).read(discovered); w != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("while objects are read it gives %v, %v", w, err)
	}
}

func TestAnAnswerMustBeginSoonAndMayTakeLong(t *testing.T) {
	for name, tc := range map[string]struct {
		begins time.Duration
		late   bool
	}{
		"one that begins in time":  {4 * time.Second, false},
		"one that begins too late": {6 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := RoundTripper(func(in *http.Request) (*http.Response, error) {
					select {
					case <-time.After(tc.begins):
					case <-in.Context().Done():
						return nil, in.Context().Err()
					}
					return &http.Response{Body: slow{in.Context(), 20 * time.Second}}, nil
				})
				in, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://workload", http.NoBody)
				must.Do(t, err)
				out, err := answering(5 * time.Second)(server).RoundTrip(in)
				if tc.late {
					if !errors.Is(err, context.DeadlineExceeded) || why(err) != "no answer came in time" {
						t.Errorf("the error is %v", err)
					}
					return
				}
				must.Do(t, err)
				data, err := io.ReadAll(out.Body)
				if err != nil || string(data) != "all" {
					t.Errorf("the answer is %q (%v)", data, err)
				}
				if err := out.Body.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slow is the body of an answer that takes a while, and fails if the request is canceled.
type slow struct {
	ctx   context.Context //nolint:containedctx // the context of the request
	takes time.Duration
}

func (s slow) Read(into []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(s.takes):
		return copy(into, "all"), io.EOF
	}
}

func (s slow) Close() error { return nil }

func TestAScopeIsKeptTo(t *testing.T) {
	from := aManagementCluster(t, map[string]*Snapshot{"c1": workloadOf(t), "c2": workloadOf(t)})
	from.Remove(nodeCheckGVK, client.ObjectKey{Name: "nodes"}) // with it, the Machines of all clusters are read
	put(t, from, aMachine("elsewhere", func(m *clusterv1.Machine) { m.Namespace = "other" }))
	w := readAll(t, from, Scope{Namespace: "ns", Cluster: "c1"})
	list, clusters := &clusterv1.MachineList{}, &clusterv1.ClusterList{}
	must.Do(t, errors.Join(w.List(t.Context(), list), w.List(t.Context(), clusters)))
	if len(list.Items) != 1 || list.Items[0].Name != "m" || len(clusters.Items) != 1 || len(w.Workloads()) != 1 {
		t.Errorf("%d machines, %d clusters, %v seen", len(list.Items), len(clusters.Items), w.Workloads())
	}
}

func TestWhereOneNodeIsLookedForOthersAreNot(t *testing.T) {
	from := aManagementCluster(t, map[string]*Snapshot{"c1": workloadOf(t), "c2": workloadOf(t)})
	for name, cluster := range map[string]string{"a": "c1", "b": "c2", "c": "c2"} {
		put(t, from, aMachine("on-"+name, func(m *clusterv1.Machine) {
			m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel], m.Status.NodeRef.Name = cluster, cluster, name
		}))
	}
	for node, want := range map[string][]client.ObjectKey{"a": {key("c1")}, "b": {key("c2")}, "unknown": nil, "": {key("c1"), key("c2")}} {
		w := readAll(t, from, Scope{Namespace: "ns", Node: node})
		if got := w.Workloads(); !slices.Equal(got, want) {
			t.Errorf("for node %q the nodes of %v were read, want %v", node, got, want)
		}
		if missing := w.Missing(); len(missing) > 0 {
			t.Errorf("for node %q it is said that there are missing %v", node, missing)
		}
	}
}
