package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// A step that cannot be used for the node is passed over if another step can.
func TestWhichStepStarts(t *testing.T) {
	type starts struct {
		Step       int  // -1: none
		PassedOver bool // an earlier step was passed over
		Blockers   []Reason
	}
	host, two := hostTemplate(), steps(reboot(0), reboot(0))
	ours := machine(in("metal"))
	gaveUp := func(step int) func(*Node) { return deleted(givenUp(was(step, time.Hour))) }
	was := func(step int, ago time.Duration) func(*Node) {
		return deleted(was(step, ago))
	}
	for name, tc := range map[string]struct {
		given Facts
		want  starts
	}{
		"the first one": {of(lost()).with(two), starts{}},
		"that is about a Machine, of a node that has one": {of(lost(ours)).with(steps(host, reboot(0))), starts{}},
		"the second one, of a node that has none":         {of(lost()).with(steps(host, reboot(0))), starts{Step: 1, PassedOver: true}},
		"the third one, after two that cannot be":         {of(lost()).with(steps(host, host, reboot(0))), starts{Step: 2, PassedOver: true}},
		"the one after one that cannot be": {
			of(lost(asked(failed))).with(steps(reboot(0), host, reboot(0))), starts{Step: 2, PassedOver: true},
		},
		"none after the last one that can be": {
			of(lost(asked(failed))).with(steps(reboot(0), host)), starts{Step: -1, PassedOver: true, Blockers: []Reason{NoTemplateLeft}},
		},
		"none if there never was one that can be": {of(lost()).with(steps(host, host)), starts{Step: -1, Blockers: []Reason{TemplateOfMachines}}},
		"none if the Machine could not be read": {
			of(lost(machine(func(m *Machine) { m.Unread = true }))).with(steps(host, reboot(0))), starts{Step: -1, Blockers: []Reason{MachineUnread, TemplateElsewhere}},
		},
		"none before the Machine was looked for": {
			of(lost(func(n *Node) { n.Machine = nil })).with(steps(host, reboot(0))), starts{Step: -1, Blockers: []Reason{TemplateOfMachines}},
		},
		"the next one if a request that was given up is gone":           {of(lost(gaveUp(0))).with(two), starts{Step: 1}},
		"none if that was the last one":                                 {of(lost(gaveUp(0), gaveUp(1))).with(two), starts{Step: -1, Blockers: []Reason{NoTemplateLeft}}},
		"the same one if its request is gone":                           {of(lost(was(1, 2*time.Minute))).with(two), starts{Step: 1}},
		"but not within a minute":                                       {of(lost(was(1, 59*time.Second))).with(two), starts{Step: -1, Blockers: []Reason{"RequestDeleted"}}},
		"the next one if its time was over":                             {of(lost(was(0, 5*time.Minute))).with(two), starts{Step: 1}},
		"the first one if the template of a request is not named again": {of(lost(was(-1, 2*time.Minute))).with(two), starts{}},
		"the first one if that was given up":                            {of(lost(gaveUp(-1))).with(two), starts{}},
		"the first one if the template of one that is there is not":     {of(lost(asked(on(-1)))).with(two), starts{}},
		"no step but that of a single template":                         {of(lost(was(0, time.Hour))), starts{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.given).Decisions[0]
			got := starts{d.Start, d.Answer.Reason == passedOver || d.Answer.Reason == noneFits, reasons(d.Blockers)}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichStepWouldStart(t *testing.T) {
	host, two := hostTemplate(), steps(reboot(0), reboot(0))
	pending := since(time.Minute)
	none := func(r Reason) would { return would{-1, r} }
	for name, tc := range map[string]struct {
		given Facts
		want  would
	}{
		"the first one of a healthy node":                 {of(healthy()).with(two), would{}},
		"of a healthy node about which something is done": {of(healthy(asked(on(1)))).with(two), would{}},
		"none of a check without templates":               {of(healthy()).with(steps()), none(NoTemplate)},
		"none of it for an unhealthy node":                {of(lost()).with(steps()), none(NoTemplate)},
		"none for a node that is not selected":            {of(healthy(unselected)), none(NotSelected)},
		"none if it is unhealthy":                         {of(lost(unselected)), none(NotSelected)},
		"the first one if it has a request still":         {of(healthy(unselected, asked())), would{}},
		"none for a node that is gone":                    {of(gone()), none(NodeGone)},
		"the first one of a pending node":                 {of(lost(pending)).with(two), would{}},
		"the first one of one that is excluded":           {of(lost(excluded)).with(two), would{}},
		"the second one after the first one":              {of(lost(asked())).with(two), would{Step: 1}},
		"also if the node has left the selection":         {of(lost(asked(), unselected)).with(two), would{Step: 1}},
		"also if the node is pending":                     {of(lost(asked(), pending)).with(two), would{Step: 1}},
		"none after the last one":                         {of(lost(asked(on(1)))).with(two), none(NoneFollows)},
		"none after the only one":                         {of(lost(asked())), none(NoneFollows)},
		"none when the last one was given up":             {of(lost(asked(on(1), failed))).with(two), none(NoTemplateLeft)},
		"that which follows one that failed":              {of(lost(asked(failed))).with(two, pausedBy("me")), would{Step: 1}},
		"that whose request is being deleted":             {of(lost(asked(deleting(0), inStatus(24*time.Hour)))).with(two), would{}},
		"none that cannot be about the node":              {of(lost(asked())).with(steps(reboot(0), host)), none(NoneFollows)},
		"none if all cannot be":                           {of(lost()).with(steps(host, host)), none(NoneFollows)},
		"the one after that":                              {of(lost(asked())).with(steps(reboot(0), host, reboot(0))), would{Step: 2}},
		"the only one, also if it cannot be":              {of(lost()).with(steps(host)), would{}},
		"the first one once more when it is unhealthy again after a success": {
			of(lost(asked(succeeded(escalation.Yes)), listedDelayed(time.Time{}))), would{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(tc.given).Decisions[0]
			must.Is(t, tc.want, (would{d.Would, d.Nothing}))
		})
	}
}

// would is Would and Nothing of a decision.
type would struct {
	Step int
	Why  Reason
}

func TestWhatHappensNext(t *testing.T) {
	const minute = time.Minute
	host, two := hostTemplate(), steps(reboot(0), reboot(0))
	begun := delayedSince
	step := "Reboot from template remediators/reboot"
	expires := func(in time.Duration, follows string) rule.Step {
		return rule.Step{At: epoch.Add(in), Reason: StepExpires, Text: step + " is given up unless the node is back, and " + follows}
	}
	at := func(in time.Duration, what string) rule.Step { return rule.Step{At: epoch.Add(in), Reason: what} }
	theirs := func(n *Node) { n.Named = []*unstructured.Unstructured{nil, requestOf("Reboot", "a", "x")} }
	deletes := deletesNode(escalation.Yes)
	for name, tc := range map[string]struct {
		given Facts
		want  rule.Step
	}{
		"nothing of a healthy node":                         {of(healthy()), rule.Step{}},
		"nothing of a single remediation":                   {of(lost(asked())), rule.Step{}},
		"the time of a step is over":                        {of(lost(asked())).with(two), expires(4*minute, step+" begins")},
		"the time of the last one, too":                     {of(lost(asked(on(1)))).with(two), expires(4*minute, "no template is left to try")},
		"one that cannot be about the node does not follow": {of(lost(asked())).with(steps(reboot(0), host)), expires(4*minute, "no template is left to try")},
		"the one after that does":                           {of(lost(asked())).with(steps(reboot(0), host, reboot(0))), expires(4*minute, step+" begins")},
		"when a request that was deleted may be made again": {of(lost(deleted(was(0, 10*time.Second)))), at(50*time.Second, AskedAgain)},
		"nothing that users want to know of when it is":     {of(lost(deleted(was(0, 2*minute)))).with(two), rule.Step{}},
		"another holder of the lease is asked after":        {of(lost(leased(leaseFor("NMO", time.Hour, 0, 0)))), at(minute, AskedAgain)},
		"or when its lease ends":                            {of(lost(leased(leaseFor("NMO", 30*time.Second, 0, 0)))), at(30*time.Second+time.Millisecond, AskedAgain)},
		"a request of another check is looked for again":    {of(lost(orphaned)), at(minute, AskedAgain)},
		"also if it blocks the next step":                   {of(lost(asked(failed), orphaned)).with(two), at(minute, AskedAgain)},
		"also if it has the name of the next one":           {of(lost(asked(failed), theirs)).with(two), at(minute, AskedAgain)},
		"the healthy delay ends":                            {of(healthy(asked())).with(healthyDelay(10 * minute)), at(10*minute, DelayEnds)},
		"the rest of it":                                    {of(healthy(asked(begun(4 * minute)))).with(healthyDelay(10 * minute)), at(6*minute, DelayEnds)},
		"its end once more if the annotation was removed":   {of(healthy(asked(), statusLists(epoch.Add(-7*minute)))).with(healthyDelay(10 * minute)), at(3*minute, DelayEnds)},
		"the first of two ends of it":                       {of(healthy(asked(begun(4*minute)), asked(begun(5*minute)))).with(healthyDelay(10 * minute)), at(5*minute, DelayEnds)},
		"nothing if a person ends it":                       {of(healthy(asked())).with(healthyDelay(-1)), rule.Step{}},
		"a node that a remediator keeps away stays away":    {of(gone(asked(kept), statusLists(epoch.Add(-4*minute)))), at(6*minute, StaysAway)},
		"one that it deletes, for the time of its step":     {of(gone(asked(deletes))).with(two), at(4*minute, StaysAway)},
		"from the time on from which that counts": {
			of(gone(asked(deletes, inStatus(0)))).with(two), at(5*minute, StaysAway),
		},
		"without a timeout for two days":                    {of(gone(asked(deletes))), at(tooOld-minute, StaysAway)},
		"if the template is not named any more, too":        {of(gone(asked(deletes, on(-1)))).with(two), at(tooOld-minute, StaysAway)},
		"one whose Machine stays, for the time of its step": {of(gone(asked(machineThere))).with(two), at(4*minute, StaysAway)},
		"nothing when the remediator has answered":          {of(gone(asked(deletes, succeeded(escalation.Yes)))).with(two), rule.Step{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			next := p.Decisions[0].Next
			if tc.want.Text == "" {
				next.Text = ""
			}
			must.Equal(t, tc.want, next, "next")
			if !tc.want.At.IsZero() && (p.Recheck.IsZero() || p.Recheck.After(tc.want.At)) {
				t.Errorf("looked at again at %s", p.Recheck)
			}
		})
	}
}

// The escalation needs them so that a deleted request is not created again at once, or with its full timeout, or on an earlier step.
func TestWhichRequestsThatAreGoneAreRemembered(t *testing.T) {
	gaveUp := func(step int, ago time.Duration) Listed { return givenUp(was(step, ago)) }
	two := steps(reboot(0), reboot(0))
	four := deleted(was(0, 3), was(0, 1), was(0, 4), was(0, 2))
	for name, tc := range map[string]struct {
		given Facts
		want  []int
	}{
		"the only one":                                    {of(lost(deleted(was(0, 1)))).with(two), []int{0}},
		"the first and the last one of a step":            {of(lost(four)).with(two), []int{1, 2}},
		"of each step":                                    {of(lost(four, deleted(was(1, 1)))).with(two), []int{1, 2, 4}},
		"all that were given up":                          {of(lost(four, deleted(gaveUp(0, 3), gaveUp(0, 2)))).with(two), []int{1, 2, 4, 5}},
		"none whose template is not named any more":       {of(lost(deleted(was(-1, 1), was(0, 1)))).with(two), []int{1}},
		"but if it was given up":                          {of(lost(deleted(gaveUp(-1, 1)))).with(two), []int{0}},
		"those of a pending node":                         {of(lost(since(time.Minute), deleted(was(0, 1)))).with(two), []int{0}},
		"none of a healthy node: its next failure is new": {of(healthy(deleted(was(0, 1), gaveUp(0, 1)))).with(two), nil},
		"none of a node that is gone":                     {of(gone(deleted(gaveUp(0, 1)))).with(two), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(tc.given).Decisions[0].Remember, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("remembered (-want +got):\n%s", diff)
			}
		})
	}
}
