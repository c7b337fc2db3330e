package remediationrecord

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A manager with the rights of one namespace reads no NodeHealthCheck, whose power cycles it carries out. What such a check asks for beside them is not known:
// that keeps no record of a healthy machine open, which the next remediation would join, and closes none of an unhealthy one.
func TestARecordWhoseCheckMayNotBeReadEndsOnceItsTargetIsHealthy(t *testing.T) {
	for name, row := range map[string]struct {
		healthy metav1.ConditionStatus
		begun   bool
		want    mendv1.RecordOutcome
	}{
		"a machine that is healthy again is healed":          {healthy: metav1.ConditionTrue, begun: true, want: mendv1.RecordHealed},
		"one that is healthy before it began is cancelled":   {healthy: metav1.ConditionTrue, want: mendv1.RecordCancelled},
		"one that is unhealthy may have another request":     {healthy: metav1.ConditionFalse, begun: true},
		"one that is unhealthy may have its first elsewhere": {healthy: metav1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManagement(t, append(fleet(), unhealthy(), nodeCheck("metal"), recordOf(func(r *mendv1.RemediationRecord) {
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
			m.change("w1", func(w *clusterv1.Machine) {
				says(w, clusterv1.MachineHealthCheckSucceededCondition, row.healthy, time.Minute)
			})
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
