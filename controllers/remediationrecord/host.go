package remediationrecord

import (
	"cmp"
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// hostWithin is how long a record waits for the host that it names. What a record was written with never changes, so that a host that an
// overloaded API server does not tell in this time is missing in it for good; the remediation waits as long.
const hostWithin = 5 * time.Second

// Metal finds the host of a machine. (package host)
type Metal interface {
	Of(ctx context.Context, m *clusterv1.Machine) (host.Found, error)
}

// HostOf is the host of m; nil if m is on none, or if that cannot be found out now.
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

// failureDomainLabel is by which CAPM3 tells the failure domain of a host.
const failureDomainLabel = "infrastructure.cluster.x-k8s.io/failure-domain"

// OnHost writes into target which host it is on, its model where the reader of h has that, and its failure domain, which counts before that
// of the Machine or its node; of no host nothing.
func OnHost(target *mendv1.RecordTarget, h *host.Host) {
	if h == nil {
		return
	}
	target.Host = &mendv1.RecordRef{
		APIVersion: host.Kind.GroupVersion().String(), Kind: host.Kind.Kind, Namespace: h.Namespace, Name: h.Name, UID: string(h.UID),
	}
	target.HostModel = h.Model
	target.FailureDomain = cmp.Or(h.Labels[failureDomainLabel], target.FailureDomain)
}
