// Package capi tests the built manager with Cluster API's own providers. A ClusterClass makes a cluster of three control-plane and three
// worker machines, which the real MachineDeployment and KubeadmControlPlane replace. Upstream's in-memory infrastructure provider simulates
// only machines, kubelets, API servers and etcd members.
//
// Most specs share that cluster, since it takes a minute to create. Each spec leaves all machines healthy and deletes its checks.
package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	specPatience = suite.SpecPatience
	// patience is the timeout of the checks.
	patience = 4 * time.Second
)

// All specs share these.
var (
	control    *rig.Rig
	management *rig.ControlPlane
	here       client.WithWatch // of the management cluster
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig
	// shared is the cluster of most specs, shrinks the cluster of one spec.
	shared  = &environment{namespace: "plant", name: "plant", class: "in-memory", version: "v1.35.0", controlPlanes: 3, workers: 3}
	shrinks = &environment{namespace: "shrinks", name: "shrinks", class: "in-memory", version: "v1.35.0", controlPlanes: 3, workers: 2}
)

func TestClusterAPI(t *testing.T) {
	suite.Run(t, "Cluster API", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join("..", "..", "..", "bin", "manager")).To(BeAnExistingFile(), "run make build")
	control = suite.Rig(ctx)
	management = suite.Must(control.Management(ctx, rig.ManagementOptions{
		Providers: true, Controllers: rig.RoleControllers(), Own: true, Webhooks: true, Audit: true,
	}))
	DeferCleanup(func() {
		suite.NothingForbidden([]*rig.ControlPlane{management}, "bootstrap.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io")
	})
	here = clientFor(management.Config())
	account = suite.Must(management.Install(ctx, "standalone"))
	startManager(ctx)
	shared.build(ctx)
	shared.allHealthy(ctx)
	shrinks.build(ctx) // it starts while other specs run; its own spec waits for it
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	manager = suite.Must(management.Kubemend(ctx, "capi", account, management.WebhookFlags()...))
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, clusterv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme)
}

// environment is a cluster of the ClusterClass in its own namespace.
type environment struct {
	namespace, name, class, version string
	controlPlanes, workers          int32

	cluster *clusterv1.Cluster
	there   client.Client // of the workload cluster, nil until it is reachable
}

func (env *environment) build(ctx context.Context) {
	GinkgoHelper()
	Expect(builders.Apply(ctx, here, builders.Namespace(env.namespace))).To(Succeed())
	for _, object := range suite.Manifest(filepath.Join("testdata", "class.yaml")) {
		object.SetNamespace(env.namespace)
		Expect(here.Create(ctx, object)).To(Succeed(), object.GetKind())
	}
	env.cluster = builders.Cluster(env.namespace, env.name, func(c *clusterv1.Cluster) {
		c.Spec = clusterv1.ClusterSpec{
			ClusterNetwork: clusterv1.ClusterNetwork{
				Services:      clusterv1.NetworkRanges{CIDRBlocks: []string{"10.128.0.0/12"}},
				Pods:          clusterv1.NetworkRanges{CIDRBlocks: []string{"192.168.0.0/16"}},
				ServiceDomain: "cluster.local",
			},
			Topology: clusterv1.Topology{
				ClassRef: clusterv1.ClusterClassRef{Name: env.class}, Version: env.version,
				ControlPlane: clusterv1.ControlPlaneTopology{Replicas: &env.controlPlanes},
				Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{{
					Class: "default-worker", Name: pool, Replicas: &env.workers,
				}}},
			},
		}
		c.Status = clusterv1.ClusterStatus{}
	})
	// The webhook refuses a cluster until its ClusterClass has been reconciled.
	Eventually(func() error { return here.Create(ctx, env.cluster.DeepCopy()) }).Should(Succeed())
}

// pool is the name of the workers' MachineDeployment in the topology.
const pool = "md-0"

// reach creates the client of the workload cluster.
func (env *environment) reach(ctx context.Context) error {
	if env.there != nil {
		return nil
	}
	config, err := env.config(ctx)
	if err != nil {
		return err
	}
	env.there, err = client.New(suite.Unhurried(config), client.Options{Scheme: here.Scheme()})
	return err
}

// config reads the kubeconfig that Cluster API has written for the workload cluster. The simulated API server understands only JSON.
func (env *environment) config(ctx context.Context) (*rest.Config, error) {
	secret := &corev1.Secret{}
	if err := here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: env.name + "-kubeconfig"}, secret); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	return config, nil
}

// allHealthy waits until the cluster is as every spec expects it. It waits longer than usual, because all machines may be new.
func (env *environment) allHealthy(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.reach(ctx)).To(Succeed())
		g.Expect(env.names(ctx, controlPlane)).To(HaveLen(int(env.controlPlanes)))
		g.Expect(env.names(ctx, worker)).To(HaveLen(int(env.workers)))
		for name, m := range env.machines(ctx) {
			g.Expect(m.DeletionTimestamp).To(BeNil(), name)
			g.Expect(m.Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), name)
			g.Expect(conditions.IsTrue(m, clusterv1.MachineReadyCondition)).
				To(BeTrue(), name+" "+conditions.GetMessage(m, clusterv1.MachineReadyCondition))
			g.Expect(suite.Ready(ctx, env.there, m.Status.NodeRef.Name)).To(Equal(corev1.ConditionTrue), name)
		}
		g.Expect(env.members(ctx)).To(ConsistOf(env.names(ctx, controlPlane)))
	}).WithContext(ctx).WithTimeout(2 * suite.Wait).Should(Succeed())
}

// remove deletes the cluster and its checks without waiting for the end of the deletion.
func (env *environment) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(here.DeleteAllOf(ctx, &clusterv1.MachineHealthCheck{}, client.InNamespace(env.namespace))).To(Succeed())
	Expect(here.Delete(ctx, env.cluster)).To(Succeed())
}

// leaveAsFound reverts what a spec did to the cluster.
func (env *environment) leaveAsFound(ctx context.Context) {
	GinkgoHelper()
	Expect(here.DeleteAllOf(ctx, &clusterv1.MachineHealthCheck{}, client.InNamespace(env.namespace))).To(Succeed())
	for _, m := range env.machines(ctx) {
		if m.Status.NodeRef.Name != "" && m.DeletionTimestamp.IsZero() {
			env.turn(ctx, m.Name, corev1.ConditionTrue)
		}
	}
	env.allHealthy(ctx)
}

// part is either the control plane or the workers.
type part bool

const (
	controlPlane part = true
	worker       part = false
)

func (env *environment) machines(ctx context.Context) map[string]*clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(here.List(ctx, list, client.InNamespace(env.namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: env.name})).
		To(Succeed())
	byName := map[string]*clusterv1.Machine{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

func (env *environment) names(ctx context.Context, p part) []string {
	GinkgoHelper()
	all := env.machines(ctx)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		_, is := all[name].Labels[clusterv1.MachineControlPlaneLabel]
		return part(is) != p
	})
}

// identities returns the UIDs of all machines by name. A replaced machine has another UID.
func (env *environment) identities(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	uids := map[string]types.UID{}
	for name, m := range env.machines(ctx) {
		uids[name] = m.UID
	}
	return uids
}

// replaced waits until the lost machines are replaced, and expects that no other machine is.
func (env *environment) replaced(ctx context.Context, before map[string]types.UID, lost ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := env.identities(ctx)
		for name, uid := range before {
			if slices.Contains(lost, name) {
				g.Expect(now).NotTo(HaveKey(name))
			} else {
				Expect(now).To(HaveKeyWithValue(name, uid), "only the lost machines are replaced")
			}
		}
		g.Expect(now).To(HaveLen(len(before)))
	}).WithContext(ctx).Should(Succeed())
	env.allHealthy(ctx)
}

// untouched expects that no machine was created or deleted, and that no owner was asked to replace one.
func (env *environment) untouched(ctx context.Context, before map[string]types.UID) func(Gomega) {
	return func(g Gomega) {
		g.Expect(env.identities(ctx)).To(Equal(before))
		for name, m := range env.machines(ctx) {
			g.Expect(m.DeletionTimestamp).To(BeNil(), name)
			g.Expect(conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), name)
		}
	}
}

// turn sets the condition Ready of a machine's node, as its kubelet would. The simulated API server has no status subresource.
func (env *environment) turn(ctx context.Context, machine string, status corev1.ConditionStatus) {
	GinkgoHelper()
	Eventually(func() error {
		node := &corev1.Node{}
		if err := env.there.Get(ctx, client.ObjectKey{Name: machine}, node); err != nil {
			return err
		}
		if suite.Readiness(node) == status {
			return nil
		}
		now := metav1.Now()
		builders.Reports(node, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: status, LastTransitionTime: now, LastHeartbeatTime: now, Reason: "KubeletSays",
		})
		return env.there.Update(ctx, node)
	}).WithContext(ctx).Should(Succeed())
}

// members returns the machines of the etcd members.
func (env *environment) members(ctx context.Context) []string {
	GinkgoHelper()
	pods := &corev1.PodList{}
	Expect(env.there.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "etcd"})).To(Succeed())
	var names []string
	for _, pod := range pods.Items {
		if _, removed := pod.Annotations[memberRemoved]; !removed {
			names = append(names, strings.TrimPrefix(pod.Name, "etcd-"))
		}
	}
	return names
}

// memberRemoved is the annotation that the simulated etcd sets on the pod of a removed member.
const memberRemoved = "etcd.inmemory.infrastructure.cluster.x-k8s.io/member-removed"

// check creates a claimed check for a part of the cluster, and waits until the check counts all machines of that part as healthy.
func (env *environment) check(ctx context.Context, p part) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	name, number, operator := "workers", env.workers, metav1.LabelSelectorOpDoesNotExist
	if p == controlPlane {
		name, number, operator = "control-plane", env.controlPlanes, metav1.LabelSelectorOpExists
	}
	check := builders.MachineHealthCheck(env.cluster, name, builders.Claimed, builders.Patience(patience),
		func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchExpressions[0].Operator = operator })
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	Eventually(env.counts(ctx, name)).Should(Equal(fmt.Sprintf("%d of %d", number, number)))
	Expect(here.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
	return check
}

// counts returns how many of a check's expected machines are healthy, as "3 of 3".
func (env *environment) counts(ctx context.Context, name string) func() string {
	return func() string {
		check := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: name}, check)).To(Succeed())
		return fmt.Sprintf("%d of %d", ptr.Deref(check.Status.CurrentHealthy, -1), ptr.Deref(check.Status.ExpectedMachines, -1))
	}
}

// said returns a condition of a machine as "Status/Reason".
func (env *environment) said(ctx context.Context, machine, kind string) func() string {
	return func() string { return saidOf(env.machines(ctx)[machine], kind) }
}

// saidOf returns a condition of m as "Status/Reason".
func saidOf(m *clusterv1.Machine, kind string) string {
	if m == nil {
		return "gone"
	}
	c := conditions.Get(m, kind)
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%s/%s", c.Status, c.Reason)
}

// notes returns the notes of events with a reason and a text, once for each repetition. If check is given, it returns only events about
// that check. It compares UIDs, because checks of earlier specs had the same name and machines.
func (env *environment) notes(ctx context.Context, check *clusterv1.MachineHealthCheck, reason, text string) []string {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
	var notes []string
	for i := range list.Items {
		e := &list.Items[i]
		sent := check == nil || e.Regarding.UID == check.UID || e.Related != nil && e.Related.UID == check.UID
		if e.Reason == reason && sent && strings.Contains(e.Note, text) {
			times := ptr.Deref(e.Series, eventsv1.EventSeries{Count: 1}).Count
			notes = append(notes, slices.Repeat([]string{e.Note}, int(times))...)
		}
	}
	return notes
}

func (env *environment) owner(ctx context.Context) *controlplanev1.KubeadmControlPlane {
	GinkgoHelper()
	list := &controlplanev1.KubeadmControlPlaneList{}
	Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

func (env *environment) explained(ctx context.Context, machine string) *cliv1.Explanation {
	GinkgoHelper()
	e := &cliv1.Explanation{}
	out := suite.Kubectl(ctx, management, env.namespace, "mend", "explain", "machine/"+machine, "-o", "json")
	Expect(json.Unmarshal([]byte(out), e)).To(Succeed())
	return e
}
