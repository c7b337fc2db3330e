package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	remediations "github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
)

// fact adds a fact about the subject, if it is known.
func (e *Explanation) fact(name, value string) {
	if value != "" {
		e.Facts = append(e.Facts, explain.Fact{Name: name, Value: value})
	}
}

// since adds since when something is so about the subject, if it is.
func (e *Explanation) since(name string, at *metav1.Time) {
	if !at.IsZero() {
		e.fact(name, "since "+at.UTC().Format(time.RFC3339))
	}
}

// machineFacts are what m belongs to.
func (e *Explanation) machineFacts(m *clusterv1.Machine) {
	owner, infrastructure := ptr.Deref(metav1.GetControllerOf(m), metav1.OwnerReference{}), m.Spec.InfrastructureRef
	e.fact("cluster", m.Spec.ClusterName)
	e.fact("node", m.Status.NodeRef.Name)
	e.fact("owner", strings.TrimSpace(owner.Kind+" "+owner.Name))
	e.fact("infrastructure", strings.TrimSpace(infrastructure.Kind+" "+infrastructure.Name))
	e.since("being deleted", m.DeletionTimestamp)
	e.Facts = append(e.Facts, explain.Attributions(m)...)
}

var onOff = map[bool]string{true: "on", false: "off"}

// hostFacts are what h reports of its power. Unknown are the UIDs of remediations that act on the power and do not exist.
func (e *Explanation) hostFacts(h *bmov1alpha1.BareMetalHost, unknown []types.UID) {
	e.fact("power", onOff[h.Status.PoweredOn])
	e.fact("desired power", onOff[h.Spec.Online])
	marks := hosts.AllMarks(h)
	for _, name := range slices.Sorted(maps.Keys(h.Annotations)) {
		if uid, marked := marks[name]; marked && slices.Contains(unknown, uid) {
			e.fact(powerEffect(name), name+", of a remediation that does not exist")
		} else if strings.HasPrefix(name, bmov1alpha1.RebootAnnotationPrefix) {
			e.fact(powerEffect(name), name)
		}
	}
	if hosts.Unhealthy(h) {
		e.fact("out of service", "it is marked unhealthy, and no machine is put on it")
	}
	e.fact("error", h.Status.ErrorMessage)
	e.Facts = append(e.Facts, explain.Attributions(h)...)
}

// powerEffect is what an annotation does to the power of its host: reboot.metal3.io without a suffix asks for one reboot, with a suffix for
// the host to be off. Whether it is, its power says.
func powerEffect(annotation string) string {
	switch annotation {
	case infrav1.RebootAnnotation:
		return "asked to reboot by"
	case mendv1.RebootedForAnnotation:
		return "rebooted for"
	}
	return "asked to be off by"
}

// writtenOn is what the manager wrote on m about its remediation, where a check that selects it could not be explained.
func (e *Explanation) writtenOn(m *clusterv1.Machine) {
	cond := conditions.Get(m, mendv1.Remediation)
	if cond != nil && slices.ContainsFunc(e.Checks, func(c explain.Check) bool { return c.Reason == explain.NotExplained }) {
		e.fact("written by the manager", told(cond, func(at time.Time) string { return at.UTC().Format(time.RFC3339) }))
	}
}

// told is a condition in one line.
func told(cond *metav1.Condition, moment func(time.Time) string) string {
	line := fmt.Sprintf("%s=%s (%s) since %s", cond.Type, cond.Status, cond.Reason, moment(cond.LastTransitionTime.Time))
	if message := strings.Fields(strings.TrimPrefix(cond.Message, "* ")); len(message) > 0 {
		line += ": " + strings.Join(message, " ")
	}
	return line
}

// lastRemediation is how the remediation of r, which is closed, has ended, when it was and by what.
func lastRemediation(r *mendv1.RemediationRecord) string {
	how := "by its owner"
	if n := len(r.Status.Requests); n > 0 {
		last := r.Status.Requests[n-1]
		if how = "by " + last.Kind + " " + last.Name; last.Kind == remediations.Own.Kind || last.Kind == remediations.Metal3.Kind {
			how = "power-cycled " + how
		}
	}
	return fmt.Sprintf("%s, begun %s, %s at %s (RemediationRecord %s)", how, r.Status.Begun.UTC().Format(time.RFC3339),
		strings.ToLower(string(r.Status.Outcome)), r.Status.Ended.UTC().Format(time.RFC3339), r.Name)
}

// ownerFacts are what is known of an owner of machines, or of a Cluster.
func (e *Explanation) ownerFacts(obj client.Object, phase string, paused bool) {
	e.fact("cluster", obj.GetLabels()[clusterv1.ClusterNameLabel])
	e.fact("phase", phase)
	if paused {
		e.fact("paused", "yes")
	}
	e.since("being deleted", obj.GetDeletionTimestamp())
}

// ownerAnswer is how many machines of an owner have a Ready node and, where that is not all, what the first of the stories waits for.
func ownerAnswer(ready, replicas int, first *capacity.Story) explain.Answer {
	a := explain.Answer{State: explain.CapacityMissing, Rest: fmt.Sprintf("%d of %d machines have a Ready node", ready, replicas)}
	if first == nil {
		if ready >= replicas {
			a.State = explain.CapacityComplete
		}
		return a
	}
	a.Target = cmp.Or(first.Old, first.Machine)
	if first.Todo.Text != "" {
		a.State = explain.CapacityBlocked
	}
	return waiting(a, first)
}
