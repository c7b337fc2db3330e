package hostremediation

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// requestedByHand is the cause of a remediation that a user requested without a check, for a machine that nothing calls unhealthy.
const requestedByHand = "RequestedByHand"

// recorded makes sure that a RemediationRecord exists before anything is done to the host or machine. If a check made the remediation, the
// remediation names the record that the check has written. Any other remediation names its record once it is stored; if the manager is
// killed before that, the record is found by its name. Because annotations are copied with manifests and backups, a name only counts if it
// is that of an open record of this machine.
func (r *Reconciler) recorded(ctx context.Context, obs *observed, step powercycle.Step) {
	first := []powercycle.Action{
		powercycle.BeginAttempt, powercycle.KeepOff, powercycle.Reboot, powercycle.MarkHost, powercycle.RequestOwner,
	}
	starts := func(t taken) bool { return slices.Contains(first, t.step.Do) }
	begins := starts(taken{step: step}) || slices.ContainsFunc(obs.taken, starts)
	if r.Records == nil || r.Teardown || obs.machine == nil || !begins {
		return
	}
	carried, _ := records.CarriedBy(obs.rem)
	began := obs.record.Touched || obs.record.Attempt > 1
	if carried.Name != "" && (began || r.Records.Has(ctx, obs.rem, obs.machine)) {
		return
	}
	records.Carry(obs.rem, r.Records.Begin(ctx, r.Kind.Kind, recordOf(obs, r.requester(ctx, obs)), string(obs.rem.GetUID())))
}

// recordOf returns a record with the machine, its host and node, and who asked.
func recordOf(obs *observed, by mendv1.RecordRequester) *mendv1.RemediationRecord {
	record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: obs.rem.GetNamespace()}}
	spec := &record.Spec
	spec.Remediator, spec.Decided, spec.Requester = mendv1.RemediatedByRequest, metav1.NewTime(obs.now), by
	records.OnMachine(record, obs.machine)
	if obs.cluster != nil {
		records.OwnedBy(record, obs.cluster)
	}
	if shard, labelled := obs.rem.GetLabels()[clusterv1.WatchLabel]; labelled {
		metav1.SetMetaDataLabel(&record.ObjectMeta, clusterv1.WatchLabel, shard)
	}
	if spec.Target.Node != nil {
		spec.Target.Node.UID = string(obs.record.NodeUID)
		records.OnNode(&spec.Target, obs.lastNode)
	}
	records.OnHost(&spec.Target, obs.found.Host)
	describeHealth(spec, obs)
	return record
}

// describeHealth writes into spec what the conditions of node and machine say. The timeouts and limits of a check are not known here.
func describeHealth(spec *mendv1.RemediationRecordSpec, obs *observed) {
	for _, cond := range ptr.Deref(obs.node, corev1.Node{}).Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue {
			spec.UnhealthySince = moment(cond.LastTransitionTime.Time)
			spec.Evidence = append(spec.Evidence, mendv1.RecordEvidence{
				Type: string(cond.Type), Status: string(cond.Status), Since: spec.UnhealthySince,
				Message: cmp.Or(cond.Message, cond.Reason),
			})
		}
	}
	if c := conditions.Get(obs.machine, clusterv1.MachineHealthCheckSucceededCondition); c != nil && c.Status == metav1.ConditionFalse {
		spec.Due = moment(c.LastTransitionTime.Time)
		spec.Evidence = append(spec.Evidence, mendv1.RecordEvidence{
			Type: c.Type, Status: string(c.Status), Since: spec.Due, Message: cmp.Or(c.Message, c.Reason),
		})
	}
	switch {
	case len(spec.Evidence) > 0:
		spec.Cause = records.CauseOf(spec.Evidence[0])
	case spec.Requester.Check == nil:
		spec.Cause = requestedByHand
	}
	if spec.Due != nil && spec.UnhealthySince != nil && spec.Due.Before(spec.UnhealthySince) {
		spec.UnhealthySince = nil // the node became NotReady later
	}
}

// requester returns who asked for the remediation: the user in its annotation, and the check that made it. Cluster API core does not name
// the check on the remediation: it is the only check that selects the machine and names the template from which the remediation was made.
func (r *Reconciler) requester(ctx context.Context, obs *observed) mendv1.RecordRequester {
	by := mendv1.RecordRequester{Check: checkOf(obs)}
	if user, known := explain.AttributionOf(obs.rem, mendv1.RequestedAnnotation); known {
		by.User, by.Reason = user.By, user.Reason
	}
	if by.Check == nil && by.User == "" {
		if check := r.judging(ctx, obs); check != nil {
			by.Check = machineCheck(check.Namespace, check.Name, string(check.UID))
		}
	}
	return by
}

// checkOf returns the check that the remediation says it was made by; nil if it names none.
func checkOf(obs *observed) *mendv1.RecordRef {
	if made, marked := remediationrequest.MadeBy(obs.rem); marked {
		return machineCheck(obs.rem.GetNamespace(), made.Name, string(made.UID))
	}
	made := remediationrequest.NodeCheckOf(obs.rem)
	for _, owner := range obs.rem.GetOwnerReferences() {
		if owner.Kind == "NodeHealthCheck" && owner.APIVersion == nhcv1.GroupVersion.String() {
			made = remediationrequest.Maker{Name: owner.Name, UID: owner.UID}
		}
	}
	if made.Name == "" {
		return nil
	}
	return &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: made.Name, UID: string(made.UID)}
}

func machineCheck(namespace, name, uid string) *mendv1.RecordRef {
	return &mendv1.RecordRef{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineHealthCheck", Namespace: namespace, Name: name, UID: uid,
	}
}

// judging returns the only check that selects the machine and names the template from which the remediation was made; nil if there is none,
// or several.
func (r *Reconciler) judging(ctx context.Context, obs *observed) *clusterv1.MachineHealthCheck {
	from := obs.rem.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	if from == "" {
		return nil
	}
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(obs.machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var found *clusterv1.MachineHealthCheck
	for i := range list.Items {
		check := &list.Items[i]
		ref := check.Spec.Remediation.TemplateRef
		if ref.Name != from || !remediationrequest.ClonedFrom(obs.rem, remediationrequest.TemplateKind(ref)) ||
			!capi.Judges(check, obs.machine) {
			continue
		}
		if found != nil {
			return nil
		}
		found = check
	}
	return found
}

// bootsWithin bounds how long a remediation waits for the records of its host.
const bootsWithin = 5 * time.Second

// observeBoots sets the boot timeout, if no user has set it, to twice the last boot of the host by its records. It looks once and remembers
// the result. If there are no records, or they cannot be read, the default applies.
func (r *Reconciler) observeBoots(ctx context.Context, obs *observed) {
	strategy := obs.rem.Strategy()
	known := strategy == nil || strategy.BootTimeoutSeconds > 0 || obs.record.BootSeconds > 0
	if known || r.Records == nil || obs.found.Host == nil || obs.record.State.Final() {
		return
	}
	ctx, done := context.WithTimeout(ctx, bootsWithin)
	defer done()
	list := &mendv1.RemediationRecordList{}
	if err := r.Live.List(ctx, list, client.InNamespace(obs.rem.GetNamespace()), client.MatchingLabels{
		mendv1.RecordHostLabel: format.MustFormatValue(obs.found.Host.Name),
	}); err != nil {
		log.FromContext(ctx).Info("Cannot read the records of the host; its boot has the default timeout", "reason", err.Error())
	}
	obs.record.BootSeconds = min(max(2*lastBoot(list.Items), mendv1.DefaultBootTimeoutSeconds), mendv1.MaxDefaultBootTimeoutSeconds)
	obs.policy = policyOf(strategy, obs.record.BootSeconds)
}

// lastBoot returns how many seconds the host took to boot in its last remediation that healed the machine; zero if there is none.
func lastBoot(kept []mendv1.RemediationRecord) int64 {
	var ended, seconds int64
	for i := range kept {
		status := &kept[i].Status
		if status.Outcome != mendv1.RecordHealed || status.Ended == nil || status.Ended.Unix() < ended {
			continue
		}
		ended, seconds = status.Ended.Unix(), 0
		for j, step := range status.Steps {
			if step.Reason != string(powercycle.Booting) {
				continue
			}
			until := status.Ended.Time
			if j+1 < len(status.Steps) {
				until = status.Steps[j+1].Time.Time
			}
			seconds = int64(until.Sub(step.Time.Time).Seconds())
		}
	}
	return seconds
}

// observeLoop finds out from the records whether earlier power cycles of the host did not last. After a start of the manager it waits for
// the records, unless a user asked for the remediation.
func (r *Reconciler) observeLoop(ctx context.Context, obs *observed) {
	if obs.machine == nil || obs.found.Host == nil || obs.record.Attempt > 0 {
		return
	}
	if _, marked := obs.machine.Annotations[clusterv1.RemediateMachineAnnotation]; marked || obs.byPerson() {
		return
	}
	if obs.loopUntil = r.Records.Awaited(ctx); obs.now.Before(obs.loopUntil) {
		return
	}
	carried, _ := records.CarriedBy(obs.rem)
	own := func(record mendv1.RemediationRecord) bool { return record.Name == carried.Name }
	former := slices.DeleteFunc(r.Records.Repeated(ctx, r.Client, obs.rem.GetNamespace(), "BareMetalHost", obs.found.Host.Name), own)
	failed := obs.rem.GetCreationTimestamp()
	ready := conditions.Get(obs.machine, clusterv1.MachineNodeReadyCondition)
	if ready != nil && ready.Status != metav1.ConditionTrue && ready.LastTransitionTime.Before(&failed) {
		failed = ready.LastTransitionTime
	}
	obs.loop = repeats.Of(former, failed.Time)
	obs.loopUntil = obs.loop.Until(obs.rem.GetCreationTimestamp().Time, time.Hour)
}

// placeOf is the remediation called key as the ledger of RemediationPolicies knows it.
func (r *Reconciler) placeOf(key client.ObjectKey) policy.Check {
	return policy.Check{Kind: r.Kind.Kind, NamespacedName: key}
}

// byPerson reports whether a user asked for the remediation: with kubectl mend, or with an object that neither a check nor a template made.
func (obs *observed) byPerson() bool {
	_, attributed := explain.AttributionOf(obs.rem, mendv1.RequestedAnnotation)
	return attributed || checkOf(obs) == nil && obs.rem.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] == ""
}

// reportPlace reports the machine of a remediation, as stored, to the ledger, unless a check of kubemend reports it. A remediation that a
// user asked for counts, but is not bound by the policies.
func (r *Reconciler) reportPlace(ctx context.Context, key client.ObjectKey, obs *observed, unread error) {
	if unread != nil || !r.Ledger.Active(ctx) {
		return
	}
	if obs == nil || obs.machine == nil || obs.record.State.Final() || checkOf(obs) != nil {
		r.Ledger.Forget(r.placeOf(key))
		return
	}
	stored, _ := remediation.RecordOf(obs.stored)
	seen, bound := place.OfMachine(obs.machine), !obs.byPerson()
	seen.Kind, seen.Unknown, seen.Unavailable, seen.InFlight = r.Kind.Kind, !bound, bound, stored.Attempt > 0
	_, seen.ByHand = obs.machine.Annotations[clusterv1.RemediateMachineAnnotation]
	seen.Due = obs.rem.GetCreationTimestamp().Time
	if check := r.judging(ctx, obs); check != nil {
		seen.Check, seen.CheckLabels = check.Name, check.Labels
	}
	if obs.cluster != nil {
		seen.ClusterLabels = obs.cluster.Labels
	}
	host, labels := "", map[string]string(nil)
	if obs.found.Host != nil {
		host, labels = obs.found.Host.Name, obs.found.Host.Labels
	}
	seen.On(obs.lastNode, obs.cluster, host, labels)
	r.Ledger.Report(r.placeOf(key), []*place.Target{seen})
}

// placeless returns why RemediationPolicies do not let obs begin. It asks the ledger only when nothing else keeps obs from beginning. A
// remediation that a check of kubemend made already has a place, and waits only while the policies stop even what has begun.
func (r *Reconciler) placeless(ctx context.Context, obs *observed) []powercycle.Ahead {
	if !obs.confirms || obs.byPerson() {
		return nil
	}
	check, id := r.placeOf(client.ObjectKeyFromObject(obs.rem)), obs.machine.UID
	var blockers []rule.Blocker
	switch made := checkOf(obs); {
	case !r.Ledger.Active(ctx):
		blockers = place.WithoutLedger(obs.lastNode, obs.now)
	case made != nil:
		check = policy.Check{Kind: made.Kind, NamespacedName: types.NamespacedName{Namespace: made.Namespace, Name: made.Name}}
		if made.Kind == policy.NodeHealthCheck {
			id = place.NodeID(obs.nodeName())
		}
		blockers = r.Ledger.Holds(check, id, place.SignalsOf(obs.lastNode, obs.cluster))
	default:
		blockers = r.Ledger.Ask(check, []types.UID{id})[id]
	}
	ahead := make([]powercycle.Ahead, len(blockers))
	for i, b := range blockers {
		ahead[i] = powercycle.Ahead{Text: b.Text, Until: b.Until, Policy: true}
	}
	return ahead
}

// settlePlace gives up the place of the remediation called key if the remediation did not begin.
func (r *Reconciler) settlePlace(key client.ObjectKey, obs *observed, err error) {
	begun, lost := map[types.UID]bool{}, map[types.UID]bool{}
	if obs != nil && obs.machine != nil {
		begun[obs.machine.UID], lost[obs.machine.UID] = obs.record.Attempt > 0, begin.Lost(err)
	}
	r.Ledger.Settle(r.placeOf(key), begun, lost)
}
