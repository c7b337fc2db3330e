package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	remediations "github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
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
	if err := e.nodeChecksOf(ctx, a, m); err != nil {
		return nil, err
	}
	slices.SortFunc(e.NotSelectedBy, func(a, b cliv1.NotSelected) int { return strings.Compare(a.String(), b.String()) })
	e.Remediations = a.RemediationsOf(ctx, m)
	if e.maybeMissing(a, m) {
		e.Capacity = []Capacity{*capacityOf(ctx, a, m)}
	}
	if len(e.Capacity) != 1 || e.Capacity[0].Made == "" { // else the capacity section says it
		e.fact("replaces", a.Predecessor(m).Predecessor())
	}
	e.remediatedBefore(a, func(target *mendv1.RecordTarget) bool { return target.Machine != nil && target.Machine.Name == m.Name })
	e.conclude()
	e.deletionAnswer()
	return e, nil
}

// maybeMissing reports whether the capacity of m may be missing, or the node of m is not Ready and no check judges m, or the
// check judges m healthy.
func (e *Explanation) maybeMissing(a *inspect.Asker, m *clusterv1.Machine) bool {
	target := e.target()
	unattended := target == nil || target.Skipped != "" || target.State == cliv1.StateHealthy
	ready, known := a.NodeReady(m)
	return capacity.Concerns(m, a.Now) || unattended && known && !ready
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

// notes lists what could not be read: the notes of the reader, and the kinds that a printed story of capacity needs and that neither these
// notes nor the story's message name, such as kinds that are not installed.
func (e *Explanation) notes() []string {
	lines := notes(e.asker)
	for i := range e.Capacity {
		c := &e.Capacity[i]
		if len(e.Owners) == 0 && c.Stage == capacity.OwnerActs {
			continue // the page does not print this story
		}
		for _, kinds := range c.Unread {
			if !strings.Contains(strings.Join(append(lines, c.Message), "\n"), kinds) {
				lines = append(lines, explain.CouldNotBeRead(kinds))
			}
		}
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
	switch s.Stage {
	case capacity.Back:
		e.answer(explain.Answer{State: explain.IsReplaced, Reason: s.Reason, Implied: true, Detail: s.Replacement.Name, Since: s.Since})
	case capacity.NotReplaced:
		e.answer(explain.Answer{State: explain.IsNotReplaced, Reason: s.Reason})
	default:
		e.answer(waiting(explain.Answer{State: missing(&s)}, &s))
	}
	if e.Next, e.Todo = cmp.Or(s.Next, nodeTodo(&s), explain.NothingNext), s.Todo; e.Next == e.Todo {
		e.Todo = explain.Step{}
	}
	return e, nil
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
		subject := records.SubjectOf(newest)
		subject.Namespace = newest.Namespace
		if at, went := records.WentAt(newest); went {
			subject.Gone = at
		} else {
			subject.Seen = at
		}
		return &subject, newest.Spec.Decided.Time
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

// Node explains the node of a Machine, or a node of the management cluster, which NodeHealthChecks may select. namespace and cluster may be
// empty, for any.
func Node(ctx context.Context, a *inspect.Asker, namespace, cluster, name string) (*Explanation, error) {
	m, here, err := NodeNamed(ctx, a, namespace, cluster, name)
	if err != nil {
		return nil, err
	}
	var e *Explanation
	if m != nil {
		if e, err = Machine(ctx, a, client.ObjectKeyFromObject(m)); err != nil {
			return nil, err
		}
		others := slices.DeleteFunc(e.Facts, func(f cliv1.Fact) bool { return f.Name == "node" })
		e.Facts = append([]cliv1.Fact{{Name: "machine", Value: m.Name}}, others...)
	} else {
		e = explanation(a, explain.Ref{})
		if err := nodeChecks(ctx, a, here, e); err != nil {
			return nil, err
		}
		e.conclude()
	}
	e.Subject = explain.Ref{Kind: "Node", Name: name}
	return e, nil
}

// NodeNamed finds the node that a user names. It returns the node's Machine or, if there is none, the node of the management cluster.
func NodeNamed(ctx context.Context, a *inspect.Asker, namespace, cluster, name string) (*clusterv1.Machine, *corev1.Node, error) {
	list := &clusterv1.MachineList{}
	err := a.Snapshot.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err != nil && !meta.IsNoMatchError(err) { // no match: Cluster API is not installed
		return nil, nil, fmt.Errorf("list Machines: %w", err)
	}
	machines, named := []clusterv1.Machine(nil), []string(nil)
	for _, m := range list.Items {
		if m.Status.NodeRef.Name == name && (cluster == "" || m.Spec.ClusterName == cluster) {
			machines = append(machines, m)
			named = append(named, fmt.Sprintf("machine/%s of cluster %s in namespace %s", m.Name, m.Spec.ClusterName, m.Namespace))
		}
	}
	here := &corev1.Node{}
	isHere := cluster == "" && a.Snapshot.Get(ctx, client.ObjectKey{Name: name}, here) == nil // the notes report an error
	switch {
	case isHere && len(machines) == 1 && !isOf(here, &machines[0]):
		named = append(named, "one of the management cluster, which pages of its NodeHealthChecks explain")
		fallthrough
	case len(machines) > 1:
		return nil, nil, fmt.Errorf("several clusters have a node %s: say which with --cluster, or ask for the machine: %s",
			name, strings.Join(named, ", "))
	case len(machines) == 1:
		return &machines[0], nil, nil
	case isHere:
		return nil, here, nil
	}
	return nil, nil, noNode(namespace, cluster, name)
}

// noNode returns the error for a node that neither a Machine's nodeRef names nor the management cluster has.
func noNode(namespace, cluster, name string) error {
	where, elsewhere := "", ", and the management cluster has none of that name"
	if cluster != "" {
		where, elsewhere = " of cluster "+cluster, ""
	}
	if namespace != "" {
		where, elsewhere = where+" in namespace "+namespace, elsewhere+"; -A reads all namespaces"
	}
	return fmt.Errorf("no Machine%s names a node %s%s", where, name, elsewhere)
}

// nodeChecks adds the NodeHealthChecks that judge a node of the management cluster, and why others do not select it.
func nodeChecks(ctx context.Context, a *inspect.Asker, node *corev1.Node, e *Explanation) error {
	checks, err := a.NodeChecks(ctx, func(c *nhcv1.NodeHealthCheck) bool {
		why := nodehealthcheck.WhyNotSelected(c, node)
		if why != "" {
			e.NotSelectedBy = append(e.NotSelectedBy, cliv1.NotSelected{Reference: explain.Ref{Kind: "NodeHealthCheck", Name: c.Name},
				Message: why})
		}
		return true // a check may still remediate a node that it does not select any more
	})
	if err := tolerate(&e.Unread, "NodeHealthChecks", err); err != nil {
		return err
	}
	for _, c := range checks {
		judged := about(c, func(t explain.Target) bool { return t.Name == node.Name })
		if len(judged.Targets) > 0 {
			e.Checks = append(e.Checks, judged)
		}
	}
	return nil
}

// nodeChecksOf adds the NodeHealthChecks that judge the node of m, if that is a node of the management cluster, which manages itself then.
// If no check selects m, it adds to e.Unread the kinds without which it is not known whether a NodeHealthCheck selects its node.
func (e *Explanation) nodeChecksOf(ctx context.Context, a *inspect.Asker, m *clusterv1.Machine) error {
	if m.Status.NodeRef.Name == "" {
		return nil
	}
	node := &corev1.Node{}
	unread := a.Snapshot.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node)
	switch {
	case unread == nil && isOf(node, m):
		return nodeChecks(ctx, a, node, e)
	case len(e.Checks) > 0:
		return nil
	}
	exist := false
	_, err := a.NodeChecks(ctx, func(*nhcv1.NodeHealthCheck) bool { exist = true; return false })
	if exist && errors.Is(unread, explain.ErrUnread) {
		e.Unread = append(e.Unread, "Nodes of the management cluster")
	}
	return tolerate(&e.Unread, "NodeHealthChecks", err)
}

// isOf reports whether a node of the management cluster is the node of m, by Cluster API's annotations on the node or by the provider ID.
func isOf(node *corev1.Node, m *clusterv1.Machine) bool {
	if machine, said := node.Annotations[clusterv1.MachineAnnotation]; said {
		return machine == m.Name && node.Annotations[clusterv1.ClusterNamespaceAnnotation] == m.Namespace
	}
	return node.Spec.ProviderID != "" && strings.EqualFold(node.Spec.ProviderID, m.Spec.ProviderID)
}
