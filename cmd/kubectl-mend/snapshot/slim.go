package snapshot

import (
	"bytes"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// slim drops from an object what no command reads. It keeps a record small and free of secrets. The object belongs to the
// caller, and may be changed; nil is returned for one that is not kept at all.
func slim(obj client.Object) client.Object {
	var slimmed any = obj
	var err error
	switch o := obj.(type) {
	case *corev1.Secret, *corev1.ConfigMap:
		return nil
	case *clusterv1.Cluster:
		slimmed = slimCluster(o)
	case *clusterv1.Machine:
		slimmed, err = slimMachine(o)
	case *bmov1alpha1.BareMetalHost:
		slimmed, err = host.SlimHost(o)
	case *corev1.Node:
		slimmed, err = nodehealthcheck.SlimNode(o)
	case *clusterv1.MachineSet, *clusterv1.MachineDeployment:
		slimmed = slimOwner(obj)
	case *corev1.Pod:
		slimmed = slimPod(o)
	case *policyv1.PodDisruptionBudget:
		slimmed = slimBudget(o)
	case *eventsv1.Event:
		slimmed = slimEvent(o)
	case *unstructured.Unstructured:
		slimmed, err = slimUntyped(o)
	}
	kept, ok := slimmed.(client.Object)
	if err != nil || !ok {
		return nil
	}
	if u, isTree := kept.(*unstructured.Unstructured); isTree && strings.HasSuffix(u.GetKind(), remediationrequest.TemplateSuffix) {
		slimTemplate(u)
	}
	kept.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	slimManagedFields(kept)
	slimAnnotations(kept)
	return kept
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

// slimManagedFields keeps who wrote the numbers in the status of a check, and when, who wrote its paused annotation, and who added the finalizers of a
// machine that is being deleted. No more is read of managed fields, which are half of an object.
func slimManagedFields(obj client.Object) {
	var kept []metav1.ManagedFieldsEntry
	if _, machine := obj.(*clusterv1.Machine); machine && obj.GetDeletionTimestamp() != nil {
		kept = finalizersAlone(obj.GetManagedFields())
	}
	if _, check := obj.(*clusterv1.MachineHealthCheck); check {
		for _, entry := range obj.GetManagedFields() {
			if entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:`+clusterv1.PausedAnnotation+`"`)) {
				paused := entry
				paused.FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:annotations":{"f:` + clusterv1.PausedAnnotation + `":{}}}}`)}
				kept = append(kept, paused)
			}
			if machinehealthcheck.WritesStatus(entry) {
				entry.FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:currentHealthy":{}}}`)}
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

// slimCluster keeps what is judged of a Cluster, and what it consists of. The variables of its topology may be anything.
func slimCluster(c *clusterv1.Cluster) *clusterv1.Cluster {
	kept := &clusterv1.Cluster{ObjectMeta: c.ObjectMeta}
	kept.Spec.Paused, kept.Spec.InfrastructureRef, kept.Spec.ControlPlaneRef = c.Spec.Paused, c.Spec.InfrastructureRef, c.Spec.ControlPlaneRef
	kept.Status.Conditions, kept.Status.Initialization, kept.Status.Phase = c.Status.Conditions, c.Status.Initialization, c.Status.Phase
	kept.SetV1Beta1Conditions(c.GetV1Beta1Conditions())
	return kept
}

// slimPod keeps what says whether etcd can do without the node of a pod.
func slimPod(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
		CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
	}}
	kept.Spec.NodeName = p.Spec.NodeName
	kept.Status.Phase, kept.Status.Conditions = p.Status.Phase, p.Status.Conditions
	return kept
}

func slimBudget(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	kept := &policyv1.PodDisruptionBudget{ObjectMeta: b.ObjectMeta}
	kept.Spec.Selector = b.Spec.Selector
	kept.Status.DisruptionsAllowed = b.Status.DisruptionsAllowed
	return kept
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

// slimEvent keeps what history shows of an event; it is nil for one that is not of interest.
func slimEvent(e *eventsv1.Event) any {
	if !ofInterest(e) {
		return nil
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion, CreationTimestamp: e.CreationTimestamp,
		},
		EventTime: e.EventTime, Series: e.Series, ReportingController: e.ReportingController, Action: e.Action, Reason: e.Reason,
		Regarding: e.Regarding, Related: e.Related, Note: e.Note, Type: e.Type,
		DeprecatedFirstTimestamp: e.DeprecatedFirstTimestamp, DeprecatedLastTimestamp: e.DeprecatedLastTimestamp, DeprecatedCount: e.DeprecatedCount,
	}
}

// slimTemplate keeps of a template whether it can be used, and of what kind its requests are. What they would say is between the user and the
// remediator: there may be passwords in it.
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
