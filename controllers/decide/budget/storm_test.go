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
