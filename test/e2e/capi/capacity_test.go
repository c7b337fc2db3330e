package capi

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	// moments is how many random moments a scene is looked at, gap the longest time between two.
	moments = 10
	gap     = 2 * time.Second
)

// Scenes of the kubeadm providers; those of others are in controllers/remediationrecord.
var _ = Describe("What kubectl mend explain says of the capacity of a machine", func() {
	var looks *suite.Looks
	var dice *rand.Rand
	BeforeEach(func(ctx SpecContext) {
		looks, dice = &suite.Looks{}, rand.New(rand.NewSource(GinkgoRandomSeed()))
		shared.allHealthy(ctx)
	})
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("is right at random moments while the bootstrap provider fails", func(ctx SpecContext) {
		check := shared.check(ctx, worker)
		before, lost := shared.identities(ctx), shared.names(ctx, worker)[0]
		restore := shared.withoutAuthority(ctx)
		shared.turn(ctx, lost, corev1.ConditionFalse)
		Eventually(shared.said(ctx, lost, clusterv1.MachineOwnerRemediatedCondition)).WithPolling(20 * time.Millisecond).ShouldNot(Equal("-"))
		scene := &story{environment: shared, looks: looks, check: check, old: lost, before: before, owner: "machinedeployment/" + shared.pool(ctx)}

		for n := range moments {
			if n == 7 {
				restore(ctx)
			}
			suite.AtRandom(ctx, dice, gap)
			scene.look(ctx, n)
		}

		shared.replaced(ctx, before, lost)
		scene.look(ctx, moments)
		Expect(scene.seen).To(ContainElement("BootstrapNotReady"), "the scene did not happen")
		looks.Right(moments)
	}, SpecTimeout(specPatience))

	It("is right at random moments while the KubeadmControlPlane defers", func(ctx SpecContext) {
		check := shared.check(ctx, controlPlane)
		before, lost := shared.identities(ctx), shared.names(ctx, controlPlane)[:2]
		written := shared.follow(ctx)
		for _, name := range lost {
			shared.turn(ctx, name, corev1.ConditionFalse)
		}
		var waits string
		Eventually(func() bool {
			i := slices.IndexFunc(lost, func(name string) bool {
				return shared.said(ctx, name, clusterv1.MachineOwnerRemediatedCondition)() == deferred
			})
			if i >= 0 {
				waits = lost[i]
			}
			return i >= 0
		}).WithPolling(20 * time.Millisecond).Should(BeTrue())
		scene := &story{environment: shared, looks: looks, check: check, old: waits, before: before, owner: "kubeadmcontrolplane/" + shared.owner(ctx).Name}
		waited := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(waited)
			owner := shared.owner(ctx).Name
			Expect(shared.kubectl(ctx, "mend", "wait", "kcp/"+owner, "--for=capacity-back", "--timeout=10m")).To(ContainSubstring(owner + " condition met"))
			Expect(shared.machines(ctx)).NotTo(HaveKey(waits), "it has not waited until the machine was replaced")
		}()

		for n := range moments {
			scene.look(ctx, n)
			suite.AtRandom(ctx, dice, gap)
		}

		shared.replaced(ctx, before, lost...)
		Eventually(waited).WithContext(ctx).Should(BeClosed())
		scene.look(ctx, moments)
		Expect(scene.deferrals(ctx, written())).To(Or(ContainElement("OthersDeleting"), ContainElement("OthersProvisioning")), "the scene did not happen")
		looks.Right(moments)
	}, SpecTimeout(specPatience))
})

// withoutAuthority deletes the Secret with the cluster's CA, without which no worker gets bootstrap data, until restore, at the latest when the spec ends.
func (env *environment) withoutAuthority(ctx context.Context) (restore func(context.Context)) {
	GinkgoHelper()
	authority := &corev1.Secret{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: secret.Name(env.name, secret.ClusterCA)}, authority)).To(Succeed())
	Expect(here.Delete(ctx, authority)).To(Succeed())
	restored := false
	restore = func(ctx context.Context) {
		if restored {
			return
		}
		again := authority.DeepCopy()
		again.ResourceVersion, again.UID = "", ""
		Expect(here.Create(ctx, again)).To(Succeed())
		restored = true
		// The provider has failed several times, and would wait.
		for _, config := range env.configs(ctx) {
			suite.Annotate(ctx, here, &config, "try", new("again"))
		}
	}
	DeferCleanup(restore)
	return restore
}

func (env *environment) configs(ctx context.Context) []unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"})
	Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
	return list.Items
}

// pool is the name of the workers' MachineDeployment.
func (env *environment) pool(ctx context.Context) string {
	GinkgoHelper()
	list := &clusterv1.MachineDeploymentList{}
	Expect(here.List(ctx, list, client.InNamespace(env.namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return list.Items[0].Name
}

// story is a machine that is replaced, and what explain says meanwhile.
type story struct {
	*environment

	looks *suite.Looks
	check *clusterv1.MachineHealthCheck
	// old is the machine, before are all that there were, owner is what makes them, as kubectl has it.
	old    string
	before map[string]types.UID
	owner  string
	seen   []string
}

// look asks what the machine waits for, what its owner or the Cluster says of that, and what the new machine waits for.
func (s *story) look(ctx context.Context, n int) {
	GinkgoHelper()
	s.ask(ctx, n, "machine/"+s.old, func(c *cliv1.Capacity) bool { return c.Machine == s.old })
	object := s.owner
	if n%2 == 1 {
		object = "cluster/" + s.name
	}
	s.ask(ctx, n, object, func(c *cliv1.Capacity) bool {
		m := s.machines(ctx)[c.About]
		return c.Machine == s.old || c.Machine == "" && (c.About == "" || m != nil && s.replaces(m))
	})
}

func (s *story) ask(ctx context.Context, n int, object string, which func(*cliv1.Capacity) bool) {
	GinkgoHelper()
	what := fmt.Sprintf("look %d at %s: %s", n+1, time.Now().UTC().Format(time.TimeOnly), object)
	history := suite.HistoryOf(ctx, here, client.InNamespace(s.namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.name})
	defer history.Stop()
	for _, is := range s.looks.Compare(ctx, what, func() (suite.Said, error) {
		e, err := suite.Explain(ctx, management, s.namespace, object)
		return suite.SaidOf(e, which), err
	}, func() []suite.Blocker {
		all := s.said(ctx, s.truth(ctx, s.machines(ctx)))
		for _, then := range history.Since() {
			all = append(all, s.said(ctx, s.truth(ctx, then))...)
		}
		return all
	}) {
		s.seen = append(s.seen, is.Reason)
	}
}

// follow collects what the machines of the cluster are after each write, until written is called, at the latest until the spec ends.
func (env *environment) follow(ctx context.Context) (written func() []map[string]*clusterv1.Machine) {
	GinkgoHelper()
	history := suite.HistoryOf(ctx, here, client.InNamespace(env.namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: env.name})
	following, stop := context.WithCancel(ctx)
	collected := make(chan []map[string]*clusterv1.Machine, 1)
	go func() {
		defer history.Stop()
		var all []map[string]*clusterv1.Machine
		for {
			all = append(all, history.Since()...)
			select {
			case <-time.After(10 * time.Millisecond): // the API server ends a watch that is not read
			case <-following.Done():
				collected <- all
				return
			}
		}
	}()
	DeferCleanup(stop)
	return func() []map[string]*clusterv1.Machine {
		stop()
		return <-collected
	}
}

// deferrals are for what the owner has put the machine off, whenever that was: on a busy machine it may be over before the first look.
func (s *story) deferrals(ctx context.Context, written []map[string]*clusterv1.Machine) []string {
	GinkgoHelper()
	var all []string
	for _, then := range written {
		old := then[s.old]
		if old == nil || !old.DeletionTimestamp.IsZero() || conditions.GetReason(old, clusterv1.MachineOwnerRemediatedCondition) !=
			controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason {
			continue
		}
		all = append(all, s.truth(ctx, then).Reason)
	}
	return all
}

// replaces reports whether m came in place of the machine: its owner has noted that or, of a worker, it was not there before.
func (s *story) replaces(m *clusterv1.Machine) bool {
	if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; is {
		return replacementOn(m).Of == s.old
	}
	_, was := s.before[m.Name]
	return !was
}

// by is what replaces the machines, as explain names it.
func (s *story) by() string {
	kind, name, _ := strings.Cut(s.owner, "/")
	if kind == "kubeadmcontrolplane" {
		return "KubeadmControlPlane " + name
	}
	return "MachineDeployment " + name
}

// said are a truth and, of a KubeadmControlPlane, what it says itself of why it does nothing, which is as true: what keeps it from scaling up, or the other
// machine that it is about to replace.
func (s *story) said(ctx context.Context, truth suite.Blocker) []suite.Blocker {
	GinkgoHelper()
	all := []suite.Blocker{truth}
	if !strings.HasPrefix(s.by(), "KubeadmControlPlane ") {
		return all
	}
	owner := s.environment.owner(ctx)
	_, replaces := owner.Annotations[controlplanev1.RemediationInProgressAnnotation]
	switch up := conditions.Get(owner, controlplanev1.KubeadmControlPlaneScalingUpCondition); {
	case truth.Reason == "OwnerCreates" && up != nil && strings.Contains(up.Message, "* "):
		all = append(all, suite.Blocker{Reason: "ScalingUpBlocked"})
	case truth.Reason == "WaitingForRemediation" && replaces:
		all = append(all, suite.Blocker{Reason: "OtherReplaced"})
	}
	return all
}

// truth is what the capacity of the machine waits for, if these are all machines.
func (s *story) truth(ctx context.Context, all map[string]*clusterv1.Machine) suite.Blocker {
	GinkgoHelper()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if m := all[name]; m.Name != s.old && s.replaces(m) {
			return s.arrival(ctx, m)
		}
	}
	old := all[s.old]
	switch {
	case old == nil:
		return suite.Blocker{Reason: "OwnerCreates", Object: s.by(), Next: "ReplacementIsMade"}
	case !old.DeletionTimestamp.IsZero():
		return s.deletion(ctx, old)
	}
	is := suite.Blocker{Reason: conditions.GetReason(old, clusterv1.MachineOwnerRemediatedCondition), Object: s.by(), Next: "OwnerReplaces"}
	if is.Reason != controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason {
		return is
	}
	// It is for the others that it waits, first for those that have no node.
	for name, m := range all {
		_, plane := m.Labels[clusterv1.MachineControlPlaneLabel]
		if plane && m.DeletionTimestamp.IsZero() && !m.Status.NodeRef.IsDefined() && !conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition) {
			return suite.Blocker{Reason: "OthersProvisioning", Object: "Machine " + name, Next: "OthersProvisioning", Names: []string{s.old}}
		}
	}
	for name, m := range all {
		if _, plane := m.Labels[clusterv1.MachineControlPlaneLabel]; plane && !m.DeletionTimestamp.IsZero() {
			return suite.Blocker{Reason: "OthersDeleting", Object: "Machine " + name, Next: "OthersDeleting", Names: []string{s.old}}
		}
	}
	return is
}

// deletion is what the deletion of m waits for.
func (s *story) deletion(ctx context.Context, m *clusterv1.Machine) suite.Blocker {
	is := suite.Blocker{Reason: conditions.GetReason(m, clusterv1.MachineDeletingCondition), Object: "Machine " + m.Name, Next: "ReplacementIsMade"}
	switch is.Reason {
	case clusterv1.MachineDeletingDrainingNodeReason:
		is.Object, is.Next = "Node "+m.Status.NodeRef.Name, "DrainGoesOn"
		pods := &corev1.PodList{}
		Expect(s.there.List(ctx, pods)).To(Succeed())
		for _, p := range pods.Items {
			if p.Spec.NodeName == m.Status.NodeRef.Name && p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
				is.Object = "" // the pods of the simulated control plane, in any order
			}
		}
	case clusterv1.MachineDeletingWaitingForVolumeDetachReason:
		is.Object, is.Next = "Node "+m.Status.NodeRef.Name, "InfrastructureGoes"
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		is.Object, is.Next = s.by(), "InfrastructureGoes"
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		is.Object, is.Next = "DevMachine "+m.Spec.InfrastructureRef.Name, "MachineGoes"
	case clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:
		is.Object, is.Next = "KubeadmConfig "+m.Spec.Bootstrap.ConfigRef.Name, "MachineGoes"
	case clusterv1.MachineDeletingDeletingNodeReason:
		is.Object, is.Next = "Node "+m.Status.NodeRef.Name, "MachineGoes"
	case clusterv1.MachineDeletingReason, clusterv1.MachineNotDeletingReason, "":
		is.Reason, is.Next = "DeletionBegins", "DeletionGoesOn"
	}
	return is
}

// arrival is what m waits for until its node is Ready.
func (s *story) arrival(ctx context.Context, m *clusterv1.Machine) suite.Blocker {
	cluster := &clusterv1.Cluster{}
	Expect(here.Get(ctx, client.ObjectKeyFromObject(s.cluster), cluster)).To(Succeed())
	is := suite.Blocker{Object: "DevMachine " + m.Spec.InfrastructureRef.Name, Deadline: suite.StartupDeadline(s.check, cluster, m)}
	switch started := m.Status.Initialization; {
	case m.Status.NodeRef.IsDefined() && suite.Ready(ctx, s.there, m.Status.NodeRef.Name) == corev1.ConditionTrue:
		return suite.Blocker{Ends: suite.Back}
	case m.Status.NodeRef.IsDefined():
		return suite.Blocker{Reason: "NodeNotReady", Object: "Node " + m.Status.NodeRef.Name, Next: "NodeGetsReady"}
	case conditions.IsTrue(m, clusterv1.MachineInfrastructureReadyCondition) || started.InfrastructureProvisioned != nil && *started.InfrastructureProvisioned:
		is.Reason, is.Next = "NoNode", "NodeRegisters"
		if conditions.IsFalse(m, clusterv1.MachineInfrastructureReadyCondition) { // DevMachines say so while they boot
			is.Reason = "InfrastructureNotReady"
		}
	case started.BootstrapDataSecretCreated != nil && *started.BootstrapDataSecretCreated:
		is.Reason, is.Next = "InfrastructureNotReady", "InfrastructureComes"
	default:
		is.Reason, is.Object, is.Next = "BootstrapNotReady", "KubeadmConfig "+m.Spec.Bootstrap.ConfigRef.Name, "InfrastructureComes"
		if s.fails(ctx, m) {
			is.Todo = "LookAtBootstrap"
		}
	}
	return is
}

// fails reports whether the bootstrap provider has said, on what it makes for m and on m as well, that it cannot go on.
func (s *story) fails(ctx context.Context, m *clusterv1.Machine) bool {
	GinkgoHelper()
	for _, config := range s.configs(ctx) {
		all, _, err := unstructured.NestedSlice(config.Object, "status", "conditions")
		Expect(err).NotTo(HaveOccurred())
		for _, is := range all {
			c, _ := is.(map[string]any)
			if config.GetName() == m.Spec.Bootstrap.ConfigRef.Name && c["type"] == "CertificatesAvailable" && c["reason"] == "InternalError" {
				mirrored := conditions.Get(m, clusterv1.MachineBootstrapConfigReadyCondition)
				return mirrored != nil && mirrored.Status == metav1.ConditionUnknown
			}
		}
	}
	return false
}
