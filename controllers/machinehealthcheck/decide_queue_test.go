package machinehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestWhichMachinesStart(t *testing.T) {
	const hour = time.Hour
	tried := func(before time.Duration) func(*givenMachine) {
		return func(t *givenMachine) { t.refused = ago(before) }
	}
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"W1: all beside one that has its request":                              {facts(bad(hasRequest(OwnRequest)), bad(), bad()).with(external), "bc"},
		"all that are unhealthy":                                               {facts(bad(), is(health.Pending), bad()), "ac"},
		"W18: the longest overdue is first":                                    {facts(bad(), bad(due(hour))).with(atOnce(1)), "b"},
		"before it, one that a person marked":                                  {facts(bad(due(hour)), bad(byPerson)).with(atOnce(1)), "b"},
		"by name where that is the same":                                       {facts(bad(), bad()).with(atOnce(1)), "a"},
		"last is one that could not be begun":                                  {facts(bad(due(hour), tried(1)), bad()).with(atOnce(1)), "b"},
		"and none without an owner, which takes no place":                      {facts(bad(due(hour), unowned), bad(), bad(unowned)).with(atOnce(1)), "b"},
		"with a template it is no matter who owns it":                          {facts(bad(due(hour), unowned), bad()).with(external).with(atOnce(1)), "a"},
		"one without a usable template lets the next go":                       {facts(bad(unusable), bad()).with(external).with(atOnce(1)), "b"},
		"one whose owner cannot remediate takes no place":                      {facts(bad(refuses), bad()).with(atOnce(1)), "b"},
		"one that is being deleted does":                                       {facts(bad(refuses, deleting), bad()).with(atOnce(1)), ""},
		"a power cycle takes a place":                                          {facts(bad(cycled), bad()).with(atOnce(1)), ""},
		"an owner that was asked before there was a template":                  {facts(bad(refuses)).with(external), "a"},
		"what is healthy again is not in flight for its owner":                 {facts(is(health.Healthy, asked), bad()).with(atOnce(1)), "b"},
		"a request that was announced counts if it is not read":                {facts(is(health.Pending, announcedBefore)).with(unread), ""},
		"of those that could not be begun the longest ago is first":            {facts(bad(tried(1)), bad(tried(2))).with(atOnce(1)), "b"},
		"one of which only the condition says so was tried before that":        {facts(bad(tried(1)), bad(failedBefore)).with(external, atOnce(1)), "b"},
		"one of which the condition says so is last too":                       {facts(bad(due(hour), failedBefore), bad()).with(external, atOnce(1)), "b"},
		"not if its owner is asked instead now":                                {facts(bad(due(hour), failedBefore), bad()).with(atOnce(1)), "a"},
		"a request that is being deleted takes its place until it is gone":     {facts(is(health.Healthy, hasRequest(OwnRequest), requestDeleting), bad()).with(external, atOnce(1)), ""},
		"a request of somebody else takes none":                                {facts(bad(hasRequest(ForeignRequest)), bad()).with(external, atOnce(1)), "b"},
		"an owner that was asked takes a place, though there is a template":    {facts(bad(asked), bad()).with(external, atOnce(1)), ""},
		"a machine that its owner deletes takes one until it is gone":          {facts(is(health.Healthy, asked, deleting), bad()).with(atOnce(1)), ""},
		"with a range they start from its lower end on":                        {facts(bad(), bad()).with(func(f *Facts) { f.Limits.AtLeast, f.Limits.AtMost = 2, 2 }), "ab"},
		"whatever is not healthy counts, also what starts or is being deleted": {facts(bad(), is(health.Starting), is(health.Unknown), bad(deleting)).with(func(f *Facts) { f.Limits.AtMost = 3 }), ""},
		"as many as the limit may be":                                          {facts(bad(), is(health.Starting), is(health.Unknown), bad(deleting)).with(func(f *Facts) { f.Limits.AtMost = 4 }), "a"},
		"of machines that a provider calls failed and that are Ready one":      {facts(bad(saidToFail), bad(), bad(saidToFail)), "ab"},
		"none while the one before is remediated":                              {facts(bad(saidToFail, asked), bad(saidToFail)), ""},
		"nor before the one in its place has a node":                           {facts(bad(saidToFail), is(health.Starting, awaited)), ""},
		"nor while a record says that capacity is missing":                     {facts(bad(saidToFail)).with(capacityMissing), ""},
		"nor as long as the one before cannot be replaced":                     {facts(bad(saidToFail, refuses), bad(saidToFail)), ""},
		"but one that a person marked":                                         {facts(bad(saidToFail, asked), bad(saidToFail, byPerson)), "b"},
		"and one that something else is held against":                          {facts(bad(saidToFail, asked), bad(saidToFail, quiet)), "b"},
		"who has not read the others does not know whose turn it is":           {facts(bad(saidToFail)).with(counted(2)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.given.starting(); got != tc.want {
				t.Errorf("%q start, want %q", got, tc.want)
			}
		})
	}
}
