package snapshot

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
)

func TestOfAControlPlaneItsRulesAloneAreKept(t *testing.T) {
	is := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cp"}}
	is.Spec.Remediation.MaxRetry = ptr.To[int32](3)
	is.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	want := is.DeepCopy()
	is.Spec.KubeadmConfigSpec.Files = []bootstrapv1.File{{Path: "/etc/secret", Content: "password"}}
	if !rulesAlone(is) {
		t.Error("it is not kept")
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Error(diff)
	}
}
