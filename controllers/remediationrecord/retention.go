package remediationrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/flags"
)

// retireEvery is how often the closed records of a Cluster are listed at most: a hundred that close at once would list a thousand each.
const retireEvery = time.Minute

// retire deletes closed records of the Cluster of record, which was just closed: those that ended more than --record-retention before
// record was created, and the oldest beyond --records-per-cluster, unless they still count for repeats. The API server sets the
// creationTimestamp, so a manager whose clock is ahead deletes nothing by age. Records without a Cluster count together in their namespace.
func (r *Reconciler) retire(ctx context.Context, record *mendv1.RemediationRecord) error {
	label := record.Labels[clusterv1.ClusterNameLabel]
	cluster, now := types.NamespacedName{Namespace: record.Namespace, Name: label}, r.Clock.Now()
	if listed, known := r.retired.Load(cluster); known && now.Sub(listed.(time.Time)) < retireEvery {
		return nil
	}
	r.retired.Store(cluster, now)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mendv1.GroupVersion.WithKind("RemediationRecordList"))
	of := client.MatchingLabels{}
	if label != "" {
		of[clusterv1.ClusterNameLabel] = label
	}
	if err := r.Live.List(ctx, list, client.InNamespace(record.Namespace), of); err != nil {
		return fmt.Errorf("list the records of Cluster %s: %w", cluster, err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(item metav1.PartialObjectMetadata) bool {
		return item.Labels[mendv1.RecordOpenLabel] == "true" || item.Labels[clusterv1.ClusterNameLabel] != label
	})
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { // the newest first
		return cmp.Or(r.endOf(&b).Compare(r.endOf(&a)), cmp.Compare(a.Name, b.Name))
	})
	var errs []error
	for i := range list.Items {
		item := &list.Items[i]
		_, cached := item.Labels[mendv1.RecordOpenLabel]
		switch {
		case cached && now.Sub(r.endOf(item)) < repeats.Remembered:
		case record.CreationTimestamp.Sub(r.endOf(item)) >= r.Retention.Keep:
			errs = append(errs, r.remove(ctx, item, "Old"))
		case i >= r.Retention.PerCluster:
			errs = append(errs, r.remove(ctx, item, "Cluster"))
		}
	}
	return errors.Join(errs...)
}

// endOf returns when a closed record ended. A time in the future, from a manager whose clock was ahead, would keep the record for ever as
// the newest, so that endOf returns its creationTimestamp instead.
func (r *Reconciler) endOf(record *metav1.PartialObjectMetadata) time.Time {
	ended, err := time.Parse(time.RFC3339, record.Annotations[mendv1.RecordEndedAnnotation])
	if err != nil || ended.After(r.Clock.Now()) {
		return record.CreationTimestamp.Time
	}
	return ended
}

// expired reports whether nothing was found out about an open record for as long as records are kept, such as for a missing right. Nothing
// would ever close that record.
func (r *Reconciler) expired(o *observed) bool {
	t, known := &o.facts.Target, o.facts.Decided
	if n := len(o.facts.Status.Steps); n > 0 && o.facts.Status.Steps[n-1].Time.After(known) {
		known = o.facts.Status.Steps[n-1].Time.Time
	}
	followed := t.Known && (!t.Machine || !t.leaving() || o.facts.Capacity.Known)
	return !o.facts.Paused && !followed && r.Retention.Keep > 0 && o.now.Sub(known) >= r.Retention.Keep
}

// remove deletes a record, unless another one has its name by now.
func (r *Reconciler) remove(ctx context.Context, record client.Object, why string) error {
	seen := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: record.GetNamespace(), Name: record.GetName()}}
	err := r.Client.Delete(ctx, seen, client.Preconditions{UID: new(record.GetUID())})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete RemediationRecord %s: %w", client.ObjectKeyFromObject(record), err)
	}
	deleted.WithLabelValues(why).Inc()
	return nil
}

// Options are the settings for RemediationRecords.
type Options struct {
	// Keep is how long a record is kept after its end. PerCluster is how many closed records of a Cluster are kept.
	Keep       time.Duration
	PerCluster int
}

// AddFlags adds the flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Keep, "record-retention", 30*24*time.Hour,
		"How long a RemediationRecord is kept after it was closed. Older ones are deleted when another one of their Cluster is closed.")
	fs.IntVar(&o.PerCluster, "records-per-cluster", 1000,
		"How many closed RemediationRecords are kept of each Cluster, and of those without a Cluster in each namespace. "+
			"The oldest are deleted first.")
}

// Validate returns everything that is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return errors.Join(flags.Positive("record-retention", o.Keep), flags.Positive("records-per-cluster", o.PerCluster))
}
