package remediationrecord

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

func byMachineCheck(is *mendv1.RemediationRecord) {
	is.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: machineCheckKind, Namespace: "metal", Name: "workers", UID: "check"}
}

// kubectl describe finds events by the UID of their object.
func TestEventsAreAboutObjectsByTheUIDThatTheyHaveNow(t *testing.T) {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers", UID: "another-check"}}
	another := unhealthy()
	another.UID = "another-machine"
	is := recordOf(byMachineCheck, begun(OwnerRequested), func(r *mendv1.RemediationRecord) {
		r.OwnerReferences[0].UID = "of the new management cluster"
	})
	another.Status.Conditions = nil // no check reports that the Machine is healthy again
	m := newManagement(t, append(fleet(), is, check, another)...)
	m.change("w1", func(w *clusterv1.Machine) { mirrors(w, metav1.ConditionTrue, clusterv1.MachineNodeHealthyReason) })
	m.reconcile(10 * time.Minute)
	got := map[string]types.UID{}
	for _, e := range m.reported {
		got[e.about] = e.uid
	}
	if want := (map[string]types.UID{"MachineHealthCheck workers": "another-check", "Machine w1": "another-machine"}); !maps.Equal(got, want) {
		t.Errorf("events are about %v, want %v", got, want)
	}
}

func TestWhereAnEndIsReported(t *testing.T) {
	byNobody := func(is *mendv1.RemediationRecord) { is.Spec.Requester = mendv1.RecordRequester{} }
	const back = "The capacity of Machine w1 is back after 1m1s: Machine w1 is healthy again"
	for name, tc := range map[string]struct {
		says  []func(*mendv1.RemediationRecord)
		about []string
		text  string
	}{
		"not where a MachineHealthCheck has said so": {[]func(*mendv1.RemediationRecord){byMachineCheck}, nil, ""},
		"a NodeHealthCheck, in the words of medik8s": {[]func(*mendv1.RemediationRecord){func(is *mendv1.RemediationRecord) {
			is.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: nodeCheckKind, Namespace: "metal", Name: "nodes"}
		}}, []string{"NodeHealthCheck nodes", "Machine w1"}, "[remediation] " + back},
		"a request that no check made": {
			[]func(*mendv1.RemediationRecord){byNobody, requested}, []string{"HostRemediation w1", "Machine w1"}, back,
		},
		"the Machine alone": {[]func(*mendv1.RemediationRecord){byNobody}, []string{"Machine w1"}, back},
		"the Machine alone, by a check of another namespace": {[]func(*mendv1.RemediationRecord){byMachineCheck, func(is *mendv1.RemediationRecord) {
			is.Spec.Requester.Check.Namespace = "theirs"
		}}, []string{"Machine w1"}, back},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			w1.Status.Conditions = nil
			m := newManagement(t, append(fleet(), w1, recordOf(append(tc.says, begun(OwnerRequested))...))...)
			m.heal(time.Minute)
			m.change("w1", func(w *clusterv1.Machine) { mirrors(w, metav1.ConditionTrue, clusterv1.MachineNodeHealthyReason) })
			for i := range 4 {
				m.reconcile(time.Duration(1+i) * time.Minute)
			}
			var about []string
			for _, e := range m.reported {
				about = append(about, e.about)
			}
			if !slices.Equal(about, tc.about) {
				t.Fatalf("reported are %v, want %v", about, tc.about)
			}
			for _, e := range m.reported[:min(len(about), 1)] {
				must.Is(t, tc.text, e.text, "it is reported")
			}
		})
	}
}

func TestWhatIsReportedOfTheEnd(t *testing.T) {
	for outcome, want := range map[mendv1.RecordOutcome]string{
		mendv1.RecordReplaced:  "Normal CapacityBack",
		mendv1.RecordHealed:    "Normal CapacityBack",
		mendv1.RecordGivenUp:   "Warning CapacityNotComing",
		mendv1.RecordGone:      "Normal CapacityNotComing",
		mendv1.RecordCancelled: "",
	} {
		m := newManagement(t, append(fleet(), unhealthy())...)
		status := &mendv1.RemediationRecordStatus{Ended: moment(noon), Outcome: outcome}
		if outcome == mendv1.RecordReplaced || outcome == mendv1.RecordHealed {
			status.CapacityBack = status.Ended
		}
		m.sendEnd(&observed{record: recordOf()}, status)
		var got string
		for _, e := range m.reported {
			got = e.kind + " " + e.reason
		}
		must.Is(t, want, got, "%s is reported as", outcome)
	}
}

func TestWhatCapacityWaitsForIsExported(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	m.reconcile(time.Second)
	must.Is(t, 0, testutil.CollectAndCount(&capacityMissing{m.Client, m.clock}), "series before it is begun")
	m.ask(2 * time.Second)
	m.reconcile(3 * time.Second)
	const want = `
# HELP kubemend_capacity_missing Remediations that have begun and whose capacity is not back yet, by the reason in the condition CapacityBack of their RemediationRecords.
# TYPE kubemend_capacity_missing gauge
kubemend_capacity_missing{cluster="c",namespace="metal",reason="WaitingForRemediation"} 1
# HELP kubemend_capacity_missing_oldest_timestamp_seconds Unix time at which the oldest remediation in kubemend_capacity_missing was due.
# TYPE kubemend_capacity_missing_oldest_timestamp_seconds gauge
kubemend_capacity_missing_oldest_timestamp_seconds{cluster="c",namespace="metal",reason="WaitingForRemediation"} 1.772452799e+09
`
	must.Do(t, testutil.CollectAndCompare(&capacityMissing{m.Client, m.clock}, strings.NewReader(want)))
}

// If Clusters come and go, such as those of tests, series of deleted Clusters would pile up.
func TestAnEndIsCountedOnceAndUntilItsClusterIsGone(t *testing.T) {
	closed.Reset()
	dueToBegun.Reset()
	dueToCapacity.Reset()
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	m.replaced()
	must.Is(t, 1, testutil.ToFloat64(closed.WithLabelValues("metal", "c", string(mendv1.RecordReplaced))), "it is counted")
	waits := testutil.CollectAndCount(&capacityMissing{m.Client, m.clock})
	if testutil.CollectAndCount(dueToBegun) != 1 || testutil.CollectAndCount(dueToCapacity) != 1 || waits != 0 {
		t.Error("the times are not exported, or it still waits")
	}
	other := closed.WithLabelValues("other", "c", string(mendv1.RecordReplaced))
	other.Inc()
	clusterGone(t.Context(), event.DeleteEvent{Object: theCluster()}, nil)
	if n := testutil.CollectAndCount(closed); n != 1 || testutil.ToFloat64(other) != 1 {
		t.Errorf("there are %d series, and %v of the Cluster of that name in another namespace", n, testutil.ToFloat64(other))
	}
}

// A user who may write records may write Clusters and waits into them that do not exist.
func TestWhatARecordClaimsIsNoSeriesOfItsOwn(t *testing.T) {
	waited.Reset()
	dueToCapacity.Reset()
	m := newManagement(t, append(fleet(), unhealthy())...)
	for i := range 3 * mostWords {
		is := recordOf(begun("OwnerRequested"), func(r *mendv1.RemediationRecord) {
			r.Spec.Target.ClusterName, r.Spec.Cause = fmt.Sprint("claimed-", i), fmt.Sprint("Claimed", i)
			r.Status.Steps = append(r.Status.Steps, aStep(noon.Add(2*time.Second), fmt.Sprint("Claimed", i)))
		})
		m.create(is)
		m.heal(time.Minute)
		if got := m.reconcile(10 * time.Minute); got.Status.Outcome != mendv1.RecordHealed {
			t.Fatalf("it ends as %q", got.Status.Outcome)
		}
		m.remove(is)
	}
	if n := testutil.CollectAndCount(waited); n > mostWords+1 {
		t.Errorf("there are %d series of waits", n)
	}
	if n := testutil.CollectAndCount(dueToCapacity); n > mostWords+1 {
		t.Errorf("there are %d series of causes", n)
	}
	if n := testutil.CollectAndCount(closed); n > mostWords {
		t.Errorf("there are %d series of ends", n)
	}
}

func TestARecordSaysWhatAPowerCycleWaitsFor(t *testing.T) {
	request := mendv1.RecordRef{Kind: "HostRemediation", Name: "m"}
	for _, state := range []powercycle.State{
		powercycle.Pending, powercycle.Preparing, powercycle.PoweringOff, powercycle.MovingWorkload, powercycle.PoweringOn, powercycle.Rebooting,
		powercycle.Servicing, powercycle.Booting, powercycle.RequestingOwner,
	} {
		if !state.Known() || state.Final() {
			t.Errorf("%s is no state in which anything is waited for", state)
		}
		got := stepText(string(state), "Machine m", request)
		if !strings.HasPrefix(got, "HostRemediation m ") || len(strings.Fields(got)) < 6 || strings.Contains(got, string(state)) {
			t.Errorf("%s: it says %q", state, got)
		}
	}
	must.Is(t, "Booting", stepText(string(powercycle.Booting), "Machine m", mendv1.RecordRef{}), "without a request it says")
}
