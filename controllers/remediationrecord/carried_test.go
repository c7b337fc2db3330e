package remediationrecord

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A user may make up an open record of a machine that is remediated, also with the name and the UID of that.
func TestARecordThatNothingCarriesIsNotBegun(t *testing.T) {
	uid := func(r *mendv1.RemediationRecord) { r.UID = "of the real one" }
	for name, change := range map[string]func(*management){
		"the Machine carries another one, as its owner is asked": func(m *management) {
			m.change("w1", func(w *clusterv1.Machine) {
				says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
				says(w, mendv1.Remediation, metav1.ConditionTrue, time.Second)
				w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + followedBy + "w1-record@another"
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

// The owner is asked anew, as after the check released the machine or after clusterctl move: that is another record's, and two would end as
// Replaced.
func TestARecordEndsWhoseMachineCarriesAnother(t *testing.T) {
	finds := func(healthy bool) func(types.NamespacedName, types.UID) (bool, bool) {
		return func(types.NamespacedName, types.UID) (bool, bool) { return healthy, true }
	}
	for name, tc := range map[string]struct {
		remediator mendv1.RecordRemediator
		healthy    bool // its check finds so, and another one, which has asked the owner, does not
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
			w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + followedBy + "w1-next@next"
		})
		if got := m.reconcile(time.Minute); got.Status.Outcome != tc.want {
			t.Errorf("one %s ends as %q", name, got.Status.Outcome)
		}
	}
}

// Each look at hundreds of records would else ask the API server. A cache of one namespace has no other.
func TestWhatWatchesHaveIsReadFromCaches(t *testing.T) {
	m := newManagement(t)
	m.Client, m.NodeCache, m.Namespace = fake.NewFakeClient(), fake.NewFakeClient(), "metal"
	for acts, nodes := range map[bool]client.Reader{true: m.NodeCache, false: m.Recent} {
		m.ActsOnNodes = func() bool { return acts }
		from := reader{m.Reconciler, cached, m.Recent}
		for _, tc := range []struct {
			obj       client.Object
			namespace string
			want      client.Reader
		}{
			{&clusterv1.Machine{}, "metal", m.Client}, {&clusterv1.Machine{}, "other", m.Recent}, {&clusterv1.MachineSet{}, "metal", m.Client},
			{&controlplanev1.KubeadmControlPlane{}, "metal", m.Recent}, {&corev1.Node{}, "", nodes},
		} {
			if from.of(tc.obj, tc.namespace) != tc.want {
				t.Errorf("a %T of namespace %q is read elsewhere", tc.obj, tc.namespace)
			}
		}
	}
	for depth, others := range map[depth]client.Reader{live: m.Client, countedLive: m.Recent} {
		from := reader{m.Reconciler, depth, m.Recent}
		if from.of(&clusterv1.Machine{}, "metal") != client.Reader(m.Recent) || from.of(&clusterv1.MachineList{}, "metal") != others {
			t.Errorf("at depth %d, what an end rests on is read elsewhere", depth)
		}
	}
	ends := Plan{Confirm: true}
	counted := ends
	if counted.Status.EndedBy = "ScaledDown"; depthOf(ends) != live || depthOf(counted) != countedLive || depthOf(Plan{}) != cached {
		t.Error("what an end rests on is read at another depth")
	}
}

// Only a check that kubemend acts on has a step left.
func TestACheckOfOthersHasNoStepLeft(t *testing.T) {
	for claim, want := range map[string]string{mendv1.Claim: "False " + AwaitingNextStep, "": "False " + Withdrawn} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers"}}
		if claim != "" {
			check.Annotations = map[string]string{clusterv1.PausedAnnotation: claim}
		}
		m := newManagement(t, append(fleet(), unhealthy(), recordOf(begun(RequestCreated)), check)...)
		m.ActsOnUnclaimed = false
		m.reconcile(time.Minute)
		must.Is(t, want, condition(m.reconcile(time.Minute+Idles), mendv1.RecordCapacityBack), "claimed %q: it waits for", claim)
	}
}

// The status of a request of another remediator is in no cache: it is read once for each version that a watch shows.
func TestAVersionIsReadOnce(t *testing.T) {
	m := newManagement(t, cycled("w1", "PoweringOff"))
	for i, version := range []string{"1000", "1000", "1001", "1001"} {
		req := cycled("w1", "")
		if i%2 == 0 {
			m.edit(req, func(o client.Object) { o.SetLabels(map[string]string{"version": version}) })
		}
		m.clock.Step(time.Hour)
		got := &mendv1.HostRemediation{}
		if err := m.Recent.Version(t.Context(), client.ObjectKeyFromObject(req), got, version); err != nil || got.Labels["version"] == "" {
			t.Fatalf("it reads %v: %v", got, err)
		}
		if want := i/2 + 1; got.ResourceVersion != version || got.Labels["version"] != version || m.asked["HostRemediation"] != want {
			t.Errorf("of version %s it reads %s %v, in %d reads, not %d", version, got.ResourceVersion, got.Labels, m.asked["HostRemediation"], want)
		}
	}
}

// What hundreds of records read is read once.
func TestRecordsShareWhatTheyRead(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy())...)
	read := func() {
		t.Helper()
		set := m.Recent.Get(t.Context(), recordKey, &clusterv1.MachineSet{})
		machines := &clusterv1.MachineList{}
		list := m.Recent.List(t.Context(), machines)
		if list != nil || len(machines.Items) != 1 || machines.Items[0].Name != "w1" {
			t.Errorf("%d Machines: %v", len(machines.Items), list)
		}
		if !apierrors.IsNotFound(set) {
			t.Errorf("the set: %v", set)
		}
		clear(machines.Items) // as who sorts out those that do not matter
	}
	for range 100 {
		read()
	}
	m.clock.Step(time.Minute)
	read()
	must.Equal(t, map[string]int{"MachineSet": 2, "MachineList": 2}, m.asked, "in two minutes the API server is asked")
}
