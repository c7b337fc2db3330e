package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// world is one cluster with its hosts, in a namespace of the management cluster.
type world struct {
	namespace     string
	plane         *rig.ControlPlane // of the workload cluster
	there         client.Client     // to it
	cluster       *clusterv1.Cluster
	controlPlanes int
	workers       int32
}

// build makes the cluster. Machines come up by and by.
func (w *world) build(ctx context.Context, cluster string) {
	GinkgoHelper()
	w.there = clientFor(w.plane.Config())
	w.cluster = builders.Cluster(w.namespace, cluster)
	objects := append(suite.Reachable(ctx, w.cluster, w.plane, provider, reader), builders.ControlPlane(w.cluster, w.controlPlanes)...)
	objects = append(objects, builders.Workers(w.cluster, w.pool(), w.workers, func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Labels["nodepool"] = "nodepool-0"
	})...)
	Expect(builders.Apply(ctx, here, objects...)).To(Succeed())
}

// pool is the name of the workers' MachineDeployment.
func (w *world) pool() string { return w.cluster.Name + "-md-0" }

// allWell waits until the cluster is as every spec may expect it.
func (w *world) allWell(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(w.machines(ctx)).To(HaveLen(w.controlPlanes + int(w.workers)))
		for name, m := range w.machines(ctx) {
			g.Expect(m.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), name)
			g.Expect(suite.Ready(ctx, w.there, name)).To(Equal(corev1.ConditionTrue), name)
		}
	}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())
}

// leaveAsFound takes back what a spec did to the cluster.
func (w *world) leaveAsFound(ctx context.Context) {
	GinkgoHelper()
	Expect(here.DeleteAllOf(ctx, &clusterv1.MachineHealthCheck{}, client.InNamespace(w.namespace))).To(Succeed())
	for name := range w.machines(ctx) {
		if k := w.kubelet(name); k != nil {
			k.Start()
		}
	}
	w.allWell(ctx)
}

// machines are all machines of the shared cluster, by name.
func (w *world) machines(ctx context.Context) map[string]*clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(here.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
	byName := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

// workerNames are the names of the workers, sorted.
func (w *world) workerNames(ctx context.Context) []string {
	GinkgoHelper()
	var names []string
	for name, m := range w.machines(ctx) {
		if m.Labels["nodepool"] != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// identities are the UIDs of the workers by name: what changes if one is replaced.
func (w *world) identities(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	uids := map[string]types.UID{}
	for name, m := range w.machines(ctx) {
		if m.Labels["nodepool"] != "" {
			uids[name] = m.UID
		}
	}
	return uids
}

// replaced waits until the lost worker was replaced, and the others were not.
func (w *world) replaced(ctx context.Context, before map[string]types.UID, lost string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := w.identities(ctx)
		g.Expect(now).To(HaveLen(len(before)))
		g.Expect(now).NotTo(HaveKey(lost))
		for name, uid := range before {
			if name != lost {
				g.Expect(now).To(HaveKeyWithValue(name, uid))
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// untouched says whether nothing was begun: no machine was handed over, deleted or made.
func (w *world) untouched(ctx context.Context, before map[string]types.UID) func(Gomega) {
	return func(g Gomega) {
		g.Expect(w.identities(ctx)).To(Equal(before))
		machines := w.machines(ctx)
		for name := range before {
			m := machines[name]
			g.Expect(m).NotTo(BeNil(), name)
			g.Expect(m.DeletionTimestamp).To(BeNil(), name)
			g.Expect(conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), name)
		}
	}
}

func (w *world) kubelet(machine string) *simulator.Kubelet {
	return provider.Kubelet(client.ObjectKey{Namespace: w.namespace, Name: machine})
}

// fallSilent stops the kubelets of machines, as a power cut would.
func (w *world) fallSilent(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Expect(w.kubelet(name)).NotTo(BeNil(), name)
		w.kubelet(name).Stop()
	}
}

// applyTemplate makes a check from a file in templates/.
func (w *world) applyTemplate(ctx context.Context, file string, variables map[string]string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	all := map[string]string{"CLUSTER_NAME": w.cluster.Name, "NAMESPACE": w.namespace}
	for name, value := range variables {
		all[name] = value
	}
	check, err := builders.Template(file, all)
	Expect(err).NotTo(HaveOccurred())
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	return w.getCheck(ctx, check.GetName())
}

func (w *world) getCheck(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, check)).To(Succeed())
	return check
}

// counts are a check's numbers, healthy of expected, as "5 of 5".
func (w *world) counts(ctx context.Context, name string) func() string {
	return func() string {
		status := w.getCheck(ctx, name).Status
		return fmt.Sprintf("%d of %d", ptr.Deref(status.CurrentHealthy, -1), ptr.Deref(status.ExpectedMachines, -1))
	}
}

// said is what a condition of a check says, as "Status/Reason".
func (w *world) said(ctx context.Context, check, kind string) func() string {
	return func() string { return gist(conditions.Get(w.getCheck(ctx, check), kind)) }
}

// saidOf is what a condition of a machine says, as "Status/Reason".
func (w *world) saidOf(ctx context.Context, machine, kind string) func() string {
	return func() string {
		m := w.machines(ctx)[machine]
		if m == nil {
			return "gone"
		}
		return gist(conditions.Get(m, kind))
	}
}

func gist(c *metav1.Condition) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason)
}

// events counts how often a reason was told of an object on behalf of a check, repetitions included.
func (w *world) events(ctx context.Context, check *clusterv1.MachineHealthCheck, object, reason string) func() int {
	return func() int {
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list, client.InNamespace(w.namespace))).To(Succeed())
		number := 0
		for i := range list.Items {
			e := &list.Items[i]
			mine := e.Regarding.UID == check.UID || (e.Related != nil && e.Related.UID == check.UID)
			if !mine || e.Regarding.Name != object || e.Reason != reason {
				continue
			}
			number++
			if e.Series != nil {
				number += int(e.Series.Count) - 1
			}
		}
		return number
	}
}

// writers are the names under which the API server knows those who wrote to an object, each with the fields that are
// theirs.
func writers(object client.Object) map[string]string {
	fields := map[string]string{}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 != nil {
			// Who wrote first into a structure has the structure as well.
			fields[entry.Manager] += strings.ReplaceAll(entry.FieldsV1.GetRawString(), `".":{},`, "")
		}
	}
	return fields
}

// message is the message of a check's condition.
func (w *world) message(ctx context.Context, check, kind string) func() string {
	return func() string { return conditions.GetMessage(w.getCheck(ctx, check), kind) }
}
