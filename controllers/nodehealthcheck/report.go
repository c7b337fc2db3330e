package nodehealthcheck

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// send sends events about the check, and logs one line for each.
func (r *Reconciler) send(ctx context.Context, state *observed, events []recorder.Event) {
	about := &nhcv1.NodeHealthCheck{TypeMeta: metav1.TypeMeta{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck"}}
	about.Name, about.UID, about.ResourceVersion = state.check.Name, state.check.UID, state.check.ResourceVersion
	for _, event := range events {
		text := event.Text
		event.About, event.Text = about, nhcv1.EventPrefix+text
		recorder.Send(r.Recorder, event)
		log.FromContext(ctx).Info("Reported an event", "reason", event.Reason, "note", text)
	}
}

// reports collects the events of a reconcile. An ongoing situation is reported when it begins, and then every hour, because the API server
// keeps an event for an hour.
type reports struct {
	now     time.Time
	events  []recorder.Event
	before  map[string]reported // the ongoing situations of the reconcile before
	ongoing map[string]reported // those of this reconcile
}

// reported is the last report of an ongoing situation.
type reported struct {
	text string
	at   time.Time
}

const reportAgain = time.Hour

func (n *reports) add(about *Node, e recorder.Event) {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.UID = about.Name, types.UID(about.ID())
	e.Related = node
	n.events = append(n.events, e)
}

// once reports whether the text about an ongoing situation, identified by key, is to be reported now.
func (n *reports) once(key, text string) bool {
	last := n.before[key]
	again := last.text != text || !n.now.Before(last.at.Add(reportAgain))
	if again {
		last = reported{text, n.now}
	}
	n.ongoing[key] = last
	return again
}

func (n *reports) eventOnce(key string, about *Node, e recorder.Event) {
	if n.once(key, e.Text) {
		n.add(about, e)
	}
}

// unhealthyEvents returns the events about nodes that are newly unhealthy. Send them only after the status was saved, because the next
// reconcile knows from the status that they were sent.
func unhealthyEvents(state *observed, outcomes []outcome) []recorder.Event {
	n := &reports{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.remediated() && !o.begun() && !o.Requests[0].Adopt {
			continue // the status still says that the node was healthy, so this is not news
		}
		listed := o.Listed
		unlisted := listed == nil && len(state.check.Status.UnhealthyNodes) < mostListed // in a full list it may only be left out
		due := o.Verdict.Due(state.facts.Now)
		if len(due) > 0 && !o.Left && o.Selected && (unlisted || listed != nil && listed.ConditionsHealthyTimestamp != nil) {
			n.add(o.Node, recorder.Normal(nhcv1.EventDetectedUnhealthy, "Judge",
				"Node matches unhealthy condition. Node %q, condition type %q, condition status %q", o.Name, due[0].Signal.Type,
				due[0].Signal.Status))
		}
	}
	return n.events
}

// nodeEvents returns the events about what was done for nodes and what blocks it.
func (r *Reconciler) nodeEvents(state *observed, plan *Plan, outcomes []outcome) []recorder.Event {
	last := r.memory.of(state.check.Name)
	n := &reports{now: state.facts.Now, before: last.reported, ongoing: map[string]reported{}}
	for _, d := range plan.Decisions {
		about := d.Node
		if d.Left && len(d.Verdict.Due(state.facts.Now)) > 0 && n.once(about.Name+"/terminating", "terminating") {
			r.Log.WithName("MHCChecker").Info("ignoring unhealthy Node, "+TerminatingText, "NodeName", about.Name)
		}
		if _, empty := about.Excluded(); empty && d.Verdict.State == health.Unhealthy {
			n.eventOnce(about.Name+"/label", about, recorder.Warning(nhcv1.EventInvalidNodeLabel, "Grant",
				"Node %s has exclude-from-remediation label "+
					"with empty value, label will be ignored. Set value to 'true' to exclude node from remediation", about.Name))
		}
	}
	for _, i := range plan.Order {
		n.outcome(state, &outcomes[i])
	}
	blocker := plan.Blocker()
	reports := blocker.Reason != "" && blocker.Reason != CheckDisabled && plan.Population.Waiting > 0
	if reports && n.once("", string(blocker.Reason)) {
		n.events = append(n.events, blockedEvent(blocker))
	}
	last.reported = n.ongoing
	return n.events
}

func (n *reports) outcome(state *observed, o *outcome) {
	name := o.Name
	if o.gaveUp {
		n.eventOnce(name+"/gaveUp", o.Node,
			recorder.Warning(nhcv1.EventRemediationTimedOut, "Escalate", "%s.", EscalationText(&state.facts, o.GaveUp)))
	}
	if o.made != nil {
		if o.Answer.Reason == passedOver {
			template := &state.facts.Templates[o.Start-1]
			_, why := template.Unsuitable(o.Node)
			n.add(o.Node, recorder.Warning(nhcv1.EventRemediationSkipped, "Escalate",
				"Passed over %s for node %s, because %s", template.Place(), name, why))
		}
		n.add(o.Node, recorder.Normal(nhcv1.EventRemediationCreated, "Remediate", "Created remediation object for node %s", name))
	}
	for j := range o.Requests {
		if r := &o.Requests[j]; r.ended {
			n.add(o.Node, recorder.Normal(nhcv1.EventRemediationRemoved, "Release",
				"Deleted remediation CR of kind %s with name %s", r.Object.GetKind(), r.Object.GetName()))
		}
	}
	if o.refused != nil {
		n.eventOnce(name+"/refused", o.Node, recorder.Warning(nhcv1.EventRequestFailed, "Remediate",
			"No remediation object could be created for node %s: %v", name, o.refused))
	}
	if apierrors.IsForbidden(o.notNotified) { // other errors may be over soon
		n.eventOnce(name+"/notNotified", o.Node, recorder.Warning(nhcv1.EventRequestFailed, "Escalate",
			"The next step for node %s does not start, since the previous remediator cannot be notified to stop: %v", name, o.notNotified))
	}
	if o.Verdict.State != health.Unhealthy {
		return
	}
	if b := o.Blocker(); b.Cause != "" && !b.Quiet {
		n.eventOnce(name, o.Node, recorder.Warning(b.Blocker.Reason, "Grant", "%s", b.Text))
	}
}

// disabledEvents returns the event about a change of the condition Disabled. It also logs the lines that documents of medik8s quote.
func (r *Reconciler) disabledEvents(check, next *nhcv1.NodeHealthCheck) []recorder.Event {
	before, after := conditionOf(check, nhcv1.DisabledCondition), conditionOf(next, nhcv1.DisabledCondition)
	if after == nil || before != nil && before.Status == after.Status && before.Reason == after.Reason {
		return nil
	}
	quoted := r.Log.WithName("controllers").WithName("NodeHealthCheck").WithValues("NodeHealthCheck", "/"+check.Name)
	switch {
	case after.Status == metav1.ConditionFalse:
		if before != nil && before.Status == metav1.ConditionTrue && before.Reason == nhcv1.ConflictReason {
			quoted.Info("re-enabling NHC, no conflicting MHC configured in the cluster")
		} else {
			quoted.Info("enabling NHC, valid config, no conflicting MHC configured in the cluster")
		}
		return []recorder.Event{recorder.Normal(nhcv1.EventEnabled, "Validate", "%s", EnabledMessage)}
	case after.Reason == nhcv1.ConflictReason:
		quoted.Info("disabling NHC in order to avoid conflict with custom MHCs configured in the cluster")
		return []recorder.Event{recorder.Warning(nhcv1.EventDisabled, "Validate", "%s", ConflictMessage)}
	}
	return []recorder.Event{
		recorder.Warning(nhcv1.EventDisabled, "Validate", "Disabling NHC. Reason: %s, Message: %s", after.Reason, after.Message),
	}
}

// ineffectiveEvents returns the event about a change of the condition Effective.
func ineffectiveEvents(check, next *nhcv1.NodeHealthCheck) []recorder.Event {
	before, after := conditionOf(check, mendv1.Effective), conditionOf(next, mendv1.Effective)
	if after == nil || before != nil && before.Message == after.Message {
		return nil
	}
	return []recorder.Event{recorder.Warning(mendv1.EventIneffective, "Validate", "%s", after.Message)}
}

func stormEvents(turn budget.StormTurn) []recorder.Event {
	return map[budget.StormTurn][]recorder.Event{
		budget.StormBegan: {recorder.Warning(nhcv1.EventStormStarted, "Grant",
			"Storm recovery mode activated - delaying remediation until threshold is reached")},
		budget.StormCooling: {recorder.Warning(nhcv1.EventStormCooldown, "Grant", "Storm recovery mode will exit after cooldown delay")},
		budget.StormEnded: {recorder.Normal(nhcv1.EventStormEnded, "Grant",
			"Storm recovery mode deactivated - normal remediation resumed")},
	}[turn]
}

// blockedEvent returns the event about a blocker of all nodes. A pause and an upgrade are intended, so their events are no warnings.
func blockedEvent(b Blocker) recorder.Event {
	switch b.Reason {
	case Paused:
		return recorder.Normal(nhcv1.EventRemediationSkipped, "Grant", "%s", b.Text)
	case Upgrading:
		return recorder.Normal(nhcv1.EventRemediationSkipped, "Grant", "%s", PostponedByUpgrade)
	}
	return recorder.Warning(nhcv1.EventRemediationSkipped, "Grant", "%s", b.Text)
}

// Values of the label result.
const (
	recoveredResult = "recovered" // the node became healthy
	replacedResult  = "replaced"  // the node is gone
	cancelledResult = "cancelled" // the requests are gone although the node is not healthy
)

var (
	// These three are metrics of medik8s.
	oldRequests = counter("nodehealthcheck_old_remediation_cr",
		"Remediation requests found to be older than 48 hours, by node and namespace.", "name", "namespace")
	ongoingRemediation = gauge("nodehealthcheck_ongoing_remediation",
		"1 while a node has a remediation request, else 0; by node, namespace and kind.", "name", "namespace", "remediation")
	unhealthyDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nodehealthcheck_unhealthy_node_duration_seconds",
		Help:    "Time from the creation of a remediation request to its end; by node, namespace and kind.",
		Buckets: []float64{30, 60, 120, 180, 240, 300, 600, 1200, 2400, 3600},
	}, []string{"name", "namespace", "remediation"})

	targetsByState = gauge("kubemend_nodehealthcheck_targets",
		"Nodes of a NodeHealthCheck, by state: healthy, unhealthy, pending, recovering, unknown.", "name", "state")
	shortCircuited = gauge("kubemend_nodehealthcheck_short_circuited",
		"1 while a NodeHealthCheck is blocked, else 0; by the reason of its condition RemediationAllowed.", "name", "reason")
	nextDeadline = gauge("kubemend_nodehealthcheck_next_deadline_timestamp_seconds",
		"Unix time at which the next timeout of a node expires; 0 if none runs.", "name")
	inFlight = gauge("kubemend_nodehealthcheck_remediations_in_flight",
		"Nodes of a NodeHealthCheck with remediation requests.", "name")
	oldestRequest = gauge("kubemend_nodehealthcheck_request_oldest_timestamp_seconds",
		"Unix time at which the oldest remediation request of a NodeHealthCheck was made; 0 if there is none.", "name")
	started = counter("kubemend_nodehealthcheck_remediations_started_total",
		"Remediation requests made for a NodeHealthCheck, by kind.", "name", "kind")
	finished = counter("kubemend_nodehealthcheck_remediations_finished_total",
		"Remediations of nodes ended, by result: recovered, replaced, cancelled.", "name", "result")
	dueToActed = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubemend_nodehealthcheck_due_to_acted_seconds",
		Help:    "Time from the expiry of a node's timeout to its first remediation request.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	})
)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this package, for their documentation and tests.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		oldRequests, ongoingRemediation, unhealthyDuration,
		targetsByState, shortCircuited, nextDeadline, inFlight, oldestRequest, started, finished, dueToActed,
	}
}

// ongoing is a request that existed in the last reconcile.
type ongoing struct {
	node, namespace, kind string
	since                 time.Time
}

func (r *Reconciler) measure(state *observed, plan *Plan, outcomes []outcome) {
	name, p := state.check.Name, plan.Population
	for label, n := range map[string]int{
		"healthy": p.Healthy, "unhealthy": p.Unhealthy, "pending": p.Pending, "recovering": p.Recovering, "unknown": p.Unknown,
	} {
		targetsByState.WithLabelValues(name, label).Set(float64(n))
	}
	shortCircuited.DeletePartialMatch(prometheus.Labels{"name": name})
	shortCircuited.WithLabelValues(name, string(plan.Blocker().Reason)).Set(float64(min(1, len(plan.Blockers))))
	nextDeadline.WithLabelValues(name).Set(unix(plan.NextDeadline))
	for i := range outcomes {
		r.measureOutcome(state, &outcomes[i])
	}
	r.measureRequests(state, outcomes)
}

func (r *Reconciler) measureOutcome(state *observed, o *outcome) {
	for j := range o.Requests {
		if o.Requests[j].flagged() {
			oldRequests.WithLabelValues(o.Name, o.Requests[j].Object.GetNamespace()).Inc()
		}
	}
	if o.made == nil {
		return
	}
	started.WithLabelValues(state.check.Name, o.made.GetKind()).Inc()
	if due := o.Verdict.OverdueSince(state.facts.Now); !due.IsZero() && len(o.Requests) == 0 {
		dueToActed.Observe(r.Clock.Since(due).Seconds())
	}
}

// measureRequests exports the metrics about requests, and compares them with those of the last reconcile to find requests that have ended.
func (r *Reconciler) measureRequests(state *observed, outcomes []outcome) {
	name, last := state.check.Name, r.memory.of(state.check.Name)
	ongoingNow, remediated, results := map[types.UID]ongoing{}, map[string]bool{}, map[string]string{}
	var first time.Time
	for i := range outcomes {
		o := &outcomes[i]
		results[o.Name] = o.result()
		requests := make([]*unstructured.Unstructured, 0, len(o.Requests)+1)
		for j := range o.Requests {
			requests = append(requests, o.Requests[j].Object)
		}
		if o.made != nil {
			requests = append(requests, o.made)
		}
		for _, request := range requests {
			since := request.GetCreationTimestamp().Time
			ongoingNow[request.GetUID()] = ongoing{o.Name, request.GetNamespace(), request.GetKind(), since}
			ongoingRemediation.WithLabelValues(o.Name, request.GetNamespace(), request.GetKind()).Set(1)
			remediated[o.Name], first = true, health.Earliest(first, since)
		}
	}
	oldestRequest.WithLabelValues(name).Set(unix(first))
	inFlight.WithLabelValues(name).Set(float64(len(remediated)))
	for uid, request := range last.begun {
		if _, still := ongoingNow[uid]; still {
			continue
		}
		ongoingRemediation.WithLabelValues(request.node, request.namespace, request.kind).Set(0)
		lasted := state.facts.Now.Sub(request.since)
		unhealthyDuration.WithLabelValues(request.node, request.namespace, request.kind).Observe(lasted.Seconds())
		if !remediated[request.node] {
			remediated[request.node] = true // count several requests of a node once
			finished.WithLabelValues(name, cmp.Or(results[request.node], replacedResult)).Inc()
		}
	}
	last.begun = ongoingNow
}

func (o *outcome) result() string {
	switch {
	case !o.exists():
		return replacedResult
	case o.Verdict.State == health.Healthy:
		return recoveredResult
	default:
		return cancelledResult
	}
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// forget deletes the memory and the metrics of a check that is not reconciled any more, but keeps its requests in memory.
func (r *Reconciler) forget(name string) {
	last := r.memory.of(name)
	r.Ledger.Forget(placesOf(name))
	r.memory.exhausted.Delete(name) // a new check of the same name has all its steps
	for _, request := range last.begun {
		ongoingRemediation.DeleteLabelValues(request.node, request.namespace, request.kind)
	}
	if len(last.begun) > 0 {
		last.orphans = last.begun
	}
	*last = remembered{orphans: last.orphans}
	for _, series := range []*prometheus.MetricVec{
		targetsByState.MetricVec, shortCircuited.MetricVec, nextDeadline.MetricVec, inFlight.MetricVec, oldestRequest.MetricVec,
		started.MetricVec, finished.MetricVec,
	} {
		series.DeletePartialMatch(prometheus.Labels{"name": name})
	}
}
