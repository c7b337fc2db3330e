// Package inspect explains the objects of a management cluster with the controllers' own functions, as the manager of that cluster would.
// It decides nothing itself.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Asker explains the objects of one snapshot at one moment.
type Asker struct {
	Snapshot *snapshot.Snapshot
	Now      time.Time
	Managers Managers
	// Judges is true to judge all machines here, instead of repeating what the manager wrote in the status of their checks.
	Judges bool

	written  func(*clusterv1.MachineHealthCheck, *clusterv1.Cluster) bool
	machines *machinehealthcheck.Reconciler
	nodes    *nodehealthcheck.Reconciler
	policies []*policy.Policy
}

// New returns an Asker for w at now.
func New(ctx context.Context, w *snapshot.Snapshot, now time.Time) *Asker {
	_ = errors.Join(machinehealthcheck.AddIndexes(ctx, w), remediationrecord.AddIndex(ctx, w)) // cannot fail: Scheme has these kinds
	a := &Asker{Snapshot: w, Now: now, Managers: ManagersOf(ctx, w, now)}
	a.written = w.WrittenBy(a.Managers.All)
	list := &mendv1.RemediationPolicyList{}
	_ = a.Snapshot.List(ctx, list) // fails where the kind is not installed, and then there are no policies
	for i := range list.Items {
		a.policies = append(a.policies, a.Policy(ctx, &list.Items[i]))
	}
	a.machines, a.nodes = a.controllers(a.Snapshot, clock.RealClock{})
	return a
}

// Policy reads a RemediationPolicy as a manager does. If the user may not list the Namespaces that it selects, it selects nothing, and the
// notes of the page report the missing right.
func (a *Asker) Policy(ctx context.Context, object *mendv1.RemediationPolicy) *policy.Policy {
	p := policy.Read(object, a.Managers.PolicyNamespace())
	_ = p.FindNamespaces(ctx, a.Snapshot)
	return p
}

// Acting returns controllers that act through c, with the places and the clock of the ledger. The explanations of a use the ledger as well.
func (a *Asker) Acting(c client.Client, ledger *policy.Ledger) (*machinehealthcheck.Reconciler, *nodehealthcheck.Reconciler) {
	machines, nodes := a.controllers(c, ledger.Clock)
	machines.Ledger, nodes.Ledger, nodes.Cached, a.machines.Ledger, a.nodes.Ledger = ledger, ledger, c, ledger, ledger
	machines.Unclaimed = machinehealthcheck.Act
	machines.Recorder, nodes.Recorder, nodes.Gate = &events.FakeRecorder{}, &events.FakeRecorder{}, &begin.Gate{Clock: ledger.Clock}
	return machines, nodes
}

func (a *Asker) controllers(c client.Client, now clock.PassiveClock) (*machinehealthcheck.Reconciler, *nodehealthcheck.Reconciler) {
	w, requests := a.Snapshot, &remediationrequest.Requests{Client: c, Live: c}
	machines := &machinehealthcheck.Reconciler{
		Client: c, Requests: requests, Clock: now, Metal: &host.Hosts{Client: c, Live: c},
		Clusters: snapshot.Clusters{Snapshot: w, ClockAhead: a.Managers.clockAhead()},
		Kinds:    &snapshot.Kinds[*remediationrequest.Metadata]{Snapshot: w, In: w.Namespace},
		Hosts:    &snapshot.Kinds[*bmov1alpha1.BareMetalHost]{Snapshot: w, In: w.Namespace},
		Ledger:   &policy.Ledger{Clock: now},
	}
	machines.Ledger.Set(a.policies)
	leases := a.Managers.announced(nhcv1.DefaultLeaseNamespace, func(m *managerlease.Announcement) string { return m.NodeLeaseNamespace })
	return machines, &nodehealthcheck.Reconciler{
		Client: c, Management: c, Live: c, Mapper: w.RESTMapper(), Requests: requests, Installed: w.Installed, Clock: now,
		Kinds:          &snapshot.Kinds[*unstructured.Unstructured]{Snapshot: w},
		LeaseNamespace: leases, Contact: &nodehealthcheck.Contact{Ahead: a.Managers.clockAhead},
	}
}

// MachineChecks explains the wanted MachineHealthChecks, sorted by name; none if the kind is not installed. It returns an error, such as
// Forbidden, if they could not be read.
func (a *Asker) MachineChecks(ctx context.Context, wanted func(*clusterv1.MachineHealthCheck) bool) ([]explain.Check, error) {
	err := a.Snapshot.List(ctx, &clusterv1.MachineHealthCheckList{}, client.UnsafeDisableDeepCopy)
	checks := snapshot.All[clusterv1.MachineHealthCheck](a.Snapshot, "")
	return explained("MachineHealthCheck", err, checks, wanted, func(check *clusterv1.MachineHealthCheck) (*explain.Check, error) {
		c, err := a.machineCheck(ctx, check)
		if c != nil && check.Annotations[mendv1.ClaimedByAnnotation] != "" && machinehealthcheck.Claimed(check) {
			c.ClaimedBy = "a RemediationPolicy with mode Act"
		}
		return c, err
	})
}

// NodeChecks explains the wanted NodeHealthChecks, sorted by name; none if the kind is not installed. It returns an error, such as
// Forbidden, if they could not be read.
func (a *Asker) NodeChecks(ctx context.Context, wanted func(*nhcv1.NodeHealthCheck) bool) ([]explain.Check, error) {
	err := a.Snapshot.List(ctx, &nhcv1.NodeHealthCheckList{}, client.UnsafeDisableDeepCopy)
	checks := snapshot.All[nhcv1.NodeHealthCheck](a.Snapshot, "")
	return explained("NodeHealthCheck", err, checks, wanted, func(check *nhcv1.NodeHealthCheck) (*explain.Check, error) {
		c, err := a.nodes.Explain(ctx, check.Name, a.Now)
		if c != nil {
			unreadByYou(c)
			a.Managers.Serve(c)
		}
		return c, err
	})
}

// explained explains the wanted checks of a kind; unread is why they could not be listed.
func explained[T client.Object](
	kind string, unread error, checks []T, wanted func(T) bool, explainOne func(T) (*explain.Check, error),
) ([]explain.Check, error) {
	if meta.IsNoMatchError(unread) {
		return nil, nil
	} else if unread != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, unread)
	}
	var found []explain.Check
	for _, check := range checks {
		if !wanted(check) {
			continue
		}
		c, err := explainOne(check)
		switch {
		case err != nil:
			found = append(found, explain.Unexplained(explain.Ref{Kind: kind, Namespace: check.GetNamespace(), Name: check.GetName()}, err))
		case c != nil:
			found = append(found, *c)
		}
	}
	return found, nil
}

// machineCheck explains check from the status that the acting manager wrote or, without such a status, by judging its machines as a manager
// would. It returns nil if the check is gone.
func (a *Asker) machineCheck(ctx context.Context, check *clusterv1.MachineHealthCheck) (*explain.Check, error) {
	key := client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}
	cluster := a.cluster(key)
	why, _, unseen := a.Snapshot.Unseen(key)
	unseen = unseen && conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition) // else managers read no nodes either
	// If the user may read neither the nodes nor which managers run, the status that a manager may have written is the best answer.
	mayWrite := unseen && len(a.Managers.All) == 0 && a.Managers.Unknown != "" && machinehealthcheck.Claimed(check) &&
		machinehealthcheck.Reported(check, cluster)
	if !a.Judges && (mayWrite || a.written(check, cluster)) {
		list := &clusterv1.MachineList{}
		if err := a.Snapshot.List(ctx, list, client.InNamespace(check.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Machines in %s: %w", check.Namespace, err)
		}
		return a.machines.Written(check, cluster, list.Items, a.Now, a.Managers.clockAhead()), nil
	}
	a.machines.Unclaimed = a.Managers.unclaimed(check, cluster)
	explained, err := a.machines.Explain(ctx, client.ObjectKeyFromObject(check), a.Now)
	if err != nil || explained == nil {
		return nil, err
	}
	if unseen && explained.NodesUnknown != nil {
		nodesUnread(explained, why)
	}
	a.Managers.Attend(explained, check, cluster)
	return explained, nil
}

// nodesUnread sets the blocker of targets whose nodes the user cannot read, for lack of rights or because the cluster does not answer. It
// drops the reason of the check, because the manager may read the nodes and decide otherwise.
func nodesUnread(explained *explain.Check, why string) {
	unread := explain.Blocker{
		Reason: explain.MissingPermission, Cause: explain.NodesUnread, Detail: "nodes of cluster " + explained.Cluster,
		Text: fmt.Sprintf("The nodes of cluster %s could not be read with your rights: %s", explained.Cluster, why),
		Fix:  "Ask as a user who may read its kubeconfig, and can reach it",
	}
	if explain.Silent(why) { // no answer, so the rights are not known
		unread.Reason, unread.Text = explain.ClusterSilent, fmt.Sprintf("Cluster %s does not answer you: %s", explained.Cluster, why)
		unread.Fix = "Check its API server, load balancer and network; if it does not answer the manager either, the check says so"
	}
	explained.NodesUnknown = &cliv1.NodesUnknown{Reason: unread.Reason, Message: unread.Text}
	explained.Reason, explained.Message = "", ""
	for i := range explained.Targets {
		if target := &explained.Targets[i]; target.State == cliv1.StateUnknown && target.Node != "" {
			target.Blockers, target.Next = []explain.Blocker{unread}, explain.Step{Reason: unread.Reason, Text: unread.Fix, Manual: true}
		}
	}
}

// cluster returns the Cluster of a name, or an empty Cluster if it is not known.
func (a *Asker) cluster(key client.ObjectKey) *clusterv1.Cluster {
	return cmp.Or(snapshot.One[clusterv1.Cluster](a.Snapshot, key), &clusterv1.Cluster{})
}

// unreadByYou replaces the blockers of nodes whose Machine the user may not read. The manager may read it and decide otherwise.
func unreadByYou(c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		for j := range t.Blockers {
			if t.Blockers[j].Cause != string(nodehealthcheck.MachineUnread) {
				continue
			}
			t.Blockers[j] = explain.Blocker{
				Reason: explain.MissingPermission, Cause: explain.MachineUnread, Detail: "its Machine",
				Text: "You may not read its Machine, and the manager may",
				Fix:  "Ask as a user who may read the Machine, its Cluster and its MachineHealthChecks",
			}
			if len(t.Blockers) == 1 && !t.InFlight {
				t.Next = explain.Step{Reason: t.Blockers[j].Reason, Text: t.Blockers[j].Fix, Manual: true}
			}
		}
	}
}
