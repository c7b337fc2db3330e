package remediationrecord

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// +kubebuilder:rbac:groups=kubemend.io,resources=remediationrecords,verbs=create;delete;get;list;patch;watch

const (
	// CRD is the CustomResourceDefinition of RemediationRecords. Where it is not installed, remediations go on without records.
	CRD = "remediationrecords.kubemend.io"
	// AheadWithin is how long a remediation waits for its record at most, such as for an admission webhook that does not answer.
	AheadWithin = 5 * time.Second
	// attemptEvery is how often Attempted is updated while a remediation is about to begin. It is much shorter than Unbegun.
	attemptEvery = time.Minute
)

var failed = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kubemend_remediation_records_failed_total",
	Help: "Remediations that went on although their RemediationRecord could not be written, by kind of the check or of the remediation.",
}, []string{"kind"})

// Records writes records before remediations begin. A nil Records writes none. It is safe for concurrent use.
type Records struct {
	// Client writes records, and reads open ones from the cache that CacheOptions describe. Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Installed reports whether the CustomResourceDefinition of that name exists.
	Installed func(ctx context.Context, crd string) (bool, error)
	Clock     clock.PassiveClock

	// Hosts finds the host that a record names; nil to name none.
	Hosts Metal

	// Missing sends the names of MachineHealthChecks for which the missing capacity, or its reason, has changed.
	Missing enqueue.Broadcast[types.NamespacedName]
	// changes passes events from the watches of other controllers to Reconciler.
	changes enqueue.Broadcast[client.Object]
	mu      sync.Mutex
	// synced reports whether the cache has all open records; nil until Reconciler is set up.
	synced func() bool
	asked  sync.Once
	// awaited is until when remediations wait for synced. The first that waits sets it.
	awaited time.Time
}

// CacheOptions keep closed records out of the cache, except for those that still count (for repeats or policies) and keep the label.
func CacheOptions() cache.ByObject {
	labelled, err := labels.Parse(mendv1.RecordOpenLabel)
	utilruntime.Must(err)
	return cache.ByObject{Label: labelled, Transform: cache.TransformStripManagedFields()}
}

// Begin returns the open record of a remediation that is about to begin, and creates it if needed. If that fails, Begin logs the error,
// counts it by kind and returns nil: the remediation goes on without a record.
//
// The caller sets the record's namespace, owners and spec. The name is made of the target and since, a value that differs between
// remediations of one target and survives a restart, such as when the target was last healthy. If the manager is killed before the
// remediation begins, the next process finds the record by its name, or the record is cancelled after Unbegun. If record has a name and a
// UID already, a request of this remediation carries it, and Begin uses it while it is open.
func (r *Records) Begin(ctx context.Context, kind string, record *mendv1.RemediationRecord, since string) *mendv1.RemediationRecord {
	if r == nil {
		return nil
	}
	within, done := context.WithTimeout(ctx, AheadWithin)
	defer done()
	written, err := r.write(within, record, since)
	if err != nil { // maybe only the response was lost; then the second try finds the record
		written, err = r.write(within, record, since)
	}
	if err != nil {
		target := TargetOf(record)
		failed.WithLabelValues(kind).Inc()
		log.FromContext(ctx).Error(err, "The remediation goes on without a record", target.Kind, klog.KRef(target.Namespace, target.Name))
		return nil
	}
	return written
}

// write returns the record that record names, or creates one if that is not open. If the name of the new record is taken by a record that
// has ended, is of another remediation or was created by another client, write hashes the UID of that record into the next name. It deletes
// an open record of this remediation that has not begun and has another spec, since a spec never changes and the check may have found
// something else.
func (r *Records) write(ctx context.Context, record *mendv1.RemediationRecord, since string) (*mendv1.RemediationRecord, error) {
	if installed, err := r.Installed(ctx, CRD); err != nil || !installed {
		return nil, err
	}
	if there, err := r.known(ctx, record); there != nil || err != nil {
		return there, err
	}
	target, fresh := TargetOf(record), openRecord(record, r.Clock.Now())
	for other := ""; ; {
		fresh.Name = nameOf(target.Name, target.UID, since, other)
		written := fresh.DeepCopy()
		err := r.Client.Create(ctx, written)
		if err == nil {
			return written, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create the record of %s %s: %w", target.Kind, target.Name, err)
		}
		there := &mendv1.RemediationRecord{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(fresh), there); err != nil {
			return nil, fmt.Errorf("read the record of %s %s: %w", target.Kind, target.Name, err)
		}
		if !sameRemediation(there, fresh) {
			other = string(there.UID)
			continue
		}
		if there.Status.Begun != nil || sameDecision(there.Spec, fresh.Spec) {
			return there, r.attempt(ctx, there)
		}
		unchanged := client.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion}
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, there, unchanged)); err != nil {
			return nil, fmt.Errorf("delete record %s, which says another thing of %s %s: %w", there.Name, target.Kind, target.Name, err)
		}
	}
}

func openRecord(record *mendv1.RemediationRecord, now time.Time) *mendv1.RemediationRecord {
	fresh := record.DeepCopy()
	metav1.SetMetaDataLabel(&fresh.ObjectMeta, mendv1.RecordOpenLabel, "true")
	metav1.SetMetaDataLabel(&fresh.ObjectMeta, mendv1.RecordTargetLabel, TargetOf(record).UID)
	if host := fresh.Spec.Target.Host; host != nil {
		metav1.SetMetaDataLabel(&fresh.ObjectMeta, mendv1.RecordHostLabel, format.MustFormatValue(host.Name))
	}
	fresh.UID, fresh.Status.Attempted = "", new(metav1.NewTime(now))
	Bound(fresh)
	return fresh
}

// sameRemediation reports whether there, which has the name of fresh, is a record of the same remediation. Their evidence may differ. A
// record that is being deleted does not count: write would delete it again and again while it has a finalizer.
func sameRemediation(there, fresh *mendv1.RemediationRecord) bool {
	about := TargetOf(there) == TargetOf(fresh) && there.Spec.Remediator == fresh.Spec.Remediator
	return about && there.Open() && there.DeletionTimestamp.IsZero() && madeBy(there) == ""
}

// sameDecision reports whether two specs are stored the same, with times in seconds, apart from the time of the decision and the counts of
// the check, which change with other targets.
func sameDecision(a, b mendv1.RemediationRecordSpec) bool {
	a.Decided, a.Counts = b.Decided, b.Counts
	stored, err := json.Marshal(a)
	fresh, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(stored, fresh)
}

// known returns the open record that a request of this remediation carries; nil if no request carries one.
func (r *Records) known(ctx context.Context, record *mendv1.RemediationRecord) (*mendv1.RemediationRecord, error) {
	if record.Name == "" {
		return nil, nil
	}
	there := &mendv1.RemediationRecord{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(record), there)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the record that a request carries: %w", err)
	}
	if there.Name == "" || !there.Open() || there.UID != record.UID && !Moved(there) {
		return nil, nil
	}
	return there, r.attempt(ctx, there)
}

// attempt updates Attempted of a record that has not begun, at most once per attemptEvery.
func (r *Records) attempt(ctx context.Context, record *mendv1.RemediationRecord) error {
	now := r.Clock.Now()
	if record.Status.Begun != nil || record.Status.Attempted != nil && now.Sub(record.Status.Attempted.Time) < attemptEvery {
		return nil
	}
	before := record.DeepCopy()
	record.Status.Attempted = new(metav1.NewTime(now))
	if err := r.Client.Patch(ctx, record, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write that the remediation of record %s is about to begin: %w", record.Name, err)
	}
	return nil
}

// Began writes that the remediation has begun: by req or, if req is nil, by asking the owner of the Machine. It does not leave that to
// Reconciler, because the owner may delete the Machine at once, and the request may be deleted at once if the node recovers. Then nothing
// would show any more that the remediation has begun.
func (r *Records) Began(ctx context.Context, record *mendv1.RemediationRecord, req *unstructured.Unstructured) {
	if r == nil || record == nil || record.Status.Begun != nil {
		return
	}
	facts := Facts{Now: r.Clock.Now(), Decided: record.Spec.Decided.Time, Status: record.Status}
	facts.Target = Target{RecordRef: TargetOf(record), Known: true, Exists: true}
	if req == nil {
		facts.Target.Asked = facts.Now
	} else {
		facts.Requests = []Request{{RecordRef: refTo(req, req.GroupVersionKind()), Created: req.GetCreationTimestamp().Time}}
	}
	after := record.DeepCopy()
	after.Status = statusOf(&observed{record: record, facts: facts}, Decide(facts))
	Bound(after)
	within, done := context.WithTimeout(ctx, AheadWithin)
	defer done()
	if err := r.Client.Patch(within, after, client.MergeFromWithOptions(record, client.MergeFromWithOptimisticLock{})); err != nil {
		log.FromContext(ctx).V(1).Info("Writing that a remediation was begun is left to the controller of records",
			"RemediationRecord", klog.KObj(record), "error", err.Error())
	}
}

// Carry annotates a remediation request, before it is created, with the record that it carries. Reconciler ignores requests without it.
func Carry(req metav1.Object, record *mendv1.RemediationRecord) {
	if record == nil {
		return
	}
	marks := maps.Clone(req.GetAnnotations())
	if marks == nil {
		marks = map[string]string{}
	}
	marks[mendv1.RecordAnnotation] = Carried(record, req.GetNamespace())
	req.SetAnnotations(marks)
}

// Carried returns the value of the annotation with which an object in namespace carries record.
func Carried(record *mendv1.RemediationRecord, namespace string) string {
	value := record.Name
	if record.Namespace != namespace {
		value = record.Namespace + "/" + value
	}
	if record.UID != "" {
		value += "@" + string(record.UID)
	}
	return value
}

// CarriedBy returns the record that a request carries; zero if it carries none.
func CarriedBy(req metav1.Object) (record types.NamespacedName, uid types.UID) {
	return carriedIn(req.GetAnnotations()[mendv1.RecordAnnotation], req.GetNamespace())
}

func carriedIn(value, namespace string) (record types.NamespacedName, uid types.UID) {
	name, id, _ := strings.Cut(value, "@")
	if other, rest, has := strings.Cut(name, "/"); has {
		namespace, name = other, rest
	}
	if name == "" {
		return types.NamespacedName{}, ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, types.UID(id)
}

func refTo(obj metav1.Object, kind schema.GroupVersionKind) mendv1.RecordRef {
	return mendv1.RecordRef{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UID: string(obj.GetUID()),
	}
}

// Has reports whether a request carries an open record about machine, or about its node. It compares names, because clusterctl move changes
// UIDs. If the record cannot be read, Has returns true, so that no remediation gets a second record.
func (r *Records) Has(ctx context.Context, req metav1.Object, machine *clusterv1.Machine) bool {
	within, done := context.WithTimeout(ctx, AheadWithin)
	defer done()
	carried, _ := CarriedBy(req)
	there := &mendv1.RemediationRecord{}
	if err := r.Live.Get(within, carried, there); err != nil {
		return !apierrors.IsNotFound(err)
	}
	target := &there.Spec.Target
	about := target.Machine != nil && target.Machine.Name == machine.Name && target.Machine.Namespace == machine.Namespace ||
		target.Machine == nil && target.Node != nil && target.Node.Name == machine.Status.NodeRef.Name
	return about && there.Open() && carries(req, there)
}

// Mention returns the end of the message of the condition Remediation; empty without a record. A Machine carries its record by this
// message, because the same write that asks the owner to replace the Machine stores it.
func Mention(record *mendv1.RemediationRecord) string {
	if record == nil {
		return ""
	}
	return mendv1.RecordMention + Carried(record, record.Namespace)
}

// carriedByMachine returns the record that a Machine carries whose owner is asked to replace it; zero if it carries none.
func carriedByMachine(machine *clusterv1.Machine) (record types.NamespacedName, uid types.UID) {
	_, value, _ := strings.Cut(conditions.GetMessage(machine, mendv1.Remediation), mendv1.RecordMention)
	return carriedIn(value, machine.Namespace)
}

// carries reports whether a request or a Machine carries the record. After clusterctl move UIDs have changed, and it compares names only.
func carries(obj metav1.Object, record *mendv1.RemediationRecord) bool {
	name, uid := CarriedBy(obj)
	if machine, is := obj.(*clusterv1.Machine); is {
		name, uid = carriedByMachine(machine)
	}
	return name == client.ObjectKeyFromObject(record) && (uid == record.UID || Moved(record))
}

// TargetOf returns the object that a record is about: its Machine, or else its Node.
func TargetOf(record *mendv1.RemediationRecord) mendv1.RecordRef {
	return ptr.Deref(cmp.Or(record.Spec.Target.Machine, record.Spec.Target.Node), mendv1.RecordRef{})
}

// Moved reports whether clusterctl has moved the record: its Cluster has another UID than when the record was created.
func Moved(record *mendv1.RemediationRecord) bool {
	before := record.Spec.Target.ClusterUID
	for _, owner := range record.OwnerReferences {
		if before != "" && owner.Kind == clusterv1.ClusterKind &&
			schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == clusterv1.GroupVersion.Group {
			return string(owner.UID) != before
		}
	}
	return false
}

// nameOf returns a name that begins with the name of the target and ends with a hash of the parts.
func nameOf(target string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	const most = 253 - 1 - 10 // the longest name of an object, less the hash
	return strings.TrimRight(target[:min(len(target), most)], ".-") + "-" + hex.EncodeToString(sum[:5])
}

// bounds are the longest texts that the CRD allows, in characters, by the name of the field, or by type and field. Condition.Message has a
// smaller bound than the API server's, so that a record stays small.
var bounds = map[string]int{
	"APIVersion": 317, "Kind": 63, "Namespace": 63, "Name": 253, "UID": 64,
	"ClusterName": 253, "ClusterUID": 64, "HostModel": 128, "FailureDomain": 256, "User": 256,
	"RecordRequester.Reason": mendv1.MaxRecordText, "Limit": 64,
	"Cause": 333, "RecordEvidence.Type": 316, "RecordEvidence.Status": 16,
	"EndedBy": 253, "Message": mendv1.MaxRecordText, "Condition.Message": 4 * mendv1.MaxRecordText,
}

// Bound cuts texts and lists that are too long in a record, because the API server would refuse the write, and the record would never be
// created or closed. Texts of workload clusters, of conditions, of annotations and of checks may have any length.
func Bound(record *mendv1.RemediationRecord) {
	record.Spec.Evidence = record.Spec.Evidence[:min(len(record.Spec.Evidence), mendv1.MaxRecordEvidence)]
	bound(reflect.ValueOf(&record.Spec).Elem(), 0)
	bound(reflect.ValueOf(&record.Status).Elem(), 0)
}

// bound cuts all texts in value to their bounds; most is the bound of value itself if it is a text, or 0 for none.
func bound(value reflect.Value, most int) {
	switch value.Kind() {
	case reflect.String:
		if text := value.String(); most > 0 && utf8.RuneCountInString(text) > most {
			value.SetString(string([]rune(text)[:most-1]) + "…") // a name that was cut must not be the name of another object
		}
	case reflect.Pointer:
		if !value.IsNil() {
			bound(value.Elem(), most)
		}
	case reflect.Slice:
		for i := range value.Len() {
			bound(value.Index(i), most)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			field := value.Type().Field(i)
			if field.IsExported() {
				bound(value.Field(i), cmp.Or(bounds[value.Type().Name()+"."+field.Name], bounds[field.Name]))
			}
		}
	default:
	}
}
