package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/report"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// reportInput is what a report is made of.
type reportInput struct {
	now          time.Time
	namespace    string
	remediations []report.Remediation
	// installed says that there is a kind for records.
	installed bool
	checks    []report.Check
	events    []eventsv1.Event
	// trouble is what could not be read.
	trouble []string
}

// recordsIn reads the records of a namespace, or of all if it is empty, and gives each of them away, maybe several at once. It is false where their kind is not
// installed.
type recordsIn func(ctx context.Context, namespace string, give func(snapshot.Brief) error) (bool, error)

// eachRecord reads records as one stream.
func eachRecord(config *rest.Config) recordsIn {
	return func(ctx context.Context, namespace string, give func(snapshot.Brief) error) (bool, error) {
		err := snapshot.EachRecord(ctx, config, namespace, give)
		return !apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// recordsOf reads records as a list.
func recordsOf(reader client.Reader) recordsIn {
	return func(ctx context.Context, namespace string, give func(snapshot.Brief) error) (bool, error) {
		list := &mendv1.RemediationRecordList{}
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); meta.IsNoMatchError(err) {
			return false, nil
		} else if err != nil {
			return true, err
		}
		for i := range list.Items {
			if err := give(snapshot.Brief{RemediationRecord: &list.Items[i]}); err != nil {
				return true, err
			}
		}
		return true, nil
	}
}

// recordSource is where records are read, and everything else, and what time it is there.
func (o *Options) recordSource() (recordsIn, client.Reader, func() time.Time, error) {
	if o.from != "" {
		w, err := load(o.from)
		if err != nil {
			return nil, nil, nil, err
		}
		return recordsOf(w.ReadOnly()), w.ReadOnly(), w.Clock.Now, nil
	}
	config, err := o.config()
	if err != nil {
		return nil, nil, nil, err
	}
	reader, err := o.client()
	return eachRecord(config), reader, o.Clock.Now, err
}

// readReport reads what a report is made of. Without records there is none; what else may not be read is done without, and said.
func (o *Options) readReport(ctx context.Context, shortCircuits bool) (*reportInput, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	records, reader, now, err := o.recordSource()
	if err != nil {
		return nil, err
	}
	is := &reportInput{namespace: namespace}
	var others sync.WaitGroup
	if shortCircuits {
		others.Go(func() { is.readChecks(ctx, reader, namespace, o.from == "") })
	}
	var mu sync.Mutex
	is.installed, err = records(ctx, namespace, func(record snapshot.Brief) error {
		r := report.RemediationOf(record.RemediationRecord)
		mu.Lock()
		defer mu.Unlock()
		is.remediations = append(is.remediations, r)
		return nil
	})
	others.Wait()
	if err != nil {
		return nil, fmt.Errorf("RemediationRecords: %w", err)
	}
	o.sayClock()
	is.now = now()
	return is, nil
}

// readChecks reads the checks, and the events about whether they are short-circuited; by their reasons where that can be asked for.
func (is *reportInput) readChecks(ctx context.Context, reader client.Reader, namespace string, byReason bool) {
	h := &historian{Reader: reader}
	var checks clusterv1.MachineHealthCheckList
	var nodeChecks nhcv1.NodeHealthCheckList
	h.list(ctx, &checks, namespace, "MachineHealthChecks")
	h.list(ctx, &nodeChecks, "", "NodeHealthChecks")
	for i := range checks.Items {
		c := &checks.Items[i]
		is.checks = append(is.checks, report.Check{
			Ref:     explain.Ref{Kind: string(machineCheckKind), Namespace: c.Namespace, Name: c.Name},
			Cluster: c.Spec.ClusterName, Allowed: meta.FindStatusCondition(c.Status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition),
		})
	}
	for i := range nodeChecks.Items {
		c := &nodeChecks.Items[i]
		is.checks = append(is.checks, report.Check{
			Ref:     explain.Ref{Kind: string(nodeCheckKind), Name: c.Name},
			Allowed: meta.FindStatusCondition(c.Status.Conditions, nhcv1.RemediationAllowedCondition),
		})
	}
	reasons := []string{mendv1.EventRemediationRestricted, mendv1.EventRemediationAllowed}
	if !byReason {
		reasons = []string{""}
	}
	for _, reason := range reasons {
		var events eventsv1.EventList
		var options []client.ListOption
		if reason != "" {
			options = []client.ListOption{client.MatchingFields{"reason": reason}}
		}
		h.list(ctx, &events, namespace, "events", options...)
		is.events = append(is.events, events.Items...)
		if len(nodeChecks.Items) > 0 && namespace != "" && namespace != metav1.NamespaceDefault { // where those about checks of nodes are
			events = eventsv1.EventList{}
			h.list(ctx, &events, metav1.NamespaceDefault, "events about nodes", options...)
			is.events = append(is.events, events.Items...)
		}
	}
	is.trouble = slices.Compact(h.trouble)
}

// recordsFor are the records that keep wants, as they are whole.
func recordsFor(ctx context.Context, records recordsIn, namespace string, keep func(*mendv1.RemediationRecord) bool) ([]mendv1.RemediationRecord, error) {
	var mu sync.Mutex
	var all []mendv1.RemediationRecord
	_, err := records(ctx, namespace, func(record snapshot.Brief) error {
		if !keep(record.RemediationRecord) {
			return nil
		}
		whole, err := record.Whole()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, *whole)
		return nil
	})
	slices.SortFunc(all, func(a, b mendv1.RemediationRecord) int { // several are parsed at once
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, err
}
