package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// before is a decision that was made an hour ago.
func before(f *Facts) { f.Memory.Known, f.Memory.Decided = true, epoch.Add(-time.Hour) }

// Time in which no remediator could work is not counted: the API server was out of reach, or no manager ran to renew the lease.
func TestFromWhenOnTheTimeOfARequestCounts(t *testing.T) {
	const minute = time.Minute
	outage := func(from, to time.Duration) func(*Facts) {
		return func(f *Facts) { f.Outages = append(f.Outages, Outage{epoch.Add(-from), epoch.Add(-to)}) }
	}
	statusLists := inStatus
	remembered := func(counted time.Duration) func(*Facts) {
		return func(f *Facts) { f.Memory.Started = map[string]time.Time{"r": epoch.Add(-counted)} }
	}
	renewed := func(ago time.Duration) func(*Node) { return leased(leaseFor(us, 6*minute, time.Hour, ago)) }
	const late = 2*minute + 35*time.Second // half of five minutes, and what a reconcile may take
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
		"nothing of one that was given back by the last decision":                       {of(lost(asked(ten))).with(outage(5*minute, 3*minute), func(f *Facts) { f.Memory.Known, f.Memory.Decided = true, epoch.Add(-3*minute) }), 10 * minute},
		"a manager that starts gives back all since the lease should have been renewed": {of(lost(asked(ten), renewed(late+1))), 10*minute - late - 1},
		"and nothing if it did not have to be":                                          {of(lost(asked(ten), renewed(late))), 10 * minute},
		"then what it has seen itself is given back":                                    {of(lost(asked(ten), renewed(minute))).with(outage(30*time.Second, 20*time.Second)), 10*minute - 10*time.Second},
		"but not what was over when the lease was renewed":                              {of(lost(asked(ten), renewed(minute))).with(outage(2*minute, minute)), 10 * minute},
		"not by the lease of another holder":                                            {of(lost(asked(ten), leased(leaseFor("NMO", 6*minute, 0, 5*minute)))).with(outage(5*minute, 3*minute)), 8 * minute},
		"nor by one without a time":                                                     {of(lost(asked(ten), leased(&Lease{Own: true, Lease: &coordinationv1.Lease{}}))).with(outage(5*minute, 3*minute)), 8 * minute},
		"what is left of the last failure has the time it had when it was deleted":      {of(lost(asked(ten, deleting(6*minute)))).with(before), 4 * minute},
		"also if the status lists it as of before the node recovered": {
			of(lost(asked(ten, deleting(6*minute), statusLists(9*minute), func(r *Request) { r.ListedHealthy = true }))).with(before), 4 * minute,
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

// The next decision knows of what there is still, and of nothing else.
func TestWhatIsRemembered(t *testing.T) {
	f := of(lost(asked()), lost()).with(func(f *Facts) {
		yes := map[string]bool{"r": true, "gone": true}
		f.Memory = Memory{
			Flagged: yes, Unpatchable: yes,
			Refusals: map[string]Refusal{"a": {Last: epoch.Add(-refusedFor)}, "b": {Last: epoch.Add(1 - refusedFor)}, "gone": {Last: epoch}},
			Started:  map[string]time.Time{"r": epoch, "gone": epoch},
			Streaks:  map[string]Streaks{"gone": {}}, Seen: map[string]health.Seen{"gone": {}},
		}
	})
	yes := map[string]bool{"r": true}
	want := Memory{
		Known: true, Judged: epoch, Decided: epoch, Flagged: yes, Unpatchable: yes,
		Refusals: map[string]Refusal{"b": {Last: epoch.Add(1 - refusedFor)}}, Started: map[string]time.Time{"r": epoch},
		Succeeded: map[string]bool{}, Recoveries: map[string]Recovery{},
	}
	got := Decide(f).Memory
	if _, kept := got.Seen["gone"]; kept || len(got.Seen) != 2 {
		t.Errorf("the conditions of %d nodes are remembered", len(got.Seen))
	}
	got.Streaks, got.Seen, got.Rules = nil, nil, nil // see TestTurnsOfAConditionAreRemembered
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
}

// A condition that turns from one status to another counts on, unless it may have been healthy in between and this was not seen.
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
		want        time.Duration // until it is unhealthy, from the first moment on
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
				f.Memory, d = p.Memory, &p.Decisions[0]
			}
			if got := d.Verdict.Findings[0].Due; !got.Equal(epoch.Add(tc.want)) {
				t.Errorf("unhealthy at %s, want after %s", got, tc.want)
			}
		})
	}
}
