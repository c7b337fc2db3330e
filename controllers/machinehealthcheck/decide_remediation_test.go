package machinehealthcheck

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// ofSet is a machine that belongs to a MachineSet.
func ofSet(t *givenMachine) {
	t.OwnerReferences[0].Kind, t.OwnerReferences[0].Name = "MachineSet", "ms"
}

// told is a machine that has the condition kubemend.io/Remediation.
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
		ownerMissing = "False NoOwner: Its owner is to remediate it, and it has none: see to it by hand"
		requestMade  = "True RemediationRequested: Metal3Remediation a is under way for the machine"
		inWay        = "False RequestInTheWay: Metal3Remediation req exists and was not made by this MachineHealthCheck"
		byAnother    = "True RemediationUnderWay: HostRemediation x is under way for the machine: nothing else is begun before it is over"
		manyFailed   = "Too many machines are not healthy: the condition RemediationAllowed of MachineHealthCheck check has the numbers"
		inQueue      = "False RemediationsInProgress: It waits for its turn: other remediations are in flight " +
			"(kubemend.io/max-in-flight of MachineHealthCheck check)"
		updates = "False MachineBeingUpdated: * The machine is being updated in place (its condition Updating is True): " +
			"it is left alone, unless a person marks it with the annotation cluster.x-k8s.io/remediate-machine\n* " + manyFailed
		noSpare = "False NoSpareHost: It waits until a free host fits its replacement: the condition SpareHostAvailable says what is free" +
			". This ends at 2026-01-01T12:59:00Z at the latest"
		noTemplate = "False RemediationTemplateNotFound: No request can be made: it is gone"
		noUse      = "False RemediationRequestCreationFailed: it is odd"
	)
	named := func(f *Facts) { f.Check.Name, f.Template.Kind = "check", "Metal3Remediation" }
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
		"and nothing of limits, which others change":               {facts(is(health.Pending, timeout)).with(tooMany, atOnce(0)), pending},
		"one whose remediation is in flight goes on":               {facts(is(health.Pending, timeout, ofSet, asked)), ownerAsked},
		"an owner is asked":                                        {facts(bad(ofSet)), ownerAsked},
		"one that was asked":                                       {facts(bad(ofSet, asked)), ownerAsked},
		"which is said once":                                       {facts(bad(ofSet, asked, before)), stands},
		"also with its record":                                     {facts(bad(ofSet, asked, told("True", "OwnerAsked", askedOwner+recorded+"a@1"))), stands},
		"and with nothing else":                                    {facts(bad(ofSet, asked, told("True", "OwnerAsked", askedOwner+": and more"))), ownerAsked},
		"one that cannot remediate it":                             {facts(bad(ofSet, refuses)), ownerRefuses},
		"none that could":                                          {facts(bad(unowned)), ownerMissing},
		"a request is made":                                        {facts(bad()).with(external), requestMade},
		"one that exists":                                          {facts(bad(hasRequest(OwnRequest))).with(external), requestMade},
		"one whose provider has asked the owner":                   {facts(bad(ofSet, asked, hasRequest(OwnRequest))).with(external), ownerAsked},
		"one of somebody else is in the way":                       {facts(bad(hasRequest(ForeignRequest))).with(external), inWay},
		"a power cycle that somebody else began":                   {facts(bad(another)), byAnother},
		"a limit blocks, without numbers":                          {facts(bad()).with(tooMany), "False TooManyUnhealthy: " + manyFailed},
		"another limit, without the place in the queue":            {facts(bad(), bad(asked, ofSet)).with(atOnce(1)), inQueue},
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
		"a template that is of no use for it":                      {facts(bad(unusable)).with(external), noUse},
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
