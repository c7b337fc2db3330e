package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func schemeOfAll(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme), controlplanev1.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	return scheme
}

// environment is a management cluster with MachineDeployment md-0 of three machines in the set md-0-a.
type environment struct {
	objects  []client.Object
	machines map[string]*clusterv1.Machine
	md       *clusterv1.MachineDeployment
	set      *clusterv1.MachineSet
	funcs    interceptor.Funcs
	workload []client.Object
}

func anEnvironment(edits ...func(*environment)) *environment {
	e := &environment{machines: map[string]*clusterv1.Machine{}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue}}
	revision := map[string]string{clusterv1.RevisionAnnotation: "1"}
	e.md = &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "md-0", Annotations: revision}}
	e.md.Spec.Replicas = ptr.To[int32](3)
	e.set = &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "md-0-a", Annotations: revision, Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: "md-0"},
	}}
	e.set.Spec.Replicas = ptr.To[int32](3)
	for _, name := range []string{"w1", "w2", "w3"} {
		e.machine(name, 24*time.Hour)
	}
	e.objects = append(e.objects, cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for _, edit := range edits {
		edit(e)
	}
	return e
}

func (e *environment) machine(name string, age time.Duration) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: ago(age), Finalizers: []string{clusterv1.MachineFinalizer},
		Labels:          map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "md-0", clusterv1.MachineSetNameLabel: "md-0-a"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0-a", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName = "c1"
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: name}
	m.Status.NodeRef.Name = "node-" + name
	m.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionTrue, LastTransitionTime: ago(age)},
		{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, LastTransitionTime: ago(age)},
	}
	e.machines[name] = m
	return m
}

// owned makes a control plane the owner of all machines.
func (e *environment) owned(by client.Object) {
	e.objects = append(e.objects, by)
	kind := by.GetObjectKind().GroupVersionKind()
	for _, m := range e.machines {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: "", clusterv1.MachineControlPlaneNameLabel: by.GetName()}
		m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = kind.GroupVersion().String(), kind.Kind, by.GetName()
	}
}

// inWorkload are objects of the workload cluster, whose pods can be listed by their node.
func inWorkload(objs ...client.Object) func(*environment) {
	return func(e *environment) { e.workload = objs }
}

// deleting begins the deletion of w1, as far as a reason says.
func deleting(reason string) func(*environment) {
	return func(e *environment) {
		m := e.machines["w1"]
		m.DeletionTimestamp = ptr.To(ago(10 * time.Minute))
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: reason, Message: "as it says", LastTransitionTime: ago(10 * time.Minute),
		})
	}
}

// replaced removes w1, and makes w4, which has no node.
func replaced(e *environment) {
	delete(e.machines, "w1")
	m := e.machine("w4", 4*time.Minute)
	m.Status.NodeRef.Name, m.Status.Conditions = "", nil
}

func metal3Machine(name, host string, spec map[string]any) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	m.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
	m.SetNamespace("default")
	m.SetName(name)
	if host != "" {
		m.SetAnnotations(map[string]string{infrav1.HostAnnotation: "default/" + host})
	}
	return m
}

// kept is a host that CAPM3 keeps for the owner of that name (node reuse).
func kept(owner string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) { h.Labels["infrastructure.cluster.x-k8s.io/node-reuse"] = owner }
}

func hostNamed(name, zone string, edits ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"zone": zone}}}
	h.Status.Provisioning.State = bmov1alpha1.StateAvailable
	for _, edit := range edits {
		edit(h)
	}
	return h
}

func with(objs ...client.Object) func(*environment) {
	return func(e *environment) { e.objects = append(e.objects, objs...) }
}

var kinds = []schema.GroupVersionKind{
	infrav1.GroupVersion.WithKind("Metal3Machine"), {Group: "controlplane.cluster.x-k8s.io", Version: "v1beta1", Kind: "K3sControlPlane"},
}

func (e *environment) observer(t *testing.T) *Observer {
	t.Helper()
	objs := append(slices.Clone(e.objects), e.md, e.set)
	for _, m := range e.machines {
		objs = append(objs, m)
	}
	scheme := schemeOfAll(t)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kinds[0].GroupVersion(), kinds[1].GroupVersion()})
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objs...).WithInterceptorFuncs(e.funcs).Build()
	o := &Observer{Management: c, Mapper: mapper}
	if e.workload != nil {
		there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(e.workload...).WithInterceptorFuncs(e.funcs).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
		o.Workload = func(context.Context, client.ObjectKey) (client.Reader, error) { return there, nil }
	}
	return o
}

// lost is w1 as a caller has kept it, which saw it gone five minutes ago.
func lost() Subject {
	s := Of(anEnvironment().machines["w1"], noon.Add(-10*time.Minute))
	s.Gone = noon.Add(-5 * time.Minute)
	return s
}

var w1 = Subject{Namespace: "default", Name: "w1"}

// stories are what is told of a machine as it is.
type stories map[string]struct {
	subject Subject
	is      *environment
	want    string
}

func (all stories) run(t *testing.T) {
	for name, tc := range all {
		t.Run(name, func(t *testing.T) { tc.is.tells(t, tc.subject, tc.want) })
	}
}

// observe is what is observed of a machine.
func (e *environment) observe(t *testing.T, of Subject) capacity.Facts {
	t.Helper()
	f, err := e.observer(t).Observe(t.Context(), of, noon)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tells compares the story of a machine, of which all can be read.
func (e *environment) tells(t *testing.T, of Subject, want string) {
	t.Helper()
	f := e.observe(t, of)
	if len(f.Unread) > 0 {
		t.Errorf("%v could not be read", f.Unread)
	}
	if got := told(capacity.Decide(f)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAStoryFollowsFromWhatIsObserved(t *testing.T) {
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}}
	attachment.Spec.NodeName, attachment.Spec.Source.PersistentVolumeName, attachment.Status.Attached = "node-w1", ptr.To("pv-1"), true
	stories{
		"a machine that is healthy has lost nothing": {w1, anEnvironment(), "Back Recovered w1"},
		"a hook is named with its owner": {w1, anEnvironment(deleting("WaitingForPreDrainHook"), func(e *environment) {
			e.machines["w1"].Annotations = map[string]string{clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup": "velero"}
		}), "Deleting WaitingForPreDrainHook w1 hooks=[{pre-drain.delete.hook.machine.cluster.x-k8s.io/backup velero}]"},
		"the budget that blocks a drain is found in the workload cluster": {
			w1, anEnvironment(deleting("DrainingNode"), inWorkload(aBudget(0, 0), aPod("web", labelled(nil)), aPod("db-0"), aPod("log", ofDaemonSet))),
			"Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db pods=2",
		},
		"a volume is named by its attachment": {
			w1, anEnvironment(deleting("WaitingForVolumeDetach"), inWorkload(attachment)), "Deleting WaitingForVolumeDetach w1 waits=VolumeAttachment/csi-1",
		},
		"the host of a machine that is being deleted": {
			w1, anEnvironment(deleting("WaitingForInfrastructureDeletion"), with(metal3Machine("w1", "h1", map[string]any{}), hostNamed("h1", "1", func(h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.State, h.Status.ErrorMessage = bmov1alpha1.StateDeprovisioning, "no power"
				h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "w1"}
			}))), "Deleting HostHindersDeletion w1 waits=BareMetalHost/h1",
		},
		"what keeps the set from making one": {lost(), anEnvironment(func(e *environment) {
			delete(e.machines, "w1")
			e.set.Status.Deprecated = &clusterv1.MachineSetDeprecatedStatus{V1Beta1: &clusterv1.MachineSetV1Beta1DeprecatedStatus{Conditions: clusterv1.Conditions{
				{Type: clusterv1.MachinesCreatedV1Beta1Condition, Status: "False", Reason: clusterv1.PreflightCheckFailedV1Beta1Reason},
			}}}
		}), "NoReplacement ScalingUpBlocked w1 waits=MachineDeployment/md-0"},
		"a MachineSet goes on when its MachineDeployment is paused": {lost(), anEnvironment(func(e *environment) {
			delete(e.machines, "w1")
			e.md.Spec.Paused, e.md.Annotations = ptr.To(true), map[string]string{clusterv1.RevisionAnnotation: "1", clusterv1.PausedAnnotation: ""}
		}), "NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0"},
		"hosts that do not fit, by the selector of the new machine": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "", map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"zone": "2"}}}), hostNamed("h1", "1"))),
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 hosts=[{h1 NotSelected zone=2}] for=w1 by=Alone",
		},
		"a host that is kept for the machines of this MachineDeployment": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "", map[string]any{}), hostNamed("h1", "1", kept("md-md-0")))),
			"Provisioning HostChosen w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		},
		"one that is kept for those of another": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "", map[string]any{}), hostNamed("h1", "1", kept("md-md-1")))),
			"NoHostFits NoHost w4 waits=Metal3Machine/w4 hosts=[{h1 Reserved md-md-1}] for=w1 by=Alone",
		},
		"a selector by expressions": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "", map[string]any{"hostSelector": map[string]any{
				"matchExpressions": []any{map[string]any{"key": "zone", "operator": "In", "values": []any{"2", "3"}}},
			}}), hostNamed("h1", "1"), hostNamed("h2", "3"))), "Provisioning HostChosen w4 waits=Metal3Machine/w4 for=w1 by=Alone",
		},
		"the timeout of the check is the deadline": {
			lost(), anEnvironment(replaced, with(metal3Machine("w4", "h4", map[string]any{}), hostNamed("h4", "1", func(h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.State = bmov1alpha1.StateProvisioning
			}), &clusterv1.MachineHealthCheck{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check"},
				Spec:       clusterv1.MachineHealthCheckSpec{ClusterName: "c1", Selector: metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "md-0"}}},
			})), "Provisioning HostProvisioning w4 waits=BareMetalHost/h4 until=12:06 for=w1 by=Alone",
		},
		"a machine of the name of one that is gone is another one": {
			func() Subject { s := lost(); s.Created = noon.Add(-48 * time.Hour); return s }(), anEnvironment(), "NotReplaced ScaledDown w1",
		},
	}.run(t)
}

// told is a story in a line.
func told(s capacity.Story) string {
	line := fmt.Sprintf("%s %s %s", s.Stage, s.Reason, s.Machine)
	if s.WaitsFor.Kind != "" && s.WaitsFor.Kind != "Machine" && s.WaitsFor.Kind != "Node" {
		line += " waits=" + s.WaitsFor.Kind + "/" + s.WaitsFor.Name
	}
	if !s.Deadline.IsZero() {
		line += s.Deadline.Format(" until=15:04")
	}
	if len(s.Args.Hooks) > 0 {
		line += fmt.Sprint(" hooks=", s.Args.Hooks)
	}
	if len(s.Args.Finalizers) > 0 {
		line += fmt.Sprint(" finalizers=", s.Args.Finalizers)
	}
	if len(s.Args.Pods) > 0 {
		line += fmt.Sprint(" pods=", len(s.Args.Pods))
		for _, p := range s.Args.Pods {
			if p.Completes {
				line = fmt.Sprint(line, " completes=", p.Name)
			}
			if p.Later {
				line = fmt.Sprint(line, " later=", p.Name)
			}
		}
	}
	if s.Stage == capacity.NoHostFits {
		line += fmt.Sprint(" hosts=", s.Args.Hosts)
	}
	if s.Replacement.Name != "" {
		line += fmt.Sprintf(" for=%s by=%s", s.Old, s.Replacement.By)
	}
	return line
}

func TestAControlPlaneWritesDownWhatItReplaces(t *testing.T) {
	e := anEnvironment(controlledBy(func(*controlplanev1.KubeadmControlPlane) {}))
	subject := Of(e.machines["w1"], noon.Add(-10*time.Minute))
	m := e.machines["w1"]
	m.Name, m.CreationTimestamp = "w4", ago(time.Minute)
	m.Annotations = map[string]string{controlplanev1.RemediationForAnnotation: `{"machine":"w1","timestamp":"2026-01-01T11:51:00Z","retryCount":2}`}
	delete(e.machines, "w1")
	e.machines["w4"] = m
	e.tells(t, subject, "Back Replaced w4 for=w1 by=Recorded")
	if is := e.observe(t, subject).Owner.Kubeadm; is == nil || is.Machines != 3 || !is.Initialized {
		t.Errorf("the rules of the control plane are %+v", is)
	}
}

func TestAControlPlaneOfAnotherProjectHasReplicas(t *testing.T) {
	for _, spec := range []map[string]any{{"replicas": int64(3)}, {}} { // or does not say how many
		e := anEnvironment(func(e *environment) {
			cp := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			cp.SetGroupVersionKind(kinds[1])
			cp.SetNamespace("default")
			cp.SetName("k3s")
			e.owned(cp)
		})
		s := Of(e.machines["w1"], noon)
		s.Gone = noon
		delete(e.machines, "w1")
		e.tells(t, s, "NoReplacement OwnerUnfamiliar w1 waits=K3sControlPlane/k3s")
	}
}
