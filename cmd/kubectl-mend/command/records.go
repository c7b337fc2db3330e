package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// recordReader reads the records of a namespace, or of all if it is empty, and gives each of them away, maybe several at once. It is false
// where their kind is not installed.
type recordReader func(ctx context.Context, namespace string, give func(snapshot.Brief) error) (bool, error)

// streamed reads records as one stream.
func streamed(config *rest.Config) recordReader {
	return func(ctx context.Context, namespace string, give func(snapshot.Brief) error) (bool, error) {
		err := snapshot.EachRecord(ctx, config, namespace, give)
		return !apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// listedBy reads records as a list.
func listedBy(reader client.Reader) recordReader {
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
func (o *Options) recordSource() (recordReader, client.Reader, func() time.Time, error) {
	if o.from != "" {
		recorded, err := load(o.from)
		if err != nil {
			return nil, nil, nil, err
		}
		return listedBy(recorded.ReadOnly()), recorded.ReadOnly(), recorded.Clock.Now, nil
	}
	config, err := o.config()
	if err != nil {
		return nil, nil, nil, err
	}
	reader, err := o.client()
	return streamed(config), reader, o.Clock.Now, err
}

// records are those that take returns one of. It is false where their kind is not installed.
func (read recordReader) records(
	ctx context.Context, namespace string, take func(snapshot.Brief) (*mendv1.RemediationRecord, error),
) ([]*mendv1.RemediationRecord, bool, error) {
	var mu sync.Mutex
	var records []*mendv1.RemediationRecord
	installed, err := read(ctx, namespace, func(brief snapshot.Brief) error {
		record, err := take(brief)
		if record == nil || err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		records = append(records, record)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("RemediationRecords: %w", err)
	}
	slices.SortFunc(records, func(a, b *mendv1.RemediationRecord) int { // several are parsed at once
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return records, installed, err
}
