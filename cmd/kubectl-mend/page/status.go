package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// Status is the result of kubectl mend status: the document for programs, and what its page needs in addition.
type Status struct {
	cliv1.Status

	// Checks become Items of the document.
	Checks []explain.Check
	// Uncovered has a line for each Cluster with machines that no check covers. OutOfService are the hosts that are marked unhealthy.
	Uncovered, OutOfService []string
	// Policies has lines about what RemediationPolicies block, and about active RemediationOverrides.
	Policies []string

	notReady int                    // the number of machines that are not Ready and that no check covers
	besides  *cliv1.MissingCapacity // the part of CapacityMissing whose remediations none of Checks requested
}

// Document returns s for programs. Its checks have no targets.
func (s *Status) Document() *cliv1.Status {
	d := s.Status
	d.Items, d.Notes = make([]cliv1.Check, 0, len(s.Checks)), slices.Clone(s.Notes)
	for i := range s.Checks {
		check := s.Checks[i]
		check.Phase, check.Targets = check.Answer().Phase(), nil
		d.Items = append(d.Items, check.Document())
	}
	for _, cluster := range s.Uncovered {
		d.Notes = append(d.Notes, "Not covered by checks: "+cluster)
	}
	for _, name := range s.OutOfService {
		d.Notes = append(d.Notes, "Host out of service: "+name)
	}
	d.Notes = append(d.Notes, s.Policies...)
	return &d
}

// Of returns the status of the checks of one cluster or, if that is empty, of all clusters, with NodeHealthChecks, which belong to none.
func Of(ctx context.Context, a *inspect.Asker, namespace, cluster string) (*Status, error) {
	s := &Status{Status: cliv1.Status{
		TypeMeta: cliv1.TypeOf("Status"), Time: metav1.NewTime(a.Now), ManagersUnknown: a.Managers.Unknown,
		Managers: make([]cliv1.Manager, 0, len(a.Managers.All)),
	}}
	for i := range a.Managers.All {
		s.Managers = append(s.Managers, managerOf(&a.Managers.All[i]))
	}
	checks, err := a.MachineChecks(ctx, func(c *clusterv1.MachineHealthCheck) bool {
		return (namespace == "" || c.Namespace == namespace) && (cluster == "" || c.Spec.ClusterName == cluster)
	})
	if err := tolerate(&s.Unread, "MachineHealthChecks", err); err != nil {
		return nil, err
	}
	if cluster == "" {
		nodes, err := a.NodeChecks(ctx, func(*nhcv1.NodeHealthCheck) bool { return true })
		if err := tolerate(&s.Unread, "NodeHealthChecks", err); err != nil {
			return nil, err
		}
		checks = append(checks, nodes...)
	}
	if len(s.Unread) == 0 {
		s.uncover(a, namespace, cluster, checks)
	}
	s.OutOfService = outOfService(ctx, a, namespace)
	counted := 0
	for i := range checks {
		c := &checks[i]
		follow(ctx, a, c)
		if c.CountedByStatus {
			counted++
		}
	}
	s.Checks = checks
	s.addMissing(ctx, a, namespace, cluster)
	s.addPolicies(ctx, a, namespace, cluster)
	s.Unreachable = unreachable(s.Checks)
	if s.Notes = notes(a); counted > 0 {
		s.Notes = append(s.Notes, explain.Number(counted, "check")+" counted by status alone, which says that all targets are healthy; "+
			"--full reads the machines and nodes")
	}
	s.noteGone(a, namespace, cluster)
	return s, nil
}

// unreachable returns the clusters of checks that the manager cannot reach.
func unreachable(checks []explain.Check) []cliv1.UnreachableCluster {
	var clusters []cliv1.UnreachableCluster
	for i := range checks {
		check := &checks[i]
		known := slices.ContainsFunc(clusters, func(c cliv1.UnreachableCluster) bool {
			return c.Namespace == check.Namespace && c.Name == check.Cluster
		})
		reported := meta.IsStatusConditionFalse(check.Conditions, mendv1.WorkloadClusterReachable) // by the manager, not by own reads
		if !known && reported && check.NodesUnknown != nil && check.NodesUnknown.Since != nil {
			clusters = append(clusters, cliv1.UnreachableCluster{
				Namespace: check.Namespace, Name: check.Cluster, Since: *check.NodesUnknown.Since, Message: check.NodesUnknown.Message,
			})
		}
	}
	return clusters
}

// managerOf returns a manager for the document, from its lease and announcement.
func managerOf(m *managerlease.Manager) cliv1.Manager {
	manager := cliv1.Manager{
		Namespace: m.Namespace, Holder: m.Holder, Alive: m.Alive, Renewed: cliv1.Moment(m.Renewed), Ended: cliv1.Moment(m.Gone),
		Trusted: m.Unverified == "", Namespaces: m.Within, Message: m.Unverified,
	}
	a := m.Announcement
	if a == nil {
		return manager
	}
	manager.Version, manager.Started, manager.ClockAheadSeconds = a.Version, cliv1.Moment(a.Started.Time), a.ClockAheadSeconds
	manager.Unclaimed, manager.WatchNamespace, manager.WatchFilter = a.Unclaimed, a.Namespace, a.WatchFilter
	manager.Outside, manager.Teardown = a.Outside, a.Teardown
	for _, k := range a.Kinds {
		manager.Kinds = append(manager.Kinds, cliv1.ServedKind{CRD: k.CRD, Served: k.Reason == "", Reason: k.Reason, Message: k.Because})
	}
	return manager
}

const nodeCheckKind = "NodeHealthCheck"

// missingOf sums up the missing capacity of the wanted remediations. It counts a target with several records once. If not all records could
// be read (known is false) and none of those read is wanted, it returns nil for not known.
func missingOf(found []records.Missing, known bool, wanted func(*records.Missing) bool) *cliv1.MissingCapacity {
	missing, counted := &cliv1.MissingCapacity{}, map[mendv1.RecordRef]bool{}
	for i := range found {
		one := &found[i]
		if !wanted(one) || counted[one.Target] {
			continue
		}
		if missing.Oldest == nil {
			missing.Oldest = &cliv1.CapacityWait{
				Reference: cliv1.Reference{Kind: one.Target.Kind, Namespace: one.Target.Namespace, Name: one.Target.Name},
				Reason:    one.Reason, Since: cliv1.Moment(one.Since), Due: metav1.NewTime(one.Due), Message: one.Message,
			}
		}
		counted[one.Target] = true
		missing.Remediations++
	}
	if !known && missing.Remediations == 0 {
		return nil
	}
	return missing
}

// askedBy returns the check that requested a remediation; empty if none did. A record does not count for a check in another namespace.
func askedBy(m *records.Missing) explain.Ref {
	check := explain.Ref{Kind: m.Check.Kind, Namespace: m.Check.Namespace, Name: m.Check.Name}
	switch {
	case check.Kind == nodeCheckKind:
		check.Namespace = ""
	case check.Namespace != m.Namespace:
		return explain.Ref{}
	}
	return check
}

// recordsMissing returns the RemediationRecords whose capacity is not back, in a namespace, or in all if that is empty, oldest first; known
// is false if some could not be read. The records of a NodeHealthCheck are in the namespaces of its templates.
func recordsMissing(ctx context.Context, a *inspect.Asker, namespace, cluster string) (found []records.Missing, known bool) {
	namespaces := []string{namespace}
	if cluster == "" && namespace != "" { // NodeHealthChecks belong to no namespace and no cluster
		for _, check := range snapshot.All[nhcv1.NodeHealthCheck](a.Snapshot, "") {
			for _, template := range records.TemplatesOf(&check.Spec) {
				namespaces = append(namespaces, template.Namespace)
			}
		}
	}
	slices.Sort(namespaces)
	known = true
	for _, namespace := range slices.Compact(namespaces) {
		list := &mendv1.RemediationRecordList{}
		if a.Snapshot.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
			known = false
		}
		for i := range list.Items {
			if one := records.MissingBy(&list.Items[i]); one != nil {
				found = append(found, *one)
			}
		}
	}
	records.OldestFirst(found)
	return found, known
}

// addMissing adds the missing capacity of each check, and in total, of one cluster and namespace, or of all if these are empty.
func (s *Status) addMissing(ctx context.Context, a *inspect.Asker, namespace, cluster string) {
	found, known := recordsMissing(ctx, a, namespace, cluster)
	inScope := func(m *records.Missing) bool {
		here := namespace == "" || m.Namespace == namespace || m.Check.Kind == nodeCheckKind
		return here && (cluster == "" || m.Cluster == cluster)
	}
	s.CapacityMissing = missingOf(found, known, inScope)
	asked := map[mendv1.RecordRef]bool{}
	for i := range s.Checks {
		s.Checks[i].CapacityMissing = missingOf(found, known, func(m *records.Missing) bool {
			wanted := askedBy(m) == s.Checks[i].Reference
			asked[m.Target] = asked[m.Target] || wanted
			return wanted
		})
	}
	s.besides = missingOf(found, known, func(m *records.Missing) bool { return inScope(m) && !asked[m.Target] })
}

// notBack prints the missing capacity, if any, and what the oldest remediation waits for.
func (p *page) notBack(indent, heading string, missing *cliv1.MissingCapacity) {
	if !anyMissing(missing) {
		return
	}
	oldest := missing.Oldest
	says := fmt.Sprintf("the capacity of %s %s, since %s", oldest.Kind, oldest.Name, p.moment(oldest.Due.Time))
	if n := missing.Remediations; n > 1 {
		says = fmt.Sprintf("the capacity of %d remediations; of %s %s since %s", n, oldest.Kind, oldest.Name, p.moment(oldest.Due.Time))
	}
	switch {
	case oldest.Reason == records.Unread:
		says += "; what it waits for is not known yet"
	case oldest.Message == "":
		says += ": " + oldest.Reason
	default:
		says += ": " + oldest.Reason + ": " + oldest.Message
	}
	p.line(indent, p.Paint.Waits(heading)+": "+says+".")
}

func anyMissing(missing *cliv1.MissingCapacity) bool {
	return missing != nil && missing.Remediations > 0
}

// uncover finds the machines of each Cluster that the judged checks do not cover. If the machines of a Cluster were only counted, its
// conditions say that all are Ready.
func (s *Status) uncover(a *inspect.Asker, namespace, cluster string, judged []explain.Check) {
	healthy := healthyTargets(judged)
	for _, c := range snapshot.All[clusterv1.Cluster](a.Snapshot, namespace) {
		if cluster != "" && c.Name != cluster || !c.DeletionTimestamp.IsZero() {
			continue
		}
		key := client.ObjectKeyFromObject(c)
		checks := a.Snapshot.ChecksOf(key)
		var notReady []string
		unselected, counted := a.Snapshot.Counted(key)
		if !counted {
			unselected, notReady = unattended(a, key, checks, healthy)
		}
		var parts []string
		if len(checks) == 0 && (unselected > 0 || counted) { // without either, NodeHealthChecks may select all machines
			parts = append(parts, "it has no MachineHealthCheck")
		}
		if unselected > 0 {
			parts = append(parts, explain.Number(unselected, "machine")+" selected by no check")
		}
		if len(notReady) > 0 {
			parts = append(parts, "not Ready, and covered by no check: "+text.FirstOf(notReady, mostNames))
		}
		if s.notReady += len(notReady); len(parts) > 0 {
			s.Uncovered = append(s.Uncovered, key.String()+": "+strings.Join(parts, "; "))
		}
	}
}

// healthyTargets returns, for each machine that is a target, whether all its checks judge it healthy.
func healthyTargets(judged []explain.Check) map[client.ObjectKey]bool {
	healthy := map[client.ObjectKey]bool{}
	for i := range judged {
		for _, t := range judged[i].Targets {
			ref := t.Reference
			if t.Machine != nil {
				ref = *t.Machine
			}
			key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
			before, again := healthy[key] // the verdict of another check
			healthy[key] = t.State == cliv1.StateHealthy && t.Skipped == "" && (before || !again)
		}
	}
	return healthy
}

// unattended returns how many machines of a Cluster no check selects, and which of these, or of those judged healthy, are not Ready.
func unattended(
	a *inspect.Asker, cluster client.ObjectKey, checks []*clusterv1.MachineHealthCheck, healthy map[client.ObjectKey]bool,
) (unselected int, notReady []string) {
	for _, m := range snapshot.All[clusterv1.Machine](a.Snapshot, cluster.Namespace) {
		if m.Spec.ClusterName != cluster.Name || !m.DeletionTimestamp.IsZero() {
			continue
		}
		isHealthy, selected := healthy[client.ObjectKeyFromObject(m)]
		selected = selected || slices.ContainsFunc(checks, func(check *clusterv1.MachineHealthCheck) bool {
			return machinehealthcheck.Unselected(check, m) == ""
		})
		if !selected {
			unselected++
		}
		if ready, known := a.NodeReady(m); (!selected || isHealthy) && known && !ready {
			notReady = append(notReady, m.Name)
		}
	}
	return unselected, notReady
}

// outOfService returns the hosts that are marked unhealthy. If hosts could not be read, the notes report it.
func outOfService(ctx context.Context, a *inspect.Asker, namespace string) []string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(bmov1alpha1.GroupVersion.WithKind("BareMetalHostList"))
	_ = a.Snapshot.List(ctx, list, client.InNamespace(namespace))
	var marked []string
	for i := range list.Items {
		if hosts.Unhealthy(&list.Items[i]) {
			marked = append(marked, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	}
	return marked
}

// troubles returns sentences for the first line about what is wrong besides checks that are not OK.
func (s *Status) troubles() string {
	says := ""
	if s.ManagersUnknown == "" && !slices.ContainsFunc(s.Managers, func(m cliv1.Manager) bool { return m.Alive }) {
		says = "No manager of kubemend runs. "
	}
	short := 0
	for i := range s.Checks {
		check := &s.Checks[i]
		seen := check.NodesUnknown == nil && check.Counts.Unknown < check.Counts.NotHealthy()
		if seen && check.Blocked() == clusterv1.MachineHealthCheckTooManyUnhealthyReason {
			short++
		}
	}
	for _, trouble := range []struct {
		n           int
		thing, says string
	}{
		{len(s.Unreachable), "cluster", "out of reach"}, {short, "check", "blocked by too many unhealthy"},
		{s.notReady, "machine", "not Ready, and covered by no check"}, {len(s.OutOfService), "host", "out of service"},
	} {
		if trouble.n > 0 {
			says += explain.Number(trouble.n, trouble.thing) + " " + trouble.says + ". "
		}
	}
	return says
}

// gone are former annotations of MachineHealthChecks, and a former label of Clusters, which RemediationPolicies have replaced.
var gone = []string{
	"kubemend.io/max-in-flight", "kubemend.io/storm-cooldown", "kubemend.io/wait-for-spare", "kubemend.io/wait-for-spare-timeout",
	"kubemend.io/machine-health-checks",
}

// noteGone adds a note with the objects that still have one.
func (s *Status) noteGone(a *inspect.Asker, namespace, cluster string) {
	var still []string
	note := func(name, of string, marks map[string]string) {
		if slices.ContainsFunc(gone, labels.Set(marks).Has) && (cluster == "" || of == cluster) {
			still = append(still, name)
		}
	}
	for _, c := range snapshot.All[clusterv1.Cluster](a.Snapshot, namespace) {
		note("Cluster "+c.Namespace+"/"+c.Name, c.Name, c.Labels)
	}
	for _, c := range snapshot.All[clusterv1.MachineHealthCheck](a.Snapshot, namespace) {
		note(c.Namespace+"/"+c.Name, c.Spec.ClusterName, c.Annotations)
	}
	if len(still) > 0 {
		s.Notes = append(s.Notes, "Annotations and labels that have no effect, use RemediationPolicies instead ("+
			strings.Join(gone, ", ")+"): "+text.FirstOf(still, mostNames))
	}
}
