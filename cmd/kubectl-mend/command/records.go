package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// listRecords lists the RemediationRecords of a namespace, or of all if it is empty, by name. It is false where their kind is not installed.
func listRecords(ctx context.Context, reader client.Reader, namespace string) ([]*mendv1.RemediationRecord, bool, error) {
	list := &mendv1.RemediationRecordList{}
	err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	switch {
	case meta.IsNoMatchError(err):
		return nil, false, nil
	case err != nil:
		return nil, true, fmt.Errorf("RemediationRecords: %w", err)
	}
	records := make([]*mendv1.RemediationRecord, len(list.Items))
	for i := range list.Items {
		records[i] = &list.Items[i]
	}
	slices.SortFunc(records, func(a, b *mendv1.RemediationRecord) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return records, true, nil
}
