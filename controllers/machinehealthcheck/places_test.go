package machinehealthcheck

import (
	"errors"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/must"
)

// A machine belongs to a rack by the labels of its host. Before the labels are known, no limit of the rack would apply.
func TestPlacesAreAskedForOnceTheLabelsOfHostsAreKnown(t *testing.T) {
	machine := &clusterv1.Machine{}
	machine.Namespace = "ns"
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "m",
	}
	onHost := &Plan{Decisions: []*Decision{{Target: &Target{Machine: machine}}}}
	elsewhere := &Plan{Decisions: []*Decision{{Target: &Target{Machine: &clusterv1.Machine{}}}}}
	for _, tc := range []struct {
		watch *hostWatch
		plan  *Plan
		want  bool
	}{
		{&hostWatch{syncing: true}, onHost, true}, {&hostWatch{syncing: true}, elsewhere, false}, {&hostWatch{}, onHost, false},
		{&hostWatch{err: errors.New("forbidden")}, onHost, false},
	} {
		must.Is(t, tc.want, (&Reconciler{Hosts: tc.watch}).hostsAwaited(t.Context(), tc.plan))
	}

	r := &Reconciler{}
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name, host.Labels = "ns", "h", map[string]string{"rack": "r1"}
	r.hostEvents().Create(t.Context(), event.TypedCreateEvent[*bmov1alpha1.BareMetalHost]{Object: host}, nil)
	must.Is(t, "", r.hosts.of(machine).Name, "a host without a consumer")
	taken := host.DeepCopy()
	taken.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Name: "m"}
	for _, step := range []struct {
		from, to *bmov1alpha1.BareMetalHost
		want     string
	}{{host, taken, "h"}, {taken, host, ""}, {host, taken, "h"}} {
		r.hostEvents().Update(t.Context(), event.TypedUpdateEvent[*bmov1alpha1.BareMetalHost]{ObjectOld: step.from, ObjectNew: step.to}, nil)
		must.Is(t, step.want, r.hosts.of(machine).Name)
	}
	next := taken.DeepCopy()
	next.Name = "next"
	r.hostEvents().Create(t.Context(), event.TypedCreateEvent[*bmov1alpha1.BareMetalHost]{Object: next}, nil)
	r.hostEvents().Update(t.Context(), event.TypedUpdateEvent[*bmov1alpha1.BareMetalHost]{ObjectOld: taken, ObjectNew: host}, nil)
	must.Is(t, "next", r.hosts.of(machine).Name, "after the host before lets go of it")
	r.hostEvents().Delete(t.Context(), event.TypedDeleteEvent[*bmov1alpha1.BareMetalHost]{Object: taken}, nil)
	must.Is(t, "next", r.hosts.of(machine).Name, "after the host before is gone")
	taken = next
	r.hostEvents().Delete(t.Context(), event.TypedDeleteEvent[*bmov1alpha1.BareMetalHost]{Object: taken}, nil)
	must.Is(t, "", r.hosts.of(machine).Name, "after the host is gone")
}
