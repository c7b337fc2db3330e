package machinehealthcheck

import (
	"context"
	"errors"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/must"
)

// hostsThat is a watch of hosts that is ready, not ready yet, or failing.
type hostsThat struct {
	HostWatch

	ready bool
	err   error
}

func (w hostsThat) Ready(context.Context, schema.GroupVersionKind) (bool, error) {
	return w.ready, w.err
}

// A machine belongs to a rack by the labels of its host. Before the labels are known, no limit of the rack would apply.
func TestPlacesAreAskedForOnceTheLabelsOfHostsAreKnown(t *testing.T) {
	machine := &clusterv1.Machine{}
	machine.Namespace = "ns"
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "m",
	}
	onHost := &Plan{Decisions: []*Decision{{Target: &Target{Machine: machine}}}}
	elsewhere := &Plan{Decisions: []*Decision{{Target: &Target{Machine: &clusterv1.Machine{}}}}}
	var labels labelsOfHosts
	must.Is(t, true, labels.awaited(t.Context(), hostsThat{}, onHost))
	must.Is(t, false, labels.awaited(t.Context(), hostsThat{}, elsewhere))
	must.Is(t, false, labels.awaited(t.Context(), hostsThat{ready: true}, onHost))
	must.Is(t, false, labels.awaited(t.Context(), hostsThat{err: errors.New("forbidden")}, onHost))

	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name, host.Labels = "ns", "h", map[string]string{"rack": "r1"}
	must.Is(t, false, labels.note(host, false), "of a host without a consumer")
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Name: "m"}
	must.Is(t, true, labels.note(host, false))
	must.Is(t, false, labels.note(host.DeepCopy(), false), "of one that is the same")
	before := labels.of(machine)
	moved := host.DeepCopy()
	moved.Labels["rack"] = "r2"
	must.Is(t, true, labels.note(moved, false))
	must.Equal(t, []string{"r1", "r2"}, []string{before.labels["rack"], labels.of(machine).labels["rack"]})
	must.Is(t, true, labels.note(moved, true))
	must.Is(t, true, labels.of(machine) == nil)
}
