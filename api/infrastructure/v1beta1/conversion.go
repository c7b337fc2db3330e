package v1beta1

import (
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// Both versions have the same fields with other types, so a conversion keeps nothing in annotations. Values of v1beta1 that v1beta2 cannot
// hold are rounded: see seconds and saturated below. The two objects of a conversion share no memory.

// ConvertTo converts the object to hub, which must be a Metal3Remediation of v1beta2.
func (r *Metal3Remediation) ConvertTo(hub conversion.Hub) error {
	to, ok := hub.(*infrav1.Metal3Remediation)
	if !ok {
		return fmt.Errorf("convert a Metal3Remediation: to %T, not to v1beta2", hub)
	}
	to.ObjectMeta = *r.ObjectMeta.DeepCopy()
	to.Spec = specToHub(r.Spec)
	to.Status = statusToHub(r.Status)
	return nil
}

// ConvertFrom converts hub, which must be a Metal3Remediation of v1beta2, to this version.
func (r *Metal3Remediation) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*infrav1.Metal3Remediation)
	if !ok {
		return fmt.Errorf("convert a Metal3Remediation: from %T, not from v1beta2", hub)
	}
	r.ObjectMeta = *from.ObjectMeta.DeepCopy()
	r.Spec = specFromHub(from.Spec)
	r.Status = statusFromHub(from.Status)
	return nil
}

// ConvertTo converts the object to hub, which must be a Metal3RemediationTemplate of v1beta2.
func (t *Metal3RemediationTemplate) ConvertTo(hub conversion.Hub) error {
	to, ok := hub.(*infrav1.Metal3RemediationTemplate)
	if !ok {
		return fmt.Errorf("convert a Metal3RemediationTemplate: to %T, not to v1beta2", hub)
	}
	to.ObjectMeta = *t.ObjectMeta.DeepCopy()
	to.Spec.Template.Spec = specToHub(t.Spec.Template.Spec)
	to.Status.Status = statusToHub(t.Status.Status)
	return nil
}

// ConvertFrom converts hub, which must be a Metal3RemediationTemplate of v1beta2, to this version.
func (t *Metal3RemediationTemplate) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*infrav1.Metal3RemediationTemplate)
	if !ok {
		return fmt.Errorf("convert a Metal3RemediationTemplate: from %T, not from v1beta2", hub)
	}
	t.ObjectMeta = *from.ObjectMeta.DeepCopy()
	t.Spec.Template.Spec = specFromHub(from.Spec.Template.Spec)
	t.Status.Status = statusFromHub(from.Status.Status)
	return nil
}

func specToHub(from Metal3RemediationSpec) infrav1.Metal3RemediationSpec {
	if from.Strategy == nil {
		return infrav1.Metal3RemediationSpec{}
	}
	return infrav1.Metal3RemediationSpec{Strategy: &infrav1.RemediationStrategy{
		Type:           infrav1.RemediationType(from.Strategy.Type),
		RetryLimit:     saturated(int64(from.Strategy.RetryLimit)),
		TimeoutSeconds: seconds(from.Strategy.Timeout),
	}}
}

func specFromHub(from infrav1.Metal3RemediationSpec) Metal3RemediationSpec {
	if from.Strategy == nil {
		return Metal3RemediationSpec{}
	}
	return Metal3RemediationSpec{Strategy: &RemediationStrategy{
		Type:       RemediationType(from.Strategy.Type),
		RetryLimit: int(from.Strategy.RetryLimit),
		Timeout:    duration(from.Strategy.TimeoutSeconds),
	}}
}

func statusToHub(from Metal3RemediationStatus) infrav1.Metal3RemediationStatus {
	from = *from.DeepCopy()
	return infrav1.Metal3RemediationStatus{
		Phase:          infrav1.RemediationPhase(from.Phase),
		RetryCount:     saturated(int64(from.RetryCount)),
		LastRemediated: from.LastRemediated,
		Conditions:     from.Conditions,
		Message:        from.Message,
	}
}

func statusFromHub(from infrav1.Metal3RemediationStatus) Metal3RemediationStatus {
	from = *from.DeepCopy()
	return Metal3RemediationStatus{
		Phase:          string(from.Phase),
		RetryCount:     int(from.RetryCount),
		LastRemediated: from.LastRemediated,
		Conditions:     from.Conditions,
		Message:        from.Message,
	}
}

// seconds drops the fraction of a second. It returns 0 for nil and for less than a second; 0 means that the default applies.
func seconds(d *metav1.Duration) int32 {
	if d == nil {
		return 0
	}
	return saturated(int64(d.Duration / time.Second))
}

// duration is the inverse of seconds; it returns nil for 0. It cannot overflow: the largest int32 of seconds is 68 years.
func duration(seconds int32) *metav1.Duration {
	if seconds == 0 {
		return nil
	}
	return &metav1.Duration{Duration: time.Duration(seconds) * time.Second}
}

// saturated returns the nearest int32. The schema of v1beta1 has no bounds, and a plain conversion would cut off the upper bits: "retry
// four billion times" would become "never" or a negative number.
func saturated(n int64) int32 {
	return int32(min(max(n, math.MinInt32), math.MaxInt32))
}
