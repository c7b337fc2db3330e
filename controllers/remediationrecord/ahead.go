package remediationrecord

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// AheadWithin is how long a remediation waits for its record at most: an admission webhook that does not answer must not hold it up.
const AheadWithin = 5 * time.Second

var failed = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kubemend_remediation_records_failed_total",
	Help: "Remediations that went on although their RemediationRecord could not be written, by kind of the check or of the remediation.",
}, []string{"kind"})

// Ahead is Begin for a remediation that goes on whatever becomes of its record: what fails is logged once and counted by the kind of its writer. The name is
// empty where there is no record. A nil Records writes none.
func (r *Records) Ahead(ctx context.Context, kind string, record *mendv1.RemediationRecord, since string) string {
	if r == nil {
		return ""
	}
	within, done := context.WithTimeout(ctx, AheadWithin)
	defer done()
	name, err := r.Begin(within, record, since)
	if err != nil {
		failed.WithLabelValues(kind).Inc()
		log.FromContext(ctx).Error(err, "The remediation goes on without a record",
			TargetOf(record).Kind, klog.KRef(TargetOf(record).Namespace, TargetOf(record).Name))
		return ""
	}
	return name
}

// Has reports whether there is an open record of that name about m, or about its node: by their names, as clusterctl move gives them other UIDs. One that
// cannot be read now is taken for that: nothing has two records.
func (r *Records) Has(ctx context.Context, named types.NamespacedName, m *clusterv1.Machine) bool {
	within, done := context.WithTimeout(ctx, AheadWithin)
	defer done()
	there := &mendv1.RemediationRecord{}
	if err := r.Live.Get(within, named, there); err != nil {
		return !apierrors.IsNotFound(err)
	}
	target := &there.Spec.Target
	is := target.Machine != nil && target.Machine.Name == m.Name && target.Machine.Namespace == m.Namespace ||
		target.Machine == nil && target.Node != nil && target.Node.Name == m.Status.NodeRef.Name
	return is && there.Open()
}
