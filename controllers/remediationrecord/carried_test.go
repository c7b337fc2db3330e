package remediationrecord

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A user may create an open record of a machine that is being remediated, even with the name and the UID of the real record.
func TestARecordThatNothingCarriesIsNotBegun(t *testing.T) {
	uid := func(r *mendv1.RemediationRecord) { r.UID = "of the real one" }
	for name, change := range map[string]func(*management){
		"the Machine carries another one, as its owner is asked": func(m *management) {
			m.change("w1", func(w *clusterv1.Machine) {
				says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
				says(w, mendv1.Remediation, metav1.ConditionTrue, time.Second)
				w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + mendv1.RecordMention + "w1-record@another"
			})
		},
		"a request carries another one of that name": func(m *management) {
			req := cycled("w1", "PoweringOff")
			req.Annotations[mendv1.RecordAnnotation] += "@another"
			m.create(req)
		},
	} {
		m := newManagement(t, append(fleet(), unhealthy(), recordOf(uid))...)
		change(m)
		must.Is(t, "", condition(m.reconcile(time.Minute), mendv1.RecordBegun), "%s: begun", name)
	}
}

// If the owner is asked again, as after a release or after clusterctl move, that belongs to another record. Otherwise both records would
// end as Replaced.
func TestARecordEndsWhoseMachineCarriesAnother(t *testing.T) {
	finds := func(healthy bool) func(types.NamespacedName, types.UID) (bool, bool) {
		return func(types.NamespacedName, types.UID) (bool, bool) { return healthy, true }
	}
	for name, tc := range map[string]struct {
		remediator mendv1.RecordRemediator
		healthy    bool // by its own check; another check has asked the owner
		want       mendv1.RecordOutcome
	}{
		"by its owner":                   {mendv1.RemediatedByOwner, false, mendv1.RecordCancelled},
		"by its owner, which has healed": {mendv1.RemediatedByOwner, true, mendv1.RecordHealed},
		"by a request":                   {mendv1.RemediatedByRequest, false, ""},
	} {
		m := newManagement(t, append(fleet(), unhealthy(), recordOf(func(r *mendv1.RemediationRecord) { r.Spec.Remediator = tc.remediator }))...)
		m.ask(time.Second)
		m.reconcile(2 * time.Second)
		m.Finds = finds(tc.healthy)
		m.change("w1", func(w *clusterv1.Machine) {
			w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + mendv1.RecordMention + "w1-next@next"
		})
		if got := m.reconcile(time.Minute); got.Status.Outcome != tc.want {
			t.Errorf("one %s ends as %q", name, got.Status.Outcome)
		}
	}
}

// Otherwise each reconcile of hundreds of records would read from the API server. The cache of one namespace has no other namespace.
func TestWhatWatchesHaveIsReadFromCaches(t *testing.T) {
	m := newManagement(t)
	m.Client, m.NodeCache, m.HostLists, m.Namespace = fake.NewFakeClient(), fake.NewFakeClient(), fake.NewFakeClient(), "metal"
	for acts, nodes := range map[bool]client.Reader{true: m.NodeCache, false: m.Recent} {
		m.ActsOnNodes = func() bool { return acts }
		for _, tc := range []struct {
			obj       runtime.Object
			namespace string
			live      bool // whether the read is to confirm an end
			want      client.Reader
		}{
			{&clusterv1.Machine{}, "metal", false, m.Client}, {&clusterv1.Machine{}, "other", false, m.Recent},
			{&clusterv1.MachineSet{}, "metal", false, m.Client}, {&controlplanev1.KubeadmControlPlane{}, "metal", false, m.Recent},
			{&corev1.Node{}, "", false, nodes}, {&bmov1alpha1.BareMetalHostList{}, "metal", false, m.HostLists},
			{&clusterv1.Machine{}, "metal", true, m.Recent}, {&clusterv1.MachineList{}, "metal", true, m.Client},
		} {
			if (reader{m.Reconciler, tc.live, m.Recent}).of(tc.obj, tc.namespace) != tc.want {
				t.Errorf("a %T of namespace %q is read elsewhere, live: %t", tc.obj, tc.namespace, tc.live)
			}
		}
	}
}

// An object that hundreds of records need is read once. The request of another remediator, whose status is in no cache, is read once for
// each version that a watch shows.
func TestRecordsShareWhatTheyRead(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), cycled("w1", ""))...)
	read := func(version string) {
		t.Helper()
		set := m.Recent.Get(t.Context(), recordKey, &clusterv1.MachineSet{})
		machines, req := &clusterv1.MachineList{}, &mendv1.HostRemediation{}
		list := m.Recent.List(t.Context(), machines)
		if list != nil || len(machines.Items) != 1 || machines.Items[0].Name != "w1" {
			t.Errorf("%d Machines: %v", len(machines.Items), list)
		}
		if !apierrors.IsNotFound(set) {
			t.Errorf("the set: %v", set)
		}
		clear(machines.Items) // as a caller does that deletes items
		if err := m.Recent.Version(t.Context(), client.ObjectKeyFromObject(cycled("w1", "")), req, version); err != nil || req.UID != "r" {
			t.Errorf("the request is %v: %v", req, err)
		}
	}
	for range 100 {
		read("1")
	}
	m.clock.Step(time.Minute)
	read("1")
	must.Equal(t, map[string]int{"MachineSet": 2, "MachineList": 2, "HostRemediation": 1}, m.asked, "in two minutes the API server is asked")
	read("2")
	must.Is(t, 2, m.asked["HostRemediation"], "of another version it is asked")
}
