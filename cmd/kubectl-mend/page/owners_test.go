package page

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/golden"
)

const (
	deferred = "RemediationDeferred"
	refused  = "CannotBeRemediated"
)

// ofControlPlane are the first three workers as those of a KubeadmControlPlane that was asked to replace the first, which it made a few minutes ago in place
// of another one, and has answered with a reason.
func ofControlPlane(reason, message string, edits ...func(*controlplanev1.KubeadmControlPlane, *scene)) func(*scene) {
	return func(s *scene) {
		silent(6*time.Minute, "w1")(s)
		askedOwner("w1", reason, message)(s)
		kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp"}}
		kcp.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		for _, name := range []string{"w1", "w2", "w3"} {
			ownedBy(name, "KubeadmControlPlane", "cp")(s)
		}
		s.machines["w1"].Annotations = map[string]string{
			controlplanev1.RemediationForAnnotation: `{"machine":"w0","timestamp":"2026-01-01T11:50:00Z","retryCount":2}`,
		}
		for _, edit := range edits {
			edit(kcp, s)
		}
		s.others = append(s.others, kcp)
	}
}

func retryPeriod(seconds int32) func(*controlplanev1.KubeadmControlPlane, *scene) {
	return func(kcp *controlplanev1.KubeadmControlPlane, _ *scene) {
		kcp.Spec.Remediation.RetryPeriodSeconds = &seconds
	}
}

func maxRetry(n int32) func(*controlplanev1.KubeadmControlPlane, *scene) {
	return func(kcp *controlplanev1.KubeadmControlPlane, _ *scene) { kcp.Spec.Remediation.MaxRetry = &n }
}

// What KubeadmControlPlane says in each case. (Cluster API v1.14.2)
const (
	failedLately  = "KubeadmControlPlane can't remediate this machine because the operation already failed in the latest 15m0s (RetryPeriodSeconds)"
	failedOften   = "KubeadmControlPlane can't remediate this machine because the operation already failed 2 times (MaxRetry)"
	awaitsMachine = "KubeadmControlPlane waiting for control plane Machine provisioning to complete before triggering remediation"
	awaitsEnd     = "KubeadmControlPlane waiting for control plane Machine deletion to complete before triggering remediation"
	onlyOne       = "KubeadmControlPlane can't remediate if current replicas are less or equal to 1"
)

func TestWhatOwnersDoNotReplace(t *testing.T) {
	unread := func(s *scene) {
		s.others = s.others[:len(s.others)-1]
		s.barred = append(s.barred, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
	}
	noManager := func(s *scene) { s.manager.Spec.RenewTime.Time = noon.Add(-time.Hour) }
	alone := func(_ *controlplanev1.KubeadmControlPlane, s *scene) {
		for _, name := range []string{"w2", "w3"} {
			ownedBy(name, "MachineSet", "md-0")(s)
		}
	}
	ends := func(_ *controlplanev1.KubeadmControlPlane, s *scene) {
		s.machines["w2"].DeletionTimestamp, s.machines["w2"].Finalizers = ptr.To(at(time.Minute)), []string{"a/b"}
	}
	joins := func(_ *controlplanev1.KubeadmControlPlane, s *scene) { awaiting("w3")(s) }
	waits, exhausted := ofControlPlane(deferred, failedLately, retryPeriod(900)), ofControlPlane(refused, failedOften, maxRetry(2))
	golden.StoriesIn(t, "testdata/owners", map[string]story{
		"a retry that is put off until a moment":       {aScene(waits), machine("w1")},
		"a retry that is due":                          {aScene(ofControlPlane(deferred, failedLately, retryPeriod(560))), machine("w1")},
		"retries that are used up":                     {aScene(exhausted), machine("w1")},
		"a replacement that waits for another to end":  {aScene(ofControlPlane(deferred, awaitsEnd, ends)), machine("w1")},
		"a replacement that waits for another to join": {aScene(ofControlPlane(deferred, awaitsMachine, joins)), machine("w1")},
		"the only machine of a control plane":          {aScene(ofControlPlane(refused, onlyOne, alone)), machine("w1")},
		"what only the owner knows":                    {aScene(ofControlPlane(deferred, "Failed to check etcd cluster health before remediation")), machine("w1")},
		"a control plane that the user may not read":   {aScene(waits, unread), machine("w1")},
		"a retry that is put off and no manager runs":  {aScene(waits, noManager), machine("w1")},
		"retries that are used up and no manager runs": {aScene(exhausted, noManager), machine("w1")},
		"a check of a retry that is put off":           {aScene(waits), check("workers")},
		"a check of retries that are used up":          {aScene(exhausted), check("workers")},
		"the status with a retry that is put off":      {aScene(waits), nil},
		"the status with retries that are used up":     {aScene(exhausted), nil},
		"the status where one is put off and one goes on": {aScene(waits, silent(7*time.Minute, "w4"),
			askedOwner("w4", clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, "Waiting for remediation")), nil},
	}, func(t *testing.T, s story) string {
		if s.ask == nil {
			return status(t, s.scene)
		}
		e, err := s.ask(t.Context(), s.scene.asker(t))
		printed := page80and200(t, e, err)
		if strings.Contains(strings.ToLower(printed), "being remediated") {
			t.Errorf("its owner does not replace it:\n%s", printed)
		}
		return printed
	})
}
