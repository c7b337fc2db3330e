package simulator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// bed is a kubelet with the API server of its workload cluster, in memory. down lets no request pass.
type bed struct {
	*Kubelet
	client.Client
	t    *testing.T
	down bool
	// ended counts how often it has ended a pod.
	ended int
}

// inBed runs test in a bubble of virtual time, with a kubelet that has come round once.
func inBed(t *testing.T, test func(*testing.T, *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t}
		onNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
		api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).
			WithIndex(&corev1.Pod{}, "spec.nodeName", onNode).Build()
		b.Client = api
		b.Kubelet = NewKubelet(interceptor.NewClient(api, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if b.down {
					return errors.New("connection refused")
				}
				return c.Patch(ctx, o, patch, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				b.ended++
				return c.Delete(ctx, o, opts...)
			},
		}), KubeletOptions{Node: "n", ProviderID: "metal3://n"})
		b.Start()
		defer b.Stop()
		b.pass(0)
		test(t, b)
	})
}

// pass lets so much time pass.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// node is the node, or nil if there is none.
func (b *bed) node() *corev1.Node {
	n := &corev1.Node{}
	if b.Get(b.t.Context(), client.ObjectKey{Name: "n"}, n) != nil {
		return nil
	}
	return n
}

// says is a condition of the node.
func (b *bed) says(kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range b.node().Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// renewed is how long ago the lease was renewed.
func (b *bed) renewed() time.Duration {
	lease := &coordinationv1.Lease{}
	b.do(b.Get(b.t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: "n"}, lease))
	return time.Since(lease.Spec.RenewTime.Time).Truncate(time.Second)
}

func (b *bed) do(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestAKubeletReportsTheGivenConditions(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		before := b.says(corev1.NodeReady)
		b.pass(time.Minute)
		b.Report("KernelDeadlock", corev1.ConditionTrue, "DockerHung")
		b.pass(0)
		if got := b.says("KernelDeadlock"); got.Status != corev1.ConditionTrue || got.Reason != "DockerHung" {
			t.Errorf("it says %+v", got)
		}
		if got := b.says(corev1.NodeReady); !got.LastTransitionTime.Equal(&before.LastTransitionTime) {
			t.Errorf("Ready has changed at %s, which it did not", got.LastTransitionTime)
		}
		b.Report(corev1.NodeReady, corev1.ConditionFalse, "ContainerRuntimeDown")
		b.pass(0)
		if got := b.says(corev1.NodeReady).Status; got != corev1.ConditionFalse {
			t.Errorf("Ready is %s", got)
		}
	})
}

func TestAKubeletThatIsStoppedIsSilent(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.Stop()
		if b.pass(40 * time.Second); b.renewed() != 40*time.Second {
			t.Errorf("stopped, it has renewed its lease %s ago", b.renewed())
		}
		b.Start()
		if b.pass(0); b.renewed() != 0 {
			t.Errorf("started, it has renewed its lease %s ago", b.renewed())
		}
		b.Retire()
		b.Start()
		if b.pass(time.Minute); b.renewed() != time.Minute || b.Running() {
			t.Errorf("retired, it runs (%t), and has renewed its lease %s ago", b.Running(), b.renewed())
		}
	})
}

func TestANodeThatIsDeletedComesBackWithTheNextBoot(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		first := b.node()
		b.do(b.Delete(t.Context(), b.node()))
		if b.pass(time.Minute); b.node() != nil {
			t.Error("it is back without a boot")
		}
		b.Stop()
		b.Start()
		b.pass(0)
		again := b.node()
		if again == nil || again.Spec.ProviderID != "metal3://n" || again.Status.NodeInfo.BootID == first.Status.NodeInfo.BootID {
			t.Errorf("after a boot there is %+v", again)
		}
	})
}

func TestASteadyNodeIsNotWrittenAndOutlivesItsAPIServer(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.pass(time.Second)
		before := b.node().ResourceVersion
		if b.pass(time.Minute); b.node().ResourceVersion != before {
			t.Error("a node of which nothing is new was written")
		}
		b.down = true
		if b.pass(time.Minute); b.renewed() != time.Minute {
			t.Errorf("without an API server the lease was renewed %s ago", b.renewed())
		}
		b.down = false
		if b.pass(time.Second); b.renewed() != 0 {
			t.Error("the kubelet has given up")
		}
	})
}

func TestAStoppedKubeletDoesNotEndItsPods(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}, Spec: corev1.PodSpec{NodeName: "n"}}
		pod.Status.Phase, pod.Finalizers = corev1.PodPending, []string{"test.kubemend.io/keep"} // so that its end is seen
		b.do(b.Create(t.Context(), pod))
		b.pass(time.Second)
		b.do(b.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("the pod is %s", pod.Status.Phase)
		}
		b.Stop()
		b.do(b.Delete(t.Context(), pod))
		if b.pass(time.Hour); b.ended > 0 {
			t.Error("a kubelet that does not run has ended a pod")
		}
		b.Start()
		if b.pass(time.Second); b.ended == 0 {
			t.Error("a kubelet that runs has not ended a pod that is to go")
		}
	})
}
