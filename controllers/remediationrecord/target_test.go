package remediationrecord

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// besideAnother is the record in the end, if a healthy Machine has the name of the one that its owner was asked for, and another UID.
func besideAnother(t *testing.T, edit func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
	t.Helper()
	is := recordOf(func(r *mendv1.RemediationRecord) {
		r.Status.Begun = new(after(time.Second))
		r.Status.Steps = []mendv1.RecordStep{{Time: after(time.Second), Reason: "OwnerRequested", Message: "asked"}}
		edit(r)
	})
	w1 := unhealthy()
	w1.UID = "another"
	says(w1, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, time.Minute)
	return newManagement(t, append(fleet(), w1, is)...).reconcile(10 * time.Minute)
}

// After a move all UIDs are others.
func TestAMovedRecordIsFollowed(t *testing.T) {
	got := besideAnother(t, func(r *mendv1.RemediationRecord) { r.OwnerReferences[0].UID = "of the new management cluster" })
	if got.Status.Outcome != mendv1.RecordHealed {
		t.Errorf("it ends as %q", got.Status.Outcome)
	}
}

func TestAMachineOfTheSameNameIsAnother(t *testing.T) {
	got := besideAnother(t, func(*mendv1.RemediationRecord) {})
	if got.Status.Outcome == mendv1.RecordHealed || !slices.Contains(reasons(got), "TargetGone") {
		t.Errorf("it ends as %q with %v", got.Status.Outcome, reasons(got))
	}
}

// The owner of a control-plane machine writes down which machine replaces which.
func TestAMachineOfAControlPlaneIsFollowed(t *testing.T) {
	owned := func(m *clusterv1.Machine) *clusterv1.Machine {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: "", clusterv1.MachineControlPlaneNameLabel: "kcp"}
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Name: "kcp", UID: "kcp", Controller: new(true),
		}}
		return m
	}
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "kcp"}}
	kcp.Spec.Replicas = new(int32(1))
	is := recordOf(func(r *mendv1.RemediationRecord) {
		r.Spec.Target.Owner = &mendv1.RecordRef{APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Namespace: "metal", Name: "kcp"}
	})
	w1 := owned(unhealthy())
	says(w1, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
	m := newManagement(t, append(fleet(), kcp, w1, is)...)
	if got := m.reconcile(10 * time.Second); condition(got, mendv1.RecordCapacityBack) != "False WaitingForRemediation" {
		t.Errorf("it waits for %q", condition(got, mendv1.RecordCapacityBack))
	}
	m.remove(unhealthy())
	by := owned(machine("w2", time.Minute))
	by.Annotations = map[string]string{controlplanev1.RemediationForAnnotation: `{"machine":"w1","timestamp":"2026-03-02T12:00:30Z","retryCount":0}`}
	m.create(by)
	m.change("w2", func(w *clusterv1.Machine) {
		w.Status.NodeRef.Name = "n2"
		says(w, clusterv1.MachineNodeReadyCondition, metav1.ConditionTrue, 2*time.Minute)
	})
	got := m.reconcile(3 * time.Minute)
	if got.Status.Outcome != mendv1.RecordReplaced || got.Status.Replacement.Guessed {
		t.Errorf("it ends as %q, replaced by %+v", got.Status.Outcome, got.Status.Replacement)
	}
}

// What the roles of the manager do not let it read is not asked for.
func TestNothingIsReadInVain(t *testing.T) {
	m := newManagement(t, fleet()...)
	r := NewReader(m.server, m.server)
	for name, tc := range map[string]struct {
		err  error
		read bool
	}{
		"a MachineSet": {r.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: "pool"}, &clusterv1.MachineSet{}), true},
		"Machines":     {r.List(t.Context(), &clusterv1.MachineList{}), true},
		"a Secret":     {r.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: "s"}, &corev1.Secret{}), false},
		"Pods":         {r.List(t.Context(), &corev1.PodList{}), false},
	} {
		if unread := errors.Is(tc.err, explain.ErrUnread); unread == tc.read || tc.read && tc.err != nil {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
}
