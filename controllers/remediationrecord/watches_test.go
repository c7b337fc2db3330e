package remediationrecord

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/test/must"
)

// delayed has, by name, after how long records are enqueued.
type delayed struct {
	queue
	in map[string]time.Duration
}

// AddAfter implements workqueue.TypedRateLimitingInterface.
func (d delayed) AddAfter(req reconcile.Request, in time.Duration) {
	d.in[req.Name] = in
}

// While hundreds of Machines are replaced, each new Machine would otherwise enqueue all their records.
func TestAMachineThatComesIsNewsOfThoseThatAwaitOne(t *testing.T) {
	named := func(name string, steps ...func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
		return recordOf(append(steps, func(r *mendv1.RemediationRecord) { r.Name, r.Spec.Target.Machine.Name = name, name })...)
	}
	found := func(r *mendv1.RemediationRecord) {
		r.Status.Replacement = &mendv1.RecordReplacement{Machine: mendv1.RecordRef{Name: "w3"}}
	}
	m := newManagement(t, named("asked", begun(OwnerRequested)), named("gone", begun(TargetGone)), named("found", begun(TargetGone), found))
	for name, want := range map[string]map[string]time.Duration{
		"w2": {"gone": neighbours}, "w3": {"gone": neighbours, "found": neighbours},
		"asked": {"gone": neighbours, "asked": enqueue.MergeWindow},
	} {
		q := delayed{in: map[string]time.Duration{}}
		m.onMachines().Create(t.Context(), event.CreateEvent{Object: machine(name, 0)}, q)
		must.Equal(t, want, q.in, "for Machine %s", name)
	}
}

// Each change of a request may patch its record, so changes are merged. But the record has to note an effect before the request is deleted.
func TestChangesOfRequestsAreCollectedOnceARemediatorActs(t *testing.T) {
	for want, record := range map[time.Duration]*mendv1.RemediationRecord{
		enqueue.MergeWindow: recordOf(begun(RequestCreated)), time.Second: recordOf(begun(RemediatorActs)),
	} {
		q := delayed{in: map[string]time.Duration{}}
		newManagement(t, record).follows(t.Context(), cycled("w1", "PoweringOff"), q)
		if in := q.in[record.Name]; len(q.in) != 1 || in != want {
			t.Errorf("it is enqueued in %s, want %s", in, want)
		}
	}
}

// A change that matters to a record enqueues it at once.
func TestWhatARecordIsReconciledFor(t *testing.T) {
	named := func(name string, change func(*mendv1.RemediationRecord)) *mendv1.RemediationRecord {
		return recordOf(change, func(r *mendv1.RemediationRecord) { r.Name = name })
	}
	ended := func(r *mendv1.RemediationRecord) { r.Status.Ended = new(after(0)) }
	onNode := func(r *mendv1.RemediationRecord) { r.Spec.Target.Node = NodeRef("n1", "") }
	m := newManagement(t, named("machine", onNode), named("node", ofNodes), named("ended", ended))
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers"}}
	other := check.DeepCopy()
	other.Namespace = "other"
	request := cycled("w1", "PoweringOff")
	request.Annotations[mendv1.RecordAnnotation] = "elsewhere/node@uid"
	found := func(requests []reconcile.Request) (names []string) {
		for _, req := range requests {
			names = append(names, req.String())
		}
		return names
	}
	for name, tc := range map[string]struct {
		obj  client.Object
		want string
	}{
		"its Cluster":                         {theCluster(), "metal/machine"},
		"its MachineHealthCheck":              {check, "metal/machine"},
		"its NodeHealthCheck":                 {&nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}, "metal/node"},
		"a request that carries it":           {request, "elsewhere/node"},
		"not a check of another namespace":    {other, ""},
		"not a request that carries none":     {&mendv1.HostRemediation{}, ""},
		"not another check of the same nodes": {&nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "others"}}, ""},
	} {
		names := found(m.recordsOf(t.Context(), tc.obj))
		if len(names) != min(len(tc.want), 1) || len(names) == 1 && names[0] != tc.want {
			t.Errorf("%s: %v, want %q", name, names, tc.want)
		}
	}
}
