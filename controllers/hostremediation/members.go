package hostremediation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/workload"
)

// leaseRecheck is how soon to look again whose API servers are alive: no watch tells of their leases.
const leaseRecheck = 30 * time.Second

// controlPlaneForbids says why the control plane of w's machine can not do without it now; empty if it can, and it is its turn.
func (r *Reconciler) controlPlaneForbids(ctx context.Context, w *observed, all []someRemediation) (string, error) {
	view, api, err := r.planeAPI(ctx, w)
	if err != nil {
		return "", err
	}
	machines, err := r.controlPlaneMachines(ctx, w)
	if err != nil {
		return "", err
	}
	plane := controlplane.Plane{API: api}
	for _, m := range machines {
		is, err := r.memberOf(ctx, w, m, all)
		if err != nil {
			return "", err
		}
		if api == controlplane.Answers && !is.Joining {
			is.Node = nodeSign(view.Node(m.Status.NodeRef.Name))
		}
		plane.Members = append(plane.Members, is)
	}
	r.addServers(ctx, w, &plane, machines)
	return w.told(plane.Against(w.machine.Name, w.now)), nil
}

// told is what there is to say of what forbids it. It makes w be looked at again when that may have changed without an event.
func (w *observed) told(why []controlplane.Objection) string {
	texts := make([]string, 0, len(why))
	for _, o := range why {
		texts = append(texts, o.String())
		switch {
		case !o.Until.IsZero():
			w.lookAgain(o.Until.Sub(w.now))
		case o.Reason == controlplane.MajorityAtRisk:
			w.lookAgain(leaseRecheck)
		}
	}
	return strings.Join(texts, "; ")
}

// planeAPI is whether the API of w's cluster answers, and its nodes if it does. A cluster that refuses to show them is as good as silent: so
// nobody is alive whom nobody can see, and no majority kept that nobody can count.
func (r *Reconciler) planeAPI(ctx context.Context, w *observed) (workload.View, controlplane.API, error) {
	if w.cluster == nil {
		return workload.View{}, controlplane.NoAnswer, nil
	}
	view, err := r.Clusters.View(ctx, client.ObjectKeyFromObject(w.cluster), w.now)
	switch {
	case errors.Is(err, ErrUnasked):
		return view, controlplane.Connecting, fmt.Errorf("look at the control plane: %w", err)
	case err != nil || view.Link == workload.Down:
		return view, controlplane.NoAnswer, nil //nolint:nilerr // what could not be seen is the answer
	case view.Link == workload.Up:
		return view, controlplane.Answers, nil
	}
	w.lookAgain(max(view.Recheck, impatience)) // it is known after a minute at the latest
	return view, controlplane.Connecting, nil
}

// controlPlaneMachines returns the control-plane machines of w's cluster, its own one among them. They are shared: read only.
func (r *Reconciler) controlPlaneMachines(ctx context.Context, w *observed) ([]*clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(w.machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: w.machine.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", w.machine.Spec.ClusterName, err)
	}
	all := []*clusterv1.Machine{w.machine}
	for i := range list.Items {
		if m := &list.Items[i]; m.UID != w.machine.UID {
			all = append(all, m)
		}
	}
	return all, nil
}

// memberOf is what there is of m as a member of the control plane, but for its node and its API server.
func (r *Reconciler) memberOf(ctx context.Context, w *observed, m *clusterv1.Machine, all []someRemediation) (controlplane.Member, error) {
	own, found := m.UID == w.machine.UID, w.found
	if !own {
		var err error
		if found, err = r.Hosts.Of(ctx, m); err != nil {
			return controlplane.Member{}, err
		}
	}
	is := controlplane.Member{Name: m.Name, Joining: m.Status.NodeRef.Name == "", Off: found.Host != nil && !host.PowerOf(found.Host).On}
	if since, replaced := replacedSince(m); replaced {
		is.ReplacedBy, is.ReplacedSince = "Machine "+m.Name, since
	}
	switch {
	case own:
		is.Due, is.Begun = w.rem.GetCreationTimestamp().Time, w.record.Attempt > 0
		if underway(w.record) {
			is.Remediation, is.Began = w.rem.GetName(), w.record.Began
		}
	case otherHold(found.Host, host.Remediation{}) != "":
		is.Remediation = "BareMetalHost " + found.Host.Name + " is held off"
	default:
		for _, rem := range all {
			if ownedBy(rem, m) {
				w.remediated(&is, rem, found)
			}
		}
	}
	return is, nil
}

// remediated notes in is what a remediation of it, which does not hold its host off, does or waits for. One that could not begin for other reasons
// keeps nobody waiting.
func (w *observed) remediated(is *controlplane.Member, rem someRemediation, found host.Found) {
	rec, err := recordOf(rem)
	switch {
	case err != nil:
		is.Remediation = rem.String() // of what cannot be read the worst is assumed
	case underway(rec):
		w.turns.shown(queueOf(w), rem.GetUID())
		is.Remediation, is.Began = rem.String(), rec.Began
	case waits(rem, rec) && found.Is == powercycle.HostOurs && ready(host.PowerOf(found.Host)):
		is.Due, is.Begun = rem.GetCreationTimestamp().Time, rec.Attempt > 0
	}
}

// waits reports whether a remediation that remembers rec waits for its turn, or for something else that comes before power-off.
func waits(rem client.Object, rec record) bool {
	before := rec.State == powercycle.Pending || rec.State == powercycle.Preparing
	return before && rec.Paused.IsZero() && rem.GetDeletionTimestamp().IsZero() && !annotations.HasPaused(rem)
}

// underway reports whether a remediation may have done something to its host in this attempt, and is not over.
func underway(rec record) bool {
	switch rec.State {
	case "", powercycle.Pending, powercycle.Preparing:
		return false
	}
	return !rec.State.Final()
}

// ready reports whether a host would go off if it was asked to.
func ready(p host.Power) bool { return p.Wanted && p.HeldBy == "" && p.Deaf == "" }

// replacedSince reports whether m is being deleted, or its owner was asked to replace it, and since when.
func replacedSince(m *clusterv1.Machine) (time.Time, bool) {
	if !m.DeletionTimestamp.IsZero() {
		return m.DeletionTimestamp.Time, true
	}
	if !collections.IsUnhealthyAndOwnerRemediated(m) {
		return time.Time{}, false
	}
	return conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition).LastTransitionTime.Time, true
}

// nodeSign is what a node says of its member; nil is one that does not exist any more.
func nodeSign(node *corev1.Node) controlplane.Sign {
	if node != nil && readyOf(node) == corev1.ConditionTrue {
		return controlplane.Alive
	}
	return controlplane.Silent
}

// addServers adds what the leases of the API servers say, where that decides: they are read live. Where they cannot be read the nodes decide
// alone.
func (r *Reconciler) addServers(ctx context.Context, w *observed, plane *controlplane.Plane, machines []*clusterv1.Machine) {
	if r.Reader == nil || plane.API != controlplane.Answers || controlplane.Majority(len(plane.Members)) == 0 || plane.Busy(w.machine.Name, w.now) {
		return
	}
	ctx, done := w.answering(ctx)
	defer done()
	reader, err := r.Reader(ctx, client.ObjectKeyFromObject(w.cluster))
	var renewed map[string]time.Time
	if err == nil {
		renewed, err = workload.APIServers(ctx, reader)
	}
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the leases of API servers; their nodes alone say which are alive", "reason", plain(err))
		return
	}
	signs := controlplane.Servers(renewed, w.now)
	for i, m := range machines {
		if node := m.Status.NodeRef.Name; node != "" {
			plane.Members[i].APIServer = signs[node]
		}
	}
}
