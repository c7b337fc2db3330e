package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	remediations "github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// selects reports whether a check selects m. If a check of the same cluster does not, selects adds why to NotSelectedBy.
func (e *Explanation) selects(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	if check.Namespace != m.Namespace {
		return false
	}
	why := machinehealthcheck.Unselected(check, m)
	if why != "" && check.Spec.ClusterName == m.Spec.ClusterName {
		ref := explain.Ref{Kind: "MachineHealthCheck", Namespace: check.Namespace, Name: check.Name}
		e.NotSelectedBy = append(e.NotSelectedBy, cliv1.NotSelected{Reference: ref, Message: why})
	}
	return why == ""
}

// Machine explains a machine.
func Machine(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	m := &clusterv1.Machine{}
	if err := a.Snapshot.Get(ctx, key, m); apierrors.IsNotFound(err) {
		return goneMachine(ctx, a, key)
	} else if err != nil {
		return nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	e := explanation(a, explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name})
	e.machineFacts(m)
	checks, err := a.MachineChecks(ctx, func(check *clusterv1.MachineHealthCheck) bool { return e.selects(check, m) })
	if err := tolerate(&e.Unread, "MachineHealthChecks", err); err != nil {
		return nil, err
	}
	for _, c := range checks {
		e.Checks = append(e.Checks, about(c, func(t explain.Target) bool { return t.Name == m.Name }))
	}
	cond := conditions.Get(m, mendv1.Remediation)
	if cond != nil && slices.ContainsFunc(e.Checks, func(c explain.Check) bool { return c.Reason == explain.NotExplained }) {
		e.fact("written by the manager", told(cond, func(at time.Time) string { return at.UTC().Format(time.RFC3339) }))
	}
	if node := ofMachine(ctx, a, m); node != nil {
		if err := nodeChecks(ctx, a, node, e); err != nil {
			return nil, err
		}
	} else if err := e.mayBeOfNodeCheck(ctx, a, m); err != nil {
		return nil, err
	}
	slices.SortFunc(e.NotSelectedBy, func(a, b cliv1.NotSelected) int { return strings.Compare(a.String(), b.String()) })
	e.Remediations = a.RemediationsOf(ctx, m)
	e.capacityOfMachine(ctx, a, m)
	if len(e.Capacity) != 1 || e.Capacity[0].Made == "" { // else the capacity section says it
		e.fact("replaces", a.Predecessor(m).Predecessor())
	}
	e.remediatedBefore(a, func(target *mendv1.RecordTarget) bool { return target.Machine != nil && target.Machine.Name == m.Name })
	e.conclude()
	e.deletionAnswer()
	return e, nil
}

// capacityOfMachine adds what the capacity of m waits for, if it may be missing, or if the node of m is not Ready and no check judges m or
// the check judges m healthy.
func (e *Explanation) capacityOfMachine(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) {
	target := e.target()
	unattended := target == nil || target.Skipped != "" || target.State == cliv1.StateHealthy
	ready, known := a.NodeReady(m)
	if capacity.Concerns(m, a.Now) || unattended && known && !ready {
		e.Capacity = []Capacity{*capacityOf(ctx, a, m)}
	}
}

// remediatedBefore adds facts about ended remediations of a machine or a host: the last closed RemediationRecord, and e.Remediations that
// have ended, which it removes there.
func (e *Explanation) remediatedBefore(a *inspect.Asker, about func(*mendv1.RecordTarget) bool) {
	var last *mendv1.RemediationRecord
	for _, record := range snapshot.All[mendv1.RemediationRecord](a.Snapshot, e.Subject.Namespace) {
		closed := !record.Open() && record.Status.Begun != nil
		if closed && about(&record.Spec.Target) && (last == nil || last.Status.Ended.Before(record.Status.Ended)) {
			last = record
		}
	}
	if last != nil {
		e.fact("last remediated", lastRemediation(last))
	}
	target := e.target()
	e.Remediations = slices.DeleteFunc(e.Remediations, func(rem explain.Remediation) bool {
		state := powercycle.State(rem.State)
		over := state.Final() && state != powercycle.OwnerRequested && !rem.Next.Manual && // neither the owner nor a user has to act
			(target == nil || !target.InFlight || !slices.Contains(target.Requests, rem.Reference))
		if over {
			value := fmt.Sprintf("%s: %s", rem.Reference, rem.State)
			if rem.StateSince != nil {
				value += " since " + rem.StateSince.UTC().Format(time.RFC3339)
			}
			e.fact("ended", value)
		}
		return over
	})
}

// notes lists what could not be read, for the section Notes.
func notes(a *inspect.Asker) []string {
	var lines []string
	if doubt := a.Managers.Doubt(); doubt != "" {
		lines = append(lines, doubt)
	}
	for _, missing := range a.Snapshot.Missing() {
		lines = append(lines, explain.CouldNotBeRead(missing))
	}
	return lines
}

// goneMachine explains a machine that does not exist any more, from its RemediationRecord or from the machine that replaces it.
func goneMachine(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	subject, began := keptOf(a, key)
	if subject == nil {
		return nil, explain.NoSuch("Machine", key.Namespace, key.Name)
	}
	s := a.Capacity(ctx, *subject).Story()
	e := explanation(a, explain.Ref{Kind: "Machine", Namespace: key.Namespace, Name: key.Name})
	e.Gone = true
	e.fact("exists", "no")
	e.fact("cluster", subject.Cluster)
	if subject.Owner.Name != "" {
		e.fact("owner", subject.Owner.Kind+" "+subject.Owner.Name)
	}
	e.since("remediation", cliv1.Moment(began))
	e.Capacity = []Capacity{{Story: s}}
	e.answer(goneAnswer(&s))
	if e.Next, e.Todo = cmp.Or(s.Next, nodeTodo(&s), explain.NothingNext), s.Todo; e.Next == e.Todo {
		e.Todo = explain.Step{}
	}
	return e, nil
}

func goneAnswer(s *capacity.Story) explain.Answer {
	switch s.Stage {
	case capacity.Back:
		return explain.Answer{State: explain.IsReplaced, Reason: s.Reason, Implied: true, Detail: s.Replacement.Name, Since: s.Since}
	case capacity.NotReplaced:
		return explain.Answer{State: explain.IsNotReplaced, Reason: s.Reason}
	}
	a := waiting(explain.Answer{State: explain.CapacityMissing}, s)
	if s.Todo.Text != "" {
		a.State = explain.CapacityBlocked
	}
	return a
}

// keptOf returns what records or a replacement say about a machine that does not exist, and when its remediation began; nil if none does.
func keptOf(a *inspect.Asker, key client.ObjectKey) (*capacity.Subject, time.Time) {
	var newest *mendv1.RemediationRecord
	for _, r := range snapshot.All[mendv1.RemediationRecord](a.Snapshot, key.Namespace) {
		if m := r.Spec.Target.Machine; m != nil && m.Name == key.Name && (newest == nil || newest.Spec.Decided.Before(&r.Spec.Decided)) {
			newest = r
		}
	}
	if newest != nil {
		return recorded(newest), newest.Spec.Decided.Time
	}
	for _, m := range snapshot.All[clusterv1.Machine](a.Snapshot, key.Namespace) {
		if replaced, at := capacity.Replaces(m); replaced == key.Name {
			subject := capacity.Of(m)
			subject.Name, subject.Machine, subject.Seen = key.Name, nil, at
			return &subject, at
		}
	}
	return nil, time.Time{}
}

// recorded returns the machine of a record, with the time at which it went or, if the record has no such time, at which it was last seen.
func recorded(record *mendv1.RemediationRecord) *capacity.Subject {
	s := records.SubjectOf(record)
	s.Namespace = record.Namespace
	if at, said := records.WentAt(record); said {
		s.Gone = at
	} else {
		s.Seen = at
	}
	return &s
}

func (e *Explanation) fact(name, value string) {
	if value != "" {
		e.Facts = append(e.Facts, cliv1.Fact{Name: name, Value: value})
	}
}

// since adds a fact with the time since when it holds, unless that is zero.
func (e *Explanation) since(name string, at *metav1.Time) {
	if !at.IsZero() {
		e.fact(name, "since "+at.UTC().Format(time.RFC3339))
	}
}

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

// hostFacts adds facts about the power of h. BMO reboots a host once for the annotation reboot.metal3.io, and keeps it off while it has
// that annotation with a suffix. orphaned are the annotations of remediations that do not exist.
func (e *Explanation) hostFacts(h *bmov1alpha1.BareMetalHost, orphaned []string) {
	e.fact("power", onOff[h.Status.PoweredOn])
	e.fact("desired power", onOff[h.Spec.Online])
	for _, name := range slices.Sorted(maps.Keys(h.Annotations)) {
		if !strings.HasPrefix(name, bmov1alpha1.RebootAnnotationPrefix) {
			continue
		}
		effect, of := "asked to be off by", ""
		if name == infrav1.RebootAnnotation {
			effect = "asked to reboot by"
		}
		if slices.Contains(orphaned, name) {
			of = ", of a remediation that does not exist"
		}
		e.fact(effect, name+of)
	}
	if hosts.Unhealthy(h) {
		e.fact("out of service", "it is marked unhealthy, and no machine is put on it")
	}
	e.fact("error", h.Status.ErrorMessage)
	e.Facts = append(e.Facts, explain.Attributions(h)...)
}

// told returns a condition in one line.
func told(cond *metav1.Condition, moment func(time.Time) string) string {
	line := fmt.Sprintf("%s=%s (%s) since %s", cond.Type, cond.Status, cond.Reason, moment(cond.LastTransitionTime.Time))
	if message := strings.Fields(strings.TrimPrefix(cond.Message, "* ")); len(message) > 0 {
		line += ": " + strings.Join(message, " ")
	}
	return line
}

// lastRemediation returns when and how the remediation of a closed record was done, and its outcome.
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

func (e *Explanation) ownerFacts(obj client.Object, phase string, paused bool) {
	e.fact("cluster", obj.GetLabels()[clusterv1.ClusterNameLabel])
	e.fact("phase", phase)
	if paused {
		e.fact("paused", "yes")
	}
	e.since("being deleted", obj.GetDeletionTimestamp())
}

// ownerAnswer returns how many machines of an owner have a Ready node and, if first is not nil, what that machine waits for.
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
