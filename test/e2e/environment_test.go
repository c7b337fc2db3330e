package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// environment is one cluster with its hosts, in a namespace of the management cluster.
type environment struct {
	namespace     string
	plane         *rig.ControlPlane // of the workload cluster
	there         client.Client     // to it
	cluster       *clusterv1.Cluster
	controlPlanes int
	workers       int32
}

// build makes the cluster. Machines come up by and by.
func (env *environment) build(ctx context.Context, cluster string) {
	GinkgoHelper()
	env.there = clientFor(env.plane.Config())
	env.cluster = builders.Cluster(env.namespace, cluster)
	objects := append(suite.Reachable(ctx, env.cluster, env.plane, provider, reader), builders.ControlPlane(env.cluster, env.controlPlanes)...)
	objects = append(objects, builders.Workers(env.cluster, env.pool(), env.workers, func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Labels["nodepool"] = "nodepool-0"
	})...)
	Expect(builders.Apply(ctx, here, objects...)).To(Succeed())
}

// pool is the name of the workers' MachineDeployment.
func (env *environment) pool() string { return env.cluster.Name + "-md-0" }

// allHealthy waits until the cluster is as every spec may expect it.
func (env *environment) allHealthy(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.machines(ctx)).To(HaveLen(env.controlPlanes + int(env.workers)))
		for name, m := range env.machines(ctx) {
			g.Expect(m.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), name)
			g.Expect(suite.Ready(ctx, env.there, name)).To(Equal(corev1.ConditionTrue), name)
		}
	}).WithContext(ctx).Should(Succeed())
}

// leaveAsFound reverts what a spec did to the cluster.
func (env *environment) leaveAsFound(ctx context.Context) {
	GinkgoHelper()
	Expect(here.DeleteAllOf(ctx, &clusterv1.MachineHealthCheck{}, client.InNamespace(env.namespace))).To(Succeed())
	for name := range env.machines(ctx) {
		if k := env.kubelet(name); k != nil {
			k.Start()
		}
	}
	env.allHealthy(ctx)
}

// machines are all machines of the shared cluster, by name.
func (env *environment) machines(ctx context.Context) map[string]*clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
	byName := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

// workerNames are the names of the workers, sorted.
func (env *environment) workerNames(ctx context.Context) []string {
	GinkgoHelper()
	var names []string
	for name, m := range env.machines(ctx) {
		if m.Labels["nodepool"] != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// identities are the UIDs of the workers by name: what changes if one is replaced.
func (env *environment) identities(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	uids := map[string]types.UID{}
	for name, m := range env.machines(ctx) {
		if m.Labels["nodepool"] != "" {
			uids[name] = m.UID
		}
	}
	return uids
}

// replaced waits until the lost worker was replaced, and the others were not.
func (env *environment) replaced(ctx context.Context, before map[string]types.UID, lost string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := env.identities(ctx)
		g.Expect(now).To(HaveLen(len(before)))
		g.Expect(now).NotTo(HaveKey(lost))
		for name, uid := range before {
			if name != lost {
				g.Expect(now).To(HaveKeyWithValue(name, uid))
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// untouched checks that nothing was started: no owner remediation was requested, and no machine was deleted or made.
func (env *environment) untouched(ctx context.Context, before map[string]types.UID) func(Gomega) {
	return func(g Gomega) {
		g.Expect(env.identities(ctx)).To(Equal(before))
		machines := env.machines(ctx)
		for name := range before {
			m := machines[name]
			g.Expect(m).NotTo(BeNil(), name)
			g.Expect(m.DeletionTimestamp).To(BeNil(), name)
			g.Expect(conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), name)
		}
	}
}

func (env *environment) kubelet(machine string) *simulator.Kubelet {
	return provider.Kubelet(client.ObjectKey{Namespace: env.namespace, Name: machine})
}

// fallSilent stops the kubelets of machines, as a power cut would.
func (env *environment) fallSilent(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Expect(env.kubelet(name)).NotTo(BeNil(), name)
		env.kubelet(name).Stop()
	}
}

// applyTemplate makes a check from a file in templates/.
func (env *environment) applyTemplate(ctx context.Context, file string, variables map[string]string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	all := map[string]string{"CLUSTER_NAME": env.cluster.Name, "NAMESPACE": env.namespace}
	for name, value := range variables {
		all[name] = value
	}
	check, err := builders.Template(file, all)
	Expect(err).NotTo(HaveOccurred())
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	return env.getCheck(ctx, check.GetName())
}

func (env *environment) getCheck(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: name}, check)).To(Succeed())
	return check
}

// counts are a check's numbers, healthy of expected, as "5 of 5".
func (env *environment) counts(ctx context.Context, name string) func() string {
	return func() string {
		status := env.getCheck(ctx, name).Status
		return fmt.Sprintf("%d of %d", ptr.Deref(status.CurrentHealthy, -1), ptr.Deref(status.ExpectedMachines, -1))
	}
}

// said is what a condition of a check says, as "Status/Reason".
func (env *environment) said(ctx context.Context, check, kind string) func() string {
	return func() string { return gist(conditions.Get(env.getCheck(ctx, check), kind)) }
}

// saidOf is what a condition of a machine says, as "Status/Reason".
func (env *environment) saidOf(ctx context.Context, machine, kind string) func() string {
	return func() string {
		m := env.machines(ctx)[machine]
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

// events counts the events of a reason about an object on behalf of a check, repetitions included.
func (env *environment) events(ctx context.Context, check *clusterv1.MachineHealthCheck, object, reason string) func() int {
	return func() int {
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
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
func (env *environment) message(ctx context.Context, check, kind string) func() string {
	return func() string { return conditions.GetMessage(env.getCheck(ctx, check), kind) }
}
