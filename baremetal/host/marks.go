package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// rebootValue asks BMO for a hard reboot, without waiting for the operating system.
const rebootValue = `{"mode":"hard"}`

// unhealthyKeys keep CAPM3 from choosing the host: one key for older versions of CAPM3, one for newer.
var unhealthyKeys = []string{infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation}

// relevant reports whether the cache keeps an annotation, because kubemend reads or writes it or shows it to users.
func relevant(key string) bool {
	switch key {
	case bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation, infrav1.RebootAnnotation,
		mendv1.RebootedForAnnotation, mendv1.ReceiptForAnnotation, mendv1.MarkedForAnnotation,
		mendv1.PowerOffDisprovedAnnotation, mendv1.ResetAnnotation, infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation:
		return true
	}
	return strings.HasPrefix(key, holdPrefix)
}

// holdPrefix is the prefix of all annotations that keep a host off; any suffix does. (BMO, reboot annotations.)
const holdPrefix = infrav1.RebootAnnotation + "/"

// keptOffByHand returns the annotation with which a client other than a remediation keeps host off; empty if there is none.
func keptOffByHand(host metav1.Object) string {
	for _, key := range slices.Sorted(maps.Keys(host.GetAnnotations())) {
		if _, remediation := KeptOffFor(key); strings.HasPrefix(key, holdPrefix) && !remediation {
			return key
		}
	}
	return ""
}

// Remediation identifies a remediation on a host. Before is its UID from before `clusterctl move`; empty if it was not moved.
type Remediation struct{ UID, Before types.UID }

func (r Remediation) is(uid types.UID) bool { return uid != "" && (uid == r.UID || uid == r.Before) }

// MarksOf returns the annotations of a remediation on host, for the attempt in which the host was asked to power off at asked.
func MarksOf(host metav1.Object, by Remediation, attempt int, asked time.Time) powercycle.Marks {
	var m powercycle.Marks
	for key := range host.GetAnnotations() {
		if uid, hold := KeptOffFor(key); hold && by.is(uid) {
			m.KeptOff = true
		}
	}
	_, pending := host.GetAnnotations()[infrav1.RebootAnnotation]
	if uid, request, asked := askedFor(host, mendv1.RebootedForAnnotation); asked && by.is(uid) {
		m.RebootAsked = request == strconv.Itoa(attempt)
		m.RebootPending = pending && m.RebootAsked
		m.HasPowerAnnotations = true
	}
	if uid, request, found := askedFor(host, mendv1.ReceiptForAnnotation); found && by.is(uid) {
		m.ReceiptAsked = request == clockOf(asked)
		m.ReceiptGiven = m.ReceiptAsked && !pending
		m.HasPowerAnnotations = true
	}
	m.HasPowerAnnotations = m.HasPowerAnnotations || m.KeptOff
	m.HostMarked = true
	for _, key := range unhealthyKeys {
		if _, marked := host.GetAnnotations()[key]; !marked {
			m.HostMarked = false
		}
	}
	return m
}

// KeptOffFor returns the UID of the remediation for which the annotation key keeps a host off; false if it is no such annotation.
func KeptOffFor(key string) (types.UID, bool) {
	uid, hold := strings.CutPrefix(key, infrav1.PowerOffAnnotationPrefix)
	return types.UID(uid), hold
}

// askedFor returns the remediation that the value of the annotation key names, and its attempt or request.
func askedFor(host metav1.Object, key string) (uid types.UID, request string, asked bool) {
	value, asked := host.GetAnnotations()[key]
	name, request, _ := strings.Cut(value, "/")
	return types.UID(name), request, asked
}

func clockOf(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// RebootAsked reports whether host has the annotation for a reboot with kubemend's value.
func RebootAsked(host metav1.Object) bool {
	return host.GetAnnotations()[infrav1.RebootAnnotation] == rebootValue
}

// KeepOff asks BMO to power the host off and to keep it off. The error is a conflict if the host has changed since it was read.
func (h *Hosts) KeepOff(ctx context.Context, host metav1.Object, by Remediation) error {
	asks := map[string]any{infrav1.PowerOffAnnotationPrefix + string(by.UID): infrav1.PowerOffAnnotationValue}
	return h.annotateAsRead(ctx, host, "ask to power off", asks)
}

// AskReceipt asks BMO to show that it has read the hardware since asked. BMO removes the annotation reboot.metal3.io from a host that is
// kept off only when it has found the host off. (BMO, manageHostPower.) The annotation that keeps the host off is set in the same write,
// and both are removed in one write: alone, reboot.metal3.io would reboot the host. If another client has set it, its request counts. The
// error is a conflict if the host has changed since it was read.
func (h *Hosts) AskReceipt(ctx context.Context, host metav1.Object, by Remediation, asked time.Time) error {
	ask := map[string]any{
		infrav1.PowerOffAnnotationPrefix + string(by.UID): infrav1.PowerOffAnnotationValue,
		mendv1.ReceiptForAnnotation:                       string(by.UID) + "/" + clockOf(asked),
	}
	if _, pending := host.GetAnnotations()[infrav1.RebootAnnotation]; !pending {
		ask[infrav1.RebootAnnotation] = rebootValue
	}
	return h.annotateAsRead(ctx, host, "ask for a receipt of", ask)
}

// Reboot asks BMO for one reboot, and notes in the same write for which attempt. If somebody else has already asked for a reboot, that
// request counts. The error is a conflict if the host has changed since it was read.
func (h *Hosts) Reboot(ctx context.Context, host metav1.Object, by Remediation, attempt int) error {
	ask := map[string]any{mendv1.RebootedForAnnotation: fmt.Sprintf("%s/%d", by.UID, attempt)}
	if _, asked := host.GetAnnotations()[infrav1.RebootAnnotation]; !asked {
		ask[infrav1.RebootAnnotation] = rebootValue
	}
	return h.annotateAsRead(ctx, host, "ask to reboot", ask)
}

// Release removes the annotations of this remediation, and no other, that act on the power of the host.
func (h *Hosts) Release(ctx context.Context, host metav1.Object, by Remediation) error {
	return h.annotate(ctx, host, "release", released(host, by))
}

// ReleaseUnstored releases the host of a remediation that cannot be written, and notes the attempt on the host instead, so that a manager
// that restarts does not power the host off again.
func (h *Hosts) ReleaseUnstored(ctx context.Context, host metav1.Object, by Remediation, attempt int) error {
	changes := released(host, by)
	changes[mendv1.RebootedForAnnotation] = fmt.Sprintf("%s/%d", by.UID, attempt)
	return h.annotate(ctx, host, "release", changes)
}

// released returns the changes that Release makes.
func released(host metav1.Object, by Remediation) map[string]any {
	marks := AllMarks(host)
	maps.DeleteFunc(marks, func(_ string, uid types.UID) bool { return !by.is(uid) })
	return without(host, marks)
}

// RemoveOrphans removes the annotations of remediations that do not exist any more. The error is a conflict if the host has changed since
// it was read: all remediations share the keys for a reboot and a receipt, so that another remediation may have asked since.
func (h *Hosts) RemoveOrphans(ctx context.Context, host metav1.Object, marks map[string]types.UID) error {
	return h.annotateAsRead(ctx, host, "release", without(host, marks))
}

// without returns the changes that remove these annotations. With an annotation that says who asked for a reboot or a receipt, the request
// itself is removed too, if it has kubemend's value.
func without(host metav1.Object, marks map[string]types.UID) map[string]any {
	away := map[string]any{}
	for key := range marks {
		away[key] = nil
		if _, hold := KeptOffFor(key); !hold && RebootAsked(host) {
			away[infrav1.RebootAnnotation] = nil
		}
	}
	return away
}

// Cleared returns the changes with which a person's reset removes the unhealthy annotations, even those of others, the note of a disproved
// power-off, and the power annotations of remediations that do not exist any more.
func Cleared(host metav1.Object, orphans map[string]types.UID) map[string]any {
	changes := without(host, orphans)
	for _, key := range append([]string{mendv1.MarkedForAnnotation, mendv1.PowerOffDisprovedAnnotation}, unhealthyKeys...) {
		if _, marked := host.GetAnnotations()[key]; marked {
			changes[key] = nil
		}
	}
	return changes
}

// Disproved reports whether a node lived on after this host was proven off, and no person has reset the host.
func Disproved(host metav1.Object) bool {
	_, disproved := host.GetAnnotations()[mendv1.PowerOffDisprovedAnnotation]
	return disproved
}

// Disprove notes on the host that its node lived on at now although the host was proven off. The host outlives the remediation.
func (h *Hosts) Disprove(ctx context.Context, host metav1.Object, now time.Time) error {
	if Disproved(host) {
		return nil
	}
	disproved := map[string]any{mendv1.PowerOffDisprovedAnnotation: now.UTC().Format(time.RFC3339)}
	return h.annotate(ctx, host, "note the disproved power-off of", disproved)
}

// MarkUnhealthy keeps CAPM3 from choosing the host. If another client has set one of the annotations, MarkHealthy removes none.
func (h *Hosts) MarkUnhealthy(ctx context.Context, host metav1.Object, machine types.UID) error {
	marks := map[string]any{}
	for _, key := range unhealthyKeys {
		if _, marked := host.GetAnnotations()[key]; !marked {
			marks[key] = infrav1.UnhealthyAnnotationValue
		}
	}
	if len(marks) == len(unhealthyKeys) {
		marks[mendv1.MarkedForAnnotation] = string(machine)
	}
	return h.annotate(ctx, host, "mark as unhealthy", marks)
}

// MarkHealthy removes the unhealthy annotations if MarkUnhealthy has set them for machine.
func (h *Hosts) MarkHealthy(ctx context.Context, host metav1.Object, machine types.UID) error {
	if host.GetAnnotations()[mendv1.MarkedForAnnotation] != string(machine) {
		return nil
	}
	marks := map[string]any{mendv1.MarkedForAnnotation: nil}
	for _, key := range unhealthyKeys {
		marks[key] = nil
	}
	return h.annotate(ctx, host, "mark as healthy", marks)
}

// annotate changes these annotations of that very host (by its UID). nil removes one.
func (h *Hosts) annotate(ctx context.Context, host metav1.Object, what string, changes map[string]any) error {
	return h.patch(ctx, host, what, map[string]any{"uid": host.GetUID(), "annotations": changes}, len(changes))
}

// annotateAsRead is like annotate, but the error is a conflict if the host has changed since it was read.
func (h *Hosts) annotateAsRead(ctx context.Context, host metav1.Object, what string, changes map[string]any) error {
	metadata := map[string]any{"uid": host.GetUID(), "resourceVersion": host.GetResourceVersion(), "annotations": changes}
	err := h.patch(ctx, host, what, metadata, len(changes))
	if apierrors.IsConflict(err) {
		// Until the cache shows the change, further attempts would fail too.
		live := &bmov1alpha1.BareMetalHost{}
		if h.Live.Get(ctx, client.ObjectKey{Namespace: host.GetNamespace(), Name: host.GetName()}, live) == nil {
			h.written.Note(live)
		}
	}
	return err
}

func (h *Hosts) patch(ctx context.Context, host metav1.Object, what string, metadata map[string]any, changes int) error {
	if changes == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("%s BareMetalHost %s/%s: %w", what, host.GetNamespace(), host.GetName(), err)
	}
	target := Reference(host) // metadata only, or the answer would be the whole host
	err = h.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s BareMetalHost %s/%s: %w", what, host.GetNamespace(), host.GetName(), err)
	}
	if err == nil {
		h.written.Note(target)
	}
	return nil
}

// SameToUs reports whether two versions of a host differ in nothing that this package reads.
func SameToUs(a, b *bmov1alpha1.BareMetalHost) bool {
	return a.UID == b.UID && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() && maps.Equal(a.Annotations, b.Annotations) &&
		PowerOf(a) == PowerOf(b) && sameConsumer(a.Spec.ConsumerRef, b.Spec.ConsumerRef)
}

func sameConsumer(a, b *corev1.ObjectReference) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// MarkedFor returns the UID of the machine for which kubemend marked host unhealthy; empty if it did not.
func MarkedFor(host metav1.Object) types.UID {
	return types.UID(host.GetAnnotations()[mendv1.MarkedForAnnotation])
}

// Unhealthy reports whether anybody has marked host unhealthy, for any version of CAPM3, so that CAPM3 puts no machine on it.
func Unhealthy(host metav1.Object) bool {
	return slices.ContainsFunc(unhealthyKeys, func(key string) bool {
		_, marked := host.GetAnnotations()[key]
		return marked
	})
}

// KeptOffByOthers returns the UID of a remediation (kubemend's or CAPM3's) other than by that keeps host off; empty if none does. It may be
// called without a host.
func KeptOffByOthers(host *Host, by Remediation) types.UID {
	if host == nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(host.Annotations)) {
		if uid, hold := KeptOffFor(key); hold && !by.is(uid) {
			return uid
		}
	}
	return ""
}

// AllMarks returns the annotations with which remediations (kubemend's or CAPM3's) act on the power of host, and their UIDs.
func AllMarks(host metav1.Object) map[string]types.UID {
	marks := map[string]types.UID{}
	for key := range host.GetAnnotations() {
		if uid, hold := KeptOffFor(key); hold {
			marks[key] = uid
		}
	}
	for _, key := range []string{mendv1.RebootedForAnnotation, mendv1.ReceiptForAnnotation} {
		if uid, _, asked := askedFor(host, key); asked {
			marks[key] = uid
		}
	}
	return marks
}
