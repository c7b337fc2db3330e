package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// newborn is how long after an object was made its conditions become what they are without anything having happened.
const newborn = time.Minute

// Conditions that matter, and whether True is how they should be.
var (
	machineConditions = map[string]bool{
		clusterv1.MachineHealthCheckSucceededCondition: true, clusterv1.MachineOwnerRemediatedCondition: true,
		clusterv1.MachineExternallyRemediatedCondition: true, clusterv1.MachineNodeHealthyCondition: true,
	}
	checkConditions = map[string]bool{
		clusterv1.MachineHealthCheckRemediationAllowedCondition: true, mendv1.WorkloadClusterReachable: true, mendv1.TargetsExclusive: true,
		mendv1.RemediationTemplateAvailable: true,
	}
	nodeCheckConditions = map[string]bool{"Disabled": false, "RemediationAllowed": true, "StormActive": false, "StormCooldownActive": false}
)

func ofMachine(m *clusterv1.Machine) []Entry {
	about := refOf(machineKind, m)
	all := append(lifeOf(about, m, "Machine created"), turns(about, m.CreationTimestamp.Time, m.Status.Conditions, machineConditions)...)
	all = append(all, byHand(about, m)...)
	return append(all, annotated(about, m, func(key string) bool {
		return key == clusterv1.RemediateMachineAnnotation || key == clusterv1.MachineSkipRemediationAnnotation || key == clusterv1.PausedAnnotation
	})...)
}

func ofCheck(c *clusterv1.MachineHealthCheck) []Entry {
	about := refOf(machineCheckKind, c)
	all := append(lifeOf(about, c, "check created"), turns(about, c.CreationTimestamp.Time, c.Status.Conditions, checkConditions)...)
	return append(all, annotated(about, c, func(key string) bool { return key == clusterv1.PausedAnnotation })...)
}

func ofNodeCheck(c *nhcv1.NodeHealthCheck) []Entry {
	about := refOf(nodeCheckKind, c)
	all := append(lifeOf(about, c, "check created"), turns(about, c.CreationTimestamp.Time, c.Status.Conditions, nodeCheckConditions)...)
	for _, n := range c.Status.UnhealthyNodes {
		node := explain.Ref{Kind: nodeKind, Name: n.Name}
		add := func(at metav1.Time, reason, text string, warning bool) {
			all = append(all, Entry{At: at.Time, Object: about, Reason: reason, Text: text, Source: FromObject, Warning: warning, related: node})
		}
		for _, r := range n.Remediations {
			request := explain.Ref{Kind: r.Resource.Kind, Name: r.Resource.Name}
			add(r.Started, nhcv1.EventRemediationCreated, fmt.Sprintf("%s created for node %s", request, n.Name), false)
			if r.TimedOut != nil {
				add(*r.TimedOut, nhcv1.EventRemediationTimedOut, fmt.Sprintf("%s for node %s timed out", request, n.Name), true)
			}
		}
		if n.ConditionsHealthyTimestamp != nil {
			add(*n.ConditionsHealthyTimestamp, "NodeHealthy", "node "+n.Name+" is healthy again; its remediation is still in flight", false)
		}
	}
	return all
}

func ofHost(h *bmov1alpha1.BareMetalHost) []Entry {
	about := refOf(hostKind, h)
	var all []Entry
	history := h.Status.OperationHistory
	for _, op := range []struct {
		reason string
		bmov1alpha1.OperationMetric
	}{
		{"Register", history.Register}, {"Inspect", history.Inspect}, {"Provision", history.Provision}, {"Deprovision", history.Deprovision},
	} {
		all = append(all, Entry{At: op.Start.Time, Object: about, Reason: op.reason, Text: explain.OperationBegan(op.reason), Source: FromObject})
		if !op.End.Before(&op.Start) {
			all = append(all, Entry{At: op.End.Time, Object: about, Reason: op.reason, Text: explain.OperationEnded(op.reason), Source: FromObject})
		}
	}
	if h.Status.ErrorMessage != "" && h.Status.LastUpdated != nil {
		all = append(all, Entry{
			At: h.Status.LastUpdated.Time, Object: about, Reason: string(h.Status.ErrorType), Text: h.Status.ErrorMessage, Source: FromObject, Warning: true,
		})
	}
	all = append(all, byHand(about, h)...)
	return append(all, annotated(about, h, func(key string) bool {
		return key == infrav1.UnhealthyAnnotation || key == infrav1.LegacyUnhealthyAnnotation || key == bmov1alpha1.PausedAnnotation ||
			key == infrav1.RebootAnnotation || strings.HasPrefix(key, infrav1.RebootAnnotation+"/")
	})...)
}

func ofRequest(r *unstructured.Unstructured) []Entry {
	about := refOf(r.GetKind(), r)
	var by explain.Ref
	if maker, is := remediationrequest.MadeBy(r); is {
		by = explain.Ref{Kind: machineCheckKind, Name: maker.Name}
	} else if maker := remediationrequest.NodeCheckOf(r); maker.Name != "" {
		by = explain.Ref{Kind: nodeCheckKind, Name: maker.Name}
	}
	all := lifeOf(about, r, explain.RequestMadeFor(by))
	var owner explain.Ref
	for _, o := range r.GetOwnerReferences() {
		if o.Kind == machineKind {
			owner = explain.Ref{Kind: machineKind, Namespace: r.GetNamespace(), Name: o.Name}
		}
	}
	for _, c := range conditionsOf(r) {
		if c.Status != metav1.ConditionTrue {
			continue // what is to come, or what is waited for now
		}
		all = append(all, Entry{At: c.LastTransitionTime.Time, Object: about, Reason: c.Type, Text: explain.ConditionTurned(c),
			Source: FromCondition})
	}
	all = append(all, byHand(about, r)...)
	for i := range all {
		all[i].related = owner
	}
	return all
}

// conditionsOf are the conditions of a request of any kind; none if it has none, or others.
func conditionsOf(r *unstructured.Unstructured) []metav1.Condition {
	var is struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(r.Object, &is) != nil {
		return nil
	}
	return is.Status.Conditions
}

// lifeOf is that an object was made, and that its deletion was asked for.
func lifeOf(about explain.Ref, o metav1.Object, made string) []Entry {
	all := []Entry{{At: o.GetCreationTimestamp().Time, Object: about, Reason: "Created", Text: made, Source: FromObject}}
	if at := o.GetDeletionTimestamp(); !at.IsZero() {
		all = append(all, Entry{At: at.Time, Object: about, Reason: "Deleting", Text: explain.DeletionAsked(o.GetFinalizers()), Source: FromObject})
	}
	return all
}

// byHand are what a person asked for with kubectl mend, by the annotations that say so.
func byHand(about explain.Ref, o metav1.Object) []Entry {
	var all []Entry
	for _, is := range []struct {
		annotation, reason string
		text               func(explain.Attribution) string
	}{
		{mendv1.RequestedAnnotation, mendv1.EventRequestedByHand, explain.RequestedByHand}, {mendv1.ResetAnnotation, mendv1.EventReset, explain.ResetByHand},
	} {
		if by, known := explain.AttributionOf(o, is.annotation); known {
			all = append(all, Entry{At: by.At, Object: about, Reason: is.reason, Text: is.text(by), Source: FromObject})
		}
	}
	return all
}

// turns are when conditions became what they are. One that is as it should be, and has been from the start, has not turned.
func turns(about explain.Ref, made time.Time, conditions []metav1.Condition, matter map[string]bool) []Entry {
	var all []Entry
	for _, c := range conditions {
		good, matters := matter[c.Type]
		if !matters || c.Status == metav1.ConditionUnknown {
			continue
		}
		well := (c.Status == metav1.ConditionTrue) == good
		if well && c.LastTransitionTime.Sub(made) < newborn {
			continue
		}
		all = append(all, Entry{
			At: c.LastTransitionTime.Time, Object: about, Reason: c.Reason, Text: explain.ConditionTurned(c), Source: FromCondition, Warning: !well,
		})
	}
	return all
}

// annotated are the annotations of the given keys. When they were written is known of the last change that who wrote them made to the object; of
// an object whose managed fields were dropped it is not.
func annotated(about explain.Ref, o metav1.Object, matter func(string) bool) []Entry {
	var all []Entry
	for _, entry := range o.GetManagedFields() {
		if entry.Time == nil {
			continue
		}
		for _, key := range AnnotationsBy(entry) {
			if value, has := o.GetAnnotations()[key]; has && matter(key) {
				all = append(all, Entry{
					At: entry.Time.Time, Object: about, Reason: "Annotated", Text: explain.Annotated(key, value, entry.Manager), Source: FromObject,
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Text, b.Text) })
	return all
}

// PausedBy is the field manager that wrote the paused annotation of an object, and when that last changed the object, as far as the API server knows.
func PausedBy(o metav1.Object) (writer string, at time.Time) {
	for _, entry := range o.GetManagedFields() {
		if !slices.Contains(AnnotationsBy(entry), clusterv1.PausedAnnotation) {
			continue
		}
		if entry.Time != nil {
			at = entry.Time.Time
		}
		return entry.Manager, at
	}
	return "", time.Time{}
}

// LabelledBy is the field manager that wrote the label of an object that claims checks; empty if the API server does not know.
func LabelledBy(o metav1.Object) string {
	for _, entry := range o.GetManagedFields() {
		if _, wrote := writtenBy(entry).Labels["f:"+mendv1.ClaimLabel]; wrote {
			return entry.Manager
		}
	}
	return ""
}

// AnnotationsBy are the keys of the annotations that a field manager wrote.
func AnnotationsBy(entry metav1.ManagedFieldsEntry) []string {
	var keys []string
	for field := range writtenBy(entry).Annotations {
		if key, is := strings.CutPrefix(field, "f:"); is {
			keys = append(keys, key)
		}
	}
	return keys
}

// fields are those of the metadata that a field manager wrote, each with "f:" before its name.
type fields struct {
	Annotations map[string]any `json:"f:annotations"`
	Labels      map[string]any `json:"f:labels"`
}

func writtenBy(entry metav1.ManagedFieldsEntry) fields {
	var wrote struct {
		Metadata fields `json:"f:metadata"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &wrote) != nil {
		return fields{}
	}
	return wrote.Metadata
}
