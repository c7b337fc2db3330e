package builders

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// csiDriver has no program: what has to be attached is attached by test/simulator's Attacher.
const csiDriver = "simulated.csi.kubemend.io"

// Deployment keeps a number of pods, each of one container that test/simulator's kubelets run.
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

// WithVolume gives the pods of a Deployment a volume; see Volume. As long as it is attached to one node, no pod on
// another starts.
func WithVolume(claim string) func(*appsv1.Deployment) {
	return func(deployment *appsv1.Deployment) {
		spec := &deployment.Spec.Template.Spec
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// Volume is a claim with a volume of its own that has to be attached to a node before a pod there can use it.
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
