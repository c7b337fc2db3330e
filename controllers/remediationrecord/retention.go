package remediationrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/shard"
)

// sweepEvery is how often closed records are looked for that are too old, or too many.
const sweepEvery = time.Hour

// pageSize is how many records are read at a time, without their content.
const pageSize = 500

// clocksDiffer is by how much clocks may differ. A record that has ended later than that would be the newest one, and push out others, for ever.
const clocksDiffer = time.Hour

// Retention deletes closed records that are too old or too many, the oldest first. It reads their metadata, past the caches.
type Retention struct {
	Client client.Client
	Live   client.Reader
	Clock  clock.WithTicker
	// Server is the time of the API server; false if it is not known. Without it, Clock is believed alone.
	Server func() (now time.Time, known bool)
	Options
	// Namespace is the only one it looks at; empty for all. WatchFilterValue and Nodes are those of the Reconciler.
	Namespace, WatchFilterValue string
	Nodes                       bool

	closed chan place
}

// place is where a record was closed: one of a Cluster, or of none.
type place struct{ namespace, cluster string }

// closedRecord is what is known of a closed record: the cluster and the host are as labels have them.
type closedRecord struct {
	key           client.ObjectKey
	cluster, host string
	ended         time.Time
	uid           types.UID
}

// NewRetention returns r, ready to hear of records that are closed.
func NewRetention(r *Retention) *Retention {
	r.closed = make(chan place, 1024)
	return r
}

// Closed has r look soon at the Cluster of a record that was closed.
func (r *Retention) Closed(is *mendv1.RemediationRecord) {
	select {
	case r.closed <- place{is.Namespace, is.Spec.Target.ClusterName}:
	default: // the hourly look finds it
	}
}

// Start implements manager.Runnable.
func (r *Retention) Start(ctx context.Context) error {
	ticker := r.Clock.NewTicker(sweepEvery)
	defer ticker.Stop()
	r.sweep(ctx, nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			r.sweep(ctx, nil)
		case first := <-r.closed:
			for at := range r.drain(first) {
				r.sweep(ctx, &at)
			}
		}
	}
}

// drain returns all places of which r has heard, each once.
func (r *Retention) drain(first place) map[place]bool {
	all := map[place]bool{first: true}
	for {
		select {
		case next := <-r.closed:
			all[next] = true
		default:
			return all
		}
	}
}

// sweep deletes what is too much in a place, or everywhere. What fails is tried again in an hour.
func (r *Retention) sweep(ctx context.Context, at *place) {
	if err := r.Sweep(ctx, at); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "Deleting old records failed, retrying in an hour")
	}
}

// Sweep deletes what is too much in a place or, if it is nil, everywhere.
func (r *Retention) Sweep(ctx context.Context, at *place) error {
	all, err := r.list(ctx, at)
	if err != nil {
		return err
	}
	var errs []error
	for _, is := range r.excess(all, r.surely(r.Clock.Now())) {
		errs = append(errs, r.delete(ctx, is))
	}
	return errors.Join(errs...)
}

// surely is the moment by which a record has to be too old to be deleted: the earlier one of this machine's clock, own, and of the API server's. By a
// clock that is ahead all records would be. While that of the API server is not known it is zero, and none is too old.
func (r *Retention) surely(own time.Time) time.Time {
	if r.Server == nil {
		return own
	}
	if server, known := r.Server(); !known || server.Before(own) {
		return server
	}
	return own
}

// excessive is a record to be deleted, and why.
type excessive struct {
	closedRecord
	why string
}

// excess are the records to be deleted.
func (r *Retention) excess(all []closedRecord, now time.Time) []excessive {
	slices.SortFunc(all, func(a, b closedRecord) int { // the newest first
		return cmp.Or(b.ended.Compare(a.ended), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	type of struct{ namespace, name string }
	clusters, hosts := map[of]int{}, map[of]int{}
	var excess []excessive
	for _, is := range all {
		cluster, host := of{is.key.Namespace, is.cluster}, of{is.key.Namespace, is.host}
		switch {
		case now.Sub(is.ended) >= r.Keep:
			excess = append(excess, excessive{is, "Old"})
		case is.host != "" && hosts[host] >= r.PerHost:
			excess = append(excess, excessive{is, "Host"})
		case clusters[cluster] >= r.PerCluster:
			excess = append(excess, excessive{is, "Cluster"})
		default:
			clusters[cluster]++
			hosts[host]++
		}
	}
	slices.Reverse(excess)
	return excess
}

// list reads the metadata of closed records, page by page.
func (r *Retention) list(ctx context.Context, at *place) ([]closedRecord, error) {
	selector := client.MatchingLabels{}
	options := []client.ListOption{client.Limit(pageSize), client.InNamespace(r.Namespace), notOpen}
	if at != nil {
		options[1] = client.InNamespace(at.namespace)
		if at.cluster != "" {
			selector[clusterv1.ClusterNameLabel] = format.MustFormatValue(at.cluster)
		}
	}
	var all []closedRecord
	clusters := map[client.ObjectKey]*clusterv1.Cluster{}
	for next := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(mendv1.GroupVersion.WithKind("RemediationRecordList"))
		err := r.Live.List(ctx, page, append(options, selectorOf(selector), client.Continue(next))...)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			return nil, nil
		case apierrors.IsResourceExpired(err): // it took minutes; what was seen is enough for now
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("list closed RemediationRecords: %w", err)
		}
		for i := range page.Items {
			is, covered, err := r.look(ctx, &page.Items[i], clusters)
			if err != nil {
				return nil, err
			}
			if covered && (at == nil || is.cluster == selector[clusterv1.ClusterNameLabel]) {
				all = append(all, is)
			}
		}
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// look is what is known of a record, and whether it is this manager's.
func (r *Retention) look(ctx context.Context, is *metav1.PartialObjectMetadata, clusters map[client.ObjectKey]*clusterv1.Cluster) (closedRecord, bool, error) {
	k := closedRecord{
		key: client.ObjectKeyFromObject(is), uid: is.UID, host: is.Labels[mendv1.RecordHostLabel], ended: is.CreationTimestamp.Time,
	}
	at, err := time.Parse(time.RFC3339, is.Annotations[mendv1.RecordEndedAnnotation])
	if now := r.surely(r.Clock.Now()); err == nil && (now.IsZero() || at.Sub(now) <= clocksDiffer) {
		k.ended = at
	}
	name := ""
	for _, owner := range is.OwnerReferences {
		if owner.Kind == clusterv1.ClusterKind {
			name = owner.Name
		}
	}
	if name == "" { // whatever its label says, it takes no other's place
		return k, r.Nodes, nil
	}
	k.cluster = format.MustFormatValue(name)
	if r.WatchFilterValue == "" {
		return k, true, nil
	}
	key := client.ObjectKey{Namespace: is.Namespace, Name: name}
	cluster, known := clusters[key]
	if !known {
		cluster = &clusterv1.Cluster{}
		err := r.Client.Get(ctx, key, cluster)
		if client.IgnoreNotFound(err) != nil {
			return k, false, fmt.Errorf("read Cluster %s: %w", key, err)
		}
		if err != nil {
			cluster = nil
		}
		clusters[key] = cluster
	}
	return k, shard.Covers(r.WatchFilterValue, is, cluster), nil
}

// expired reports whether an open record is too old to be kept: nothing was found out about it for as long as records are kept, such as for want of a right,
// so that nothing will close it.
func (r *Retention) expired(o *observed) bool {
	return !o.facts.Paused && o.unfollowed() && r.Keep > 0 && r.surely(o.now).Sub(o.lastKnown()) >= r.Keep
}

// remove deletes an open record that has expired.
func (r *Retention) remove(ctx context.Context, is *mendv1.RemediationRecord) error {
	return r.delete(ctx, excessive{closedRecord{key: client.ObjectKeyFromObject(is), uid: is.UID}, "Unread"})
}

// delete deletes a record that is still the one that was seen.
func (r *Retention) delete(ctx context.Context, is excessive) error {
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: is.key.Namespace, Name: is.key.Name}}
	err := r.Client.Delete(ctx, record, client.Preconditions{UID: ptr.To(is.uid)})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete RemediationRecord %s: %w", is.key, err)
	}
	deleted.WithLabelValues(is.why).Inc()
	return nil
}
