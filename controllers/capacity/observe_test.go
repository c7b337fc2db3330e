package capacity

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

var metal3Kind = infrav1.GroupVersion.WithKind("Metal3Machine")

// environment returns an Observer of a management cluster in which MachineDeployment md-0 has w2 and w3, and has lost w1.
func environment(t *testing.T, funcs interceptor.Funcs, more ...client.Object) *Observer {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme), controlplanev1.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme))
	must.Do(t, err)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{metal3Kind.GroupVersion()})
	mapper.Add(metal3Kind, meta.RESTScopeNamespace)
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	revision := map[string]string{clusterv1.RevisionAnnotation: "1"}
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "md-0", Annotations: revision}}
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "md-0-a", Annotations: revision, Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: "md-0"},
	}}
	md.Spec.Replicas, set.Spec.Replicas = ptr.To[int32](3), ptr.To[int32](3)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	more = append(more, md, set, cluster, worker("w2", 24*time.Hour), worker("w3", 24*time.Hour))
	if !slices.ContainsFunc(more, func(obj client.Object) bool { _, is := obj.(*corev1.Namespace); return is }) {
		more = append(more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	}
	return &Observer{
		Management: fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(more...).WithInterceptorFuncs(funcs).Build(), Mapper: mapper,
	}
}

// lostW1 returns w1 as a caller has kept it that saw it deleted five minutes ago.
func lostW1() Subject {
	s := Of(worker("w1", 24*time.Hour))
	s.Machine, s.Gone = nil, noon.Add(-5*time.Minute)
	return s
}

func metal3Machine(name string, spec map[string]any) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	m.SetGroupVersionKind(metal3Kind)
	m.SetNamespace("default")
	m.SetName(name)
	return m
}

func seeking(m *clusterv1.Machine) {
	m.Status = clusterv1.MachineStatus{}
	metal(m)
}

func TestAStoryFollowsFromWhatIsObserved(t *testing.T) {
	inZone := map[string]any{"hostSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "zone", "operator": "In", "values": []any{"a", "b"}}}}}
	w1, w4, free := worker("w1", 24*time.Hour), worker("w4", 4*time.Minute, seeking), aHost("h1", "available")
	taken := aHost("h4", "provisioning", consumedBy("w4"))
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check"}}
	check.Spec.ClusterName, check.Spec.Selector = "c1", metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "md-0"}}
	ends := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: ptr.To(ago(time.Minute)), Finalizers: []string{"kubernetes"}}}
	for name, tc := range map[string]struct {
		subject Subject
		objects []client.Object
		want    string
	}{
		"a machine that is healthy has lost nothing": {Of(worker("w2", 24*time.Hour)), nil, "Back Recovered w2 since=24h0m0s"},
		"one that is gone": {
			lostW1(), nil, "NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=LookAtOwner",
		},
		"one that its owner lacks":             {Lacking("default", "c1", Owner{Group: clusterv1.GroupVersion.Group, Kind: machineDeploymentKind, Name: "md-0"}), nil, "NoReplacement OwnerCreates  waits=MachineDeployment/md-0 next=ReplacementIsMade"},
		"another one of its name":              {lostW1(), []client.Object{w1}, "NotReplaced ScaledDown w1"},
		"its namespace is being deleted":       {lostW1(), []client.Object{ends}, "NotReplaced NamespaceDeleted w1"},
		"hosts by the selector of the new one": {lostW1(), []client.Object{w4, &free, metal3Machine("w4", inZone)}, "Provisioning HostChosen w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		"none by another selector": {
			lostW1(), []client.Object{w4, &free, metal3Machine("w4", map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"zone": "a"}}})},
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?",
		},
		"the timeout of the check is the deadline": {
			lostW1(), []client.Object{w4, &taken, check}, "Provisioning HostProvisioning w4 waits=BareMetalHost/h4 since=4m0s until=6m0s next=InfrastructureComes by=w4/Alone?",
		},
	} {
		facts, err := environment(t, interceptor.Funcs{}, tc.objects...).Observe(t.Context(), tc.subject, noon)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := told(facts.Story()); got != tc.want || len(facts.Unread) > 0 {
			t.Errorf("%s: got %s\nwant %s; %v was not read", name, got, tc.want, facts.Unread)
		}
	}
}

// refusing refuses to read one kind, and counts all reads.
func refusing(kind string, reads *int) interceptor.Funcs {
	refuse := func(obj runtime.Object, c client.Client) error {
		*reads++
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
			if _, whole := obj.(*corev1.Namespace); whole {
				return errors.New("of a Namespace the command line has its metadata alone")
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
	const noHost, notReady = "NoHostFits NoHost", "Provisioning InfrastructureNotReady"
	for kind, want := range map[string]string{
		"Machine": "Unread NotReadable", "MachineDeployment": noHost, "MachineSet": noHost, "Metal3Machine": notReady, "Cluster": noHost,
		"Namespace": noHost, "BareMetalHost": notReady, "MachineHealthCheck": noHost,
	} {
		reads := 0
		o := environment(t, refusing(kind, &reads), worker("w4", 4*time.Minute, seeking), metal3Machine("w4", map[string]any{}))
		facts, err := o.Observe(t.Context(), lostW1(), noon)
		if err != nil || !slices.Contains(facts.Unread, kind+"s") {
			t.Fatalf("%s is not among what is not read (%v)", kind, err)
		}
		if s := facts.Story(); s.Stage+" "+s.Reason != want {
			t.Errorf("without %s: %s, want %s", kind, told(s), want)
		}
	}
}

// A healthy machine costs four reads: its Cluster, its owner, the owner's MachineSets and Machines. Hosts are read only if one is needed.
func TestFewObjectsAreRead(t *testing.T) {
	for name, tc := range map[string]struct {
		subject Subject
		most    int
	}{
		"of a machine that is healthy":  {Of(worker("w2", 24*time.Hour)), 4},
		"of one that is being replaced": {lostW1(), 8}, // the Metal3Machine of w5 is not read: it is another story
	} {
		reads := 0
		o := environment(t, refusing("", &reads), worker("w4", 4*time.Minute, seeking), metal3Machine("w4", map[string]any{}),
			worker("w5", 3*time.Minute, seeking), metal3Machine("w5", map[string]any{}))
		if name == "of a machine that is healthy" {
			o = environment(t, refusing("", &reads))
		}
		if _, err := o.Observe(t.Context(), tc.subject, noon); err != nil || reads != tc.most {
			t.Errorf("%s: %d reads, not %d (%v)", name, reads, tc.most, err)
		}
	}
}

func TestWhatSaysNothingIsAnError(t *testing.T) {
	broken := errors.New("broken")
	o := environment(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }})
	_, err := o.Observe(t.Context(), lostW1(), noon)
	must.Is(t, true, errors.Is(err, broken), "%v:", err)
}
