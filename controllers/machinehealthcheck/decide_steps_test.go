package machinehealthcheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// steps returns what d does, in one line.
func (d *Decision) steps() string {
	var words []string
	if d.Step != NoStep {
		words = append(words, string(d.Step))
	}
	for _, c := range d.Conditions {
		switch {
		case c.Type == mendv1.Remediation: // TestWhatTheConditionRemediationSays
		case c.Status == "":
			words = append(words, "no "+c.Type)
		case c.Type == ExternallyRemediated && c.Message != "":
			words = append(words, c.Reason+": "+c.Message)
		default:
			words = append(words, c.Type+"="+string(c.Status)+" "+c.Reason)
		}
	}
	return strings.Join(words, ", ")
}

const inTheWay = "RemediationRequestCreationFailed:  req exists and was not made by this MachineHealthCheck"

func TestWhatIsDoneAboutAMachine(t *testing.T) {
	const (
		healthy, unhealthy = "HealthCheckSucceeded=True HealthCheckSucceeded", "HealthCheckSucceeded=False UnhealthyNode"
		toOwner, waiting   = "OwnerRemediated=False WaitingForRemediation", "ExternallyRemediated=False WaitingForRemediation"
		notAsked, noReport = "no OwnerRemediated", "no ExternallyRemediated"
	)
	syncing := func(f *Facts) { f.Template.Syncing = true }
	otherFinds := besideCheck(Opinion{Heard: true, State: health.Unhealthy})
	otherAsks := besideCheck(Opinion{Heard: true, State: health.Unhealthy, InFlight: true})
	otherUnheard := besideCheck(Opinion{})
	cyclesUnread := func(f *Facts) { f.CyclesUnread = noon.Add(time.Minute) }
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"a healthy machine that is marked so needs nothing":            {facts(is(health.Healthy, markedHealthy)), ""},
		"W3: a healthy machine is marked healthy":                      {facts(is(health.Healthy)), healthy + ", " + noReport},
		"one that is being deleted keeps its conditions":               {facts(is(health.Healthy, deleting)), ""},
		"one that an older check acts on keeps its conditions":         {facts(is(health.Healthy, olderActs)), ""},
		"one that another check finds unhealthy is not marked healthy": {facts(is(health.Healthy, asked, otherFinds)), notAsked},
		"nor is its owner to forget it while the other check asks it":  {facts(is(health.Healthy, asked, otherAsks)), ""},
		"or has not said anything yet":                                 {facts(is(health.Healthy, asked, otherUnheard)), ""},
		"a pending machine keeps its conditions and its request":       {byRequests(is(health.Pending, marked, ownRequest)), ""},
		"an unknown machine too":                                       {byRequests(is(health.Unknown, marked, ownRequest)), ""},
		"the request of a healthy machine is deleted":                  {byRequests(is(health.Healthy, ownRequest)), "delete request, " + healthy + ", " + noReport},
		"also if an older check acts on it":                            {byRequests(is(health.Healthy, olderActs, ownRequest)), "delete request"},
		"also if it is marked healthy":                                 {byRequests(is(health.Healthy, markedHealthy, ownRequest)), "delete request, " + healthy + ", " + noReport},
		"one that was not created by the check is adopted before":      {byRequests(is(health.Healthy, markedHealthy, adoptable)), "adopt request"},
		"a request of another check is not deleted":                    {byRequests(is(health.Healthy, reports, foreign)), healthy},
		"a report stands while it is not known which requests exist":   {facts(is(health.Healthy, reports)).with(unknown), healthy},
		"the owner of an unhealthy machine is asked":                   {facts(bad()), "request owner remediation, " + unhealthy + ", " + toOwner + ", " + noReport},
		"it is not asked beyond the limits":                            {facts(bad()).with(tooMany), unhealthy + ", " + noReport},
		"one that was asked stays asked":                               {facts(bad(asked)).with(noPlace), unhealthy + ", " + toOwner + ", " + noReport},
		"but is not asked anew beyond the limits":                      {facts(bad(asked)).with(tooMany), unhealthy + ", " + noReport},
		"a machine that is being deleted keeps the reason":             {facts(bad(deleting)), ""},
		"a machine that an older check acts on is not marked":          {facts(bad(olderActs)), ""},
		"being marked does not request what was asked before":          {facts(bad(wasAsked)).with(tooMany), unhealthy + ", " + notAsked + ", " + noReport},
		"also if its conditions say that it is healthy":                {facts(bad(wasAsked, markedHealthy)).with(tooMany), unhealthy + ", " + notAsked + ", " + noReport},
		"what it may be asked in a moment is not erased before":        {facts(bad(wasAsked)).with(limitsMatter), ""},
		"nor while power cycles are not known":                         {facts(bad(wasAsked, onHost)).with(cyclesUnread), ""},
		"a request is created":                                         {byRequests(bad()), "create request, " + unhealthy + ", " + waiting},
		"an owner that cannot remediate is not asked any more":         {byRequests(bad(refuses)), "create request, " + unhealthy + ", " + notAsked + ", " + waiting},
		"one that exists is enough":                                    {byRequests(bad(marked, ownRequest)), unhealthy},
		"one that was created before a crash is announced":             {byRequests(bad(ownRequest)), unhealthy + ", " + waiting},
		"the report of its provider stands":                            {byRequests(bad(reports, ownRequest)), unhealthy},
		"an adoptable one is adopted":                                  {byRequests(bad(marked, adoptable)), "adopt request, " + unhealthy + ", " + waiting},
		"W8: unless it is being deleted":                               {byRequests(bad(marked, adoptable, requestDeleting)), unhealthy},
		"one of another check is in the way":                           {byRequests(bad(foreign)), unhealthy + ", " + inTheWay},
		"W4: a template that is missing is reported":                   {facts(bad()).with(missing), unhealthy + ", RemediationTemplateNotFound: Error retrieving remediation template  /"},
		"so is one that can be none":                                   {facts(bad()).with(refused), unhealthy + ", RemediationTemplateNotFound: No request can be made: it is a Lease"},
		"so is one of no use":                                          {byRequests(bad(unusable)), unhealthy + ", RemediationRequestCreationFailed: it is odd"},
		"W5: that it was missing is removed":                           {byRequests(bad(notFound)).with(noPlace), unhealthy + ", " + noReport},
		"while requests are listed for the first time nothing is set":  {facts(bad()).with(unknown, syncing), ""},
		"but on a machine that is marked":                              {facts(bad(marked)).with(unknown, syncing), unhealthy},

		"a request that is being deleted is not deleted again":             {byRequests(is(health.Healthy, ownRequest, requestDeleting)), healthy + ", " + noReport},
		"nor is one adopted of a machine that an older check acts on":      {byRequests(is(health.Healthy, olderActs, adoptable)), ""},
		"a failure that a check reported is over when it is healthy":       {byRequests(is(health.Healthy, failedBefore, foreign)), healthy + ", " + noReport},
		"so is the report on a request that is gone":                       {byRequests(is(health.Healthy, reports)), healthy + ", " + noReport},
		"also without a template":                                          {facts(is(health.Healthy, reports)), healthy + ", " + noReport},
		"an owner is not asked while there is no place":                    {facts(bad()).with(noPlace), unhealthy + ", " + noReport},
		"nor while a power cycle is in progress":                           {facts(bad(cycled)), unhealthy + ", " + noReport},
		"nor while the machine is updated in place":                        {facts(bad(updatingNow)), unhealthy + ", " + noReport},
		"one that was asked before and is to remediate now is not erased":  {facts(bad(wasAsked)), "request owner remediation, " + unhealthy + ", " + toOwner + ", " + noReport},
		"but with a template it is":                                        {byRequests(bad(wasAsked)), "create request, " + unhealthy + ", " + notAsked + ", " + waiting},
		"also if there is no place for a request":                          {byRequests(bad(wasAsked)).with(noPlace), unhealthy + ", " + notAsked},
		"not if there is a request: its provider may have asked the owner": {byRequests(bad(wasAsked, reports, ownRequest)), unhealthy},
		"but if it is somebody else's":                                     {byRequests(bad(wasAsked, foreign)), unhealthy + ", " + notAsked + ", " + inTheWay},
		"an owner that cannot remediate stays asked until it is replaced":  {byRequests(bad(refuses)).with(noPlace), unhealthy},
		"also if no request can be made instead":                           {byRequests(bad(refuses, unusable)), unhealthy + ", RemediationRequestCreationFailed: it is odd"},
		"an owner that was asked goes on though there is a template":       {byRequests(bad(asked)), unhealthy},
		"a template of no use is reported when it is the machine's turn":   {byRequests(bad(unusable)).with(noPlace), unhealthy},
		"the report of a provider is not replaced by a new request":        {byRequests(bad(reports)), "create request, " + unhealthy},
		"a failure is over once there is a request":                        {byRequests(bad(marked, failedBefore, ownRequest)), unhealthy + ", " + waiting},
		"that the template was missing stands while that is not known":     {facts(bad(notFound)).with(unknown), unhealthy},
		"and while the remediation starts in a moment":                     {byRequests(bad(notFound)).with(limitsMatter), unhealthy},
		"another failure stands until the next try":                        {byRequests(bad(failedBefore)).with(noPlace), unhealthy},
		"an adoptable request that the provider reports on is adopted":     {byRequests(bad(reports, adoptable)), "adopt request, " + unhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.given).Decisions[0].steps(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Before it acts, the controller checks that the workload cluster is still the same (Reconciler.changed).
func TestWhatActsOnAMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		acts  bool
	}{
		"a healthy machine is marked so":       {facts(is(health.Healthy)), false},
		"one is marked unhealthy that was not": {facts(bad()).with(tooMany), true},
		"one stays marked":                     {facts(bad(marked)).with(tooMany), false},
		"an owner is asked":                    {facts(bad(marked)), true},
		"a request is created":                 {byRequests(bad(marked)), true},
		"one stays":                            {byRequests(bad(marked, ownRequest)), false},
		"a request is deleted":                 {byRequests(is(health.Healthy, ownRequest)), true},
		"an unhealthy one is being deleted":    {facts(bad(deleting)), false},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.acts, Decide(tc.given).Decisions[0].Acts(), "it acts:")
		})
	}
}

func TestARequestIsCreatedOrAnOwnerAskedExactlyWhereARemediationStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		for i, d := range Decide(f).Decisions {
			if begins := d.Step == CreateRequest || d.Step == RequestOwnerRemediation; begins != d.Starts() {
				t.Fatalf("machine %d starts: %t, and the step is %q", i, d.Starts(), d.Step)
			}
			if d.Step != NoStep && Deleting(d.Target.Machine) {
				t.Fatalf("machine %d is being deleted, and the step is %q", i, d.Step)
			}
		}
	})
}

// A finding by a person or a Machine rule gives the reason of the condition; the message lists all findings.
func TestTheReasonOfAnUnhealthyMachineIsTheFirstFindingThatIsDue(t *testing.T) {
	finding := func(is health.Reason, at time.Time) health.Finding { return health.Finding{Reason: is, Due: at} }
	for name, tc := range map[string]struct {
		findings []health.Finding
		want     string
	}{
		"a mark by hand goes before all others": {[]health.Finding{finding(health.MarkedByHand, time.Time{}), finding(health.NodeCondition, ago(time.Hour))}, "HasRemediateAnnotation"},
		"a failure that is final":               {[]health.Finding{finding(health.MachineFailed, time.Time{})}, "UnhealthyMachine"},
		"a condition of the machine":            {[]health.Finding{finding(health.MachineCondition, noon)}, "UnhealthyMachine"},
		"a node that is gone":                   {[]health.Finding{finding(health.NodeDeleted, time.Time{})}, "NodeDeleted"},
		"a node that is late":                   {[]health.Finding{finding(health.NodeStartup, noon)}, "NodeStartupTimeout"},
		"a condition of the node":               {[]health.Finding{finding(health.NodeCondition, noon)}, "UnhealthyNode"},
		"what is not due yet says nothing":      {[]health.Finding{finding(health.MachineCondition, noon.Add(1)), finding(health.NodeCondition, noon)}, "UnhealthyNode"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(facts(bad(func(t *givenMachine) { t.Verdict.Findings = tc.findings }))).Decisions[0]
			if len(d.Conditions) == 0 || d.Conditions[0].Type != HealthCheckSucceeded || d.Conditions[0].Reason != tc.want {
				t.Errorf("set are %v, want the reason %s first", d.Conditions, tc.want)
			}
		})
	}
}

// ofSet makes a MachineSet the owner of the machine.
func ofSet(t *givenMachine) {
	t.OwnerReferences[0].Kind, t.OwnerReferences[0].Name = "MachineSet", "ms"
}

// told gives the machine the condition kubemend.io/Remediation.
func told(status metav1.ConditionStatus, reason, message string) func(*givenMachine) {
	return func(t *givenMachine) { has(t.Machine, condition(mendv1.Remediation, status, reason, message)) }
}

func TestWhatTheConditionRemediationSays(t *testing.T) {
	const (
		stands, gone = "stands", "gone"
		pending      = "False WithinTimeout: Its timeout of 5m0s has not expired: Node condition Ready is Unknown (Silent)" +
			". This ends at 2026-01-01T12:01:00Z at the latest"
		askedOwner   = "Its owner, MachineSet ms, was asked to remediate it"
		ownerAsked   = "True OwnerAsked: " + askedOwner
		ownerRefuses = "False CannotBeRemediated: Its owner, MachineSet ms, cannot remediate it: the condition OwnerRemediated says why"
		ownerMissing = "False NoOwner: The check asks the owner of a machine to remediate it, and this machine has no owner" +
			". To do: Repair or delete it by hand, or give the check a template"
		requestMade = "True RemediationRequested: Metal3Remediation a is in progress for the machine"
		inWay       = "False RequestInTheWay: Metal3Remediation req exists and was not made by this MachineHealthCheck" +
			". To do: Find out who made it and whether it is still needed. When it is gone, kubemend makes its own"
		byAnother  = "True RemediationUnderWay: HostRemediation x is in progress for the machine: no other remediation starts before it is over"
		manyFailed = "Too many machines are not healthy: the condition RemediationAllowed of MachineHealthCheck check has the numbers"
		updates    = "False MachineBeingUpdated: * The machine is being updated in place (its condition Updating is True): " +
			"kubemend does not remediate it, unless a person marks it with the annotation cluster.x-k8s.io/remediate-machine\n* " + manyFailed
		noSpare = "False NoSpareHost: It waits until a free host fits its replacement: the condition SpareHostAvailable says what is free" +
			". This ends at 2026-01-01T12:59:00Z at the latest"
		noTemplate = "False RemediationTemplateNotFound: No request can be made: it is gone" +
			". To do: Make it, or name another template in spec.remediation.templateRef"
		noUse = "False RemediationRequestCreationFailed: it is odd" +
			". To do: Fix the template, or name another one in spec.remediation.templateRef"
	)
	named := func(f *Facts) { f.Check.Name, f.Template.Kind = "check", "Metal3Remediation" }
	older := func(t *givenMachine) {
		condOf(OwnerRemediated, metav1.ConditionFalse, waitingForRemediation)(t)
		t.SetV1Beta1Conditions(clusterv1.Conditions{{
			Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse, Message: "later",
		}})
	}
	timeout := func(t *givenMachine) {
		signal := health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: "Silent"}
		t.Verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Limit: 5 * time.Minute, Due: t.Verdict.Recheck, Signal: signal}}
	}
	before := told(metav1.ConditionTrue, "OwnerAsked", askedOwner)
	cyclesUnread := func(f *Facts) { f.CyclesUnread = noon.Add(time.Minute) }
	syncing := func(f *Facts) { f.Template.Syncing = true }
	another := func(t *givenMachine) { cycled(t); t.Cycle.Kind, t.Cycle.Name = "HostRemediation", "x" }
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"a healthy machine has none":                               {facts(is(health.Healthy)), stands},
		"it goes when the machine is healthy":                      {facts(is(health.Healthy, before)), gone},
		"also if a mark by hand is taken away at the start-up":     {facts(is(health.Starting, awaited, before)), gone},
		"a machine that starts up has none":                        {facts(is(health.Starting, awaited)), stands},
		"nothing is said of what is unknown":                       {facts(is(health.Unknown)), stands},
		"what was said stands in an outage":                        {facts(is(health.Unknown, before)), stands},
		"a pending machine says until when":                        {facts(is(health.Pending, timeout)), pending},
		"and nothing of limits, which others change":               {facts(is(health.Pending, timeout)).with(tooMany), pending},
		"one whose remediation is in flight goes on":               {facts(is(health.Pending, timeout, ofSet, asked)), ownerAsked},
		"an owner is asked":                                        {facts(bad(ofSet)), ownerAsked},
		"one that was asked":                                       {facts(bad(ofSet, asked)), ownerAsked},
		"which is said once":                                       {facts(bad(ofSet, asked, before)), stands},
		"also with its record":                                     {facts(bad(ofSet, asked, told("True", "OwnerAsked", askedOwner+mendv1.RecordMention+"a@1"))), stands},
		"and with nothing else":                                    {facts(bad(ofSet, asked, told("True", "OwnerAsked", askedOwner+": and more"))), ownerAsked},
		"one that says so in the older condition alone":            {facts(bad(ofSet, asked, older)), ownerAsked + ". The owner says: later"},
		"one that cannot remediate it":                             {facts(bad(ofSet, refuses)), ownerRefuses},
		"none that could":                                          {facts(bad(unowned)), ownerMissing},
		"a request is made":                                        {byRequests(bad()), requestMade},
		"one that exists":                                          {byRequests(bad(ownRequest)), requestMade},
		"one whose provider has asked the owner":                   {byRequests(bad(ofSet, asked, ownRequest)), ownerAsked},
		"one of somebody else is in the way":                       {byRequests(bad(foreign)), inWay},
		"a power cycle that somebody else began":                   {facts(bad(another)), byAnother},
		"a limit blocks, without numbers":                          {facts(bad()).with(tooMany), "False TooManyUnhealthy: " + manyFailed},
		"that of a RemediationPolicy, without numbers too":         {facts(bad()).with(noPlace), "False GroupInFlight: The limit is reached"},
		"all blockers are listed, the first is the reason":         {facts(bad(updatingNow)).with(tooMany), updates},
		"what ends in a moment is not said":                        {facts(bad()).with(limitsMatter), stands},
		"nor among others":                                         {facts(bad()).with(limitsMatter, tooMany), "False TooManyUnhealthy: " + manyFailed},
		"no spare host, without the number of those that are free": {facts(bad(onHost)).with(waitsFor(time.Hour, none)), noSpare},
		"what was in progress stands while cycles are not read":    {facts(bad(onHost, before)).with(cyclesUnread), stands},
		"and while requests are listed for the first time":         {facts(bad(before)).with(unknown, syncing), stands},
		"a machine that is being deleted keeps it":                 {facts(bad(deleting, before)), stands},
		"one that an older check acts on is left to that":          {facts(bad(olderActs, before)), stands},
		"a check that is only observed says nothing":               {facts(bad()).with(observe), stands},
		"a template that is missing":                               {facts(bad()).with(missing), noTemplate},
		"a template that is of no use for it":                      {byRequests(bad(unusable)), noUse},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.given.with(named)).Decisions[0]
			got, at := stands, slices.IndexFunc(d.Conditions, func(c metav1.Condition) bool { return c.Type == mendv1.Remediation })
			if at >= 0 {
				cond := d.Conditions[at]
				if got = string(cond.Status) + " " + cond.Reason + ": " + cond.Message; cond.Status == "" {
					got = gone
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
