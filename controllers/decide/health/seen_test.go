package health

import (
	"testing"
	"time"
)

// A stamp is of a clock of somebody else, or missing. (The clock of a kubelet after a loss of power is that of 2020.)
func TestSinceWhenAConditionCounts(t *testing.T) {
	const m, h = time.Minute, time.Hour
	notReady := func(stamp time.Time) []Signal { return []Signal{notReady(stamp)} }
	var first, healthy, bad, unruled = Seen{}, Seen{"node", ago(m), nil}, Seen{"node", ago(m), notReady(ago(h))}, Seen{Object: "node"}
	for name, tc := range map[string]struct {
		was   Seen
		blind bool
		stamp time.Time
		want  time.Duration // ago; below zero: from now, as it has no stamp that can be true
	}{
		"since its stamp, at the first look":                              {first, false, ago(h), h},
		"a stamp older than the object, at the first look":                {first, false, ago(25 * h), -1},
		"none, at the first look":                                         {first, false, time.Time{}, -1},
		"one in the future, at the first look":                            {first, false, ago(-6 * h), -1},
		"it turned since the last look":                                   {healthy, false, ago(m), m},
		"it turned before, by a clock that is behind":                     {healthy, false, ago(45 * m), -1},
		"it turned, by one that is years behind":                          {healthy, false, noon.AddDate(-6, 0, 0), -1},
		"it turned, by one that is ahead":                                 {healthy, false, ago(-6 * h), -1},
		"it turned, and has no stamp":                                     {healthy, false, time.Time{}, -1},
		"it turned from another bad status":                               {Seen{"node", ago(m), []Signal{silent(ago(h))}}, false, ago(45 * m), -1},
		"a few seconds behind":                                            {healthy, false, ago(m + 10*time.Second), m + 10*time.Second},
		"a few seconds ahead":                                             {healthy, false, ago(-10 * time.Second), -10 * time.Second},
		"the same status under a new stamp":                               {bad, false, ago(time.Second), h},
		"the same status under none":                                      {bad, false, time.Time{}, h},
		"a new stamp after a time in which a turn would have been missed": {bad, true, ago(time.Second), time.Second},
		"after such a time, the stamp that it had":                        {bad, true, ago(h), h},
		"after such a time, one in the future":                            {bad, true, ago(-6 * h), h},
		"there was no rule about it at the last look":                     {unruled, false, ago(h), h},
		"what was seen was another object of the name":                    {Seen{"other", ago(m), notReady(ago(2 * h))}, false, ago(h), h},
	} {
		t.Run(name, func(t *testing.T) {
			want := notReady(ago(tc.want))[0]
			if tc.want == -1 {
				want.Since, want.Late = noon, NotSinceStamp
			}
			seen := tc.was.Next(Seen{"node", noon, notReady(tc.stamp)}, ago(24*h), tc.blind)
			if seen.Signals[0] != want {
				t.Errorf("it is %+v, want %+v", seen.Signals[0], want)
			}
			if again := seen.Next(Seen{"node", noon.Add(h), notReady(tc.stamp)}, ago(24*h), false); again.Signals[0] != want {
				t.Errorf("an hour later it is %+v, and was %+v", again.Signals[0], want)
			}
		})
	}
}

// Time without contact is added to what was running when it began. What is first seen afterwards counts from a minute after its end.
func TestAnOutageIsLeftOut(t *testing.T) {
	const m = time.Minute
	pod := func(status string, since time.Time) Signal { return machineSays("EtcdPodHealthy", status, "", since) }
	for name, tc := range map[string]struct {
		before []Signal
		given  Signal
		outage Outage
		want   time.Duration // ago
		late   Doubt
	}{
		"it was running when the outage began":           {[]Signal{notReady(ago(9 * m))}, notReady(ago(9 * m)), Outage{ago(3 * m), noon, true}, 6 * m, ThroughOutage},
		"it is first seen":                               {nil, notReady(ago(9 * m)), Outage{ago(3 * m), noon, true}, -m, NotSinceOutage},
		"it is first seen later, and is older":           {nil, notReady(ago(9 * m)), Outage{Ended: ago(4 * m)}, 3 * m, NotSinceOutage},
		"it turned meanwhile":                            {[]Signal{readySince(ago(9 * m))}, notReady(ago(2 * m)), Outage{ago(3 * m), noon, true}, -m, NotSinceOutage},
		"it turned twice meanwhile":                      {[]Signal{notReady(ago(9 * m))}, notReady(ago(m)), Outage{ago(3 * m), noon, true}, -m, NotSinceOutage},
		"it turned since":                                {nil, notReady(ago(m)), Outage{Ended: ago(2 * m)}, m, ""},
		"it goes on after the look at which it was over": {[]Signal{notReady(ago(9 * m))}, notReady(ago(9 * m)), Outage{Ended: ago(m)}, 9 * m, ""},
		"its beginning was not seen":                     {[]Signal{pod("False", ago(9*m))}, pod("False", ago(9*m)), Outage{Ended: noon, Now: true}, -m, NotSinceOutage},
		"a look into the cluster that was running":       {[]Signal{pod("False", ago(9*m))}, pod("False", ago(9*m)), Outage{ago(3 * m), noon, true}, 6 * m, ThroughOutage},
		"what a provider knows":                          {nil, machineSays("InfrastructureReady", "False", "", ago(9*m)), Outage{ago(3 * m), noon, true}, 9 * m, ""},
	} {
		got := Seen{Signals: []Signal{tc.given}}.Through(Seen{Signals: tc.before}, tc.outage).Signals[0]
		if want := ago(tc.want); !got.Since.Equal(want) || got.Late != tc.late {
			t.Errorf("%s: it counts from %s for %q, want %s for %q", name, got.Since, got.Late, want, tc.late)
		}
	}
	began := Streaks{"Ready": {Began: ago(9 * m), Turned: ago(4 * m)}}
	for _, lasted := range []time.Duration{0, 3 * m} {
		want := Streak{Began: ago(9*m - lasted), Turned: ago(4*m - lasted)}
		if got := began.Later(lasted)["Ready"]; got != want {
			t.Errorf("after an outage of %s a streak is %+v, want %+v", lasted, got, want)
		}
	}
}

// Time in which nobody could look at a machine is no part of the time for which it was bad.
func TestTimeWithoutContactIsNotCountedTogether(t *testing.T) {
	const m = time.Minute
	rules := []Rule{
		{Source: OnMachine, Type: "EtcdMemberHealthy", Status: "Unknown", For: 5 * m},
		{Source: OnMachine, Type: "EtcdMemberHealthy", Status: "False", For: 5 * m},
	}
	for name, tc := range map[string]struct {
		reason  string
		reached time.Time
		want    time.Duration // ago
	}{
		"the author looked, and did not know": {"InspectionFailed", time.Time{}, 9 * m},
		"the author had no connection":        {ConnectionDown, time.Time{}, m},
		"the cluster was out of reach":        {"InspectionFailed", ago(2 * m), m},
		"it was long before":                  {"InspectionFailed", ago(20 * m), 9 * m},
	} {
		streaks, _ := Streaks(nil).After([]Signal{machineSays("EtcdMemberHealthy", "Unknown", tc.reason, ago(9*m))}, rules, false, time.Time{})
		if !tc.reached.IsZero() {
			streaks, _ = streaks.After([]Signal{machineSays("EtcdMemberHealthy", "Unknown", tc.reason, ago(9*m))}, rules, false, tc.reached)
		}
		_, together := streaks.After([]Signal{machineSays("EtcdMemberHealthy", "False", "", ago(m))}, rules, false, tc.reached)
		if got := together[0].Since; !got.Equal(ago(tc.want)) {
			t.Errorf("%s: it counts from %s, want %s", name, got, ago(tc.want))
		}
	}
}

func TestAClockThatIsSetBackInAnOutageShortensNoTimeout(t *testing.T) {
	if got := (Outage{Began: noon.Add(time.Hour), Ended: noon, Now: true}).Lasted(); got != 0 {
		t.Errorf("the outage lasted %s", got)
	}
}
