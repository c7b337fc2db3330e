package badinput

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/hostremediation"
)

// memory is an annotation of a HostRemediation that kubemend alone writes, with a value that it would not.
type memory struct{ key, value, says string }

const unreadable = "metadata.annotations[" + mendv1.PowerCycleAnnotation + "]: expected what kubemend wrote there"

var memories = []memory{
	{mendv1.PowerCycleAnnotation, "", unreadable},
	{mendv1.PowerCycleAnnotation, "{", unreadable},
	{mendv1.PowerCycleAnnotation, "[]", unreadable},
	{mendv1.PowerCycleAnnotation, `"Ended"`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"state":7}`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"attempt":"two"}`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"since":"yesterday"}`, unreadable},
}

func TestAnUnreadableMemoryFailsOnlyItsOwnRemediation(t *testing.T) {
	for _, row := range memories {
		t.Run(row.key+" "+written(row.value), func(t *testing.T) {
			s := newEnvironment(t, &row)
			for range 3 {
				s.reconcile("bad")
				s.reconcile("good")
			}
			if bad := s.remediation("bad"); bad.Status.Phase != infrav1.PhaseFailed || !strings.Contains(said(bad), row.says) {
				t.Errorf("it is %s, and says %s; want it failed, with: %s", bad.Status.Phase, said(bad), row.says)
			}
			if of := s.host("bad").Annotations; len(of) > 0 {
				t.Errorf("its host has %v", of)
			}
			if good := s.host("good"); len(good.Annotations) == 0 {
				t.Error("the host of another remediation is not asked to power off")
			}
			if err := s.api.Delete(t.Context(), s.remediation("bad")); err != nil {
				t.Fatal(err)
			}
			s.reconcile("bad")
			if err := s.api.Create(t.Context(), remediationOf("bad", "again", nil)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				s.reconcile("bad")
			}
			if len(s.host("bad").Annotations) == 0 {
				t.Error("another remediation of the same machine does not begin")
			}
		})
	}
}

// said is all that a remediation says in its conditions and its message.
func said(rem *mendv1.HostRemediation) string {
	lines := []string{rem.Status.Message}
	for _, c := range rem.Status.Conditions {
		lines = append(lines, c.Message)
	}
	return strings.Join(lines, "\n")
}

// environment is the controller of HostRemediations over two machines with hosts, named bad and good, each with a remediation.
type environment struct {
	t   *testing.T
	api client.Client
	*hostremediation.Reconciler
}

func remediationOf(name, uid string, broken *memory) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(noon),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID("m-" + name)}},
	}}
	rem.Spec.Strategy = &mendv1.HostRemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600}
	if broken != nil {
		rem.Annotations = map[string]string{broken.key: broken.value}
	}
	return rem
}

func newEnvironment(t *testing.T, broken *memory) *environment {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(bmov1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), mendv1.AddToScheme(scheme), infrav1.AddToScheme(scheme),
		nhcv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	between := infrav1.GroupVersion.WithKind("Metal3Machine")
	scheme.AddKnownTypeWithName(between, &unstructured.Unstructured{})
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	objects := []client.Object{&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}}
	for _, name := range []string{"bad", "good"} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("m-" + name)}}
		m.Spec.ClusterName = "c"
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: between.Group, Kind: between.Kind, Name: name}
		m3m := &unstructured.Unstructured{}
		m3m.SetGroupVersionKind(between)
		m3m.SetNamespace("ns")
		m3m.SetName(name)
		m3m.SetAnnotations(map[string]string{infrav1.HostAnnotation: "ns/" + name})
		h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("h-" + name)}}
		h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
		h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: between.Kind, Name: name, Namespace: "ns", APIVersion: between.GroupVersion().String()}
		objects = append(objects, m, m3m, h)
	}
	objects = append(objects, remediationOf("bad", "bad", broken), remediationOf("good", "good", nil))
	s := &environment{t: t, api: fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).
		WithStatusSubresource(&mendv1.HostRemediation{}, &clusterv1.Machine{}).Build()}
	s.Reconciler = &hostremediation.Reconciler{
		Kind: remediation.Own, Installed: func() ([]remediation.Kind, error) { return []remediation.Kind{remediation.Own}, nil },
		Client: s.api, Live: s.api, Hosts: &host.Hosts{Client: s.api, Live: s.api}, Clusters: reachable{}, Claims: &hostremediation.Claims{},
		Recorder: events.NewFakeRecorder(1000), Clock: clocktesting.NewFakePassiveClock(noon.Add(time.Second)), Unwatched: true,
	}
	return s
}

func (s *environment) reconcile(name string) {
	s.t.Helper()
	ctx := log.IntoContext(s.t.Context(), logr.Discard())
	if _, err := s.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}); err != nil {
		s.t.Log(err)
	}
}

func (s *environment) remediation(name string) *mendv1.HostRemediation {
	s.t.Helper()
	rem := &mendv1.HostRemediation{}
	if err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, rem); err != nil {
		s.t.Fatal(err)
	}
	return rem
}

func (s *environment) host(name string) *bmov1alpha1.BareMetalHost {
	s.t.Helper()
	h := &bmov1alpha1.BareMetalHost{}
	if err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, h); err != nil {
		s.t.Fatal(err)
	}
	return h
}
