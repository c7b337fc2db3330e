package remediationrecord

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A manager with the rights of one namespace reads no NodeHealthCheck, whose power cycles it carries out. What such a check asks for beside them is not known:
// that keeps no record of a healthy machine open, which the next remediation would join, and closes none of an unhealthy one.
func TestARecordWhoseCheckMayNotBeReadEndsOnceItsTargetIsHealthy(t *testing.T) {
	for name, row := range map[string]struct {
		pressure corev1.ConditionStatus // what it was unhealthy by is True
		begun    bool
		want     mendv1.RecordOutcome
	}{
		"a machine that is healthy again is healed":          {pressure: corev1.ConditionFalse, begun: true, want: mendv1.RecordHealed},
		"one that is healthy before it began is cancelled":   {pressure: corev1.ConditionFalse, want: mendv1.RecordCancelled},
		"one that is unhealthy may have another request":     {pressure: corev1.ConditionTrue, begun: true},
		"one that is unhealthy may have its first elsewhere": {pressure: corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			w1.Status.Conditions = nil
			m := newManagement(t, append(fleet(), w1, nodeCheck("metal"), recordOf(func(r *mendv1.RemediationRecord) {
				r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "n1"}
				r.Spec.Evidence = []mendv1.RecordEvidence{{Type: string(corev1.NodeDiskPressure), Status: "True"}}
				r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: nodeCheckKind, Name: "nodes", UID: "nhc-uid"}
				if row.begun {
					r.Status.Begun = new(after(time.Second))
					r.Status.Steps = []mendv1.RecordStep{{Time: after(time.Second), Reason: "RequestCreated"}}
				}
			}))...)
			m.Live = interceptor.NewClient(m.server, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, is := o.(*nhcv1.NodeHealthCheck); is {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "nodehealthchecks"}, key.Name, nil)
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			m.nodes["n1"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: row.pressure},
			}}}
			is := m.reconcile(10 * time.Minute)
			if is.Open() {
				is = m.reconcile(24 * time.Hour)
			}
			if is.Status.Outcome != row.want {
				t.Errorf("it has ended as %q by %q, want %q", is.Status.Outcome, is.Status.EndedBy, row.want)
			}
		})
	}
}
