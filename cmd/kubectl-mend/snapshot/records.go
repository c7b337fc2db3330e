package snapshot

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var recordGVK = mendv1.GroupVersion.WithKind("RemediationRecord")

// Brief is a RemediationRecord that EachRecord gives away.
type Brief struct{ *mendv1.RemediationRecord }

// Whole is the whole record.
func (b Brief) Whole() (*mendv1.RemediationRecord, error) { return b.RemediationRecord, nil }

// EachRecord gives away the RemediationRecords of a namespace, or of all if that is empty. Where the kind is not installed, the error is one that
// apierrors.IsNotFound recognizes.
func EachRecord(ctx context.Context, config *rest.Config, namespace string, give func(Brief) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reader, err := client.New(config, client.Options{Scheme: New().scheme, Mapper: empty(New().scheme, recordsAlone).RESTMapper()})
	if err != nil {
		return fmt.Errorf("reach the management cluster: %w", err)
	}
	list := &mendv1.RemediationRecordList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), fromMemory()); err != nil {
		return err
	}
	for i := range list.Items {
		if err := give(Brief{&list.Items[i]}); err != nil {
			return err
		}
	}
	return nil
}

// recordsAlone is so that no API server has to be asked which kinds it serves.
var recordsAlone = []installed{{recordGVK, "remediationrecords", true}}

// records are the RemediationRecords, if they are wanted.
func (r *reading) records() []task {
	if !r.Records {
		return nil
	}
	return []task{{gvk: recordGVK, namespace: r.Namespace, options: r.labelled(), keep: func(o client.Object) bool {
		record, is := o.(*mendv1.RemediationRecord)
		return r.Cluster == "" || is && record.Spec.Target.ClusterName == r.Cluster
	}}}
}

// openRecords are the open RemediationRecords, if they are wanted: those of the namespace, and those of NodeHealthChecks, which are where their requests are.
// The API server looks through closed ones by a label.
func (r *reading) openRecords() []task {
	if !r.OpenRecords || r.Records {
		return nil
	}
	namespaces := []string{r.Namespace}
	for _, check := range All[nhcv1.NodeHealthCheck](r.snapshot, "") {
		for _, ref := range TemplatesOf(&check.Spec) {
			if r.Namespace != "" && ref.Namespace != "" && !slices.Contains(namespaces, ref.Namespace) {
				namespaces = append(namespaces, ref.Namespace)
			}
		}
	}
	tasks := make([]task, 0, len(namespaces))
	for _, namespace := range namespaces {
		tasks = append(tasks, task{gvk: recordGVK, namespace: namespace, options: []client.ListOption{client.MatchingLabels{mendv1.RecordOpenLabel: "true"}}})
	}
	return tasks
}
