package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// record is what the program did, whether or not it got the answers.
type record struct {
	mu sync.Mutex
	// Requests is how often requests were created and deleted, such as "made m1". Turns is the sequence of statuses of a machine's
	// condition.
	Requests map[string]int
	Turns    map[string][]string
	Events   map[string]int

	checks   []string          // the names of all checks that ever existed
	machines map[string]string // the names of machines with records, by UID
	begun    map[string]bool   // the records of remediations that have begun
	counted  map[string]float64
	counters map[string]float64
	log      []string
}

func newRecord() record {
	return record{Requests: map[string]int{}, Turns: map[string][]string{}, Events: map[string]int{}, counters: map[string]float64{},
		machines: map[string]string{}, begun: map[string]bool{}}
}

// recorded returns the program's client: it records what the program does and checks that it is safe.
func (e *environment) recorded() client.WithWatch {
	return interceptor.NewClient(e.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if is, record := obj.(*mendv1.RemediationRecord); record {
				return e.makeRecord(ctx, c, is, opts...)
			}
			e.mayStart(obj.GetName(), "a request is made for")
			err := c.Create(ctx, obj, opts...)
			if err == nil {
				e.locked(func() { e.isRecorded(e.machine(obj.GetName()), obj.GetAnnotations()[mendv1.RecordAnnotation]) })
				e.noteRequest("made", obj.GetName())
			}
			return err
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			is := e.requestOf(obj.GetName())
			e.mayDelete(is)
			err := c.Delete(ctx, obj, opts...)
			if err == nil && is.GetDeletionTimestamp() == nil {
				e.noteRequest("deleted", obj.GetName())
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, obj, patch, opts...)
			if kindOf(obj) == recordKind {
				return err
			}
			if err == nil && kindOf(obj) == requestKind.Kind {
				e.noteRequest("adopted", obj.GetName())
			} else if err == nil { // a patch of the labels of a check
				e.record.note("patch " + kindOf(obj) + " " + obj.GetName())
				e.locked(e.enqueueChecks)
			}
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if kindOf(obj) != "Machine" {
				e.record.note("patch " + kindOf(obj) + " " + obj.GetName() + " " + sub)
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			}
			before := e.machine(obj.GetName())
			if err := c.SubResource(sub).Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			e.noteMachine(before, e.machine(obj.GetName()))
			return nil
		},
	})
}

func kindOf(obj client.Object) string {
	kind, err := apiutil.GVKForObject(obj, theScheme())
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	return kind.Kind
}

func (r *record) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, what)
}

// locked changes the queue, which concurrent writes change too.
func (e *environment) locked(do func()) {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	do()
}

// noteRequest records a change of a request. Its event enqueues the checks and the releaser.
func (e *environment) noteRequest(what, name string) {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	e.record.Requests[what+" "+name]++
	e.record.log = append(e.record.log, what+" request "+name)
	e.enqueueChecks()
	e.enqueue(work{true, client.ObjectKey{Namespace: e.namespace, Name: name}}, 0)
}

// noteMachine records the conditions of a machine. Its event enqueues only the releaser.
func (e *environment) noteMachine(before, after *clusterv1.Machine) {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	for _, kind := range []string{
		clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition,
		clusterv1.MachineExternallyRemediatedCondition,
	} {
		was, is := statusOf(before, kind), statusOf(after, kind)
		if was == is {
			continue
		}
		key := after.Name + " " + kind
		e.record.Turns[key] = append(e.record.Turns[key], is)
		e.record.log = append(e.record.log, fmt.Sprintf("%s: %s -> %s", key, was, is))
		if kind == clusterv1.MachineOwnerRemediatedCondition && is == "False" {
			e.mayStartLocked(before, "the owner is asked to remediate", 0)
		}
	}
	if asks(after) && !asks(before) {
		e.isRecorded(before, "")
	}
	e.enqueue(work{true, client.ObjectKeyFromObject(after)}, 0)
}

// asks reports whether the owner of m is asked to replace it: an owner acts only if both conditions are False.
func asks(m *clusterv1.Machine) bool {
	return statusOf(m, clusterv1.MachineHealthCheckSucceededCondition) == "False" &&
		statusOf(m, clusterv1.MachineOwnerRemediatedCondition) == "False"
}

func statusOf(m *clusterv1.Machine, kind string) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil {
		return string(c.Status)
	}
	return "none"
}

// outcome is the visible result of a tale, without times and versions.
type outcome struct {
	Machines map[string][]string
	Checks   map[string][]string
	Requests []string
	Records  map[string]int // records of remediations that have begun
	Unbegun  int            // records of remediations that have not begun
	Turns    map[string][]string
	Did      map[string]int
	Events   map[string]int
	Counters map[string]float64
}

func (e *environment) outcome() outcome {
	o := outcome{
		Machines: map[string][]string{}, Checks: map[string][]string{}, Turns: e.record.Turns, Did: e.record.Requests,
		Events:   e.record.Events,
		Counters: e.record.counters,
	}
	o.Records, o.Unbegun = e.recordsByMachine()
	for _, m := range e.allMachines() {
		o.Machines[m.Name] = said(m.Status.Conditions)
		for _, c := range m.GetV1Beta1Conditions() {
			o.Machines[m.Name] = append(o.Machines[m.Name], fmt.Sprint("v1beta1 ", c.Type, " ", c.Status, " ", c.Reason))
		}
	}
	checks := &clusterv1.MachineHealthCheckList{}
	e.must(e.api.List(e.ctx, checks, client.InNamespace(e.namespace)))
	for i := range checks.Items {
		c := &checks.Items[i]
		o.Checks[c.Name] = append(said(c.Status.Conditions),
			fmt.Sprintf("expected %d healthy %d allowed %d targets %v observed %t cluster %s",
				ptr.Deref(c.Status.ExpectedMachines, -1), ptr.Deref(c.Status.CurrentHealthy, -1), ptr.Deref(c.Status.RemediationsAllowed, -1), c.Status.Targets,
				c.Status.ObservedGeneration == c.Generation, c.Labels[clusterv1.ClusterNameLabel]))
	}
	for _, req := range e.objectsOf(requestKind) {
		maker, _ := remediationrequest.MadeBy(req)
		o.Requests = append(o.Requests,
			fmt.Sprintf("%s made by %q, deleting %t", req.GetName(), maker.Name, req.GetDeletionTimestamp() != nil))
	}
	return o
}

// said returns conditions without their times. Only the message about a deadline contains a time.
func said(all []metav1.Condition) []string {
	lines := make([]string, 0, len(all))
	for _, c := range all {
		if c.Reason != "Test" {
			lines = append(lines, strings.Join([]string{c.Type, string(c.Status), c.Reason}, " "))
		}
	}
	slices.Sort(lines)
	return lines
}

func (e *environment) objectsOf(kind schema.GroupVersionKind) []*unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	e.must(e.api.List(e.ctx, list, client.InNamespace(e.namespace)))
	all := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// count adds up the metrics of begun and ended remediations over all instances of the program, because a series is removed with its check.
func (e *environment) count() {
	now := map[string]float64{}
	for _, c := range machinehealthcheck.Metrics() {
		if counter, is := c.(*prometheus.CounterVec); is {
			e.collect(counter, now)
		}
	}
	for what, n := range now {
		if more := n - e.record.counted[what]; more > 0 {
			e.record.counters[what] += more
		}
	}
	e.record.counted = now
}

func (e *environment) collect(from *prometheus.CounterVec, into map[string]float64) {
	all := make(chan prometheus.Metric)
	go func() {
		from.Collect(all)
		close(all)
	}()
	for m := range all {
		d := &dto.Metric{}
		e.must(m.Write(d))
		of, name := map[string]string{}, "started"
		for _, l := range d.GetLabel() {
			of[l.GetName()] = l.GetValue()
		}
		if of["namespace"] != e.namespace {
			continue
		}
		if of["result"] != "" {
			name = of["result"]
		}
		into[of["name"]+" "+of["kind"]+" "+name] += d.GetCounter().GetValue()
	}
}

const recordKind = "RemediationRecord"

// missing collects the machines for which the program got an error when it wrote their record.
func (e *environment) missing(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, obj, opts...)
			if is, record := obj.(*mendv1.RemediationRecord); record && err != nil && !e.writes.Crashed() {
				m := is.Spec.Target.Machine
				e.locked(func() { e.unrecorded[m.UID], e.record.machines[m.UID] = true, m.Name })
			}
			return err
		},
	})
}

// makeRecord creates a record. No other open record may be about the same machine, check and remediator.
func (e *environment) makeRecord(ctx context.Context, c client.Client, record *mendv1.RemediationRecord,
	opts ...client.CreateOption) error {
	if err := c.Create(ctx, record, opts...); err != nil {
		return err
	}
	m := record.Spec.Target.Machine
	e.locked(func() {
		e.record.machines[m.UID] = m.Name
		e.record.log = append(e.record.log, "recorded the remediation of "+m.Name)
		same := 0
		for _, open := range e.openRecords(m.UID) {
			if open.Spec.Remediator == record.Spec.Remediator && open.Spec.Requester.Check.UID == record.Spec.Requester.Check.UID {
				same++
			}
		}
		if same > 1 {
			e.t.Errorf("machine %s has %d open records of one remediation, after %q", m.Name, same, e.record.log)
		}
	})
	return nil
}

// isRecorded fails the test if the remediation of m, which begins now, has no record, or if its request names another one.
func (e *environment) isRecorded(m *clusterv1.Machine, named string) {
	found := false
	for _, open := range e.openRecords(string(m.UID)) {
		byOwner := named == "" && open.Spec.Remediator == mendv1.RemediatedByOwner
		if byOwner || named == records.Carried(&open, m.Namespace) {
			found, e.record.begun[open.Name] = true, true
		}
	}
	if !found && !e.unrecorded[string(m.UID)] {
		e.t.Errorf("the remediation of machine %s begins without the record %q, after %q", m.Name, named, e.record.log)
	}
}

func (e *environment) openRecords(uid string) []mendv1.RemediationRecord {
	all := &mendv1.RemediationRecordList{}
	e.must(e.api.List(e.ctx, all, client.InNamespace(e.namespace),
		client.MatchingLabels{mendv1.RecordOpenLabel: "true", mendv1.RecordTargetLabel: uid}))
	return all.Items
}

// recordsByMachine returns how many records of begun remediations each machine has, and how many records are of remediations that have not
// begun.
func (e *environment) recordsByMachine() (begun map[string]int, others int) {
	all := &mendv1.RemediationRecordList{}
	e.must(e.api.List(e.ctx, all, client.InNamespace(e.namespace)))
	begun = map[string]int{}
	for i := range all.Items {
		if e.record.begun[all.Items[i].Name] {
			begun[all.Items[i].Spec.Target.Machine.Name]++
		} else {
			others++
		}
	}
	return begun, others
}

// followRecords closes records as the manager does: those of machines that are deleted or healthy, and those whose remediation nothing
// requests any more.
func (e *environment) followRecords() {
	e.t.Helper()
	all := &mendv1.RemediationRecordList{}
	e.must(e.api.List(e.ctx, all, client.InNamespace(e.namespace), client.HasLabels{mendv1.RecordOpenLabel}))
	for i := range all.Items {
		record, m := &all.Items[i], &clusterv1.Machine{}
		target := record.Spec.Target.Machine
		err := e.api.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: target.Name}, m)
		e.must(client.IgnoreNotFound(err))
		there := err == nil && string(m.UID) == target.UID
		asked := statusOf(m, clusterv1.MachineOwnerRemediatedCondition) == "False" || e.requestOf(target.Name).GetUID() != ""
		if there && asked && statusOf(m, clusterv1.MachineHealthCheckSucceededCondition) == "False" {
			continue
		}
		record.Status.Ended = &metav1.Time{Time: e.clock.Now()}
		delete(record.Labels, mendv1.RecordOpenLabel)
		e.must(e.api.Update(e.ctx, record))
	}
}
