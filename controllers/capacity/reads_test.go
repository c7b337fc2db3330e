package capacity

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

func forbid(kind string) interceptor.Funcs {
	refuse := func(obj runtime.Object, c client.Client) error {
		gvk, err := c.GroupVersionKindFor(obj)
		if err == nil && (gvk.Kind == kind || gvk.Kind == kind+"List") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("you may not"))
		}
		return err
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if err := refuse(obj, c); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, o...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if err := refuse(list, c); err != nil {
				return err
			}
			return c.List(ctx, list, o...)
		},
	}
}

func TestWhatMayNotBeReadIsNotTakenForMissing(t *testing.T) {
	for kind, want := range map[string]string{
		"Machine":            "Unread NotReadable w1 waits=MachineDeployment/md-0",
		"MachineDeployment":  "Unread NotReadable w1 waits=MachineDeployment/md-0",
		"MachineSet":         "NoHostFits NoHost w4 waits=Metal3Machine/w4 hosts=[] for=w1 by=Alone",
		"Metal3Machine":      "Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		"Cluster":            "NoHostFits NoHost w4 waits=Metal3Machine/w4 hosts=[] for=w1 by=Alone",
		"Namespace":          "NoHostFits NoHost w4 waits=Metal3Machine/w4 hosts=[] for=w1 by=Alone",
		"BareMetalHost":      "Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		"MachineHealthCheck": "NoHostFits NoHost w4 waits=Metal3Machine/w4 hosts=[] for=w1 by=Alone",
	} {
		e := anEnvironment(replaced, with(metal3Machine("w4", "", map[string]any{})))
		if kind == "MachineDeployment" {
			delete(e.machines, "w4")
		}
		e.funcs = forbid(kind)
		f := e.observe(t, lost())
		if !slices.Contains(f.Unread, kind+"s") {
			t.Errorf("%s is not among %v", kind, f.Unread)
		}
		if got := told(capacity.Decide(f)); got != want {
			t.Errorf("without %s: %s, want %s", kind, got, want)
		}
	}
}

func TestAFailureOfTheManagementClusterIsAnError(t *testing.T) {
	broken := errors.New("broken")
	e := anEnvironment()
	e.funcs.List = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }
	if _, err := e.observer(t).Observe(t.Context(), lost(), noon); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

func TestNothingIsKnownOfAMachineOfWhichNothingWasKept(t *testing.T) {
	_, err := anEnvironment().observer(t).Observe(t.Context(), Subject{Namespace: "default", Name: "w9", Cluster: "c1"}, noon)
	if !errors.Is(err, ErrNotKept) {
		t.Errorf("the error is %v", err)
	}
}

// A healthy machine costs its own object, its Cluster, its owner and the machines of that; hosts only where one is looked for.
func TestFewObjectsAreRead(t *testing.T) {
	for name, tc := range map[string]struct {
		e    *environment
		s    Subject
		most int
	}{
		"of a machine that is healthy":  {anEnvironment(), w1, 5},
		"of one that is being replaced": {anEnvironment(replaced, with(metal3Machine("w4", "", map[string]any{}))), lost(), 9},
	} {
		reads := 0
		tc.e.funcs = interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, obj, o...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				reads++
				return c.List(ctx, list, o...)
			},
		}
		if _, err := tc.e.observer(t).Observe(t.Context(), tc.s, noon); err != nil || reads != tc.most {
			t.Errorf("%s: %d reads, not %d (%v)", name, reads, tc.most, err)
		}
	}
}

func TestAFinalizerIsThatOfTheFieldManagerThatAddedIt(t *testing.T) {
	m := anEnvironment().machines["w1"]
	m.Finalizers = []string{"example.com/hold", clusterv1.MachineFinalizer}
	m.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl-edit", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:example.com/hold":{}}}}`)}},
		{Manager: "holder", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/hold\"":{}}}}`)}},
	}
	want := []capacity.Finalizer{{Name: "example.com/hold", By: "holder"}, {Name: clusterv1.MachineFinalizer}}
	if diff := cmp.Diff(want, finalizersOf(m)); diff != "" {
		t.Error(diff)
	}
}

// The command line has no more of a Namespace: one that is read whole is refused there.
func TestOfTheNamespaceOnlyMetadataIsRead(t *testing.T) {
	e := anEnvironment(deleting("DrainingNode"))
	e.funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, whole := obj.(*corev1.Namespace); whole {
			return errors.New("no more than its metadata is known")
		}
		return c.Get(ctx, key, obj, opts...)
	}
	for _, namespace := range e.objects {
		if _, is := namespace.(*corev1.Namespace); is {
			namespace.SetDeletionTimestamp(ptr.To(ago(time.Minute)))
			namespace.SetFinalizers([]string{"kubernetes"})
		}
	}
	e.tells(t, Of(e.machines["w1"], noon.Add(-10*time.Minute)), "NotReplaced NamespaceDeleted w1")
}
