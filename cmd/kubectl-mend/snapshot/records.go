package snapshot

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
