package capacity

import (
	"context"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// The finalizers that others have put on a machine and its infrastructure.
const (
	archived   = "backup.example.com/archived"
	registered = "inventory.example.com/registered"
)

// scenes are all of them. The name is that of the namespace, of the Cluster and of what is made in the workload cluster.
var scenes = []*scene{
	{
		rule: "a pod that a PodDisruptionBudget keeps on its node", Site: suite.Site{Namespace: "budget", Spare: 1}, before: guarded,
		acts: map[int]func(context.Context, *scene){6: once("DrainBlockedByBudget", func(ctx context.Context, s *scene) {
			Expect(s.There.Delete(ctx, budget(s.Name))).To(Succeed())
		})},
		sees: []string{"DrainBlockedByBudget"}, ends: suite.Back,
	},
	{
		rule: "a drain that ends by its timeout", Site: suite.Site{Namespace: "timeout", Spare: 1}, before: guarded,
		pool: drainsWithin(suite.SpecPatience),
		acts: map[int]func(context.Context, *scene){6: once("DrainBlockedByBudget", func(ctx context.Context, s *scene) {
			edit(ctx, s, drainsWithin(15*time.Second))
		})},
		sees: []string{"DrainBlockedByBudget"}, ends: suite.Back,
	},
	{
		rule: "finalizers that others have put on the machine and its infrastructure", Site: suite.Site{Namespace: "finalizer", Spare: 1},
		before: func(ctx context.Context, s *scene) {
			finalize(ctx, s.infrastructure(), archived, true)
			finalize(ctx, s.machine(), registered, true)
		},
		acts: map[int]func(context.Context, *scene){
			5: once("InfrastructureFinalizer", unarchive),
			8: once("ForeignFinalizer", func(ctx context.Context, s *scene) { finalize(ctx, s.machine(), registered, false) }),
		},
		sees: []string{"InfrastructureFinalizer", "ForeignFinalizer"}, ends: suite.Back,
	},
	{
		rule: "a volume that is not detached", Site: suite.Site{Namespace: "volume", Spare: 1}, before: attached,
		acts: map[int]func(context.Context, *scene){6: once("WaitingForVolumeDetach", func(ctx context.Context, s *scene) {
			Expect(s.There.Delete(ctx, attachment(s))).To(Succeed())
		})},
		sees: []string{"WaitingForVolumeDetach"}, ends: suite.Back,
	},
	{
		rule: "a machine without a spare host", Site: suite.Site{Namespace: "spare"},
		before: func(ctx context.Context, s *scene) { mark(ctx, s, new("broken")) },
		acts: map[int]func(context.Context, *scene){moments: once("NoHost", func(ctx context.Context, s *scene) {
			Eventually(func() []string { return s.told(ctx, "CapacityAwaited") }).Should(ContainElement(toDo))
			mark(ctx, s, nil)
		})},
		sees: []string{"NoHost"}, ends: suite.Back,
	},
	{
		rule: "a machine during a rollout", Site: suite.Site{Namespace: "rollout", Spare: 1},
		before: func(ctx context.Context, s *scene) { finalize(ctx, s.infrastructure(), archived, true) },
		acts:   map[int]func(context.Context, *scene){1: rollOut, 7: once("InfrastructureFinalizer", unarchive)},
		sees:   []string{"InfrastructureFinalizer"}, ends: suite.Back,
	},
	{
		rule: "a machine that a person deletes while its MachineSet is paused", Site: suite.Site{Namespace: "byhand", Spare: 1},
		before: func(ctx context.Context, s *scene) { pause(ctx, s, new("true")) },
		acts: map[int]func(context.Context, *scene){
			3: func(ctx context.Context, s *scene) { Expect(here.Delete(ctx, s.machine())).To(Succeed()) },
			8: once("ObjectPaused", func(ctx context.Context, s *scene) { pause(ctx, s, nil) }),
		},
		sees: []string{"ObjectPaused"}, ends: suite.Back,
	},
	{
		rule: "a machine whose MachineDeployment is scaled down", Site: suite.Site{Namespace: "scaledown", Spare: 1},
		before: func(ctx context.Context, s *scene) { finalize(ctx, s.infrastructure(), archived, true) },
		acts: map[int]func(context.Context, *scene){3: func(ctx context.Context, s *scene) {
			edit(ctx, s, func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To[int32](1) })
		}, 8: once("InfrastructureFinalizer", unarchive)},
		sees: []string{"InfrastructureFinalizer"}, ends: "ScaledDown",
	},
	{
		rule: "a machine whose replacement never boots", Site: suite.Site{Namespace: "boots", Spare: 1},
		before: func(_ context.Context, s *scene) {
			provider.RefuseToStart(func(m client.ObjectKey) bool { return m.Namespace == s.Namespace && !slices.Contains(s.first, m.Name) })
		},
		acts: map[int]func(context.Context, *scene){moments: once("NoNode", func(ctx context.Context, s *scene) {
			Eventually(func(g Gomega) {
				fresh := s.newcomers(s.observe(ctx))
				g.Expect(fresh).To(HaveLen(1))
				kubelet := provider.Kubelet(client.ObjectKeyFromObject(fresh[0]))
				g.Expect(kubelet).NotTo(BeNil())
				kubelet.Start()
			}).Should(Succeed())
		})},
		sees: []string{"NoNode"}, ends: suite.Back,
	},
	{
		rule: "a machine whose namespace is deleted", Site: suite.Site{Namespace: "leaving", Spare: 1},
		before: func(ctx context.Context, s *scene) { finalize(ctx, s.infrastructure(), archived, true) },
		acts: map[int]func(context.Context, *scene){3: func(ctx context.Context, s *scene) {
			Expect(here.Delete(ctx, builders.Namespace(s.Namespace))).To(Succeed())
		}, moments: unarchive},
		sees: []string{"InfrastructureFinalizer"}, ends: "NamespaceDeleted",
	},
}

// once is an act that ends what is waited for by reason. It waits until the record of the worker has that, and for a whole second: what passes sooner a manager
// without a processor may never see, and nothing that is remembered of the scene would say it.
func once(reason string, act func(context.Context, *scene)) func(context.Context, *scene) {
	return func(ctx context.Context, s *scene) {
		GinkgoHelper()
		Eventually(func() bool {
			return slices.ContainsFunc(s.record(ctx).Status.Waits, func(w mendv1.RecordWait) bool {
				return w.Reason == reason && (w.Seconds > 0 || w.Since != nil && time.Since(w.Since.Time) > 2*time.Second)
			})
		}).WithContext(ctx).Should(BeTrue(), "%s: the record has %s", s.Name, reason)
		act(ctx, s)
	}
}

// drainsWithin bounds the drain of each worker.
func drainsWithin(timeout time.Duration) func(*clusterv1.MachineDeployment) {
	return func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(timeout / time.Second))
	}
}

// guarded puts a pod on the node of the worker, and a budget that allows no disruption of it.
func guarded(ctx context.Context, s *scene) {
	GinkgoHelper()
	b := budget(s.Name)
	b.Spec.MinAvailable, b.Spec.Selector = ptr.To(intstr.FromInt32(1)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.Name}}
	Expect(s.There.Create(ctx, b)).To(Succeed())
	Expect(s.There.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: s.Name, Labels: map[string]string{"app": s.Name}},
		Spec:       corev1.PodSpec{NodeName: s.old, Containers: []corev1.Container{{Name: "app", Image: "simulated/app"}}},
	})).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(s.There.Get(ctx, client.ObjectKeyFromObject(b), b)).To(Succeed())
		g.Expect(b.Status.CurrentHealthy).To(BeEquivalentTo(1))
	}).Should(Succeed())
}

func budget(name string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name + "-budget"}}
}

// attached attaches a volume to the node of the worker, which no driver detaches.
func attached(ctx context.Context, s *scene) {
	GinkgoHelper()
	Expect(builders.Apply(ctx, s.There, builders.Volume(metav1.NamespaceDefault, s.Name)...)).To(Succeed())
	a := attachment(s)
	Expect(s.There.Create(ctx, a)).To(Succeed())
	a.Status.Attached = true
	Expect(s.There.Status().Update(ctx, a)).To(Succeed())
}

func attachment(s *scene) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + s.Name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "simulated.csi.kubemend.io", NodeName: s.old,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(metav1.NamespaceDefault + "-" + s.Name)},
		},
	}
}

func (s *scene) machine() client.Object {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.old}}
}

func (s *scene) infrastructure() client.Object {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(metal3Machine)
	obj.SetNamespace(s.Namespace)
	obj.SetName(s.old)
	return obj
}

func unarchive(ctx context.Context, s *scene) { finalize(ctx, s.infrastructure(), archived, false) }

// finalize adds a finalizer to an object, or removes it. One that is gone has none.
func finalize(ctx context.Context, obj client.Object, finalizer string, has bool) {
	GinkgoHelper()
	Eventually(func() error {
		if err := here.Get(ctx, client.ObjectKeyFromObject(obj), obj); apierrors.IsNotFound(err) && !has {
			return nil
		} else if err != nil {
			return err
		}
		all := slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == finalizer })
		if has {
			all = append(all, finalizer)
		}
		obj.SetFinalizers(all)
		return here.Update(ctx, obj)
	}).Should(Succeed())
}

// mark writes the annotation with which the host of the worker is taken by no other machine.
func mark(ctx context.Context, s *scene, value *string) {
	GinkgoHelper()
	if s.host == nil {
		s.host = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Host(s.old).Key().Name}}
	}
	suite.Annotate(ctx, here, s.host, unhealthy, value)
}

// pause writes the annotation with which the MachineSet of the worker does nothing.
func pause(ctx context.Context, s *scene, value *string) {
	GinkgoHelper()
	list := &clusterv1.MachineSetList{}
	Expect(here.List(ctx, list, client.InNamespace(s.Namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	suite.Annotate(ctx, here, &list.Items[0], clusterv1.PausedAnnotation, value)
}

// edit changes the MachineDeployment.
func edit(ctx context.Context, s *scene, change func(*clusterv1.MachineDeployment)) {
	GinkgoHelper()
	md := &clusterv1.MachineDeployment{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Pool()}, md)).To(Succeed())
	before := md.DeepCopy()
	change(md)
	Expect(here.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
}

// rollOut has all workers made anew, from another template.
func rollOut(ctx context.Context, s *scene) {
	GinkgoHelper()
	next := builders.Metal3MachineTemplate(s.Cluster, s.Pool()+"-2")
	Expect(builders.Apply(ctx, here, next)).To(Succeed())
	edit(ctx, s, func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.InfrastructureRef.Name = next.GetName() })
}

var _ = Describe("What kubectl mend explain says of the capacity of a machine", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		for i, s := range scenes {
			s.build(ctx, GinkgoRandomSeed()+int64(i))
		}
		suite.AtOnce(len(scenes), len(scenes), func(i int) { scenes[i].play(ctx) })
	}, NodeTimeout(suite.SpecPatience))

	for _, s := range scenes {
		It("is compared with what is true of "+s.rule, func() {
			for _, reason := range s.sees {
				Expect(s.seen).To(ContainElement(reason), "the scene did not happen")
			}
		})
	}

	It("is right, with what blocks and what comes next, at 99 of 100 random moments of all scenes", func() {
		looks.Right(len(scenes) * (moments + 1))
	})

	remembered()
})
