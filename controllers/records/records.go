// Package records keeps the RemediationRecords: one is written before a remediation begins, follows it, and is closed when its end is known.
package records

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// +kubebuilder:rbac:groups=kubemend.io,resources=remediationrecords,verbs=create;delete;get;list;patch;watch

// CRD is the CustomResourceDefinition of RemediationRecords. Where it is not installed, remediations go on without records.
const CRD = "remediationrecords.kubemend.io"

// attemptEvery is how often it is written that a remediation is still about to begin. A record is cancelled much later than that (Unbegun).
const attemptEvery = time.Minute

// Records writes records. It is safe for concurrent use.
type Records struct {
	// Client writes, and reads open records from the cache that CacheOptions describe; Live reads past it.
	Client client.Client
	Live   client.Reader
	// Installed reports whether there is a CustomResourceDefinition of that name.
	Installed func(ctx context.Context, crd string) (bool, error)
	Clock     clock.PassiveClock
	// Namespace is the only one whose records the cache has; empty if it has those of all. A NodeHealthCheck's requests may be in another one.
	Namespace string

	mu     sync.Mutex
	cached bool
	// hear is called with checks of which something else is missing, followed reports that what is missing is known, and asked are those that asked before.
	hear     func(types.NamespacedName)
	followed bool
	asked    map[types.NamespacedName]bool
}

// identity is what no two open records share.
type identity struct {
	target string // UID
	in     string // namespace
}

// CacheOptions keep closed records out of the cache: there are many, and nothing is decided by them.
func CacheOptions() cache.ByObject {
	return cache.ByObject{Label: labels.SelectorFromSet(labels.Set{mendv1.RecordOpenLabel: "true"}), Transform: cache.TransformStripManagedFields()}
}

// Cached says that the cache has all open records, so that they need not be listed past it.
func (r *Records) Cached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cached = true
}

// Begin makes sure that there is an open record of a remediation that is about to begin, and returns its name. A process that is killed between this and
// the write that begins the remediation leaves a record that the next one finds, or that is cancelled after a while: never a remediation without a record.
//
// The caller gives the record's namespace, owners and spec. Its name is made of the target's and of since, by which remediations of one target differ and
// which a restart of the manager does not change, such as when the target was last healthy. The name is empty where records are not installed.
//
// A record that has a name already is the one of this remediation so far: it is taken as long as it is open, also if its target has another UID by now, as a
// node has that was deleted and came back.
func (r *Records) Begin(ctx context.Context, record *mendv1.RemediationRecord, since string) (string, error) {
	if installed, err := r.Installed(ctx, CRD); err != nil || !installed {
		return "", err
	}
	target := TargetOf(record)
	for again := range 3 {
		open, err := r.open(ctx, record, again > 0)
		if err != nil {
			return "", fmt.Errorf("look for the record of the remediation of %s %s: %w", target.Kind, target.Name, err)
		}
		if open != nil {
			if err = r.attempt(ctx, open); err == nil {
				return open.Name, nil
			}
		} else {
			var is string
			if is, err = r.create(ctx, record, since); err == nil {
				return is, nil
			}
		}
		if !errors.Is(err, errElsewhere) {
			return "", fmt.Errorf("write the record of the remediation of %s %s: %w", target.Kind, target.Name, err)
		}
	}
	return "", fmt.Errorf("write the record of the remediation of %s %s: it changes all the time", target.Kind, target.Name)
}

// errElsewhere says that another writer was faster: look again.
var errElsewhere = errors.New("the record was changed meanwhile")

// TargetOf is the object that a record is about: its Machine, or else its Node, or else its host.
func TargetOf(record *mendv1.RemediationRecord) mendv1.RecordRef {
	t := &record.Spec.Target
	for _, ref := range []*mendv1.RecordRef{t.Machine, t.Node, t.Host} {
		if ref != nil {
			return *ref
		}
	}
	return mendv1.RecordRef{}
}

func identityOf(record *mendv1.RemediationRecord) identity {
	return identity{TargetOf(record).UID, record.Namespace}
}

// open is the open record for the target of record; nil if there is none. What the cache does not show yet is looked for past it, and
// everything if the cache was found to be late.
func (r *Records) open(ctx context.Context, record *mendv1.RemediationRecord, late bool) (*mendv1.RemediationRecord, error) {
	if there, err := r.known(ctx, record); there != nil || err != nil {
		return there, err
	}
	r.mu.Lock()
	cached := r.cached && !late && (r.Namespace == "" || r.Namespace == record.Namespace)
	r.mu.Unlock()
	if !cached {
		return find(ctx, r.Live, record)
	}
	if there, err := find(ctx, r.Client, record); there != nil || err != nil {
		return there, err
	}
	return ofTarget(ctx, r.Live, record)
}

// find is the open record for the target of record that reader has, also if that had another UID when it was written; nil if it has none.
func find(ctx context.Context, reader client.Reader, record *mendv1.RemediationRecord) (*mendv1.RemediationRecord, error) {
	if there, err := ofTarget(ctx, reader, record); there != nil || err != nil {
		return there, err
	}
	among := client.MatchingLabels{mendv1.RecordOpenLabel: "true"}
	return first(ctx, reader, record.Namespace, among, func(there *mendv1.RemediationRecord) bool {
		return movedFrom(there, record) || cameBack(there, record)
	})
}

// ofTarget is the open record of the very target of record that reader has; nil if it has none.
func ofTarget(ctx context.Context, reader client.Reader, record *mendv1.RemediationRecord) (*mendv1.RemediationRecord, error) {
	is := identityOf(record)
	among := client.MatchingLabels{mendv1.RecordOpenLabel: "true", mendv1.RecordTargetLabel: is.target}
	return first(ctx, reader, record.Namespace, among, func(there *mendv1.RemediationRecord) bool { return identityOf(there) == is })
}

// first is the first open record in a namespace with these labels that matches; nil if there is none.
func first(
	ctx context.Context, reader client.Reader, namespace string, among client.MatchingLabels, matches func(*mendv1.RemediationRecord) bool,
) (*mendv1.RemediationRecord, error) {
	list := &mendv1.RemediationRecordList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), among, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if there := &list.Items[i]; there.Open() && matches(there) {
			return there.DeepCopy(), nil
		}
	}
	return nil, nil
}

// movedFrom reports whether there is the record of the target of record from before clusterctl moved both: then their UIDs differ, and the names tell.
func movedFrom(there, record *mendv1.RemediationRecord) bool {
	was, is := TargetOf(there), TargetOf(record)
	return Moved(there) && was.Kind == is.Kind && was.Namespace == is.Namespace && was.Name == is.Name
}

// Moved reports whether clusterctl has moved the record: its Cluster has another UID than when it was written.
func Moved(is *mendv1.RemediationRecord) bool {
	was := is.Spec.Target.ClusterUID
	for _, owner := range is.OwnerReferences {
		if was != "" && owner.Kind == clusterv1.ClusterKind &&
			schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == clusterv1.GroupVersion.Group {
			return string(owner.UID) != was
		}
	}
	return false
}

// cameBack reports whether there is the record of a node of that name, without a Machine, for the same check. Remediators delete nodes: one that comes back
// has another UID, and if it is unhealthy still, or again, before the record has ended, that is the same remediation.
func cameBack(there, record *mendv1.RemediationRecord) bool {
	was, is := &there.Spec, &record.Spec
	if was.Target.Machine != nil || is.Target.Machine != nil || was.Target.Node == nil || is.Target.Node == nil {
		return false
	}
	x, y := was.Requester.Check, is.Requester.Check
	return was.Target.Node.Name == is.Target.Node.Name && was.Target.ClusterName == is.Target.ClusterName &&
		(x == nil) == (y == nil) && (x == nil || x.Kind == y.Kind && x.Name == y.Name)
}

// known is the record that record names; nil if it names none, or that is not open.
func (r *Records) known(ctx context.Context, record *mendv1.RemediationRecord) (*mendv1.RemediationRecord, error) {
	if record.Name == "" {
		return nil, nil
	}
	there := &mendv1.RemediationRecord{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(record), there)
	if err != nil || !there.Open() {
		return nil, client.IgnoreNotFound(err)
	}
	return there, nil
}

// create creates the record.
func (r *Records) create(ctx context.Context, record *mendv1.RemediationRecord, since string) (string, error) {
	is, now := identityOf(record), metav1.NewTime(r.Clock.Now())
	fresh := record.DeepCopy()
	if fresh.Labels == nil {
		fresh.Labels = map[string]string{}
	}
	fresh.Labels[mendv1.RecordOpenLabel], fresh.Labels[mendv1.RecordTargetLabel] = "true", is.target
	fresh.Status.Attempted = &now
	Bound(fresh)
	for ended := ""; ; {
		fresh.Name = nameOf(TargetOf(record).Name, is.target, since, ended)
		err := r.Client.Create(ctx, fresh.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return fresh.Name, err
		}
		there := &mendv1.RemediationRecord{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(fresh), there); err != nil {
			if apierrors.IsNotFound(err) {
				return "", errElsewhere
			}
			return "", err
		}
		if there.Open() && identityOf(there) == is {
			return there.Name, r.attempt(ctx, there)
		}
		if ended == string(there.UID) {
			return "", errElsewhere
		}
		ended = string(there.UID) // of the same target, from the same moment, and closed: that remediation did not begin, or is over
	}
}

// attempt writes that the remediation of a record is about to begin, unless that was written a moment ago. Where nothing is written, it is read whether the
// record is still open: a cache may have one that was closed by now, and that remediation is over.
func (r *Records) attempt(ctx context.Context, record *mendv1.RemediationRecord) error {
	now := r.Clock.Now()
	if record.Status.Begun != nil || record.Status.Attempted != nil && now.Sub(record.Status.Attempted.Time) < attemptEvery {
		return r.stillOpen(ctx, record)
	}
	changed := record.DeepCopy()
	changed.Status.Attempted = new(metav1.NewTime(now))
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(record, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errElsewhere
	}
	return err
}

// stillOpen is errElsewhere if the record has been closed or deleted.
func (r *Records) stillOpen(ctx context.Context, record *mendv1.RemediationRecord) error {
	there := &mendv1.RemediationRecord{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(record), there)
	if apierrors.IsNotFound(err) || err == nil && (there.UID != record.UID || !there.Open()) {
		return errElsewhere
	}
	return err
}

// nameOf is a name that begins with that of the target and ends with a hash of the parts.
func nameOf(target string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	const most = 253 - 1 - 10 // what an object's name may have, less the hash
	return strings.TrimRight(target[:min(len(target), most)], ".-") + "-" + hex.EncodeToString(sum[:5])
}
