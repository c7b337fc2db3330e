package claims

import (
	"testing"

	"pgregory.net/rapid"
)

// with are the facts of a check that this manager looks at, without a claim or a label, changed by edits.
func with(edits ...func(*Facts)) Facts {
	f := Facts{Covered: true}
	for _, edit := range edits {
		edit(&f)
	}
	return f
}

func cluster(l Label) func(*Facts)   { return func(f *Facts) { f.Cluster = l } }
func namespace(l Label) func(*Facts) { return func(f *Facts) { f.Namespace = l } }
func is(p Pause) func(*Facts)        { return func(f *Facts) { f.Pause = p } }

// claimed is a check that was claimed because the label of an object asked for it.
func claimed(by Source) func(*Facts) {
	return func(f *Facts) { f.Pause, f.By = Claimed, by }
}

func notCovered(f *Facts) { f.Covered = false }
func ending(f *Facts)     { f.Ending = true }

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		facts Facts
		want  Plan
	}{
		"a check is left alone that no label asks for":            {with(), Plan{Leave, NotAsked, ""}},
		"the label of the Cluster claims its check":               {with(cluster(Act)), Plan{Claim, Asked, Cluster}},
		"the label of the Namespace claims its check":             {with(namespace(Act)), Plan{Claim, Asked, Namespace}},
		"of two labels that of the Cluster is named":              {with(cluster(Act), namespace(Act)), Plan{Claim, Asked, Cluster}},
		"the Namespace claims without a Cluster that can be read": {with(cluster(Unread), namespace(Act)), Plan{Claim, Asked, Namespace}},
		"the Cluster claims without a Namespace that can be read": {with(cluster(Act), namespace(Unread)), Plan{Claim, Asked, Cluster}},
		"labels that cannot be read claim nothing":                {with(cluster(Unread), namespace(Unread)), Plan{Leave, NotAsked, ""}},
		"a check that is claimed by the label stays claimed":      {with(cluster(Act), claimed(Cluster)), Plan{Leave, AlreadyClaimed, Cluster}},
		"a claim that somebody removed is made anew":              {with(cluster(Act), claimed(Cluster), is(NotPaused)), Plan{Claim, Asked, Cluster}},
		"a check that is claimed by hand is left alone":           {with(cluster(Act), is(Claimed)), Plan{Leave, ClaimedByHand, Cluster}},
		"a check that is paused for all is left alone":            {with(namespace(Act), is(Paused)), Plan{Leave, PausedByHand, Namespace}},
		"so is one that was claimed before it was paused":         {with(cluster(Act), claimed(Cluster), is(Paused)), Plan{Leave, PausedByHand, Cluster}},

		"without the label its claim is released":                  {with(claimed(Cluster)), Plan{Release, NoLongerAsked, ""}},
		"so is that of the Namespace":                              {with(claimed(Namespace)), Plan{Release, NoLongerAsked, ""}},
		"so is the mark of a claim that somebody removed":          {with(claimed(Cluster), is(NotPaused)), Plan{Release, NoLongerAsked, ""}},
		"so is the mark of one that somebody paused for all":       {with(claimed(Cluster), is(Paused)), Plan{Release, NoLongerAsked, ""}},
		"so is one whose mark is not understood":                   {with(claimed("x")), Plan{Release, NoLongerAsked, ""}},
		"one by hand stays when the label goes":                    {with(is(Claimed)), Plan{Leave, NotAsked, ""}},
		"the Namespace keeps what the Cluster had claimed":         {with(namespace(Act), claimed(Cluster)), Plan{Leave, AlreadyClaimed, Namespace}},
		"the Cluster keeps what the Namespace had claimed":         {with(cluster(Act), claimed(Namespace)), Plan{Leave, AlreadyClaimed, Cluster}},
		"a Cluster that is not there yet releases nothing":         {with(cluster(Unread), claimed(Cluster)), Plan{Leave, LabelUnread, ""}},
		"nor what the Namespace had claimed":                       {with(cluster(Unread), claimed(Namespace)), Plan{Leave, LabelUnread, ""}},
		"a Namespace that may not be read releases nothing of its": {with(namespace(Unread), claimed(Namespace)), Plan{Leave, LabelUnread, ""}},
		"but the Cluster's label alone counts for its own claim":   {with(namespace(Unread), claimed(Cluster)), Plan{Release, NoLongerAsked, ""}},

		"an invalid label claims nothing":                    {with(cluster(Invalid)), Plan{Leave, InvalidLabel, ""}},
		"nor does that of a Namespace":                       {with(namespace(Invalid)), Plan{Leave, InvalidLabel, ""}},
		"a typing error releases nothing":                    {with(cluster(Invalid), claimed(Cluster)), Plan{Leave, InvalidLabel, ""}},
		"nor does one on the Namespace":                      {with(namespace(Invalid), claimed(Cluster)), Plan{Leave, InvalidLabel, ""}},
		"beside an invalid label a valid one of both claims": {with(cluster(Invalid), namespace(Act)), Plan{Claim, Asked, Namespace}},

		"a check of another shard is not claimed": {with(cluster(Act), notCovered), Plan{Leave, NotCovered, Cluster}},
		"nor released": {with(claimed(Cluster), notCovered), Plan{Leave, NotCovered, ""}},
		"a check that is being deleted is not claimed":         {with(cluster(Act), ending), Plan{Leave, BeingDeleted, Cluster}},
		"nor released, since core would act on it at the end":  {with(claimed(Cluster), ending), Plan{Leave, BeingDeleted, ""}},
		"of another shard it is not said that it goes as well": {with(notCovered, ending), Plan{Leave, NotCovered, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.facts); got != tc.want {
				t.Errorf("Decide(%+v) = %+v, want %+v", tc.facts, got, tc.want)
			}
		})
	}
}

// What somebody else wrote on a check, and what another manager looks at, is never touched.
func TestNothingOfOthersIsTouched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Covered: rapid.Bool().Draw(t, "covered"), Ending: rapid.Bool().Draw(t, "ending"),
			Cluster: Label(rapid.IntRange(0, 3).Draw(t, "cluster")), Namespace: Label(rapid.IntRange(0, 3).Draw(t, "namespace")),
			Pause: Pause(rapid.IntRange(0, 2).Draw(t, "pause")), By: rapid.SampledFrom([]Source{"", Cluster, Namespace, "x"}).Draw(t, "by"),
		}
		p := Decide(f)
		asked := f.Cluster == Act || f.Namespace == Act
		switch {
		case p.Action != Leave && (!f.Covered || f.Ending):
			t.Fatalf("%+v of %+v, which is another manager's, or goes", p, f)
		case p.Action == Claim && (!asked || f.Pause != NotPaused):
			t.Fatalf("%+v of %+v, which is paused or claimed, or for which no label asks", p, f)
		case p.Action == Release && (asked || f.By == "" || f.Cluster == Invalid || f.Namespace == Invalid):
			t.Fatalf("%+v of %+v, which is not claimed by a label, or for which one may still ask", p, f)
		case p.Action == "" || p.Reason == "" || asked != (p.By != ""):
			t.Fatalf("%+v of %+v says not what or why", p, f)
		}
	})
}
