package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	clocktesting "k8s.io/utils/clock/testing"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// header is the first item of a record, which is a List like that of `kubectl get -o yaml`. A List from kubectl itself has no header: then
// the snapshot is of now, and has all objects of the kinds in it.
type header struct {
	metav1.TypeMeta `json:",inline"`

	Taken time.Time `json:"taken"`
	// Kinds are the kinds that were read, by KIND.GROUP.
	Kinds map[string]*kind `json:"kinds,omitempty"`
	// Workloads are the workload clusters, by NAMESPACE/NAME.
	Workloads map[string]*workloadCluster `json:"workloadClusters,omitempty"`
}

var headerType = metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: "Snapshot"}

// Save writes the snapshot as a List in JSON. It writes only what the commands read, such as names, labels and conditions: no Secrets, no
// addresses or credentials of BMCs, and no content of other projects' templates.
func (s *Snapshot) Save(to io.Writer) error {
	head := &header{
		TypeMeta: headerType, Taken: s.Taken, Kinds: map[string]*kind{}, Workloads: map[string]*workloadCluster{},
	}
	items := []any{head}
	for _, k := range s.installed() {
		if len(k.Answers) == 0 && s.source != nil || hidden(k.GroupKind) {
			continue
		}
		head.Kinds[k.GroupKind.String()] = k
		for _, obj := range s.Objects(k.WithVersion(k.Versions[0]), "") {
			if event, ok := obj.(*eventsv1.Event); ok && !history.Matters(event) {
				continue // no command shows it
			}
			kept, err := slim(obj)
			if err != nil {
				return fmt.Errorf("save %s %s: %w", k.Kind, client.ObjectKeyFromObject(obj), err)
			}
			items = append(items, kept)
		}
	}
	for key, cluster := range s.workloads {
		head.Workloads[key.String()] = cluster
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", " ")
	record := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if err := encoder.Encode(record); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

// Load reads a saved snapshot, or a List that kubectl has written. The clock of the snapshot always shows the moment when it was taken.
func Load(from io.Reader) (*Snapshot, error) {
	head, items, err := parse(from)
	if err != nil {
		return nil, fmt.Errorf("load a record: %w", err)
	}
	s := empty()
	if head == nil {
		s = New()
		head = &header{Taken: s.Clock.Now().UTC()}
	}
	s.Taken, s.Clock = head.Taken, clocktesting.NewFakePassiveClock(head.Taken)
	for i := range items {
		obj := &unstructured.Unstructured{}
		if err := errors.Join(obj.UnmarshalJSON(items[i].Raw), s.Add(obj)); err != nil {
			return nil, fmt.Errorf("load an object of a record: %w", err)
		}
	}
	for name, said := range head.Kinds {
		if said == nil || len(said.Versions) == 0 {
			return nil, fmt.Errorf("load the objects of kind %s: it has no version", name)
		}
		k := s.indexed(schema.ParseGroupKind(name))
		k.Plural, k.Namespaced, k.Versions, k.Answers = said.Plural, said.Namespaced, said.Versions, said.Answers
		slices.SortFunc(k.Answers, func(a, b answer) int { return a.compare(b.question) })
	}
	for name, said := range head.Workloads {
		if said == nil {
			said = &workloadCluster{}
		}
		namespace, name, _ := strings.Cut(name, "/")
		cluster := s.workload(client.ObjectKey{Namespace: namespace, Name: name})
		cluster.Unseen, cluster.Since = said.Unseen, said.Since
		for _, node := range said.Nodes {
			if node != nil {
				cluster.put(node)
			}
		}
	}
	return s, nil
}

var errNoSnapshot = errors.New("it was not written by `kubectl mend record`")

// parse returns the header of a record, which is nil for a List of kubectl, and its objects.
func parse(from io.Reader) (*header, []runtime.RawExtension, error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	record, head := metav1.List{}, &header{}
	if content, err = yaml.ToJSON(content); err == nil { // JSON stays as it is: to parse it as YAML takes three times as long
		err = json.Unmarshal(content, &record)
	}
	if err != nil || !strings.HasSuffix(record.Kind, "List") {
		return nil, nil, errNoSnapshot
	}
	if len(record.Items) == 0 {
		return nil, nil, nil
	}
	_ = json.Unmarshal(record.Items[0].Raw, &head.TypeMeta) // an item of another form is no header
	if head.Kind != headerType.Kind {
		return nil, record.Items, nil
	}
	if head.TypeMeta != headerType {
		return nil, nil, fmt.Errorf("it is of version %s, and only %s is known here: another release of kubectl-mend has written it",
			head.APIVersion, headerType.APIVersion)
	}
	if err := json.Unmarshal(record.Items[0].Raw, head); err != nil {
		return nil, nil, fmt.Errorf("parse it: %w", err)
	}
	return head, record.Items[1:], nil
}

// hidden reports whether objects of a kind may hold credentials. A snapshot never has them.
func hidden(gk schema.GroupKind) bool {
	return gk.Group == corev1.GroupName && (gk.Kind == "Secret" || gk.Kind == "ConfigMap")
}

// wholeGroups have the kinds in Scheme that a record keeps whole: those of kubemend and of medik8s, remediations, leases and bindings.
var wholeGroups = []string{
	mendv1.GroupVersion.Group, nhcv1.GroupVersion.Group, infrav1.GroupVersion.Group, leaseGVK.Group, roleBindingGVK.Group,
}

// keptFields are the fields that a record keeps of other objects besides their metadata. No command reads the others, and they may be
// secret: the address of a BMC, the variables of a topology, user data, the containers of a pod.
var keptFields = []string{
	"spec.paused", "spec.infrastructureRef", "spec.controlPlaneRef", "spec.remediation", "spec.replicas", "spec.clusterName",
	"spec.providerID", "spec.failureDomain", "spec.bootstrap.configRef", "spec.deletion", "spec.hostSelector", "spec.online",
	"spec.consumerRef", "spec.disablePowerOff", "spec.taints", "spec.nodeName", "spec.selector",
	"status.conditions", "status.deprecated.v1beta1", "status.initialization", "status.phase", "status.nodeRef", "status.failureDomain",
	"status.deletion", "status.poweredOn", "status.operationalStatus", "status.operationHistory", "status.errorType",
	"status.errorMessage", "status.provisioning.state", "status.lastUpdated", "status.hardware.systemVendor", "status.nodeInfo.bootID",
	"status.disruptionsAllowed",
	"eventTime", "series", "reportingController", "action", "reason", "regarding", "related", "note", "type", // of an event
	"deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount",
}

// slim returns the part of an object that commands read, so that a record is small and has no secrets. Of a kind that is not in Scheme it
// keeps only the conditions, and of a template only the kind of its requests, and whether it can be used, because the content of a request
// concerns only the user and the remediator.
func slim(obj client.Object) (map[string]any, error) {
	obj = obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == conversionData || !slices.ContainsFunc(annotationsOf,
			func(begin string) bool { return strings.HasPrefix(key, begin) })
	})
	obj.SetAnnotations(annotations)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	gvk, tree, fields := obj.GetObjectKind().GroupVersionKind(), isTree(obj), keptFields
	switch {
	case !tree && (slices.Contains(wholeGroups, gvk.Group) || gvk.GroupKind() == machineCheckGVK.GroupKind()):
		return content, nil
	case !tree || gvk.GroupKind() == metal3MachineGVK.GroupKind():
	case strings.HasSuffix(gvk.Kind, remediationrequest.TemplateSuffix):
		template, _, _ := unstructured.NestedFieldNoCopy(content, "spec", "template")
		if template, isMap := template.(map[string]any); isMap && template["spec"] != nil {
			template["spec"] = emptied(template["spec"])
		}
		fields = []string{"spec.template.apiVersion", "spec.template.kind", "spec.template.spec"}
	case gvk.Group == nodehealthcheck.ConfigGroup || gvk == nodehealthcheck.MachineHealthChecks:
		fields = []string{"spec", "status.conditions"}
	default:
		fields = []string{"status.conditions"}
	}
	return onlyFields(content, fields), nil
}

// emptied returns an empty map for a map, and an empty text for any other value: a template with such a spec cannot be used.
func emptied(value any) any {
	if _, isMap := value.(map[string]any); isMap {
		return map[string]any{}
	}
	return ""
}

// onlyFields returns an object with its metadata and those of the fields that it has.
func onlyFields(content map[string]any, fields []string) map[string]any {
	kept := map[string]any{"apiVersion": content["apiVersion"], "kind": content["kind"], "metadata": content["metadata"]}
	for _, field := range fields {
		path := strings.Split(field, ".")
		if value, has, _ := unstructured.NestedFieldNoCopy(content, path...); has {
			_ = unstructured.SetNestedField(kept, value, path...) // cannot fail: all parents are maps
		}
	}
	return kept
}

// annotationsOf are the prefixes of the annotations that commands read. A record has no others, because they may be secret.
var annotationsOf = []string{
	clusterv1.GroupVersion.Group + "/", "clusterctl." + clusterv1.GroupVersion.Group + "/", controlplanev1.RemediationForAnnotation,
	"kubemend.io/", "remediation.medik8s.io/", "nodehealthcheck.medik8s.io/", "machineconfiguration.openshift.io/", "machine.openshift.io/",
	clusterv1.RevisionAnnotation, clusterv1.PreDrainDeleteHookAnnotationPrefix, clusterv1.PreTerminateDeleteHookAnnotationPrefix,
	"argocd.argoproj.io/tracking-id", "meta.helm.sh/release-", "capm3.metal3.io/", "capi.metal3.io/",
	"metal3.io/", "reboot.metal3.io", "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached",
}

// conversionData is an annotation that holds the whole object in another version.
const conversionData = "cluster.x-k8s.io/conversion-data"
