package machinehealthcheck

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// askedByHand marks a machine for remediation by hand, which is the simplest way to be unhealthy: it takes no node.
func askedByHand(t *Target) {
	t.Machine.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
}

// Cluster API core made the request before the check was claimed, and wrote no record.
func TestARequestThatIsAdoptedHasARecord(t *testing.T) {
	recorded := requestedBy("", "", func(r *remediationrequest.Metadata) { r.Annotations[mendv1.RecordAnnotation] = "m-1234567890" })
	for name, tc := range map[string]struct {
		w    *observed
		want int
	}{
		"of a machine that is unhealthy":          {aCheck(a("m", health.Unhealthy, askedByHand, requestedBy("", ""))).external(), 1},
		"not one that names its record":           {aCheck(a("m", health.Unhealthy, askedByHand, recorded)).external(), 0},
		"nor one whose machine is healthy again":  {aCheck(a("m", health.Healthy, markedBefore, requestedBy("", ""))).external(), 0},
		"one of a check of this name before this": {aCheck(a("m", health.Unhealthy, askedByHand, requestedBy("check", "old-uid"))).external(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := mendv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			server := fake.NewClientBuilder().WithScheme(scheme).Build()
			r := &Reconciler{Records: &records.Records{
				Client: server, Live: server, Clock: clocktesting.NewFakePassiveClock(noon),
				Installed: func(context.Context, string) (bool, error) { return true, nil },
			}}
			p := decide(tc.w)
			s := stepOf(tc.w, p, p.Decisions[0])
			if s.Step != AdoptRequest {
				t.Fatalf("the step is %q", s.Step)
			}
			named := r.recordAdopted(t.Context(), tc.w, s)
			all := &mendv1.RemediationRecordList{}
			if err := server.List(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			if len(all.Items) != tc.want || (named != "") != (tc.want == 1) {
				t.Fatalf("there are %d records, and the request names %q", len(all.Items), named)
			}
			if tc.want == 1 && (all.Items[0].Name != named || all.Items[0].Spec.Remediator != mendv1.RemediatedByRequest) {
				t.Errorf("the record is %+v", all.Items[0].Spec)
			}
		})
	}
}
