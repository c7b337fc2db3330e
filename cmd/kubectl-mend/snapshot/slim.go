package snapshot

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var (
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
)

// hidden reports whether objects of a kind hold what is in no snapshot.
func hidden(gk schema.GroupKind) bool { return gk == secretKind || gk == configMapKind }

// keptFields are what a record keeps of kinds beside their metadata. The rest is not read by any command, and may be anything: the address
// of a BMC, the variables of a topology, the configuration of a control plane, user data, the containers of a pod. Of a kind that is
// neither here nor known by its type its conditions are kept.
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
		"status.nodeRef", "status.failureDomain", "status.initialization", "status.deletion", "status.conditions", "status.deprecated.v1beta1",
	},
	machineSetGVK.GroupKind():        {"spec.clusterName", "spec.replicas", "status.conditions", "status.deprecated.v1beta1.conditions"},
	machineDeploymentGVK.GroupKind(): {"spec.clusterName", "spec.replicas", "spec.paused", "status.conditions"},
	metal3MachineGVK.GroupKind():     {"spec.hostSelector", "status.conditions"},
	hostGVK.GroupKind(): {
		"spec.online", "spec.consumerRef", "spec.disablePowerOff", "status.poweredOn", "status.operationalStatus", "status.operationHistory",
		"status.errorType", "status.errorMessage", "status.provisioning.state", "status.lastUpdated", "status.conditions",
		"status.hardware.systemVendor",
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

// slim is an object without what no command reads. It keeps a record small and free of secrets; nil is returned for an object that is not
// kept at all. Of a template no more is kept than of what kind its requests are, and whether it can be used: what they would say is between
// the user and the remediator.
func slim(obj client.Object) (map[string]any, error) {
	if event, ok := obj.(*eventsv1.Event); ok && !ofInterest(event) {
		return nil, nil
	}
	obj = obj.DeepCopyObject().(client.Object)
	slimAnnotations(obj)
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk == namespaceGVK {
		obj.SetLabels(nil)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	fields := keptFields[gvk.GroupKind()]
	switch {
	case err != nil:
		return content, err
	case isTree(obj) && strings.HasSuffix(gvk.Kind, remediationrequest.TemplateSuffix):
		if said, has, _ := unstructured.NestedFieldNoCopy(content, "spec", "template", "spec"); has {
			usable := any(map[string]any{})
			if _, isMap := said.(map[string]any); !isMap {
				usable = "" // what cannot be used stays so
			}
			_ = unstructured.SetNestedField(content, usable, "spec", "template", "spec") // only maps are above it
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

// onlyFields keeps of an object no more than its metadata and some fields, those that it has.
func onlyFields(content map[string]any, fields []string) map[string]any {
	kept := map[string]any{"apiVersion": content["apiVersion"], "kind": content["kind"], "metadata": content["metadata"]}
	for _, field := range fields {
		path := strings.Split(field, ".")
		if value, has, _ := unstructured.NestedFieldNoCopy(content, path...); has {
			_ = unstructured.SetNestedField(kept, value, path...) // only maps are above it
		}
	}
	return kept
}

// annotationsOf are the beginnings of the annotations that are looked at. What others keep in theirs may be anything.
var annotationsOf = []string{
	clusterv1.GroupVersion.Group + "/", "clusterctl." + clusterv1.GroupVersion.Group + "/", controlplanev1.RemediationForAnnotation,
	"kubemend.io/", "remediation.medik8s.io/", "nodehealthcheck.medik8s.io/", "machineconfiguration.openshift.io/", "machine.openshift.io/",
	clusterv1.RevisionAnnotation, clusterv1.PreDrainDeleteHookAnnotationPrefix, clusterv1.PreTerminateDeleteHookAnnotationPrefix,
	"argocd.argoproj.io/tracking-id", "meta.helm.sh/release-",
	"metal3.io/", "reboot.metal3.io", "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached", "capm3.metal3.io/", "capi.metal3.io/",
}

// conversionData holds a whole object in another version of its kind.
const conversionData = "cluster.x-k8s.io/conversion-data"

func slimAnnotations(obj client.Object) {
	annotations := obj.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == conversionData || !slices.ContainsFunc(annotationsOf, func(begin string) bool { return strings.HasPrefix(key, begin) })
	})
	obj.SetAnnotations(annotations)
}

// ofInterest reports whether an event is about what this program speaks of. The notes of others are theirs.
func ofInterest(event *eventsv1.Event) bool {
	switch event.Regarding.Kind {
	case "Machine", "MachineHealthCheck", "NodeHealthCheck", "Node", "BareMetalHost", "Metal3Remediation", "HostRemediation", "Cluster", "MachineSet",
		"KubeadmControlPlane", "MachineDeployment":
		return true
	}
	return strings.Contains(event.ReportingController, "kubemend")
}
