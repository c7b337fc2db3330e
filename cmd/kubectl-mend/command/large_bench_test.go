package command

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// The processor time of the command where there are thousands of machines. Servers in the same process send what was marshalled before, so most
// of what a profile shows is the command's: go test -run '^$' -bench Large -cpuprofile cpu.out ./cmd/kubectl-mend/command
func BenchmarkLarge(b *testing.B) {
	for _, clusters := range []int{50, 1} {
		fleet := aFleet(b, 5000, clusters)
		for _, question := range []string{"status", "status --full", "explain machine/c0-m0"} {
			b.Run(fmt.Sprintf("%d clusters: %s", clusters, question), func(b *testing.B) {
				for b.Loop() {
					var out, errOut strings.Builder
					streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
					root := New(streams, "kubectl mend", "dev")
					root.SetArgs(append(strings.Fields(question), "--kubeconfig", fleet, "-n", "ns"))
					if code := Run(b.Context(), root, streams); code != Done || strings.Contains(out.String(), "ould not be read") {
						b.Fatalf("exit code %d: %s%s", code, &errOut, &out)
					}
				}
			})
		}
	}
}

// aFleet is a management cluster and its workload clusters; the result is a kubeconfig.
func aFleet(b testing.TB, machines, clusters int) string {
	b.Helper()
	answers := map[string][]byte{}
	packed := sync.Map{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		path := in.URL.Path
		if name, is := strings.CutPrefix(in.URL.Query().Get("fieldSelector"), "metadata.name="); is {
			path += "?" + name
		} else if in.URL.Query().Get("labelSelector") == clusterv1.ClusterNameLabel+" in (c0)" {
			path += "?c0"
		} else if in.URL.Query().Get("labelSelector") == clusterv1.ClusterNameLabel+"=c0,"+clusterv1.MachineControlPlaneLabel {
			path += "?"
		}
		answer, found := answers[path]
		if !found && strings.Contains(path, "?") {
			answer, found = []byte(`{"kind":"List","apiVersion":"v1","items":[]}`), true
		}
		switch {
		case !found:
			http.NotFound(out, in)
			return
		case strings.HasPrefix(string(answer), "k8s\x00"):
			out.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		default:
			out.Header().Set("Content-Type", runtime.ContentTypeJSON)
		}
		if strings.Contains(in.Header.Get("Accept-Encoding"), "gzip") && len(answer) > 128<<10 { // as an API server does
			out.Header().Set("Content-Encoding", "gzip")
			small, known := packed.Load(path)
			if !known {
				var buffer bytes.Buffer
				writer, _ := gzip.NewWriterLevel(&buffer, gzip.BestSpeed)
				_, _ = writer.Write(answer)
				_ = writer.Close()
				small = buffer.Bytes()
				packed.Store(path, small)
			}
			answer = small.([]byte)
		}
		_, _ = out.Write(answer)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	set := func(path string, of any) {
		data, err := json.Marshal(of)
		if err != nil {
			b.Fatal(err)
		}
		answers[path] = data
	}
	kubeconfig := func(path string) []byte {
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		data, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
			"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL + path, "certificate-authority-data": authority}}},
			"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "t"}}},
		})
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	serveDiscovery(set)
	var all []clusterv1.Machine
	var theirs []clusterv1.Cluster
	var checks []clusterv1.MachineHealthCheck
	encoder := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
	encode := func(path string, of runtime.Object) {
		var packed strings.Builder
		if err := encoder.Encode(of, &packed); err != nil {
			b.Fatal(err)
		}
		answers[path] = []byte(packed.String())
	}
	for c := range clusters {
		name := fmt.Sprintf("c%d", c)
		theirs, checks = append(theirs, clusterInFleet(name)), append(checks, checkInFleet(name, machines/clusters))
		nodes := &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
		for i := range machines / clusters {
			m := machineInFleet(name, i)
			all, nodes.Items = append(all, m), append(nodes.Items, nodeInFleet(m.Status.NodeRef.Name))
			if i == 0 {
				nodes.Items[0].APIVersion, nodes.Items[0].Kind = "v1", "Node"
				encode("/"+name+"/api/v1/nodes/"+m.Status.NodeRef.Name, &nodes.Items[0])
			}
		}
		encode("/"+name+"/api/v1/nodes", nodes)
		secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name + "-kubeconfig"}}
		secret.Data = map[string][]byte{"value": kubeconfig("/" + name)}
		encode("/api/v1/namespaces/ns/secrets/"+secret.Name, secret)
	}
	const group = "/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/"
	list := func(kind string, items any) map[string]any {
		return map[string]any{"apiVersion": clusterv1.GroupVersion.String(), "kind": kind + "List", "metadata": map[string]any{}, "items": items}
	}
	set(group+"clusters", list("Cluster", theirs))
	set(group+"machinehealthchecks", list("MachineHealthCheck", checks))
	set(group+"machines", list("Machine", all))
	set(group+"machines?c0", list("Machine", all[:machines/clusters]))
	set(group+"machines?c0-m0", list("Machine", all[:1]))
	set(group+"machines/c0-m0", &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: all[0].ObjectMeta,
	})
	for _, name := range []string{managerlease.LeaseName, managerlease.LeaderLeaseName, managerlease.CoreLeaseName} {
		leases := []any{}
		if name == managerlease.LeaseName {
			leases = append(leases, leaseInFleet())
		}
		set("/apis/coordination.k8s.io/v1/leases?"+name, map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": map[string]any{}, "items": leases,
		})
	}
	set("/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases", map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": map[string]any{}, "items": []any{},
	})
	file := filepath.Join(b.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig(""), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

func serveDiscovery(set func(string, any)) {
	verbs := metav1.Verbs{"get", "list"}
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	resources := map[string][]metav1.APIResource{
		"v1": {{Name: "nodes", Kind: "Node", Verbs: verbs}, {Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: verbs}},
		clusterv1.GroupVersion.String(): {
			{Name: "clusters", Kind: "Cluster", Namespaced: true, Verbs: verbs}, {Name: "machines", Kind: "Machine", Namespaced: true, Verbs: verbs},
			{Name: "machinehealthchecks", Kind: "MachineHealthCheck", Namespaced: true, Verbs: verbs},
		},
		"coordination.k8s.io/v1": {{Name: "leases", Kind: "Lease", Namespaced: true, Verbs: verbs}}, "apps/v1": {}, "batch/v1": {}, "networking.k8s.io/v1": {}, "policy/v1": {}, "storage.k8s.io/v1": {},
	}
	for gv, of := range resources {
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: of}
		name, version, grouped := strings.Cut(gv, "/")
		if !grouped {
			set("/api/v1", list)
			continue
		}
		set("/apis/"+gv, list)
		served := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served})
	}
	set("/api", &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	set("/apis", groups)
}

// long is when the healthy objects of a fleet became healthy.
var long = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func goodInFleet(kinds ...string) []metav1.Condition {
	all := make([]metav1.Condition, 0, len(kinds))
	for _, kind := range kinds {
		all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: long})
	}
	return all
}

// fieldsInFleet are managed fields, which are half of an object.
func fieldsInFleet() []metav1.ManagedFieldsEntry {
	fields := `{"f:metadata":{"f:annotations":{".":{}}},"f:status":{"f:currentHealthy":{}` + strings.Repeat(`,"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{}}}`, 40) + "}}"
	return []metav1.ManagedFieldsEntry{{
		Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &long, FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
	}}
}

func leaseInFleet() *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: managerlease.LeaseName}}
	lease.Annotations = map[string]string{mendv1.ManagerAnnotation: `{"version":"v1","unclaimed":"observe"}`}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("kubemend-0"), ptr.To[int32](3600)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	return lease
}

func clusterInFleet(name string) clusterv1.Cluster {
	c := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ManagedFields: fieldsInFleet()}}
	c.Status.Conditions = goodInFleet(clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition)
	return c
}

func checkInFleet(cluster string, machines int) clusterv1.MachineHealthCheck {
	check := clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: cluster, UID: types.UID("check-" + cluster), ManagedFields: fieldsInFleet(),
		Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
	}}
	check.Spec.ClusterName, check.Spec.Selector.MatchLabels = cluster, map[string]string{clusterv1.ClusterNameLabel: cluster}
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](300)},
	}
	check.Status.ExpectedMachines, check.Status.CurrentHealthy = ptr.To(int32(machines)), ptr.To(int32(machines))
	check.Status.Conditions = goodInFleet(clusterv1.MachineHealthCheckRemediationAllowedCondition, mendv1.WorkloadClusterReachable)
	if cluster == "c0" {
		check.Status.CurrentHealthy = ptr.To(int32(machines - 1))
	}
	for i := range machines {
		check.Status.Targets = append(check.Status.Targets, fmt.Sprintf("%s-m%d", cluster, i))
	}
	return check
}

func machineInFleet(cluster string, i int) clusterv1.Machine {
	name := fmt.Sprintf("%s-m%d", cluster, i)
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "7", CreationTimestamp: long, ManagedFields: fieldsInFleet(),
		Labels:          map[string]string{clusterv1.ClusterNameLabel: cluster, clusterv1.MachineDeploymentNameLabel: "md-0"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = cluster, "node-of-"+name
	m.Status.Conditions = goodInFleet(clusterv1.MachineInfrastructureReadyCondition, "Ready", "Available", "BootstrapConfigReady", "NodeReady",
		"NodeHealthy", "UpToDate", clusterv1.MachineHealthCheckSucceededCondition, "Deleting", "Paused", "Updating")
	m.Status.Conditions[8].Status, m.Status.Conditions[9].Status, m.Status.Conditions[10].Status = "False", "False", "False"
	return m
}

func nodeInFleet(name string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "7", ManagedFields: fieldsInFleet()}}
	for _, kind := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: "False", Reason: "Kubelet" + string(kind), Message: "kubelet has no such pressure", LastTransitionTime: long, LastHeartbeatTime: long,
		})
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: "True", LastTransitionTime: long})
	for i := range 30 {
		image := fmt.Sprintf("registry.example.com/some/image-%d", i)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1, Names: []string{image + ":v1", image + "@sha256:" + strings.Repeat("0", 64)}})
	}
	return n
}
