package remediationrecord

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

// The kinds of targets, and of the checks that ask for remediations.
const (
	machineKind      = "Machine"
	nodeKind         = "Node"
	hostKind         = "BareMetalHost"
	nodeCheckKind    = "NodeHealthCheck"
	machineCheckKind = "MachineHealthCheck"
)

// OnMachine writes into record what a Machine says: itself, its owner, MachineDeployment, Cluster, failure domain and the name of its node.
func OnMachine(record *mendv1.RemediationRecord, m *clusterv1.Machine) {
	target := &record.Spec.Target
	*target = mendv1.RecordTarget{
		ClusterName: m.Spec.ClusterName, FailureDomain: cmp.Or(m.Status.FailureDomain, m.Spec.FailureDomain),
		Machine: new(refTo(m, clusterv1.GroupVersion.WithKind(machineKind))),
	}
	if deployment := m.Labels[clusterv1.MachineDeploymentNameLabel]; deployment != "" {
		metav1.SetMetaDataLabel(&record.ObjectMeta, clusterv1.MachineDeploymentNameLabel, deployment)
	}
	_, target.ControlPlane = m.Labels[clusterv1.MachineControlPlaneLabel]
	if by := metav1.GetControllerOf(m); by != nil {
		target.Owner = &mendv1.RecordRef{APIVersion: by.APIVersion, Kind: by.Kind, Namespace: m.Namespace, Name: by.Name}
		target.Owner.UID = string(by.UID)
	}
	if m.Status.NodeRef.Name != "" {
		target.Node = NodeRef(m.Status.NodeRef.Name, "")
	}
}

// NodeRef returns a reference to a node; uid is empty if it is not known.
func NodeRef(name, uid string) *mendv1.RecordRef {
	return &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// OnNode writes the node into target, and the node's zone as the failure domain if target has none: few Machines on bare metal have one,
// and a node without a Machine has no other. (Kubernetes, well-known labels: topology.kubernetes.io/zone)
func OnNode(target *mendv1.RecordTarget, n *corev1.Node) {
	if n == nil {
		return
	}
	target.Node = NodeRef(n.Name, string(n.UID))
	target.FailureDomain = cmp.Or(target.FailureDomain, n.Labels[corev1.LabelTopologyZone])
}

// OwnedBy makes the Cluster own a record, so that the record is moved and deleted with the Cluster.
func OwnedBy(record *mendv1.RemediationRecord, cluster *clusterv1.Cluster) {
	record.Spec.Target.ClusterName, record.Spec.Target.ClusterUID = cluster.Name, string(cluster.UID)
	metav1.SetMetaDataLabel(&record.ObjectMeta, clusterv1.ClusterNameLabel, format.MustFormatValue(cluster.Name))
	record.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
	}}
}

// WentAt returns when the Machine of a record was deleted: by its step, with said true, else the time of its last step.
func WentAt(record *mendv1.RemediationRecord) (at time.Time, said bool) {
	if step := last(&record.Status, TargetGone); step != nil {
		return step.Time.Time, true
	}
	at = record.Spec.Decided.Time
	if n := len(record.Status.Steps); n > 0 {
		at = record.Status.Steps[n-1].Time.Time
	}
	return at, false
}

// Judged writes into spec why a target counts as unhealthy at now: the evidence is all findings that are due, and the cause is the first of
// them. A condition is recorded with its last transition. If it counts from later on, as after an outage, only Due shows that.
func Judged(spec *mendv1.RemediationRecordSpec, verdict health.Verdict, now time.Time) {
	spec.UnhealthySince, spec.Due = nil, moment(verdict.OverdueSince(now))
	for _, f := range verdict.Due(now) {
		found := evidenceOf(f)
		spec.Evidence = append(spec.Evidence, found)
		if spec.Cause == "" {
			spec.Cause = CauseOf(found)
		}
		if found.Since != nil && (spec.UnhealthySince == nil || found.Since.Before(spec.UnhealthySince)) {
			spec.UnhealthySince = found.Since
		}
	}
}

// CauseOf returns a finding as condition=status, or in a word.
func CauseOf(found mendv1.RecordEvidence) string {
	if found.Status == "" {
		return found.Type
	}
	return found.Type + "=" + found.Status
}

func evidenceOf(f health.Finding) mendv1.RecordEvidence {
	found := mendv1.RecordEvidence{TimeoutSeconds: int64(f.Limit / time.Second)}
	if f.Signal == (health.Signal{}) {
		found.Type, found.Message = string(f.Reason), f.Failure
		return found
	}
	found.Type, found.Status, found.Message = f.Signal.Type, f.Signal.Status, f.Signal.Reason
	found.Since = moment(f.Signal.Since)
	return found
}

func moment(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return new(metav1.NewTime(at))
}

// CountsOf returns the counts of a check, with its limit as written in its spec.
func CountsOf(p budget.Population, limit string) *mendv1.RecordCounts {
	return &mendv1.RecordCounts{Targets: int32(p.Total()), Healthy: int32(p.Healthy), InFlight: int32(p.InFlight), Limit: limit}
}

// hostWithin is how long a remediation waits for the host that its record names. The spec of a record never changes, so if an overloaded
// API server does not answer in time, the record never names its host.
const hostWithin = 5 * time.Second

// Metal finds the host of a Machine (see package host).
type Metal interface {
	Of(ctx context.Context, m *clusterv1.Machine) (host.Found, error)
}

// HostOf returns the host of m; nil if m is on none, or if the host cannot be found now.
func (r *Records) HostOf(ctx context.Context, m *clusterv1.Machine) *host.Host {
	if r == nil || r.Hosts == nil {
		return nil
	}
	within, done := context.WithTimeout(ctx, hostWithin)
	defer done()
	if found, err := r.Hosts.Of(within, m); err == nil && found.Is == powercycle.HostOurs {
		return found.Host
	}
	return nil
}

// OnHost writes into target its host, the host's model if h has it, and the host's failure domain, which takes precedence over the
// Machine's and the node's. Without a host it does nothing.
func OnHost(target *mendv1.RecordTarget, h *host.Host) {
	if h == nil {
		return
	}
	target.Host, target.HostModel = new(refTo(h, host.Kind)), h.Model
	target.FailureDomain = cmp.Or(h.Labels[place.FailureDomainLabel], target.FailureDomain)
}
