package remediationrecord

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
	name, err := r.write(ctx, record, since, false)
	if err != nil { // another writer was faster, or the answer was lost: look past the cache
		name, err = r.write(ctx, record, since, true)
	}
	if err != nil {
		return "", fmt.Errorf("write the record of the remediation of %s %s: %w", TargetOf(record).Kind, TargetOf(record).Name, err)
	}
	return name, nil
}

// write writes into the open record of the remediation that it is about to begin, or creates one. It looks for an open one past the cache if late is set.
func (r *Records) write(ctx context.Context, record *mendv1.RemediationRecord, since string, late bool) (string, error) {
	open, err := r.open(ctx, record, late)
	if err != nil {
		return "", fmt.Errorf("look for an open one: %w", err)
	}
	if open == nil {
		return r.create(ctx, record, since)
	}
	return open.Name, r.attempt(ctx, open)
}

// errEnded says that the record that the cache shows as open has been closed.
var errEnded = errors.New("the record has ended meanwhile")

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

// open is the open record of the remediation of record; nil if there is none. What the cache does not show yet is looked for past it by the UID of the target,
// and everything if the cache was found to be late.
func (r *Records) open(ctx context.Context, record *mendv1.RemediationRecord, late bool) (*mendv1.RemediationRecord, error) {
	if there, err := r.known(ctx, record); there != nil || err != nil {
		return there, err
	}
	r.mu.Lock()
	cached := r.cached && !late && (r.Namespace == "" || r.Namespace == record.Namespace)
	r.mu.Unlock()
	among := client.MatchingLabels{mendv1.RecordOpenLabel: "true"}
	if cached {
		if there, err := find(ctx, r.Client, record, among); there != nil || err != nil {
			return there, err
		}
		among[mendv1.RecordTargetLabel] = TargetOf(record).UID
	}
	return find(ctx, r.Live, record, among)
}

// find is the open record of the remediation of record that reader has among those with these labels; nil if it has none.
func find(
	ctx context.Context, reader client.Reader, record *mendv1.RemediationRecord, among client.MatchingLabels,
) (*mendv1.RemediationRecord, error) {
	list := &mendv1.RemediationRecordList{}
	if err := reader.List(ctx, list, client.InNamespace(record.Namespace), among, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if there := &list.Items[i]; there.Open() && sameTarget(there, record) {
			return there.DeepCopy(), nil
		}
	}
	return nil, nil
}

// sameTarget reports whether two records are about the same target. Names tell after clusterctl has moved both, when all UIDs are others; and of a node
// without a Machine, for the same check: remediators delete nodes, and one that comes back has another UID.
func sameTarget(there, record *mendv1.RemediationRecord) bool {
	before, now := TargetOf(there), TargetOf(record)
	switch {
	case before.Kind != now.Kind || before.Namespace != now.Namespace || before.Name != now.Name:
		return false
	case before.UID == now.UID:
		return true
	case now.Kind == "Node":
		x, y := there.Spec.Requester.Check, record.Spec.Requester.Check
		return there.Spec.Target.ClusterName == record.Spec.Target.ClusterName && (x == nil) == (y == nil) &&
			(x == nil || x.Kind == y.Kind && x.Name == y.Name)
	}
	return Moved(there)
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

// create creates the record. If one that has ended has its name, of a remediation of the same target that did not begin, the next name is made of that.
func (r *Records) create(ctx context.Context, record *mendv1.RemediationRecord, since string) (string, error) {
	target := TargetOf(record)
	fresh := record.DeepCopy()
	metav1.SetMetaDataLabel(&fresh.ObjectMeta, mendv1.RecordOpenLabel, "true")
	metav1.SetMetaDataLabel(&fresh.ObjectMeta, mendv1.RecordTargetLabel, target.UID)
	fresh.Status.Attempted = new(metav1.NewTime(r.Clock.Now()))
	Bound(fresh)
	for ended := ""; ; {
		fresh.Name = nameOf(target.Name, target.UID, since, ended)
		err := r.Client.Create(ctx, fresh.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return fresh.Name, err
		}
		there := &mendv1.RemediationRecord{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(fresh), there); err != nil {
			return "", err
		}
		if there.Open() && sameTarget(there, record) {
			return there.Name, r.attempt(ctx, there)
		}
		ended = string(there.UID)
	}
}

// attempt writes that the remediation of a record is about to begin, unless that was written a moment ago. Where nothing is written, it is read whether the
// record is still open: a cache may have one that was closed by now, and that remediation is over.
func (r *Records) attempt(ctx context.Context, record *mendv1.RemediationRecord) error {
	now := r.Clock.Now()
	if record.Status.Begun != nil || record.Status.Attempted != nil && now.Sub(record.Status.Attempted.Time) < attemptEvery {
		there := &mendv1.RemediationRecord{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(record), there)
		if err == nil && (there.UID != record.UID || !there.Open()) {
			return errEnded
		}
		return err
	}
	changed := record.DeepCopy()
	changed.Status.Attempted = new(metav1.NewTime(now))
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(record, client.MergeFromWithOptimisticLock{}))
}

// nameOf is a name that begins with that of the target and ends with a hash of the parts.
func nameOf(target string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	const most = 253 - 1 - 10 // what an object's name may have, less the hash
	return strings.TrimRight(target[:min(len(target), most)], ".-") + "-" + hex.EncodeToString(sum[:5])
}
