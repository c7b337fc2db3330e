package budget

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func coolingSince(t time.Time) Storm { return Storm{Active: true, CoolingSince: t} }

func TestStorm(t *testing.T) {
	const tooMany, few = true, false
	calm, raging := Storm{}, Storm{Active: true}
	ten, none := 10*time.Minute, time.Duration(0)

	cases := map[string]struct {
		was      Storm
		cooldown *time.Duration
		tooMany  bool
		want     StormStep
	}{
		"without a storm nothing is held up":     {calm, &ten, few, StormStep{}},
		"a storm begins with too many":           {calm, &ten, tooMany, StormStep{Storm: raging, Blocks: true, Turn: StormBegan}},
		"it goes on while there are too many":    {raging, &ten, tooMany, StormStep{Storm: raging, Blocks: true}},
		"the cooldown begins with few enough":    {raging, &ten, few, StormStep{coolingSince(noon), true, noon.Add(ten), StormCooling}},
		"it goes on until it is over":            {coolingSince(ago(4 * time.Minute)), &ten, few, StormStep{coolingSince(ago(4 * time.Minute)), true, noon.Add(6 * time.Minute), StormUnchanged}},
		"the last moment still is the cooldown":  {coolingSince(ago(ten - 1)), &ten, few, StormStep{coolingSince(ago(ten - 1)), true, noon.Add(1), StormUnchanged}},
		"the very moment of its end is its end":  {coolingSince(ago(ten)), &ten, few, StormStep{Turn: StormEnded}},
		"long after its end it has ended too":    {coolingSince(ago(time.Hour)), &ten, few, StormStep{Turn: StormEnded}},
		"C71: a second storm ends the cooldown":  {coolingSince(ago(4 * time.Minute)), &ten, tooMany, StormStep{Storm: raging, Blocks: true}},
		"even one whose time was over":           {coolingSince(ago(time.Hour)), &ten, tooMany, StormStep{Storm: raging, Blocks: true}},
		"a cooldown of 0 is over at once":        {raging, &none, few, StormStep{Turn: StormEnded}},
		"a cooldown of 0 does not stop a storm":  {raging, &none, tooMany, StormStep{Storm: raging, Blocks: true}},
		"a cooldown that was cut short is over":  {coolingSince(ago(4 * time.Minute)), &none, few, StormStep{Turn: StormEnded}},
		"W11: without the field a storm ends":    {raging, nil, few, StormStep{Turn: StormEnded}},
		"W11: without it a cooldown ends":        {coolingSince(noon), nil, few, StormStep{Turn: StormEnded}},
		"W11: even while there are too many":     {raging, nil, tooMany, StormStep{Turn: StormEnded}},
		"without the field no storm begins":      {calm, nil, tooMany, StormStep{}},
		"without the field there is no storm":    {calm, nil, few, StormStep{}},
		"a cooldown without a storm is ignored":  {Storm{CoolingSince: noon}, &ten, few, StormStep{}},
		"even without the field":                 {Storm{CoolingSince: noon}, nil, few, StormStep{}},
		"and does not survive the next storm":    {Storm{CoolingSince: noon}, &ten, tooMany, StormStep{Storm: raging, Blocks: true, Turn: StormBegan}},
		"a clock that went back waits that long": {coolingSince(noon.Add(time.Minute)), &ten, few, StormStep{coolingSince(noon.Add(time.Minute)), true, noon.Add(11 * time.Minute), StormUnchanged}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.was.Next(tc.cooldown, tc.tooMany, noon)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// W11: upstream does not look while no node is unhealthy, and still is in the storm when the next one fails, months later.
func TestAStormEndsThoughNoNodeIsUnhealthy(t *testing.T) {
	limits, err := NodeLimits("3", "", 2) // more than there are: even the number of healthy nodes is too small
	if err != nil {
		t.Fatal(err)
	}
	grant := Decide(Population{Healthy: 2}, limits)
	cooldown := time.Minute
	s := Storm{Active: true}.Next(&cooldown, grant.ShortCircuited(), noon)
	if s.Turn != StormCooling {
		t.Fatalf("with no unhealthy node: %+v", s)
	}
	if s = s.Next(&cooldown, grant.ShortCircuited(), s.Recheck); s.Turn != StormEnded || s.Blocks {
		t.Fatalf("after its cooldown: %+v", s)
	}
}

// The example of docs/nodehealthcheck.md.
func TestTheDocumentedStorm(t *testing.T) {
	limits, err := NodeLimits("51%", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	cooldown := 10 * time.Minute
	var storm Storm
	for _, pass := range []struct {
		at, bad int
		want    StormTurn
		blocks  bool
	}{
		{5, 6, StormBegan, true},
		{20, 3, StormCooling, true},
		{24, 0, StormUnchanged, true},
		{30, 0, StormEnded, false},
	} {
		now := noon.Add(time.Duration(pass.at) * time.Minute)
		grant := Decide(Population{Healthy: 10 - pass.bad, Unhealthy: pass.bad, Waiting: pass.bad}, limits)
		s := storm.Next(&cooldown, grant.ShortCircuited(), now)
		if s.Turn != pass.want || s.Blocks != pass.blocks {
			t.Errorf("12:%02d: %+v, want the turn %d", pass.at, s, pass.want)
		}
		storm = s.Storm
	}
}
