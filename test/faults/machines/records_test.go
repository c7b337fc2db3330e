package machines

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// recordKind is the kind of the records.
const recordKind = "RemediationRecord"

// newRecords are those of one instance of the program, whose cache has all open ones.
func (e *environment) newRecords(c client.Client, live client.Reader) *records.Records {
	r := &records.Records{
		Client: c, Live: live, Clock: e.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	return r
}

// missing notes of which machines the program hears that their record could not be written.
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

// makeRecord creates a record, of which there must not be another open one for the same machine, by the same check and in the same way.
func (e *environment) makeRecord(ctx context.Context, c client.Client, record *mendv1.RemediationRecord, opts ...client.CreateOption) error {
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
	e.must(e.api.List(e.ctx, all, client.InNamespace(e.namespace), client.MatchingLabels{mendv1.RecordOpenLabel: "true", mendv1.RecordTargetLabel: uid}))
	return all.Items
}

// recordsByMachine is how many records each machine has of remediations that began, and how many there are of such as did not.
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

// followRecords closes the records of machines that are gone or healthy, or for whose remediation nothing asks any more, as the manager
// does.
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
