package snapshot

import (
	"bytes"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// keptFields are what is kept of kinds beside their metadata. The rest is not read by any command, and may be anything: the variables of a
// topology, the configuration of a control plane, user data, templates of machines, the containers of a pod.
var keptFields = map[schema.GroupKind][]string{
	clusterGVK.GroupKind(): {
		"spec.paused", "spec.infrastructureRef", "spec.controlPlaneRef", "status.conditions", "status.initialization", "status.phase",
		"status.deprecated.v1beta1.conditions",
	},
	controlPlaneGVK.GroupKind(): {
		"spec.remediation", "spec.replicas", "status.initialization", "status.conditions", "status.deprecated.v1beta1.conditions",
	},
	machineSetGVK.GroupKind():        {"spec.clusterName", "spec.replicas", "status.conditions", "status.deprecated.v1beta1.conditions"},
	machineDeploymentGVK.GroupKind(): {"spec.clusterName", "spec.replicas", "spec.paused", "status.conditions"},
	metal3MachineGVK.GroupKind():     {"spec.hostSelector", "status.conditions"},
	podGVK.GroupKind():               {"spec.nodeName", "status.phase", "status.conditions"},
	budgetGVK.GroupKind():            {"spec.selector", "status.disruptionsAllowed"},
	eventGVK.GroupKind(): {
		"eventTime", "series", "reportingController", "action", "reason", "regarding", "related", "note", "type",
		"deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount",
	},
}

// slim is an object without what no command reads. It keeps a record small and free of secrets. The object belongs to the
// caller, and may be changed; nil is returned for one that is not kept at all.
func slim(obj client.Object) (map[string]any, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	slimmed, err := transformed(obj)
	kept, ok := slimmed.(client.Object)
	if err != nil || !ok {
		return nil, err
	}
	kept.GetObjectKind().SetGroupVersionKind(gvk)
	slimManagedFields(kept)
	slimAnnotations(kept)
	if gvk.GroupKind() == namespaceGVK.GroupKind() {
		kept.SetLabels(claimLabelAlone(kept.GetLabels()))
	}
	if tree, untyped := kept.(*unstructured.Unstructured); untyped && strings.HasSuffix(gvk.Kind, remediationrequest.TemplateSuffix) {
		slimTemplate(tree)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kept)
	if fields := keptFields[gvk.GroupKind()]; err == nil && fields != nil && !isMetadata(kept) {
		content, err = onlyFields(content, fields)
	}
	return content, err
}

// transformed is an object as a cache of the manager keeps it, if one does; nil for an event that is not of interest.
func transformed(obj client.Object) (any, error) {
	switch o := obj.(type) {
	case *eventsv1.Event:
		if !ofInterest(o) {
			return nil, nil
		}
	case *clusterv1.Machine:
		return slimMachine(o)
	case *bmov1alpha1.BareMetalHost:
		return host.SlimHost(o)
	case *corev1.Node:
		return nodehealthcheck.SlimNode(o)
	case *unstructured.Unstructured:
		if keptFields[o.GroupVersionKind().GroupKind()] == nil {
			return nodehealthcheck.Slim(o)
		}
	}
	return obj, nil
}

// onlyFields keeps of an object no more than its metadata and some fields.
func onlyFields(content map[string]any, fields []string) (map[string]any, error) {
	kept := map[string]any{"apiVersion": content["apiVersion"], "kind": content["kind"], "metadata": content["metadata"]}
	for _, field := range fields {
		path := strings.Split(field, ".")
		value, has, err := unstructured.NestedFieldCopy(content, path...)
		if err == nil && has {
			err = unstructured.SetNestedField(kept, value, path...)
		}
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// claimLabelAlone are the labels of a Namespace without all but the one that claims checks.
func claimLabelAlone(labels map[string]string) map[string]string {
	value, has := labels[mendv1.ClaimLabel]
	if !has {
		return nil
	}
	return map[string]string{mendv1.ClaimLabel: value}
}

// slimNode is slim for the node of a workload cluster, of which no label but the zone is looked at.
func slimNode(node *corev1.Node) *corev1.Node {
	slimmed, err := workload.SlimNode(node)
	kept, ok := slimmed.(*corev1.Node)
	if err != nil || !ok {
		return nil
	}
	return kept
}

// slimManagedFields keeps who wrote the status of a check and its paused annotation, and who added the finalizers of a machine that is
// being deleted. No more is read of managed fields, which are half of an object.
func slimManagedFields(obj client.Object) {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		sets := func(field string) bool {
			return entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:`+field+`"`))
		}
		switch obj.(type) {
		case *clusterv1.Machine:
			if obj.GetDeletionTimestamp() != nil && sets("finalizers") {
				kept = append(kept, entry)
			}
		case *clusterv1.MachineHealthCheck:
			if sets(clusterv1.PausedAnnotation) || machinehealthcheck.WritesStatus(entry) {
				kept = append(kept, entry)
			}
		}
	}
	obj.SetManagedFields(kept)
}

// annotationsOf are the beginnings of the annotations that are looked at. What others keep in theirs may be anything.
var annotationsOf = []string{
	clusterv1.GroupVersion.Group + "/", controlplanev1.RemediationForAnnotation, "clusterctl." + clusterv1.GroupVersion.Group + "/", "kubemend.io/",
	"remediation.medik8s.io/", "nodehealthcheck.medik8s.io/", "machineconfiguration.openshift.io/", "machine.openshift.io/",
	clusterv1.RevisionAnnotation, clusterv1.PreDrainDeleteHookAnnotationPrefix, clusterv1.PreTerminateDeleteHookAnnotationPrefix,
	"argocd.argoproj.io/tracking-id", "meta.helm.sh/release-",
	"metal3.io/", "reboot.metal3.io", "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached", "capm3.metal3.io/", "capi.metal3.io/",
}

// conversionData holds a whole object in another version of its kind.
const conversionData = "cluster.x-k8s.io/conversion-data"

func slimAnnotations(obj client.Object) {
	var kept map[string]string
	for key, value := range obj.GetAnnotations() {
		read := slices.ContainsFunc(annotationsOf, func(begin string) bool { return strings.HasPrefix(key, begin) })
		if !read || key == conversionData {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	obj.SetAnnotations(kept)
}

// ofInterest reports whether an event is about what this program speaks of. The notes of others are theirs.
func ofInterest(e *eventsv1.Event) bool {
	switch e.Regarding.Kind {
	case "Machine", "MachineHealthCheck", "NodeHealthCheck", "Node", "BareMetalHost", "Metal3Remediation", "HostRemediation", "Cluster", "MachineSet",
		"KubeadmControlPlane", "MachineDeployment":
		return true
	}
	return strings.Contains(e.ReportingController, "kubemend")
}

// slimTemplate keeps of a template whether it can be used, and of what kind its requests are. What they would say is between the user and
// the remediator: there may be passwords in it.
func slimTemplate(template *unstructured.Unstructured) {
	embedded, found, err := unstructured.NestedMap(template.Object, "spec", "template")
	if err != nil || !found {
		delete(template.Object, "spec")
		return
	}
	kept := map[string]any{}
	for _, name := range []string{"apiVersion", "kind"} {
		if value, has := embedded[name]; has {
			kept[name] = value
		}
	}
	if spec, has := embedded["spec"]; has {
		kept["spec"] = map[string]any{}
		if _, isMap := spec.(map[string]any); !isMap {
			kept["spec"] = "" // what cannot be used stays so
		}
	}
	template.Object["spec"] = map[string]any{"template": kept}
}

// slimMachine is what the manager's cache keeps of a machine, and of one that is being deleted also who added its finalizers.
func slimMachine(m *clusterv1.Machine) (any, error) {
	slimmed, err := machinehealthcheck.SlimMachine(m)
	if kept, ok := slimmed.(*clusterv1.Machine); ok && err == nil && m.DeletionTimestamp != nil {
		kept.ManagedFields = m.ManagedFields
	}
	return slimmed, err
}
