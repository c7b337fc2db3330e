package machinehealthcheck

import (
	"errors"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/policy"
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

// Of a host in use, BMO changes the status all the time. A label may put its machine into another group.
func TestOnlyWhatPoliciesGroupByWakesTheChecksOfANamespace(t *testing.T) {
	r := newPool(t)
	byRack := []mendv1.PolicyGroupKey{{Key: mendv1.GroupByHostLabel, Label: "rack"}}
	limits := &mendv1.RemediationPolicy{Spec: mendv1.RemediationPolicySpec{Limits: []mendv1.PolicyLimit{{
		Name: "rack", GroupBy: byRack, MaxInFlight: new(intstr.FromInt32(1)),
	}}}}
	r.Ledger.Set([]*policy.Policy{policy.Read(limits, "")})
	w := aCheck(a("m", health.Healthy, onMetal))
	w.placed = &placed{hosts: true}
	markedBefore(w.Targets[0]) // a quiet machine, whose place is kept
	plan := decide(w)
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name, host.Labels = "ns", "h", map[string]string{"rack": "r1"}
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Name: "m"}
	r.Reconciler.hosts.note(host)
	r.reported(w, plan, true)
	powered, moved := host.DeepCopy(), host.DeepCopy()
	powered.Status.PoweredOn, powered.Status.Provisioning.State = true, bmov1alpha1.StateProvisioned
	moved.Labels["rack"] = "r2"
	for _, step := range []struct {
		to   *bmov1alpha1.BareMetalHost
		want int
		rack string
	}{{powered, 0, "r1"}, {moved, 2, "r2"}} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		r.hostEvents().Update(t.Context(), event.TypedUpdateEvent[*bmov1alpha1.BareMetalHost]{ObjectOld: host, ObjectNew: step.to}, q)
		must.Is(t, step.want, q.Len(), "checks:")
		must.Is(t, step.rack, r.reported(w, plan, true)[0].HostLabels["rack"])
		q.ShutDown()
	}
}
