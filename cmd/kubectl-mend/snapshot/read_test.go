package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/workload"
)

const (
	secret = "a secret value" // in all fields that a snapshot must not keep
	junk   = "example.com/whatever"
)

var (
	templateKind = poisonKind.GroupVersion().WithKind("PoisonTemplate")
	hostsKind    = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
)

func littered(o client.Object) client.Object {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.LastAppliedConfigAnnotation], annotations[junk], annotations[conversionData] = secret, secret, secret
	o.SetAnnotations(annotations)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: secret}})
	return o
}

func tree2(gvk schema.GroupVersionKind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// workloads has the workload clusters of each management cluster; nil for one that does not answer.
var workloads = map[*Snapshot]map[string]*Snapshot{}

// aManagementCluster has objects of all kinds that are read, with secret in all fields that must not be kept.
func aManagementCluster(t testing.TB, reach map[string]*Snapshot) *Snapshot {
	t.Helper()
	w, _ := newSnapshot(t)
	secrets := corev1.SchemeGroupVersion.WithKind("Secret")
	for _, gvk := range []schema.GroupVersionKind{poisonKind, templateKind, hostsKind, secrets, eventGVK} {
		w.Install(gvk)
	}
	machine := aMachine("m", func(m *clusterv1.Machine) {
		m.Spec.Bootstrap.DataSecretName = ptr.To(secret)
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "m3"}
		m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
	})
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cp"}}
	kcp.Spec.Remediation.MaxRetry = ptr.To[int32](3)
	kcp.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/secret", Content: secret}}
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host", Annotations: map[string]string{
		"baremetalhost.metal3.io/status": secret, infrav1.UnhealthyAnnotation: "x",
	}}}
	host.Spec.Online, host.Spec.BMC = true, bmov1alpha1.BMCDetails{Address: secret, CredentialsName: secret}
	host.Spec.UserData = &corev1.SecretReference{Name: secret}
	objs := []client.Object{
		machine, host, kcp,
		aMachine("other", func(m *clusterv1.Machine) { m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel] = "c2", "c2" }),
		tree2(infrav1.GroupVersion.WithKind("Metal3Machine"), "ns", "m3", map[string]any{"spec": map[string]any{"userData": secret},
			"metadata": map[string]any{"annotations": map[string]any{infrav1.HostAnnotation: "ns/host"}}}),
		&clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check"}, Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: "c1", Remediation: clusterv1.MachineHealthCheckRemediation{TemplateRef: clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: "remediators.example.com/v1", Kind: "PoisonTemplate", Name: "p",
			}},
		}},
		&nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: nhcv1.NodeHealthCheckSpec{
			RemediationTemplate: &corev1.ObjectReference{APIVersion: "remediators.example.com/v1", Kind: "PoisonTemplate", Namespace: "remediations", Name: "p"},
		}},
		tree2(templateKind, "ns", "p", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"password": secret}}}}),
		tree2(poisonKind, "remediations", "n", map[string]any{
			"spec": map[string]any{"password": secret},
			"status": map[string]any{"token": secret, "conditions": []any{
				map[string]any{"type": "Succeeded", "status": "False", "observedGeneration": int64(1)},
			}},
		}),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"role": "x"}}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Address: secret}},
		}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: managerlease.LeaseName}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: "node-n"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "somebody-else"}},
		&eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}, Regarding: corev1.ObjectReference{Kind: "Machine", Name: "m"}, Note: "well"},
		&eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f"}, Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Note: secret},
	}
	workloads[w] = reach
	t.Cleanup(func() { delete(workloads, w) })
	for name := range reach {
		objs = append(objs, aCluster(name), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: name},
		}, Data: map[string][]byte{"value": []byte(secret)}})
	}
	for _, o := range objs {
		put(t, w, littered(o))
	}
	return w
}

func aCluster(name string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	c.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: secret}}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue}}
	return c
}

// workloadOf returns a workload cluster with one fenced node.
func workloadOf(t testing.TB) *Snapshot {
	inner, _ := newSnapshot(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-m", Annotations: map[string]string{fence.FencedByAnnotation: "r", junk: secret}}}
	node.Status.NodeInfo.BootID = "boot"
	node.Status.Addresses = []corev1.NodeAddress{{Address: secret}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}
	put(t, inner, node, pod)
	return inner
}

// sourceOf returns a source that reads a snapshot like an API server.
func sourceOf(from *Snapshot, now clock.PassiveClock, scope Scope) *source {
	s := empty()
	s.Namespace, s.Taken, s.Clock = scope.Namespace, now.Now().UTC(), now
	for _, k := range from.installed() {
		for _, version := range k.Versions {
			if !hidden(k.GroupKind) {
				s.kindFor(k.WithVersion(version), k.Plural, k.Namespaced).live = true
			}
		}
	}
	s.source = &source{Scope: scope, snapshot: s, client: from, workload: func(ctx context.Context, of client.ObjectKey) (client.Reader, error) {
		kubeconfig := client.ObjectKey{Namespace: of.Namespace, Name: of.Name + "-kubeconfig"}
		if err := from.Get(ctx, kubeconfig, &corev1.Secret{}); err != nil {
			return nil, err
		}
		if there := workloads[from][of.Name]; there != nil {
			return there, nil
		}
		return nil, &url.Error{Op: "Get", URL: "https://silent", Err: syscall.ECONNREFUSED}
	}}
	return s.source
}

func readAll(t testing.TB, from *Snapshot, scope Scope) *Snapshot {
	t.Helper()
	w, err := sourceOf(from, clocktesting.NewFakePassiveClock(noon), scope).read(t.Context())
	must.Do(t, err)
	return w
}

func everything(t testing.TB) *Snapshot {
	from := aManagementCluster(t, map[string]*Snapshot{"c1": workloadOf(t), "silent": nil})
	return readAll(t, from, Scope{Everything: true})
}

func TestAllIsReadThatIsLookedAt(t *testing.T) {
	w := everything(t)
	c := w
	host, m3 := &bmov1alpha1.BareMetalHost{}, bare(infrav1.GroupVersion.WithKind("Metal3Machine"))
	poison, template := whole(poisonKind), whole(templateKind)
	for what, err := range map[string]error{
		"a machine":            c.Get(t.Context(), key("m"), &clusterv1.Machine{}),
		"one of another":       c.Get(t.Context(), key("other"), &clusterv1.Machine{}),
		"a host":               c.Get(t.Context(), key("host"), host),
		"what is between them": c.Get(t.Context(), key("m3"), m3),
		"a check":              c.Get(t.Context(), key("check"), &clusterv1.MachineHealthCheck{}),
		"a check of nodes":     c.Get(t.Context(), client.ObjectKey{Name: "nodes"}, &nhcv1.NodeHealthCheck{}),
		"a template":           c.Get(t.Context(), key("p"), template),
		"a request elsewhere":  c.Get(t.Context(), client.ObjectKey{Namespace: "remediations", Name: "n"}, poison),
		"a node":               c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.Node{}),
		"the manager's lease":  c.Get(t.Context(), client.ObjectKey{Namespace: "kubemend-system", Name: managerlease.LeaseName}, &coordinationv1.Lease{}),
		"the lease of a node":  c.Get(t.Context(), client.ObjectKey{Namespace: nhcv1.DefaultLeaseNamespace, Name: "node-n"}, &coordinationv1.Lease{}),
		"an event":             c.Get(t.Context(), key("e"), &eventsv1.Event{}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !host.Spec.Online || m3.Annotations[infrav1.HostAnnotation] != "ns/host" {
		t.Errorf("host %+v, Metal3Machine %+v", host.Spec, m3)
	}
	if conditions, _, _ := unstructured.NestedSlice(poison.Object, "status", "conditions"); len(conditions) != 1 {
		t.Errorf("the request says %v", poison.Object)
	}
	if _, found, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec"); !found {
		t.Errorf("the template cannot be used: %v", template.Object)
	}
	for _, name := range []string{"baremetalhosts.metal3.io", "poisons.remediators.example.com", "hostremediations.kubemend.io"} {
		if there, err := w.Installed(t.Context(), name); err != nil || there == strings.HasPrefix(name, "hostremediations") {
			t.Errorf("%s installed: %t (%v)", name, there, err)
		}
	}
	if err := c.Get(t.Context(), key("m"), &mendv1.HostRemediation{}); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not installed: %v", err)
	}
	if !w.Taken.Equal(noon) {
		t.Errorf("taken at %s", w.Taken)
	}
}

// simulate reads a policy from a file, and the namespaces that it selects from a record.
func TestARecordHasTheNamespacesThatOtherPoliciesSelect(t *testing.T) {
	from := aManagementCluster(t, nil)
	for _, tier := range []string{"prod", "test"} {
		put(t, from, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tier, Labels: map[string]string{"tier": tier}}})
	}
	w := readAll(t, from, Scope{Everything: true})
	for _, tier := range []string{"prod", "test"} { // the first is what a policy of the cluster selects
		list := &corev1.NamespaceList{}
		must.Do(t, w.List(t.Context(), list, client.MatchingLabels{"tier": tier}))
		must.Is(t, 1, len(list.Items), tier)
		w = again(t, w)
	}
}

func TestWorkloadClustersAreReadThroughTheirKubeconfigs(t *testing.T) {
	w := everything(t)
	node := w.Node(key("c1"), "node-of-m")
	if node == nil || node.Status.NodeInfo.BootID != "boot" || node.Annotations[fence.FencedByAnnotation] != "r" {
		t.Fatalf("the node is %+v", node)
	}
	if why, _, unseen := w.Unseen(key("silent")); !unseen || why == "" {
		t.Error("a cluster that cannot be reached was seen")
	}
	if got := w.Missing(); len(got) != 1 || !strings.HasPrefix(got[0], "Nodes of cluster ns/silent: no connection: ") {
		t.Errorf("missing are %v", got)
	}
}

// The manager does not judge machines by nodes of another workload cluster either.
func TestNoNodesAreThoseOfAnotherWorkloadClusterThanTheOneThatIsKept(t *testing.T) {
	for kept, want := range map[string]bool{"": true, "u/w1": true, "u/w0": false, "other/w0": true} {
		inner, _ := newSnapshot(t)
		put(t, inner, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "w1"}})
		cluster, r := aCluster("c1"), &source{workload: func(context.Context, client.ObjectKey) (client.Reader, error) { return inner, nil }}
		cluster.UID, cluster.Annotations = "u", map[string]string{mendv1.WorkloadClusterAnnotation: kept}
		_, err := r.nodes(t.Context(), cluster)
		if changed := (*workload.ChangedError)(nil); errors.As(err, &changed) == want || want && err != nil {
			t.Errorf("%q is kept: %v", kept, err)
		}
	}
}

// Package workload, which the manager uses too, refuses the fields that a kubeconfig must not have.
func TestAKubeconfigReadsNothingOnTheMachineOfTheUser(t *testing.T) {
	const content = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"https://example.com"}}],"users":[{"name":"u","user":{"tokenFile":"/etc/passwd"}}]}`
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": []byte(content)}}
	_, err := WorkloadReader(t.Context(), fake.NewClientBuilder().WithObjects(secret).Build(), key("c1"))
	var refused *workload.RefusedError
	if !errors.As(err, &refused) || refused.Entry != "users[u].user.tokenFile" {
		t.Errorf("the error is %v", err)
	}
}

func forbid(w *Snapshot, gvk schema.GroupVersionKind, plural, namespace string) {
	w.Forbid(gvk, namespace, apierrors.NewForbidden(schema.GroupResource{Group: gvk.Group, Resource: plural}, "", errors.New(`User "u" may not`)))
}

func TestWhatMayNotBeReadIsSaidAndGoneOnWithout(t *testing.T) {
	from := aManagementCluster(t, map[string]*Snapshot{"c1": workloadOf(t)})
	forbid(from, hostsKind, "baremetalhosts", "")
	forbid(from, poisonKind, "poisons", "")
	forbid(from, corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", "")
	from.Remove(corev1.SchemeGroupVersion.WithKind("Secret"), key("c1-kubeconfig")) // Forbid alone would not hide a stored object
	w := readAll(t, from, Scope{Everything: true})
	want := []string{
		`BareMetalHosts in all namespaces: forbidden: User "u" may not`,
		`Nodes of cluster ns/c1: forbidden: User "u" may not`,
		`Poisons in all namespaces: forbidden: User "u" may not`,
	}
	must.Equal(t, want, w.Missing(), "missing")
	for _, of := range []*Snapshot{w, again(t, w)} {
		if err := of.List(t.Context(), &bmov1alpha1.BareMetalHostList{}); !apierrors.IsForbidden(err) {
			t.Errorf("the hosts are %v", err)
		}
	}
}

func TestAClusterThatCannotBeAskedAtAllIsAnError(t *testing.T) {
	if _, err := Read(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, clock.RealClock{}, Scope{}); err == nil {
		t.Error("a snapshot was read from nowhere")
	}
}

func TestMetal3RemediationsOfAnOldVersionAreReadAsMetadata(t *testing.T) {
	w, _ := newSnapshot(t)
	old := schema.GroupVersionKind{Group: infrav1.GroupVersion.Group, Version: "v1beta1", Kind: "Metal3Remediation"}
	put(t, w, tree2(old, "ns", "m", map[string]any{}))
	is := readAll(t, w, Scope{})
	if err := is.Get(t.Context(), key("m"), bare(old)); err != nil {
		t.Error(err)
	}
	if err := is.Get(t.Context(), key("m"), &infrav1.Metal3Remediation{}); !meta.IsNoMatchError(err) {
		t.Errorf("the version that is not served: %v", err)
	}
}

// Whoever writes the kubeconfig of a workload cluster chooses the server that answers to the user's machine. Package workload limits the
// length of answers, and follows no redirects.
func TestAWorkloadClusterCannotFillTheMemoryOfWhoAsks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":["`)
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, strings.Repeat(" ", 1<<20))
		}
	}))
	defer server.Close()
	of := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1-kubeconfig"}, Data: map[string][]byte{
		"value": fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],
"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL),
	}}
	reader, err := WorkloadReader(t.Context(), fake.NewClientBuilder().WithObjects(of).Build(), key("c1"))
	must.Do(t, err)
	if err := reader.List(t.Context(), &corev1.NodeList{}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("the error is %v", err)
	}
}

// simulate and remediate change objects in a snapshot before their kind is read.
func TestWhatWasChangedStaysWhenItsKindIsRead(t *testing.T) {
	w := readAll(t, aManagementCluster(t, nil), Scope{Namespace: "ns"})
	put(t, w, &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host", Labels: map[string]string{"changed": ""}}})
	hosts := &bmov1alpha1.BareMetalHostList{}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := w.List(interrupted, hosts); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that is interrupted: %v", err)
	}
	if err := w.List(t.Context(), hosts, client.HasLabels{"changed"}); err != nil || len(hosts.Items) != 1 || len(w.Missing()) > 0 {
		t.Errorf("there are %d (%v), and missing are %v", len(hosts.Items), err, w.Missing())
	}
}

// A control plane that does not answer must not be reported as a missing right.
func TestAClusterThatDoesNotAnswerIsNoMissingRight(t *testing.T) {
	asked := func(err error) error {
		return fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://c1:6443", Err: err})
	}
	for name, row := range map[string]struct {
		err    error
		silent bool
	}{
		"it refuses the connection":            {asked(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		"its name is not known":                {asked(&net.DNSError{Err: "no such host", Name: "c1"}), true},
		"its certificate is another's":         {asked(errors.New("x509: certificate signed by unknown authority")), true},
		"it does not answer in time":           {asked(context.DeadlineExceeded), true},
		"a load balancer answers in its place": {apierrors.NewServiceUnavailable("no backend"), true},
		"it forbids the reading":               {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no")), false},
		"it does not know the user":            {apierrors.NewUnauthorized("no"), false},
		"its kubeconfig cannot be read":        {errors.New("no kubeconfig"), false},
	} {
		later := &kind{}
		later.remember(question{}, row.err)
		for _, err := range []error{
			row.err, fmt.Errorf("list Machines: %w", row.err), errors.Join(errors.New("also"), row.err), fmt.Errorf("list: %w", later.unread("")),
		} {
			if Silent(err) != row.silent {
				t.Errorf("%s: %q", name, why(err))
			}
		}
	}
}
