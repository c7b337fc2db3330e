package machines

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestWhichMachinesStart(t *testing.T) {
	const hour = time.Hour
	tried := func(before time.Duration) func(*given) { return func(t *given) { t.refused = ago(before) } }
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"W1: all beside one that has its request":                              {of(bad(requested(OwnRequest)), bad(), bad()).with(external), "bc"},
		"all that are unhealthy":                                               {of(bad(), is(health.Pending), bad()), "ac"},
		"W18: the longest overdue is first":                                    {of(bad(), bad(due(hour))).with(atOnce(1)), "b"},
		"before it, one that a person marked":                                  {of(bad(due(hour)), bad(byPerson)).with(atOnce(1)), "b"},
		"by name where that is the same":                                       {of(bad(), bad()).with(atOnce(1)), "a"},
		"last is one that could not be begun":                                  {of(bad(due(hour), tried(1)), bad()).with(atOnce(1)), "b"},
		"and none without an owner, which takes no place":                      {of(bad(due(hour), unowned), bad(), bad(unowned)).with(atOnce(1)), "b"},
		"with a template it is no matter who owns it":                          {of(bad(due(hour), unowned), bad()).with(external).with(atOnce(1)), "a"},
		"one without a usable template lets the next go":                       {of(bad(unusable), bad()).with(external).with(atOnce(1)), "b"},
		"one whose owner cannot remediate takes no place":                      {of(bad(refuses), bad()).with(atOnce(1)), "b"},
		"one that is being deleted does":                                       {of(bad(refuses, deleting), bad()).with(atOnce(1)), ""},
		"a power cycle takes a place":                                          {of(bad(cycled), bad()).with(atOnce(1)), ""},
		"an owner that was asked before there was a template":                  {of(bad(refuses)).with(external), "a"},
		"what is healthy again is not in flight for its owner":                 {of(is(health.Healthy, asked), bad()).with(atOnce(1)), "b"},
		"a request that was announced counts if it is not read":                {of(is(health.Pending, announcedBefore)).with(unread), ""},
		"of those that could not be begun the longest ago is first":            {of(bad(tried(1)), bad(tried(2))).with(atOnce(1)), "b"},
		"one of which only the condition says so was tried before that":        {of(bad(tried(1)), bad(failedBefore)).with(external, atOnce(1)), "b"},
		"one of which the condition says so is last too":                       {of(bad(due(hour), failedBefore), bad()).with(external, atOnce(1)), "b"},
		"not if its owner is asked instead now":                                {of(bad(due(hour), failedBefore), bad()).with(atOnce(1)), "a"},
		"a request that is being deleted takes its place until it is gone":     {of(is(health.Healthy, requested(OwnRequest), requestDeleting), bad()).with(external, atOnce(1)), ""},
		"a request of somebody else takes none":                                {of(bad(requested(ForeignRequest)), bad()).with(external, atOnce(1)), "b"},
		"an owner that was asked takes a place, though there is a template":    {of(bad(asked), bad()).with(external, atOnce(1)), ""},
		"a machine that its owner deletes takes one until it is gone":          {of(is(health.Healthy, asked, deleting), bad()).with(atOnce(1)), ""},
		"with a range they start from its lower end on":                        {of(bad(), bad()).with(func(f *Facts) { f.Limits.AtLeast, f.Limits.AtMost = 2, 2 }), "ab"},
		"whatever is not healthy counts, also what starts or is being deleted": {of(bad(), is(health.Starting), is(health.Unknown), bad(deleting)).with(func(f *Facts) { f.Limits.AtMost = 3 }), ""},
		"as many as the limit may be":                                          {of(bad(), is(health.Starting), is(health.Unknown), bad(deleting)).with(func(f *Facts) { f.Limits.AtMost = 4 }), "a"},
		"of machines that a provider calls failed and that are Ready one":      {of(bad(saidToFail), bad(), bad(saidToFail)), "ab"},
		"none while the one before is remediated":                              {of(bad(saidToFail, asked), bad(saidToFail)), ""},
		"nor before the one in its place has a node":                           {of(bad(saidToFail), is(health.Starting, awaited)), ""},
		"nor while a record says that capacity is missing":                     {of(bad(saidToFail)).with(capacityMissing), ""},
		"nor as long as the one before cannot be replaced":                     {of(bad(saidToFail, refuses), bad(saidToFail)), ""},
		"but one that a person marked":                                         {of(bad(saidToFail, asked), bad(saidToFail, byPerson)), "b"},
		"and one that something else is held against":                          {of(bad(saidToFail, asked), bad(saidToFail, quiet)), "b"},
		"who has not read the others does not know whose turn it is":           {of(bad(saidToFail)).with(counted(2)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.given.starting(); got != tc.want {
				t.Errorf("%q start, want %q", got, tc.want)
			}
		})
	}
}
