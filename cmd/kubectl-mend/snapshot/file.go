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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	clocktesting "k8s.io/utils/clock/testing"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
			kept, err := slim(obj)
			if err != nil {
				return fmt.Errorf("save %s %s: %w", k.Kind, client.ObjectKeyFromObject(obj), err)
			}
			if kept != nil {
				items = append(items, kept)
			}
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
	head, objs, err := parse(from)
	if err != nil {
		return nil, fmt.Errorf("load a record: %w", err)
	}
	s := New()
	if head == nil {
		head = &header{Taken: s.Clock.Now().UTC()}
	} else {
		s = empty()
	}
	for i := range objs {
		obj := &unstructured.Unstructured{}
		err := utiljson.Unmarshal(objs[i].Raw, &obj.Object)
		if err == nil {
			err = s.Add(obj)
		}
		if err != nil {
			return nil, fmt.Errorf("load an object of a record: %w", err)
		}
	}
	err = s.takeHeader(head)
	return s, err
}

// takeHeader adds to the snapshot, which has its objects already, what its header says.
func (s *Snapshot) takeHeader(head *header) error {
	s.Taken, s.Clock = head.Taken, clocktesting.NewFakePassiveClock(head.Taken)
	for name, said := range head.Kinds {
		if said == nil || len(said.Versions) == 0 {
			return fmt.Errorf("load the objects of kind %s: it has no version", name)
		}
		k := s.indexed(schema.ParseGroupKind(name))
		k.Plural, k.Namespaced, k.Versions, k.Answers = said.Plural, said.Namespaced, said.Versions, said.Answers
		slices.SortFunc(k.Answers, func(a, b answer) int { return a.compare(b.question) })
	}
	for name, said := range head.Workloads {
		cluster := &workloadCluster{Nodes: map[string]*corev1.Node{}}
		if said != nil {
			cluster.Unseen, cluster.Since = said.Unseen, said.Since
			for _, node := range said.Nodes {
				if node != nil {
					cluster.put(node)
				}
			}
		}
		namespace, name, _ := strings.Cut(name, "/")
		s.workloads[client.ObjectKey{Namespace: namespace, Name: name}] = cluster
	}
	return nil
}

var errNoSnapshot = errors.New("it was not written by `kubectl mend record`")

// parse returns the header of a record, which is nil for a List of kubectl, and its objects.
func parse(from io.Reader) (*header, []runtime.RawExtension, error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	record, head := metav1.List{}, &header{}
	if content, err = yaml.ToJSON(content); err == nil {
		err = utiljson.Unmarshal(content, &record)
	}
	if err == nil && len(record.Items) > 0 {
		err = utiljson.Unmarshal(record.Items[0].Raw, &head.TypeMeta)
	}
	known, said := headerType.GroupVersionKind(), head.GroupVersionKind()
	switch {
	case err != nil, !strings.HasSuffix(record.Kind, "List"):
		return nil, nil, errNoSnapshot
	case said.GroupKind() != known.GroupKind():
		return nil, record.Items, nil
	case said.Version != known.Version:
		return nil, nil, fmt.Errorf("it is of version %s, and only %s is known here: another release of kubectl-mend has written it",
			said.GroupVersion(), known.GroupVersion())
	}
	if err := utiljson.Unmarshal(record.Items[0].Raw, head); err != nil {
		return nil, nil, fmt.Errorf("parse it: %w", err)
	}
	return head, record.Items[1:], nil
}

var (
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
)

// hidden reports whether objects of a kind may hold credentials. A snapshot never has them.
func hidden(gk schema.GroupKind) bool { return gk == secretKind || gk == configMapKind }

// keptFields are the fields that a record keeps of an object besides its metadata. No command reads the others, and they may be secret:
// the address of a BMC, the variables of a topology, user data, the containers of a pod. Of a kind that is neither here nor in Scheme the
// record keeps only status.conditions.
var keptFields = map[schema.GroupKind][]string{
	clusterGVK.GroupKind(): {
		"spec.paused", "spec.infrastructureRef", "spec.controlPlaneRef", "status.conditions", "status.initialization", "status.phase",
		"status.deprecated.v1beta1.conditions",
	},
	controlPlaneGVK.GroupKind(): {
		"spec.remediation", "spec.replicas", "status.initialization", "status.conditions", "status.deprecated.v1beta1.conditions",
	},
	machineGVK.GroupKind(): {
		"spec.clusterName", "spec.providerID", "spec.failureDomain", "spec.infrastructureRef", "spec.bootstrap.configRef", "spec.deletion",
		"status.nodeRef", "status.failureDomain", "status.initialization", "status.deletion", "status.conditions",
		"status.deprecated.v1beta1",
	},
	machineSetGVK.GroupKind():        {"spec.clusterName", "spec.replicas", "status.conditions", "status.deprecated.v1beta1.conditions"},
	machineDeploymentGVK.GroupKind(): {"spec.clusterName", "spec.replicas", "spec.paused", "status.conditions"},
	metal3MachineGVK.GroupKind():     {"spec.hostSelector", "status.conditions"},
	hostGVK.GroupKind(): {
		"spec.online", "spec.consumerRef", "spec.disablePowerOff", "status.poweredOn", "status.operationalStatus",
		"status.operationHistory", "status.errorType", "status.errorMessage", "status.provisioning.state", "status.lastUpdated",
		"status.conditions", "status.hardware.systemVendor",
	},
	namespaceGVK.GroupKind(): {}, definitionGVK.GroupKind(): {},
	nodeGVK.GroupKind():   {"spec.providerID", "spec.taints", "status.conditions", "status.nodeInfo.bootID"},
	podGVK.GroupKind():    {"spec.nodeName", "status.phase", "status.conditions"},
	budgetGVK.GroupKind(): {"spec.selector", "status.disruptionsAllowed"},
	eventGVK.GroupKind(): {
		"eventTime", "series", "reportingController", "action", "reason", "regarding", "related", "note", "type",
		"deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount",
	},
}

// slim returns the part of an object that commands read, so that a record is small and has no secrets; nil for an event that no command
// shows. Of a template it keeps only the kind of its requests, and whether it can be used, because the content of a request concerns only
// the user and the remediator.
func slim(obj client.Object) (map[string]any, error) {
	if event, ok := obj.(*eventsv1.Event); ok && !history.Matters(event) {
		return nil, nil
	}
	obj = obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == conversionData || !slices.ContainsFunc(annotationsOf,
			func(begin string) bool { return strings.HasPrefix(key, begin) })
	})
	obj.SetAnnotations(annotations)
	gvk := obj.GetObjectKind().GroupVersionKind()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	fields := keptFields[gvk.GroupKind()]
	switch {
	case err != nil:
		return content, err
	case isTree(obj) && strings.HasSuffix(gvk.Kind, remediationrequest.TemplateSuffix):
		if said, has, _ := unstructured.NestedFieldNoCopy(content, "spec", "template", "spec"); has {
			usable := any(map[string]any{})
			if _, isMap := said.(map[string]any); !isMap {
				usable = "" // no map, like the original: the template cannot be used
			}
			_ = unstructured.SetNestedField(content, usable, "spec", "template", "spec") // cannot fail: the path was found above
		}
		fields = []string{"spec.template.apiVersion", "spec.template.kind", "spec.template.spec"}
	case gvk.Group == nodehealthcheck.ConfigGroup || gvk == nodehealthcheck.MachineHealthChecks:
		fields = []string{"spec", "status.conditions"}
	case isTree(obj) && fields == nil:
		fields = []string{"status.conditions"}
	case fields == nil:
		return content, nil
	}
	return onlyFields(content, fields), nil
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
