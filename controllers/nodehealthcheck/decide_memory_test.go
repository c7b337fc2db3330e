package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// before says that the last decision was made an hour ago.
func before(f *Facts) { f.Memory.Decided = epoch.Add(-time.Hour) }

// Outages of the API server, and time without a manager that renews the lease, do not count for the timeout.
func TestFromWhenOnTheTimeOfARequestCounts(t *testing.T) {
	const minute = time.Minute
	outage := func(from, to time.Duration) func(*Facts) {
		return func(f *Facts) { f.Outages = append(f.Outages, Outage{epoch.Add(-from), epoch.Add(-to)}) }
	}
	statusLists := inStatus
	remembered := func(counted time.Duration) func(*Facts) {
		return func(f *Facts) { f.Memory.Requests = map[string]RequestMemory{"r": {Started: epoch.Add(-counted)}} }
	}
	renewed := func(ago time.Duration) func(*Node) { return leased(leaseFor(us, 6*minute, time.Hour, ago)) }
	const late = 2*minute + 35*time.Second // half of five minutes, and restartSlack
	ten := startedBefore(10 * minute)
	for name, tc := range map[string]struct {
		given Facts
		want  time.Duration // ago
	}{
		"from its creation":                                                             {of(lost(asked(ten))).with(before), 10 * minute},
		"from what the status says, if that is later":                                   {of(lost(asked(ten, statusLists(7*minute)))).with(before), 7 * minute},
		"and not from before its creation":                                              {of(lost(asked(ten, statusLists(12*minute)))).with(before), 10 * minute},
		"from what is remembered, if that is later":                                     {of(lost(asked(ten, statusLists(7*minute)))).with(before, remembered(5*minute)), 5 * minute},
		"and not if it is earlier":                                                      {of(lost(asked(ten, statusLists(7*minute)))).with(before, remembered(8*minute)), 7 * minute},
		"an outage is given back":                                                       {of(lost(asked(ten))).with(before, outage(5*minute, 3*minute)), 8 * minute},
		"all of them are":                                                               {of(lost(asked(ten))).with(before, outage(7*minute, 6*minute), outage(5*minute, 3*minute)), 7 * minute},
		"what of one came after the creation is":                                        {of(lost(asked(ten))).with(before, outage(15*minute, 8*minute)), 8 * minute},
		"nothing of one that was over before":                                           {of(lost(asked(ten))).with(before, outage(15*minute, 12*minute)), 10 * minute},
		"nothing of one that was given back by the last decision":                       {of(lost(asked(ten))).with(outage(5*minute, 3*minute), func(f *Facts) { f.Memory.Decided = epoch.Add(-3 * minute) }), 10 * minute},
		"a manager that starts gives back all since the lease should have been renewed": {of(lost(asked(ten), renewed(late+1))), 10*minute - late - 1},
		"and nothing if it did not have to be":                                          {of(lost(asked(ten), renewed(late))), 10 * minute},
		"then what it has seen itself is given back":                                    {of(lost(asked(ten), renewed(minute))).with(outage(30*time.Second, 20*time.Second)), 10*minute - 10*time.Second},
		"but not what was over when the lease was renewed":                              {of(lost(asked(ten), renewed(minute))).with(outage(2*minute, minute)), 10 * minute},
		"not by the lease of another holder":                                            {of(lost(asked(ten), leased(leaseFor("NMO", 6*minute, 0, 5*minute)))).with(outage(5*minute, 3*minute)), 8 * minute},
		"nor by one without a time":                                                     {of(lost(asked(ten), leased(&Lease{Own: true, Lease: &coordinationv1.Lease{}}))).with(outage(5*minute, 3*minute)), 8 * minute},
		"what is left of the last failure has the time it had when it was deleted":      {of(lost(asked(ten, deleting(6*minute)))).with(before), 4 * minute},
		"also if the status lists it as of before the node recovered": {
			of(lost(asked(ten, deleting(6*minute), statusLists(9*minute)), listedDelayed(epoch))).with(before), 4 * minute,
		},
		"and no outage is given back to it":                                       {of(lost(asked(ten, deleting(6*minute)))).with(before, outage(5*minute, 3*minute)), 4 * minute},
		"all of its time if its deletion seems to be older":                       {of(lost(asked(ten, deleting(11*minute)))).with(before), 0},
		"a request that somebody deletes while its node is unhealthy has its own": {of(lost(asked(ten, deleting(6*minute), statusLists(10*minute)))).with(before), 10 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			want := epoch.Add(-tc.want)
			if got := p.Decisions[0].Requests[0].Counted; !got.Equal(want) {
				t.Errorf("counts since %s, want %s", got, want)
			}
			tc.given.Memory = p.Memory
			if got := Decide(tc.given).Decisions[0].Requests[0].Counted; !got.Equal(want) {
				t.Errorf("in the next reconcile counts since %s, want %s", got, want)
			}
		})
	}
}

// The memory has only nodes and requests that still exist or are in the check's status.
func TestWhatIsRemembered(t *testing.T) {
	f := of(lost(asked()), lost()).with(func(f *Facts) {
		known := RequestMemory{Started: epoch, Flagged: true, Unpatchable: true}
		f.Memory = Memory{
			Requests: map[string]RequestMemory{"r": known, "gone": known},
			Refusals: map[string]Refusal{"a": {Last: epoch.Add(-refusedFor)}, "b": {Last: epoch.Add(1 - refusedFor)}, "gone": {Last: epoch}},
			Streaks:  map[string]health.Streaks{"gone": {}}, Seen: map[string]health.Seen{"gone": {}},
		}
	})
	want := Memory{
		Judged: epoch, Decided: epoch, Recoveries: map[string]Recovery{},
		Requests: map[string]RequestMemory{"r": {Started: epoch, Flagged: true, Unpatchable: true}},
		Refusals: map[string]Refusal{"b": {Last: epoch.Add(1 - refusedFor)}},
	}
	got := Decide(f).Memory
	if _, kept := got.Seen["gone"]; kept || len(got.Seen) != 2 {
		t.Errorf("the conditions of %d nodes are remembered", len(got.Seen))
	}
	got.Streaks, got.Seen, got.Rules = nil, nil, nil // see TestTurnsOfAConditionAreRemembered
	must.Equal(t, want, got, "remembered")
}

// Different unhealthy statuses of a condition count together, unless it may have been healthy in between unnoticed.
func TestTurnsOfAConditionAreRemembered(t *testing.T) {
	const minute = time.Minute
	silentMember := health.Rule{Source: health.OnNode, Type: "Ready", Status: unknown, For: 5 * minute}
	notReady := silentMember
	notReady.Status = bad
	type turn struct {
		status    string
		since, at time.Duration // ago
		changes   []func(*Node)
	}
	for name, tc := range map[string]struct {
		first, then turn
		resync      time.Duration
		want        time.Duration // from epoch until the node is unhealthy
	}{
		"a turn": {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, minute, nil}, 0, minute},
		"one that was seen a resync and a minute later": {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, 11 * minute, nil}, 10 * minute, minute},
		"one that was seen later than that counts anew": {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, 11*minute + 1, nil}, 10 * minute, 5 * minute},
		"without resync after the longest timeout":      {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, 6*minute + 1, nil}, 0, 5 * minute},
		"and not before": {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, 6 * minute, nil}, 0, minute},
		"of a node that is being remediated none counts on": {turn{unknown, 4 * minute, 0, []func(*Node){asked()}}, turn{bad, 0, minute, nil}, 0, 5 * minute},
		"nor does one once it is":                           {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, minute, []func(*Node){asked()}}, 0, 5 * minute},
		"also if its request cannot be read":                {turn{unknown, 4 * minute, 0, nil}, turn{bad, 0, minute, []func(*Node){unseen}}, 0, 5 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := of(healthy()).with(func(f *Facts) { f.Policy.Rules, f.Resync = []health.Rule{silentMember, notReady}, tc.resync })
			var d *Decision
			for _, is := range []turn{tc.first, tc.then} {
				n := lost(is.changes...)
				cond := &n.Object.Status.Conditions[0]
				n.Object.UID, cond.Status, cond.LastTransitionTime = "uid-a", corev1.ConditionStatus(is.status), metav1.NewTime(epoch.Add(-is.since))
				f.Now, f.Nodes = epoch.Add(is.at), []Node{n}
				p := Decide(f)
				f.Memory, d = p.Memory, p.Decisions[0]
			}
			if got := d.Verdict.Findings[0].Due; !got.Equal(epoch.Add(tc.want)) {
				t.Errorf("unhealthy at %s, want after %s", got, tc.want)
			}
		})
	}
}

// A step whose request is refused is given up after its timeout, which begins with the first attempt.
func TestTheStepAfterOneThatCannotBeRequested(t *testing.T) {
	two := steps(reboot(0), host2())
	refusals := func(a Refusal, more ...Refusal) func(*Facts) {
		return func(f *Facts) {
			f.Memory.Refusals = map[string]Refusal{"a": a}
			for _, b := range more {
				f.Memory.Refusals["b"] = b
			}
		}
	}
	no := func(ago time.Duration) Refusal { return Refusal{First: epoch.Add(-ago), Last: epoch.Add(-time.Second)} }
	down := func(ago time.Duration) Refusal {
		refusal := no(ago)
		refusal.Unanswered = true
		return refusal
	}
	onStep := func(step int, refusal Refusal) Refusal {
		refusal.Step = step
		return refusal
	}
	const tooLong, long, short = 6 * time.Minute, 5 * time.Minute, 4 * time.Minute
	three := steps(reboot(0), host2(), reboot(0))
	onSecond := lost(asked(on(1)))
	for name, tc := range map[string]struct {
		given Facts
		want  []int // the step that starts for each node
	}{
		"is not taken at once":             {of(lost()).with(two, refusals(no(short))), []int{0}},
		"is taken when the time is over":   {of(lost()).with(two, refusals(no(long))), []int{1}},
		"also if the webhook is down":      {of(lost()).with(two, refusals(down(long))), []int{1}},
		"the last one is tried on":         {of(lost()).with(steps(reboot(0)), refusals(no(long))), []int{0}},
		"nothing follows the only one":     {of(lost()).with(refusals(no(long))), []int{0}},
		"a lease that fails is no request": {of(lost()).with(two, refusals(Refusal{Last: epoch})), []int{0}},
		"for all that are refused":         {of(lost(), lost()).with(two, refusals(no(long), no(long))), []int{1, 1}},
		"for the first while it is down":   {of(lost(), lost()).with(two, refusals(down(long), down(tooLong))), []int{0, 1}},
		"for none while another is on it":  {of(lost(), onSecond).with(two, refusals(down(tooLong))), []int{0, -1}}, // as after a restart
		"for none while another is on it, first or not": {
			of(lost(), onSecond).with(two, refusals(down(tooLong), down(long))), []int{0, -1},
		},
		"for the next when its time there is over": {
			of(lost(), lost(asked(on(1), startedBefore(tooLong), notified))).with(two, refusals(down(long), down(2*tooLong))), []int{1, -1},
		},
		"also if another had a step that is no more": {
			of(lost(), lost(deleted(givenUp(was(0, time.Hour))))).with(two, refusals(down(long), onStep(2, down(tooLong)))), []int{1, 1},
		},
		"also if a lower step has a request":   {of(lost(asked(failed))).with(three, refusals(onStep(1, no(long)))), []int{2}},
		"is not taken once there is a request": {of(onSecond).with(three, refusals(onStep(1, no(long)))), []int{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			for i, want := range tc.want {
				d := p.Decisions[i]
				if given := which(d, func(r RequestState) bool { return r.GiveUp }); d.Start != want || len(given) > 0 {
					t.Errorf("node %d: step %d starts, want %d; %v are given up", i, d.Start, want, given)
				}
			}
		})
	}
}

// host2 returns a template for another kind of requests than reboot.
func host2() Template {
	t := reboot(0)
	t.Name, t.Request.Kind = "replace", "Replace"
	return t
}

// If a node is healthy for less than a minute, and less than the timeout of its rule, its escalation goes on with the same step.
func TestTheStepAfterAShortRecovery(t *testing.T) {
	for name, tc := range map[string]struct {
		step          int
		kept, healthy time.Duration // how long the request exists, and how long the node is healthy
		want, counted int           // the step that starts, and how many earlier requests count
	}{
		"a recovery of less than a minute":             {1, time.Second, 59 * time.Second, 1, 1},
		"one on the first step":                        {0, time.Second, 59 * time.Second, 0, 1},
		"one of a minute":                              {1, time.Second, time.Minute, 0, 0},
		"one of more, in most of which its request is": {1, 70 * time.Second, 75 * time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := of(lost(asked(failed))).with(steps(reboot(0), host2()))
			at := func(after time.Duration, n Node) *Decision {
				n.Name, n.Object.UID = "a", "uid-a"
				f.Now, f.Nodes = epoch.Add(after), []Node{n}
				p := Decide(f)
				f.Memory = p.Memory
				return p.Decisions[0]
			}
			for after := time.Duration(0); after < tc.healthy; after += time.Second {
				if after < tc.kept {
					at(after, healthy(asked(startedBefore(time.Minute), on(tc.step))))
				} else {
					at(after, healthy())
				}
			}
			again := func(changes ...func(*Node)) Node { return lost(append(changes, since(-tc.healthy))...) }
			at(tc.healthy, again())
			d := at(tc.healthy+5*time.Minute, again())
			counted := f.Nodes[0].Gone
			if kept := len(f.Memory.Recoveries); d.Start != tc.want || len(counted) != tc.counted || kept != tc.counted {
				t.Errorf("step %d starts, want %d; %v; %d requests count, %d is remembered", d.Start, tc.want, reasons(d.Blockers), len(counted), kept)
			}
			if at(tc.healthy+5*time.Minute+time.Second, again(deleted(counted...))); len(f.Nodes[0].Gone) != tc.counted || len(f.Memory.Recoveries) > 0 {
				t.Errorf("once the status lists them %d requests count, %d are remembered", len(f.Nodes[0].Gone), len(f.Memory.Recoveries))
			}
		})
	}
}

func TestWhatTheLimitsCount(t *testing.T) {
	left := func(f *Facts) { f.TerminatingLeft = true }
	for name, tc := range map[string]struct {
		given Facts
		want  budget.Population
	}{
		"healthy nodes": {of(healthy(), healthy()), budget.Population{Healthy: 2}},
		"an unhealthy node without a request waits":       {of(lost(), lost()), budget.Population{Unhealthy: 2, Waiting: 2}},
		"one with a request is in flight":                 {of(lost(asked()), lost(asked())), budget.Population{Unhealthy: 2, InFlight: 2}},
		"an excluded node counts like any other":          {of(lost(excluded)), budget.Population{Unhealthy: 1, Waiting: 1}},
		"a pending node does not wait yet":                {of(lost(since(time.Minute))), budget.Population{Pending: 1}},
		"a healthy node with a request recovers":          {of(healthy(asked())), budget.Population{Recovering: 1, InFlight: 1}},
		"also if it cannot be read":                       {of(healthy(unseen)), budget.Population{Recovering: 1, InFlight: 1}},
		"also if one of two cannot be read":               {of(healthy(asked(), unseen)), budget.Population{Recovering: 1, InFlight: 1}},
		"a node of which an orphaned request is there":    {of(healthy(orphaned)), budget.Population{Recovering: 1}},
		"a node that OpenShift is ending is unknown":      {of(lost(terminating)).with(left), budget.Population{Unknown: 1}},
		"C69: a node that has left the selection":         {of(lost(unselected, asked())), budget.Population{}},
		"a healthy node that has left it":                 {of(healthy(unselected)), budget.Population{}},
		"a node that is gone, whose request is there":     {of(gone(asked())), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose request cannot be read":                {of(gone(unseen)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose request is not released soon":          {of(gone(asked(deleting(clingingFor - 1)))), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose request is not released for very long": {of(gone(asked(deleting(clingingFor)))), budget.Population{}},
		"one that a person has deleted":                   {of(gone()), budget.Population{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			must.Equal(t, tc.want, p.Population, "population")
			if got := p.Minimum() + p.Limits.AtMost; got != p.Population.Total() {
				t.Errorf("%d nodes have to be healthy, of %d of which %d may be unhealthy", p.Minimum(), p.Population.Total(), p.Limits.AtMost)
			}
		})
	}
}

// A node that a remediation deleted is missing until it is replaced: otherwise each replacement would lower the total for the limits.
func TestWhichNodesAreMissing(t *testing.T) {
	const minute = time.Minute
	at := func(ago time.Duration) time.Time { return epoch.Add(-ago) }
	away := func(ago time.Duration) Node { return gone(statusLists(at(ago))) }
	made := func(ago time.Duration, changes ...func(*Node)) Node {
		return healthy(append(changes, created(at(ago)))...)
	}
	requests := func(n int) func(*Node) {
		return func(node *Node) { node.Listed = &nhcv1.UnhealthyNode{Remediations: make([]nhcv1.Remediation, n)} }
	}
	reports := func(change func(*Request)) Node { return gone(asked(change)) }
	for name, tc := range map[string]struct {
		given Facts
		want  map[string]time.Time // MissedSince of the missing nodes
	}{
		"none, as none is gone":                          {of(healthy(), lost()), nil},
		"one that is gone while its request was there":   {of(away(10 * minute)), map[string]time.Time{"a": at(10 * minute)}},
		"one whose request the status lists":             {of(gone(requests(1))), map[string]time.Time{"a": epoch}},
		"W7: none that the status lists without any":     {of(gone(requests(0))), nil},
		"none whose request cannot be read":              {of(gone(unseen, statusLists(at(minute)))), nil},
		"none that is there":                             {of(lost(statusLists(at(minute)))), nil},
		"one for half an hour":                           {of(away(controlplane.ReplacementPatience - 1)), map[string]time.Time{"a": at(controlplane.ReplacementPatience - 1)}},
		"and no longer":                                  {of(away(controlplane.ReplacementPatience)), nil},
		"one whose remediation has succeeded":            {of(reports(succeeded(escalation.Yes))), map[string]time.Time{"a": epoch}},
		"none whose remediation has failed":              {of(reports(failed)), nil},
		"one whose remediator says that it will go":      {of(reports(deletesNode(escalation.Yes))), map[string]time.Time{"a": epoch}},
		"none whose remediator says that it will not":    {of(reports(deletesNode(escalation.No))), nil},
		"one whose Machine stays":                        {of(reports(machineThere)), map[string]time.Time{"a": epoch}},
		"one whose request a remediator keeps":           {of(reports(kept)), map[string]time.Time{"a": epoch}},
		"none that a node was made for since":            {of(away(10*minute), made(5*minute)), nil},
		"one for which none was made since":              {of(away(10*minute), made(15*minute)), map[string]time.Time{"a": at(10 * minute)}},
		"one that a node was made for at the moment":     {of(away(10*minute), made(10*minute)), map[string]time.Time{"a": at(10 * minute)}},
		"the later one of two, for which one was made":   {of(away(10*minute), away(20*minute), made(5*minute)), map[string]time.Time{"a": at(5 * minute)}},
		"none of two for which two were made":            {of(away(10*minute), away(20*minute), made(5*minute), made(6*minute)), nil},
		"none of two for which two were made in between": {of(away(10*minute), away(20*minute), made(5*minute), made(15*minute)), nil},
		"one if the node that was made is another check's": {
			of(away(10*minute), made(5*minute, unselected)), map[string]time.Time{"a": at(10 * minute)},
		},
		"one if the node that was made is gone": {
			of(away(10*minute), gone(func(n *Node) { n.Selected = true })), map[string]time.Time{"a": at(10 * minute)},
		},
		"one if a node has come back that was away itself": {
			of(away(10*minute), made(5*minute, statusLists(at(8*minute)))), map[string]time.Time{"a": at(5 * minute)},
		},
		"none if a node was made that was healthy since": {of(away(10*minute), made(5*minute, statusLists(at(2*minute)))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			got := map[string]time.Time{}
			for i := range p.Decisions {
				if d := p.Decisions[i]; d.Missing {
					got[tc.given.Nodes[i].Name] = d.MissedSince
					if d.Class != budget.Unhealthy || !d.InFlight {
						t.Errorf("it counts as %q, in flight: %t", d.Class, d.InFlight)
					}
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("missing %v, want %v", got, tc.want)
			}
			for name, since := range tc.want {
				if !got[name].Equal(since) {
					t.Errorf("%s is missing since %v, want %v", name, got[name], since)
				}
			}
			if len(got) > 0 && (p.Recheck.IsZero() || !p.Recheck.After(epoch)) {
				t.Errorf("looked at again at %v", p.Recheck)
			}
		})
	}
}

// Pending nodes alone make no storm, or there would be one in every rollout. But they prolong a storm.
func TestWhatAStormIs(t *testing.T) {
	cooldown := cooldown(time.Hour)
	active := func(f *Facts) { f.Storm.Active = true }
	pending := lost(since(time.Minute))
	for name, tc := range map[string]struct {
		given           Facts
		active, blocked bool
	}{
		"too many unhealthy nodes begin one":           {of(lost()).with(limit("0"), cooldown), true, true},
		"as many as may be do not":                     {of(lost()).with(limit("1"), cooldown), false, false},
		"too many pending nodes do not":                {of(pending).with(limit("0"), cooldown), false, false},
		"they prolong it":                              {of(pending).with(limit("0"), cooldown, active), true, true},
		"too few healthy nodes begin none":             {of(healthy()).with(func(f *Facts) { f.Check.Spec.MaxUnhealthy, f.Check.Spec.MinHealthy = nil, new(intstr.Parse("2")) }, cooldown), false, false},
		"it blocks while it cools down":                {of(healthy()).with(storm), true, true},
		"W11: it is over after that":                   {of(healthy()).with(storm, func(f *Facts) { f.Storm.CoolingSince = epoch.Add(-time.Hour) }), false, false},
		"W11: it is over when the cooldown is removed": {of(lost()).with(limit("0"), active), false, false},
	} {
		p := Decide(tc.given)
		if p.Storm.Active != tc.active || p.Storm.Blocks != tc.blocked {
			t.Errorf("%s: active %t, blocks %t; want %t, %t", name, p.Storm.Active, p.Storm.Blocks, tc.active, tc.blocked)
		}
		if cools := p.Storm.Blocks && !p.Storm.CoolingSince.IsZero(); cools && !p.Recheck.Equal(epoch.Add(time.Hour)) {
			t.Errorf("%s: looked at again at %s", name, p.Recheck)
		}
	}
}

// After a start or an outage of the API server, nodes may be NotReady only because their kubelets could not report.
func TestForHowLongKubeletsAreAwaited(t *testing.T) {
	const grace = 50 * time.Second
	at := func(ago time.Duration) time.Time { return epoch.Add(-ago) }
	minuteAgo := since(time.Minute)
	since := func(ago time.Duration) func(*Facts) {
		return func(f *Facts) { f.Since, f.Grace = at(ago), grace }
	}
	blocked := func(reason string, ago time.Duration) func(*Facts) {
		return func(f *Facts) {
			f.Check.Status.Conditions = []metav1.Condition{{
				Type: nhcv1.RemediationAllowedCondition, Status: metav1.ConditionFalse, Reason: reason,
				LastTransitionTime: metav1.NewTime(at(ago)),
			}}
		}
	}
	announced := func(ago time.Duration) func(*Facts) { return blocked(nhcv1.KubeletsAwaitedReason, ago) }
	outage := func(from, to time.Duration) func(*Facts) {
		return func(f *Facts) { f.Outages = append(f.Outages, Outage{at(from), at(to)}) }
	}
	pending := lost(minuteAgo)
	for name, tc := range map[string]struct {
		given Facts
		want  time.Duration // from now on
	}{
		"for as long as they have to report":                          {of(lost()).with(since(0)), grace},
		"from the start on":                                           {of(lost()).with(since(49 * time.Second)), time.Second},
		"and no longer":                                               {of(lost()).with(since(grace)), 0},
		"from the end of the last outage on":                          {of(lost()).with(since(time.Hour), outage(30*time.Minute, 20*time.Minute), outage(time.Minute, 10*time.Second)), 40 * time.Second},
		"from the start, after all outages":                           {of(lost()).with(since(10*time.Second), outage(time.Hour, time.Minute)), 40 * time.Second},
		"by managers that start again and again, three times as long": {of(lost()).with(since(0), announced(3*grace-1)), grace},
		"whatever blocked the check before": {
			of(lost()).with(since(0), blocked("TooManyUnhealthy", time.Hour)), grace,
		},
		"and not without end":                    {of(lost()).with(since(0), announced(3*grace)), 0},
		"but for outages":                        {of(lost()).with(since(0), announced(3*grace), outage(time.Minute, 10*time.Second)), 40 * time.Second},
		"for a pending node":                     {of(pending).with(since(0)), grace},
		"for an unhealthy one and a pending one": {of(lost(), pending).with(since(0)), grace},
		"if all nodes are healthy there is none for which it matters": {of(healthy()).with(since(0)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			var reason Reason
			var until time.Time
			if tc.want > 0 {
				reason, until = "KubeletsAwaited", epoch.Add(tc.want)
			}
			if b := p.Blocker(); b.Reason != reason || !b.Until.Equal(until) {
				t.Errorf("blocked by %+v, want %s until %s", b, reason, until)
			}
			if tc.want > 0 && (p.Recheck.IsZero() || p.Recheck.After(until)) {
				t.Errorf("looked at again at %s", p.Recheck)
			}
			before := conditionOf(tc.given.Check, nhcv1.RemediationAllowedCondition)
			now := meta.FindStatusCondition(Conditions(&tc.given, &p), nhcv1.RemediationAllowedCondition)
			goesOn := before != nil && before.Reason == now.Reason
			if tc.want > 0 && now.LastTransitionTime.Time.Equal(epoch) == goesOn {
				t.Errorf("%s since %s", now.Reason, now.LastTransitionTime)
			}
		})
	}
}
