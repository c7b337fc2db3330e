package builders

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// BareMetalHost is a host without a consumer. It is off, and available as soon as it is inspected.
func BareMetalHost(namespace, name string, edits ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	return edited(&bmov1alpha1.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: bmov1alpha1.BareMetalHostSpec{
			BMC: bmov1alpha1.BMCDetails{Address: "simulated://" + name, CredentialsName: name + "-bmc"},
		},
	}, edits)
}

// BareMetalHosts returns hosts without consumers, named <prefix>-0 and so on.
func BareMetalHosts(namespace, prefix string, number int, edits ...func(*bmov1alpha1.BareMetalHost)) []client.Object {
	hosts := make([]client.Object, 0, number)
	for n := range number {
		hosts = append(hosts, BareMetalHost(namespace, fmt.Sprintf("%s-%d", prefix, n), edits...))
	}
	return hosts
}

// Deployed makes BMO provision the host and power it on.
func Deployed(host *bmov1alpha1.BareMetalHost) {
	host.Spec.Online = true
	host.Spec.Image = &bmov1alpha1.Image{URL: "http://simulated/image.qcow2", Checksum: "0", ChecksumType: bmov1alpha1.SHA256}
}

// ExternallyDeployed marks the host as provisioned by another system, and makes BMO keep it on.
func ExternallyDeployed(host *bmov1alpha1.BareMetalHost) {
	host.Spec.Online, host.Spec.ExternallyProvisioned = true, true
}

// NeverOff sets disablePowerOff: BMO may only reboot the host.
func NeverOff(host *bmov1alpha1.BareMetalHost) { host.Spec.DisablePowerOff = true }

// ConsumedBy makes a Metal3Machine in the host's namespace its consumer.
func ConsumedBy(metal3Machine string) func(*bmov1alpha1.BareMetalHost) {
	return func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.ConsumerRef = &corev1.ObjectReference{
			APIVersion: infrastructure.String(), Kind: "Metal3Machine", Namespace: host.Namespace, Name: metal3Machine,
		}
	}
}

// Annotated adds an annotation to an object of any type.
func Annotated[T client.Object](key, value string) func(T) {
	return func(object T) {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		object.SetAnnotations(annotations)
	}
}

// Metal3Remediation is a Metal3Remediation with a strategy.
func Metal3Remediation(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
	return &infrav1.Metal3Remediation{ObjectMeta: m, Spec: infrav1.Metal3RemediationSpec{Strategy: &s}}
}

// HostRemediation is a HostRemediation with a strategy.
func HostRemediation(m metav1.ObjectMeta, s infrav1.RemediationStrategy) client.Object {
	return &mendv1.HostRemediation{ObjectMeta: m, Spec: mendv1.HostRemediationSpec{Strategy: HostStrategy(s)}}
}

// HostStrategy converts s to the strategy of a HostRemediation, with timeoutSeconds as the time for a boot as well.
func HostStrategy(s infrav1.RemediationStrategy) *mendv1.HostRemediationStrategy {
	return &mendv1.HostRemediationStrategy{
		Type: s.Type, RetryLimit: ptr.To(s.RetryLimit), TimeoutSeconds: s.TimeoutSeconds, BootTimeoutSeconds: s.TimeoutSeconds,
	}
}

// RemediationReport has the fields of the status that both kinds of remediations have.
type RemediationReport struct {
	Phase      infrav1.RemediationPhase
	Retries    int
	Message    string
	Conditions map[string]string // like "True/Done"
}

// ReportOf returns the report of a remediation of either kind; it is empty if rem is neither.
func ReportOf(rem client.Object) RemediationReport {
	is := RemediationReport{Conditions: map[string]string{}}
	var conditions []metav1.Condition
	switch o := rem.(type) {
	case *infrav1.Metal3Remediation:
		is.Phase, is.Retries, is.Message = o.Status.Phase, int(o.Status.RetryCount), o.Status.Message
		conditions = o.Status.Conditions
	case *mendv1.HostRemediation:
		is.Phase, is.Retries, is.Message = o.Status.Phase, max(int(o.Status.Attempt)-1, 0), o.Status.Message
		conditions = o.Status.Conditions
	}
	for _, c := range conditions {
		is.Conditions[c.Type] = string(c.Status) + "/" + c.Reason
	}
	return is
}

// csiDriver is the name of a CSI driver without a program: test/simulator's Attacher attaches its volumes.
const csiDriver = "simulated.csi.kubemend.io"

// Deployment is a Deployment of pods with one container, which test/simulator's kubelets run.
func Deployment(namespace, name string, replicas int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return edited(&appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "simulated/" + name}}},
			},
		},
	}, edits)
}

// WithVolume adds a volume (see Volume) to the pods of a Deployment. While it is attached to one node, no pod on another node starts.
func WithVolume(claim string) func(*appsv1.Deployment) {
	return func(deployment *appsv1.Deployment) {
		spec := &deployment.Spec.Template.Spec
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// Volume is a claim with its own volume, which must be attached to a node before a pod can use it there.
func Volume(namespace, name string) []client.Object {
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume := namespace + "-" + name
	return []client.Object{
		&storagev1.CSIDriver{
			TypeMeta:   metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSIDriver"},
			ObjectMeta: metav1.ObjectMeta{Name: csiDriver},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
		},
		&corev1.PersistentVolume{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
			ObjectMeta: metav1.ObjectMeta{Name: volume},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:    storage,
				AccessModes: once,
				ClaimRef:    &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: volume},
				},
			},
		},
		&corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: once, StorageClassName: ptr.To(""), VolumeName: volume,
				Resources: corev1.VolumeResourceRequirements{Requests: storage},
			},
		},
	}
}
