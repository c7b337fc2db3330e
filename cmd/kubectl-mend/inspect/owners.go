package inspect

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
	"github.com/kubemend/kubemend/controllers/explain"
)

// owners says of the targets that a KubeadmControlPlane was asked to replace, and does not, why and until when. Where that cannot be read, or has no rule for
// it, its own words stay.
func (a *Asker) owners(is *explain.Check) {
	for i := range is.Targets {
		t := &is.Targets[i]
		if !t.InFlight || t.State == health.Healthy {
			continue
		}
		m := snapshot.One[clusterv1.Machine](a.Snapshot, client.ObjectKey{Namespace: t.Namespace, Name: t.Name})
		if m == nil || !m.DeletionTimestamp.IsZero() {
			continue
		}
		putOff, refused := snapshot.NotReplaced(m)
		key, has := snapshot.ControlPlaneOf(m)
		if !has || !putOff && !refused {
			continue
		}
		kcp := snapshot.One[controlplanev1.KubeadmControlPlane](a.Snapshot, key)
		if kcp == nil {
			continue
		}
		f := a.kubeadmFacts(m, kcp, refused)
		if next := explain.ByKubeadm(key.Name, &f, kubeadm.Decide(f)); next != (explain.Step{}) {
			t.Next = next
		}
	}
}

// kubeadmFacts are what decides when kcp replaces m.
func (a *Asker) kubeadmFacts(m *clusterv1.Machine, kcp *controlplanev1.KubeadmControlPlane, refused bool) kubeadm.Facts {
	f := kubeadm.Facts{
		Now: a.Now, Asked: conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition).LastTransitionTime.Time, Refused: refused,
		Initialized: ptr.Deref(kcp.Status.Initialization.ControlPlaneInitialized, false), Last: replacementBy(m), Rules: rulesOf(kcp),
	}
	for _, other := range snapshot.All[clusterv1.Machine](a.Snapshot, m.Namespace) {
		if of, has := snapshot.ControlPlaneOf(other); !has || of.Name != kcp.Name {
			continue
		}
		f.Machines++
		if !other.DeletionTimestamp.IsZero() {
			f.Deleting = append(f.Deleting, other.Name)
		}
		if !other.Status.NodeRef.IsDefined() && !conditions.IsFalse(other, clusterv1.MachineHealthCheckSucceededCondition) {
			f.Provisioning = append(f.Provisioning, other.Name)
		}
	}
	slices.Sort(f.Deleting)
	slices.Sort(f.Provisioning)
	return f
}

// replacementBy is the remediation that m was made by. (Cluster API, RemediationData: machine, timestamp, retryCount.) A user may have written anything.
func replacementBy(m *clusterv1.Machine) kubeadm.Remediation {
	var says struct {
		Timestamp  metav1.Time `json:"timestamp"`
		RetryCount int         `json:"retryCount"`
	}
	if json.Unmarshal([]byte(m.Annotations[controlplanev1.RemediationForAnnotation]), &says) != nil {
		return kubeadm.Remediation{}
	}
	return kubeadm.Remediation{At: says.Timestamp.Time, Retries: says.RetryCount}
}

func rulesOf(kcp *controlplanev1.KubeadmControlPlane) kubeadm.Rules {
	is, seconds := kcp.Spec.Remediation, func(n *int32, otherwise int32) time.Duration {
		return time.Duration(ptr.Deref(n, otherwise)) * time.Second
	}
	return kubeadm.Rules{
		MaxRetry: int(ptr.Deref(is.MaxRetry, -1)), RetryPeriod: seconds(is.RetryPeriodSeconds, 0),
		MinHealthy: seconds(is.MinHealthyPeriodSeconds, controlplanev1.DefaultMinHealthyPeriodSeconds),
	}
}
