package history

import (
	"cmp"
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
	all := append(lifeOf(about, m, "Machine was made"), turns(about, m.CreationTimestamp.Time, m.Status.Conditions, machineConditions)...)
	return append(all, annotated(about, m, func(key string) bool {
		return key == clusterv1.RemediateMachineAnnotation || key == clusterv1.MachineSkipRemediationAnnotation || key == clusterv1.PausedAnnotation
	})...)
}

func ofCheck(c *clusterv1.MachineHealthCheck) []Entry {
	about := refOf(machineCheckKind, c)
	all := append(lifeOf(about, c, "check was made"), turns(about, c.CreationTimestamp.Time, c.Status.Conditions, checkConditions)...)
	return append(all, annotated(about, c, func(key string) bool { return key == clusterv1.PausedAnnotation })...)
}

func ofNodeCheck(c *nhcv1.NodeHealthCheck) []Entry {
	about := refOf(nodeCheckKind, c)
	all := append(lifeOf(about, c, "check was made"), turns(about, c.CreationTimestamp.Time, c.Status.Conditions, nodeCheckConditions)...)
	for _, n := range c.Status.UnhealthyNodes {
		node := explain.Ref{Kind: nodeKind, Name: n.Name}
		add := func(at metav1.Time, reason, text string, warning bool) {
			all = append(all, Entry{At: at.Time, Object: about, Reason: reason, Text: text, Source: FromObject, Warning: warning, related: node})
		}
		for _, r := range n.Remediations {
			add(r.Started, nhcv1.EventRemediationCreated, fmt.Sprintf("%s %s was made for node %s", r.Resource.Kind, r.Resource.Name, n.Name), false)
			if r.TimedOut != nil {
				add(*r.TimedOut, nhcv1.EventRemediationTimedOut, fmt.Sprintf("%s %s was given up for node %s", r.Resource.Kind, r.Resource.Name, n.Name), true)
			}
		}
		if n.ConditionsHealthyTimestamp != nil {
			add(*n.ConditionsHealthyTimestamp, "NodeHealthy", fmt.Sprintf("node %s is healthy again; its remediation is not over", n.Name), false)
		}
	}
	return all
}

func ofHost(h *bmov1alpha1.BareMetalHost) []Entry {
	about := refOf(hostKind, h)
	var all []Entry
	history := h.Status.OperationHistory
	for _, op := range []struct {
		reason, text string
		bmov1alpha1.OperationMetric
	}{
		{"Register", "registration", history.Register}, {"Inspect", "inspection", history.Inspect},
		{"Provision", "provisioning", history.Provision}, {"Deprovision", "deprovisioning", history.Deprovision},
	} {
		all = append(all, Entry{At: op.Start.Time, Object: about, Reason: op.reason, Text: op.text + " began", Source: FromObject})
		if !op.End.Before(&op.Start) {
			all = append(all, Entry{At: op.End.Time, Object: about, Reason: op.reason, Text: op.text + " ended", Source: FromObject})
		}
	}
	if h.Status.ErrorMessage != "" && h.Status.LastUpdated != nil {
		all = append(all, Entry{
			At: h.Status.LastUpdated.Time, Object: about, Reason: string(h.Status.ErrorType), Text: h.Status.ErrorMessage, Source: FromObject, Warning: true,
		})
	}
	return append(all, annotated(about, h, func(key string) bool {
		return key == infrav1.UnhealthyAnnotation || key == infrav1.LegacyUnhealthyAnnotation || key == bmov1alpha1.PausedAnnotation ||
			key == infrav1.RebootAnnotation || strings.HasPrefix(key, infrav1.RebootAnnotation+"/")
	})...)
}

func ofRequest(r *unstructured.Unstructured) []Entry {
	about := refOf(r.GetKind(), r)
	by := "somebody, or by Cluster API core"
	if maker, is := remediationrequest.MadeBy(r); is {
		by = "kubemend for MachineHealthCheck " + maker.Name
	} else if maker := remediationrequest.NodeCheckOf(r); maker.Name != "" {
		by = "kubemend for NodeHealthCheck " + maker.Name
	}
	all := lifeOf(about, r, "remediation was asked for by "+by)
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
		text := cmp.Or(c.Message, "since then it is so")
		all = append(all, Entry{At: c.LastTransitionTime.Time, Object: about, Reason: c.Type, Text: text, Source: FromCondition})
	}
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
		text := "its deletion was asked for"
		if holds := o.GetFinalizers(); len(holds) > 0 {
			text += ", and waits for " + strings.Join(holds, ", ")
		}
		all = append(all, Entry{At: at.Time, Object: about, Reason: "Deleting", Text: text, Source: FromObject})
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
		text := cmp.Or(c.Message, fmt.Sprintf("%s is %s", c.Type, c.Status))
		all = append(all, Entry{At: c.LastTransitionTime.Time, Object: about, Reason: c.Reason, Text: text, Source: FromCondition, Warning: !well})
	}
	return all
}

// annotated are the annotations of the given keys. When they were written is known of the last change that who wrote them made to the object; of
// an object whose managed fields were dropped it is not.
func annotated(about explain.Ref, o metav1.Object, matter func(string) bool) []Entry {
	var all []Entry
	for _, entry := range o.GetManagedFields() {
		var wrote struct {
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &wrote) != nil {
			continue
		}
		for field := range wrote.Metadata.Annotations {
			key, is := strings.CutPrefix(field, "f:")
			value, has := o.GetAnnotations()[key]
			if !is || !has || !matter(key) {
				continue
			}
			if value != "" {
				value = "=" + value
			}
			all = append(all, Entry{
				At: entry.Time.Time, Object: about, Reason: "Annotated", Source: FromObject,
				Text: fmt.Sprintf("annotation %s%s, by %s", key, value, entry.Manager),
			})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Text, b.Text) })
	return all
}
