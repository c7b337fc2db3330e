package baremetal

import (
	"context"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// member is a Machine of an environment, with its Metal3Machine, its host and its remediation, all of the same name, and its node.
type member struct {
	environment *environment
	name        string
	host        *simulator.Host
	kubelet     *simulator.Kubelet
}

// origin is how a member is made.
type origin struct {
	host    []func(*bmov1alpha1.BareMetalHost)
	machine []func(*clusterv1.Machine)
	noNode  bool
}

// worker adds a healthy machine: its host is on, and its node is ready.
func (s *environment) worker(ctx context.Context, name string, edits ...func(*origin)) *member {
	GinkgoHelper()
	o := &origin{
		host: []func(*bmov1alpha1.BareMetalHost){builders.ExternallyDeployed},
		machine: []func(*clusterv1.Machine){func(m *clusterv1.Machine) {
			delete(m.Labels, clusterv1.MachineControlPlaneLabel)
			m.Labels["pool"] = "workers"
		}},
	}
	return s.add(ctx, name, o, edits)
}

// controlPlane adds a healthy control-plane machine.
func (s *environment) controlPlane(ctx context.Context, name string, edits ...func(*origin)) *member {
	GinkgoHelper()
	labelled := func(h *bmov1alpha1.BareMetalHost) { // so that the chronicle knows
		h.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	}
	o := &origin{
		host:    []func(*bmov1alpha1.BareMetalHost){builders.ExternallyDeployed, labelled},
		machine: []func(*clusterv1.Machine){func(m *clusterv1.Machine) { m.Labels["pool"] = "control-plane" }},
	}
	return s.add(ctx, name, o, edits)
}

func (s *environment) add(ctx context.Context, name string, o *origin, edits []func(*origin)) *member {
	GinkgoHelper()
	for _, edit := range edits {
		edit(o)
	}
	m := &member{environment: s, name: name, host: hosts.Host(client.ObjectKey{Namespace: s.namespace, Name: name})}
	m.kubelet = simulator.NewKubelet(here, simulator.KubeletOptions{Node: m.node(), ProviderID: "metal3://" + m.node(), Every: 5 * time.Second})
	s.members = append(s.members, m)
	if !o.noNode {
		m.host.Carry(m.kubelet)
	}
	s.create(ctx, builders.BareMetalHost(s.namespace, name, append(o.host, builders.ConsumedBy(name))...))

	machine := builders.ControlPlaneMachine(s.cluster, name, o.machine...)
	between := builders.Metal3Machine(machine)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: s.namespace + "/" + name})
	s.create(ctx, machine)
	between.SetOwnerReferences(ownedBy(machine)) // as Cluster API does
	s.create(ctx, between)
	machine.Status.Conditions = []metav1.Condition{builders.LongTrue(clusterv1.MachineInfrastructureReadyCondition)}
	if !o.noNode {
		machine.Status.NodeRef.Name = m.node()
	}
	Expect(here.Status().Update(ctx, machine)).To(Succeed())
	Eventually(m.isWell).WithArguments(ctx, o.noNode).Should(BeTrue())
	return m
}

func (m *member) isWell(ctx context.Context, noNode bool) bool {
	h := &bmov1alpha1.BareMetalHost{}
	if here.Get(ctx, m.host.Key(), h) != nil || !h.Status.PoweredOn {
		return false
	}
	return noNode || m.ready(ctx) == corev1.ConditionTrue
}

// node is the name of its node. All environments share one workload cluster.
func (m *member) node() string { return m.environment.namespace + "-" + m.name }

func (m *member) key() client.ObjectKey {
	return client.ObjectKey{Namespace: m.environment.namespace, Name: m.name}
}

// bmh is its host as the API server has it.
func (m *member) bmh(ctx context.Context) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	h := &bmov1alpha1.BareMetalHost{}
	Expect(here.Get(ctx, m.key(), h)).To(Succeed())
	return h
}

// changeHost patches metadata and spec of the host.
func (m *member) changeHost(ctx context.Context, change func(*bmov1alpha1.BareMetalHost)) {
	GinkgoHelper()
	h := m.bmh(ctx)
	before := h.DeepCopy()
	change(h)
	Expect(here.Patch(ctx, h, client.MergeFrom(before))).To(Succeed())
}

// annotateHost sets an annotation of the host.
func (m *member) annotateHost(ctx context.Context, key, value string) {
	GinkgoHelper()
	m.changeHost(ctx, builders.Annotated[*bmov1alpha1.BareMetalHost](key, value))
}

// strip takes an annotation of the host away.
func (m *member) strip(ctx context.Context, key string) {
	GinkgoHelper()
	m.changeHost(ctx, func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, key) })
}

func (m *member) machine(ctx context.Context) *clusterv1.Machine {
	GinkgoHelper()
	o := &clusterv1.Machine{}
	Expect(here.Get(ctx, m.key(), o)).To(Succeed())
	return o
}

// theNode is its node, or nil if there is none.
func (m *member) theNode(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	n := &corev1.Node{}
	if !exists(ctx, client.ObjectKey{Name: m.node()}, n) {
		return nil
	}
	return n
}

func (m *member) ready(ctx context.Context) corev1.ConditionStatus {
	if n := m.theNode(ctx); n != nil {
		return suite.Readiness(n)
	}
	return "no node"
}

// fails makes the kubelet hang. kube-controller-manager sets conditions to Unknown that the kubelet no longer reports.
func (m *member) fails(ctx context.Context) {
	GinkgoHelper()
	m.kubelet.Stop()
	n := m.theNode(ctx)
	before := n.DeepCopy()
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", metav1.NewTime(time.Now().Add(-30*time.Minute).Truncate(time.Second))
		}
	}
	Expect(here.Status().Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
}

// remediate makes the remediation, as a check or a person would.
func (m *member) remediate(ctx context.Context) {
	GinkgoHelper()
	m.remediateBy(ctx, m.environment.kind)
}

func ownedBy(m *clusterv1.Machine) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}}
}

func (m *member) remediateBy(ctx context.Context, k kind) {
	GinkgoHelper()
	owner := m.machine(ctx)
	m.environment.create(ctx, k.make(metav1.ObjectMeta{
		Namespace: m.environment.namespace, Name: m.name, Labels: map[string]string{clusterv1.ClusterNameLabel: m.environment.cluster.Name},
		OwnerReferences: ownedBy(owner),
	}, infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: int32(timeout / time.Second)}))
}

// remediation is the remediation, or nil if there is none.
func (m *member) remediation(ctx context.Context) client.Object {
	GinkgoHelper()
	return m.remediationBy(ctx, m.environment.kind)
}

func (m *member) remediationBy(ctx context.Context, k kind) client.Object {
	GinkgoHelper()
	rem := k.New().Unwrapped()
	if !exists(ctx, m.key(), rem) {
		return nil
	}
	return rem
}

// exists reads an object, and reports whether there is one. A connection that breaks says nothing.
func exists(ctx context.Context, key client.ObjectKey, o client.Object) bool {
	GinkgoHelper()
	var err error
	Eventually(func() error {
		err = here.Get(ctx, key, o)
		return client.IgnoreNotFound(err)
	}).Should(Succeed())
	return err == nil
}

// gone reports whether there is no remediation.
func (m *member) gone(ctx context.Context) bool { return m.remediation(ctx) == nil }

// at is where the remediation is.
func (m *member) at(ctx context.Context) memory {
	GinkgoHelper()
	if rem := m.remediation(ctx); rem != nil {
		return memoryOf(rem)
	}
	return memory{}
}

// comesTo waits until the remediation is in a state of its first attempt.
func (m *member) comesTo(ctx context.Context, state string) {
	GinkgoHelper()
	m.comesToAttempt(ctx, state, 1)
}

func (m *member) comesToAttempt(ctx context.Context, state string, attempt int) {
	GinkgoHelper()
	Eventually(m.at).WithArguments(ctx).Should(Equal(memory{state, attempt}))
}

// says is what the remediation says.
func (m *member) says(ctx context.Context) builders.RemediationReport {
	GinkgoHelper()
	if rem := m.remediation(ctx); rem != nil {
		return builders.ReportOf(rem)
	}
	return builders.RemediationReport{}
}

// reports is a condition of the remediation.
func (m *member) reports(ctx context.Context, condition string) func() string {
	return func() string { return m.says(ctx).Conditions[condition] }
}

// isOver reports whether the remediation holds on to nothing any more: it has ended in this state, and may be deleted.
func (m *member) isOver(ctx context.Context, state string) bool {
	rem := m.remediation(ctx)
	return rem != nil && memoryOf(rem).State == state && len(rem.GetFinalizers()) == 0
}

// ends waits until the remediation has ended in this state.
func (m *member) ends(ctx context.Context, state string) {
	GinkgoHelper()
	Eventually(m.isOver).WithArguments(ctx, state).Should(BeTrue(), "the end is to be %s", state)
	m.settles(ctx)
}

// settles waits until the controller has observed the remediation as it is, and has nothing more to write about it.
func (m *member) settles(ctx context.Context) {
	GinkgoHelper()
	controller := m.environment.clock.QueueOf(strings.ToLower(m.environment.Kind.Kind))
	Eventually(func() bool {
		GinkgoHelper()
		is, seen := m.remediation(ctx).GetResourceVersion(), m.environment.New().Unwrapped()
		if err := m.environment.controllers.mgr.GetClient().Get(ctx, m.key(), seen); err != nil || seen.GetResourceVersion() != is {
			return false
		}
		Eventually(controller.Reconcile(reconcile.Request{NamespacedName: m.key()})).Should(BeTrue())
		return m.remediation(ctx).GetResourceVersion() == is
	}).Should(BeTrue(), "the controller is to come to rest")
	m.isWrittenDown(ctx)
}

// isWrittenDown waits until the chronicle knows of all that has happened.
func (m *member) isWrittenDown(ctx context.Context) {
	GinkgoHelper()
	for key, o := range map[client.ObjectKey]client.Object{
		m.key(): &bmov1alpha1.BareMetalHost{}, {Name: m.node()}: &corev1.Node{},
	} {
		if err := here.Get(ctx, key, o); err == nil {
			Eventually(history.knows).WithArguments(o).Should(BeTrue(), "the chronicle lags behind")
		}
	}
	if rem := m.remediation(ctx); rem != nil {
		Eventually(history.knows).WithArguments(rem).Should(BeTrue(), "the chronicle lags behind")
	}
}

// traces are what a remediation may have orphaned on host, node and itself.
func (m *member) traces(ctx context.Context) (left []string) {
	h := &bmov1alpha1.BareMetalHost{}
	if here.Get(ctx, m.key(), h) == nil {
		for key := range h.Annotations {
			if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) || key == infrav1.RebootAnnotation || key == mendv1.RebootedForAnnotation {
				left = append(left, "host "+key)
			}
		}
	}
	if n := m.theNode(ctx); n != nil {
		if fenced(n) {
			left = append(left, "node "+infrav1.OutOfServiceTaintKey)
		}
		if _, marked := n.Annotations[fence.FencedByAnnotation]; marked {
			left = append(left, "node "+fence.FencedByAnnotation)
		}
	}
	if rem := m.remediation(ctx); rem != nil {
		left = append(left, rem.GetFinalizers()...)
		for _, key := range []string{blockMove, infrav1.NodeAnnotationsBackupAnnotation, infrav1.NodeLabelsBackupAnnotation} {
			if _, has := rem.GetAnnotations()[key]; has {
				left = append(left, "remediation "+key)
			}
		}
	}
	return left
}

// power is how the power of the host was changed since it was first switched on.
func (m *member) power() []simulator.Power {
	all := m.host.History()[1:]
	changes := make([]simulator.Power, 0, len(all))
	for _, c := range all {
		changes = append(changes, c.To)
	}
	return changes
}

// cycled is the power of a host that went off and on again some times.
func cycled(times int) []simulator.Power {
	changes := []simulator.Power{}
	for range times {
		changes = append(changes, simulator.Off, simulator.On)
	}
	return changes
}

// pod puts a pod on the node that is never evicted.
func (m *member) pod(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	pod := m.aPod()
	m.environment.create(ctx, pod)
	return pod
}

func (m *member) aPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.environment.namespace, Name: m.name},
		Spec:       corev1.PodSpec{NodeName: m.node(), Containers: []corev1.Container{{Name: "app", Image: "simulated/app"}}},
	}
}

// evict deletes the pod.
func (m *member) evict(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(here.Delete(ctx, m.aPod(), client.GracePeriodSeconds(0)))).To(Succeed())
}

// volume attaches a volume to the node that is never detached.
func (m *member) volume(ctx context.Context) *storagev1.VolumeAttachment {
	GinkgoHelper()
	volume := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: m.node()},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "absent", NodeName: m.node(), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("volume")},
		},
	}
	m.environment.create(ctx, volume)
	return volume
}

// vanishes deletes an object for good, whatever finalizers it has.
func vanishes(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		err := here.Delete(ctx, o, client.GracePeriodSeconds(0))
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		g.Expect(client.IgnoreNotFound(here.Patch(ctx, o.DeepCopyObject().(client.Object), patch))).To(Succeed())
		g.Expect(apierrors.IsNotFound(here.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)))).To(BeTrue())
	}).Should(Succeed())
}
