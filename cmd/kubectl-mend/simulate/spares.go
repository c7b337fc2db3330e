package simulate

import (
	"context"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// countsHosts reports whether it matters in a namespace which hosts are free: a check waits for spare ones.
func (o *environment) countsHosts(namespace string) bool {
	return slices.ContainsFunc(snapshot.All[clusterv1.MachineHealthCheck](o.snapshot, namespace), func(check *clusterv1.MachineHealthCheck) bool {
		wait, _ := machinehealthcheck.SpareWaitOf(check)
		return wait != nil && !check.Spec.Remediation.TemplateRef.IsDefined()
	})
}

// cloned makes a Metal3Machine for next that asks for the same host as that of m, and reports whether next has to be put on a host.
func (o *environment) cloned(ctx context.Context, m, next *clusterv1.Machine) bool {
	kind, err := host.Metal3MachineKind(o.client.RESTMapper())
	if err != nil || !o.countsHosts(m.Namespace) || m.Spec.InfrastructureRef.Kind != "Metal3Machine" {
		return false
	}
	between := &unstructured.Unstructured{}
	between.SetGroupVersionKind(kind.GroupVersionKind())
	if o.client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}, between) != nil {
		return false // what it asks for is not known, and the controllers know it neither
	}
	between.SetName(next.Spec.InfrastructureRef.Name)
	between.SetUID("")
	between.SetResourceVersion("")
	between.SetAnnotations(nil)
	between.SetOwnerReferences(nil)
	o.put(between)
	return true
}

// placed puts the machines on hosts that wait for one, as CAPM3 does: each on one that fits, as soon as there is any. Of
// several it takes the first by name, and not any, so that an answer is the same every time.
func (o *environment) placed(ctx context.Context) {
	var waiting []unplaced
	for _, is := range o.unplaced {
		m := snapshot.One[clusterv1.Machine](o.snapshot, is.machine)
		if m == nil || !m.DeletionTimestamp.IsZero() {
			continue
		}
		if h := o.fitting(ctx, m); h != nil {
			o.take(h.DeepCopy(), m)
			is.then()
			continue
		}
		waiting = append(waiting, is)
	}
	o.unplaced = waiting
}

// unplaced is a machine that waits for a host, and what follows when it has one.
type unplaced struct {
	machine client.ObjectKey
	then    func()
}

// fitting is the host that a machine is put on; nil if there is none.
func (o *environment) fitting(ctx context.Context, m *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	wants, err := host.WantsOf(ctx, o.client, o.client, m)
	o.note(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	all := snapshot.All[bmov1alpha1.BareMetalHost](o.snapshot, m.Namespace)
	names := wants.Fitting(all)
	slices.Sort(names)
	at := slices.IndexFunc(all, func(h *bmov1alpha1.BareMetalHost) bool { return len(names) > 0 && h.Name == names[0] })
	if at < 0 {
		return nil
	}
	return all[at]
}

// take puts a machine on a host.
func (o *environment) take(h *bmov1alpha1.BareMetalHost, m *clusterv1.Machine) {
	h.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name,
	}
	h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	o.put(h)
	o.eventLog.assumed(refOf("Machine", m), "HostTaken", "It is put on BareMetalHost "+h.Name)
}
