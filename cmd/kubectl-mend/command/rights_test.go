package command

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// right is a verb on a resource.
type right struct{ verb, group, resource string }

func (r right) String() string { return r.verb + " " + strings.Trim(r.group+"/"+r.resource, "/") }

// granted returns the rights in docs/examples/mend-reader.yaml, with the role that grants each.
func granted(t *testing.T) map[right]string {
	t.Helper()
	return grantedBy(t, "../../../docs/examples/mend-reader.yaml")
}

// grantedBy returns the rights of the roles in a file, with the role that grants each.
func grantedBy(t *testing.T, path string) map[right]string {
	t.Helper()
	file, err := os.Open(path)
	must.Do(t, err)
	defer func() { _ = file.Close() }()
	all := map[right]string{}
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var role rbacv1.ClusterRole
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all[right{verb, group, resource}] = role.Name
					}
				}
			}
		}
	}
}

// warden is an API server with one object of each kind. It notes the rights that requests use, and refuses requests without a right.
type warden struct {
	objects map[string]string // in JSON, by GROUP/VERSION/PLURAL
	granted map[right]string

	mu    sync.Mutex
	asked map[right]bool
}

// ServeHTTP implements http.Handler.
func (w *warden) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	out.Header().Set("Content-Type", "application/json")
	path := strings.Split(strings.Trim(in.URL.Path, "/"), "/")
	if path[0] == "api" {
		path = append([]string{"apis", ""}, path[1:]...)
	}
	if len(path) < 4 {
		_, _ = fmt.Fprint(out, w.discovery(in.URL.Path))
		return
	}
	kind, rest := strings.Join(path[1:3], "/"), path[3:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	is := right{"list", path[1], rest[0]}
	switch {
	case in.Method == http.MethodPatch:
		is.verb = "patch"
	case len(rest) > 1:
		is.verb = "get"
	}
	w.mu.Lock()
	w.asked[is] = true
	w.mu.Unlock()
	if _, may := w.granted[is]; !may {
		out.WriteHeader(http.StatusForbidden)
		message := fmt.Sprintf("%s is forbidden: User \"reader\" cannot %s resource %q in API group %q", is.resource, is.verb, is.resource, is.group)
		_, _ = fmt.Fprintf(out, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":%q}`, message)
		return
	}
	object := w.objects[kind+"/"+rest[0]]
	if object == "" {
		http.NotFound(out, in)
		return
	}
	if is.verb == "list" {
		var typed metav1.TypeMeta
		_ = json.Unmarshal([]byte(object), &typed) // this test wrote the objects
		if strings.Contains(in.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			typed = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
		}
		object = fmt.Sprintf(`{"apiVersion":%q,"kind":"%sList","items":[%s]}`, typed.APIVersion, typed.Kind, object)
	}
	_, _ = fmt.Fprint(out, object)
}

// discovery answers discovery requests.
func (w *warden) discovery(path string) string {
	groups, resources := map[string]bool{}, []string{}
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		part := strings.Split(key, "/")
		gv := strings.Trim(part[0]+"/"+part[1], "/")
		if part[0] != "" {
			groups[fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":%[2]q,"version":%[3]q}],"preferredVersion":{"groupVersion":%[2]q,"version":%[3]q}}`,
				part[0], gv, part[1])] = true
		}
		var object struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Namespace string `json:"namespace"`
			} `json:"metadata"`
		}
		_ = json.Unmarshal([]byte(w.objects[key]), &object)
		if path == "/apis/"+gv || path == "/api/"+gv {
			for _, name := range []string{part[2], part[2] + "/status"} {
				resources = append(resources, fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":%t,"verbs":["get","list","patch"]}`,
					name, object.Kind, object.Metadata.Namespace != ""))
			}
		}
	}
	switch path {
	case "/api":
		return `{"kind":"APIVersions","versions":["v1"]}`
	case "/apis":
		return fmt.Sprintf(`{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, strings.Join(slices.Sorted(maps.Keys(groups)), ","))
	}
	return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[%s]}`,
		strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"), strings.Join(resources, ","))
}

// object returns an object with the name x in JSON, in namespace x if the kind is namespaced. more are other fields.
func object(apiVersion, kind string, namespaced bool, more string) string {
	where := ""
	if namespaced {
		where = `"namespace":"x",`
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{%s"name":"x","uid":%q,"resourceVersion":"1","labels":{"cluster.x-k8s.io/cluster-name":"x"}}%s}`, apiVersion, kind, where, apiVersion+kind, more)
}

// everything returns an object of each kind that commands read. Its references make the commands read all kinds.
func everything(workload string) map[string]string {
	const capi, bmo, infra, nhc = "cluster.x-k8s.io/v1beta2", "metal3.io/v1alpha1", "infrastructure.cluster.x-k8s.io/v1beta2", "remediation.medik8s.io/v1alpha1"
	const strategy = `,"spec":{"strategy":{"type":"Reboot","retryLimit":1,"timeout":"300s"}}`
	kubeconfig := base64.StdEncoding.EncodeToString(fmt.Appendf(nil,
		`{"clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x"}}],"current-context":"x"}`, workload))
	lease := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"x","name":"manager.kubemend.io","annotations":
		{"kubemend.io/manager":"{\"version\":\"dev\"}"}},"spec":{"holderIdentity":"one","leaseDurationSeconds":600,"renewTime":%q}}`,
		time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	const rbac = "rbac.authorization.k8s.io/v1"
	binding := func(kind, namespace string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x"%s,"labels":{"app.kubernetes.io/name":"kubemend"}},
			"roleRef":{"kind":"ClusterRole","name":"kubemend-manager-role"},"subjects":[{"kind":"ServiceAccount","namespace":"x","name":"kubemend-manager"}]}`,
			rbac, kind, namespace)
	}
	const answered = `"status":"False","lastTransitionTime":"2026-01-01T12:00:00Z"`
	putOff := strings.Replace(object(capi, "Machine", true, `,"spec":{"clusterName":"x"},"status":{"nodeRef":{"name":"x"},"conditions":[
		{"type":"HealthCheckSucceeded","reason":"UnhealthyNode",`+answered+`},{"type":"OwnerRemediated","reason":"RemediationDeferred",`+answered+`}]}`),
		`"labels":`, `"ownerReferences":[{"apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","kind":"KubeadmControlPlane","name":"x","uid":"x","controller":true}],"labels":`, 1)
	return map[string]string{
		"rbac.authorization.k8s.io/v1/clusterrolebindings": binding("ClusterRoleBinding", ""),
		"rbac.authorization.k8s.io/v1/rolebindings":        binding("RoleBinding", `,"namespace":"x"`),
		"cluster.x-k8s.io/v1beta2/clusters": object(capi, "Cluster", true,
			`,"status":{"conditions":[{"type":"ControlPlaneInitialized","status":"True","reason":"Is","lastTransitionTime":"2026-01-01T12:00:00Z"}]}`),
		"cluster.x-k8s.io/v1beta2/machines":           putOff,
		"cluster.x-k8s.io/v1beta2/machinesets":        object(capi, "MachineSet", true, ""),
		"cluster.x-k8s.io/v1beta2/machinedeployments": object(capi, "MachineDeployment", true, ""),
		"controlplane.cluster.x-k8s.io/v1beta2/kubeadmcontrolplanes": object("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", true,
			`,"spec":{"remediation":{"retryPeriodSeconds":600}}`),
		"cluster.x-k8s.io/v1beta2/machinehealthchecks": object(capi, "MachineHealthCheck", true, `,"spec":{"clusterName":"x",
			"selector":{"matchLabels":{"cluster.x-k8s.io/cluster-name":"x"}},
			"remediation":{"templateRef":{"apiVersion":"kubemend.io/v1alpha1","kind":"HostRemediationTemplate","name":"x"}}}`),
		"metal3.io/v1alpha1/baremetalhosts":                                  object(bmo, "BareMetalHost", true, ""),
		"infrastructure.cluster.x-k8s.io/v1beta2/metal3machines":             object(infra, "Metal3Machine", true, ""),
		"infrastructure.cluster.x-k8s.io/v1beta2/metal3remediations":         object(infra, "Metal3Remediation", true, strategy),
		"infrastructure.cluster.x-k8s.io/v1beta2/metal3remediationtemplates": object(infra, "Metal3RemediationTemplate", true, ""),
		"kubemend.io/v1alpha1/hostremediations":                              object("kubemend.io/v1alpha1", "HostRemediation", true, strategy),
		"kubemend.io/v1alpha1/hostremediationtemplates":                      object("kubemend.io/v1alpha1", "HostRemediationTemplate", true, ""),
		"kubemend.io/v1alpha1/remediationrecords":                            object("kubemend.io/v1alpha1", "RemediationRecord", true, ""),
		"kubemend.io/v1alpha1/remediationoverrides":                          object("kubemend.io/v1alpha1", "RemediationOverride", true, ""),
		"kubemend.io/v1alpha1/remediationpolicies": strings.Replace(object("kubemend.io/v1alpha1", "RemediationPolicy", true,
			`,"spec":{"selector":{"namespaces":{}},"mode":"Observe"}`), `"namespace":"x"`, `"namespace":"kubemend-system"`, 1), // selects namespaces
		"remediation.medik8s.io/v1alpha1/nodehealthchecks": object(nhc, "NodeHealthCheck", false,
			`,"spec":{"remediationTemplate":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"Metal3RemediationTemplate","namespace":"x","name":"x"}}`),
		"coordination.k8s.io/v1/leases":                     lease,
		"events.k8s.io/v1/events":                           object("events.k8s.io/v1", "Event", true, `,"regarding":{"kind":"Machine","namespace":"x","name":"x"}`),
		"apiextensions.k8s.io/v1/customresourcedefinitions": object("apiextensions.k8s.io/v1", "CustomResourceDefinition", false, ""),
		"/v1/namespaces":                                    object("v1", "Namespace", false, ""),
		"/v1/nodes":                                         object("v1", "Node", false, ""),
		"/v1/pods":                                          object("v1", "Pod", true, ""),
		"/v1/secrets":                                       object("v1", "Secret", true, fmt.Sprintf(`,"data":{"value":%q}`, kubeconfig)),
		"policy/v1/poddisruptionbudgets":                    object("policy/v1", "PodDisruptionBudget", true, ""),
		"config.openshift.io/v1/clusterversions":            object("config.openshift.io/v1", "ClusterVersion", false, ""),
		"machine.openshift.io/v1beta1/machinehealthchecks":  object("machine.openshift.io/v1beta1", "MachineHealthCheck", true, ""),
		"machine.openshift.io/v1beta1/machines":             object("machine.openshift.io/v1beta1", "Machine", true, ""),
	}
}

// serve starts the warden, and returns its URL.
func (w *warden) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	return server.URL
}

// guarded returns a warden that grants these rights, and a command line for it.
func guarded(t *testing.T, rights map[right]string) (*warden, func(args ...string) (int, string)) {
	t.Helper()
	t.Setenv("COLUMNS", "")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	workload := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		if in.URL.Path == "/api/v1/namespaces/shop/pods/x" {
			_, _ = fmt.Fprint(out, object("v1", "Pod", true, `,"spec":{"nodeName":"x"}`))
			return
		}
		_, _ = fmt.Fprintf(out, `{"apiVersion":"v1","kind":"NodeList","items":[%s]}`, object("v1", "Node", false, ""))
	}))
	t.Cleanup(workload.Close)
	w := &warden{objects: everything(workload.URL), granted: rights, asked: map[right]bool{}}
	server, discovered := w.serve(t), t.TempDir()
	return w, func(args ...string) (int, string) {
		code, out, problems := mended(t, append(args, "--server="+server, "--cache-dir="+discovered)...)
		return code, out + problems
	}
}

// mended runs a command line, and returns its exit code and both outputs.
func mended(t *testing.T, args ...string) (code int, out, problems string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	root := New(streams, "kubectl mend", "dev")
	root.SetArgs(args)
	code = Run(t.Context(), root, streams)
	return code, stdout.String(), stderr.String()
}

// docs/cli/rights.md tells administrators to apply the example. It has exactly the rights that the commands need.
func TestTheRightsOfTheExampleAreThoseThatAreNeeded(t *testing.T) {
	rights := granted(t)
	w, mend := guarded(t, rights)
	for _, line := range []string{
		"status -A", "status --cluster x -n x", "simulate -A", "simulate -n x --fail machine/x", "history -A", "history -n x", "report -A", "report -n x", "record -A -o " + filepath.Join(t.TempDir(), "record"), "claim mhc/x -n x --yes",
		"claim mhc/x -n x --dry-run=server", "explain machine/x -n x", "explain node/x -n x --cluster x", "explain host/x -n x", "explain mhc/x -n x", "explain nhc/x",
		"explain hrem/x -n x", "explain m3r/x -n x", "explain md/x -n x", "explain kcp/x -n x", "explain cluster/x -n x",
		"explain pod/shop/x -n x --cluster x", "explain machines -l cluster.x-k8s.io/cluster-name=x -n x", "version",
	} {
		code, said := mend(strings.Fields(line)...)
		if code != Done || strings.Contains(said, "forbidden") || strings.Contains(said, "not be read") {
			t.Errorf("%s: code %d: %s", line, code, said)
		}
	}
	if code, said := mend("wait", "machine/x", "-n", "x", "--for=pending", "--timeout=0"); code != Failed ||
		!strings.Contains(said, "timed out waiting for pending on machine/x") {
		t.Errorf("wait: code %d: %s", code, said)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for asked := range w.asked {
		if rights[asked] == "" {
			t.Errorf("it is asked to %s, which the example does not grant", asked)
		}
	}
	for is, role := range rights {
		// A right to list may come with a right to get: which of them a command uses changes from release to release.
		if !w.asked[is] && (is.verb != "get" || !w.asked[right{"list", is.group, is.resource}]) {
			t.Errorf("%s may %s, which no command needs", role, is)
		}
	}
}

// The example role has no right to get pods, because nothing else needs that.
func TestAPodOfTheManagementClusterNamesItsNode(t *testing.T) {
	rights := granted(t)
	rights[right{"get", "", "pods"}] = "view"
	w, mend := guarded(t, rights)
	for node, want := range map[string]string{"": "the Pod x/x is on no node", "y": "no Machine in namespace x names a node y"} {
		w.objects["/v1/pods"] = object("v1", "Pod", true, fmt.Sprintf(`,"spec":{"nodeName":%q}`, node))
		if code, said := mend("explain", "pod/x", "-n", "x"); code != Failed || !strings.Contains(said, want) {
			t.Errorf("want %q, got code %d: %s", want, code, said)
		}
	}
}

// A kind is read when a page first needs it. The page must not miss the objects of that kind.
func TestAPageReadsWhatItSpeaksOf(t *testing.T) {
	const deployments = "cluster.x-k8s.io/v1beta2/machinedeployments"
	w, mend := guarded(t, granted(t))
	w.objects[deployments] = object("cluster.x-k8s.io/v1beta2", "MachineDeployment", true, `,"spec":{"clusterName":"x","replicas":5}`)
	w.objects["cluster.x-k8s.io/v1beta2/machines"] = object("cluster.x-k8s.io/v1beta2", "Machine", true, `,"spec":{"clusterName":"y"}`)
	for line, want := range map[string]string{
		"explain cluster/x -n x": "MachineDeployment x: 5 wanted, 0 exist",
		"explain nhc -n x -l cluster.x-k8s.io/cluster-name=x -o jsonpath={.subject}": `{"kind":"NodeHealthCheck","name":"x"}`,
	} {
		if code, said := mend(strings.Fields(line)...); code != Done || !strings.Contains(said, want) {
			t.Errorf("%s: code %d, want %q:\n%s", line, code, want, said)
		}
	}
	rights := granted(t)
	delete(rights, right{"list", "controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"})
	_, mend = guarded(t, rights)
	for _, named := range []string{"machine/x", "machines -l cluster.x-k8s.io/cluster-name=x"} {
		_, said := mend(strings.Fields("explain -n x " + named)...)
		if !strings.Contains(strings.Join(strings.Fields(said), " "), `cannot list resource "kubeadmcontrolplanes"`) {
			t.Errorf("%s: it is not said what could not be read:\n%s", named, said)
		}
	}
}

// docs/cli/rights.md says that every right may be missing.
func TestARightThatIsMissingIsSaidAndGoneOnWithout(t *testing.T) {
	for is := range granted(t) {
		if is.verb == "patch" || is.verb == "get" && is.resource != "secrets" {
			continue
		}
		t.Run(is.String(), func(t *testing.T) {
			rights := granted(t)
			delete(rights, is)
			_, mend := guarded(t, rights)
			var all strings.Builder
			want := fmt.Sprintf("cannot %s resource %q", is.verb, is.resource)
			for line, mayEnd := range map[string]bool{ // explain and simulate fail without the right to read their object
				"status -A": false, "history -A": false, "report -A": true, "record -A -o " + filepath.Join(t.TempDir(), "record"): false,
				"explain machine/x -n x": true, "explain mhc/x -n x": true, "simulate -A": true,
			} {
				code, said := mend(strings.Fields(line)...)
				said = strings.Join(strings.Fields(said), " ")
				if code != Done && (!mayEnd || !strings.Contains(said, want)) {
					t.Errorf("%s: code %d: %s", line, code, said)
				}
				all.WriteString(said)
			}
			if !strings.Contains(all.String(), want) {
				t.Errorf("it is not said that the user %s:\n%s", want, all.String())
			}
		})
	}
}
