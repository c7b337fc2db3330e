package machines

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// steps is what d does, in one line.
func (d *Decision) steps() string {
	var words []string
	if d.Step != NoStep {
		words = append(words, string(d.Step))
	}
	for _, c := range d.Conditions {
		switch {
		case c.Remove:
			words = append(words, "no "+c.Type)
		case c.Because != "":
			words = append(words, c.Reason+" because of "+string(c.Because))
		default:
			words = append(words, c.Type+"="+c.Status+" "+c.Reason)
		}
	}
	return strings.Join(words, ", ")
}

func TestWhatIsDoneAboutAMachine(t *testing.T) {
	const (
		healthy, unhealthy = "HealthCheckSucceeded=True HealthCheckSucceeded", "HealthCheckSucceeded=False UnhealthyNode"
		asked, waiting     = "OwnerRemediated=False WaitingForRemediation", "ExternallyRemediated=False WaitingForRemediation"
		notAsked, noReport = "no OwnerRemediated", "no ExternallyRemediated"
	)
	requested := func(r Request) func(*given) { return func(t *given) { t.Request = r } }
	marked := func(t *given) { t.Failed = true }
	older := func(t *given) { t.Older = true }
	deleting := func(t *given) { t.Deleting = true }
	ownerAsked := func(t *given) { t.Owner, t.Failed = Asked, true }
	askedWhileHealthy := func(t *given) { t.AskedWhileHealthy = true }
	reports := func(t *given) { t.ProviderReports = true }
	known := func(t *given) { t.Healthy = true }
	tooMany := func(f *Facts) { f.Limits.AtMost = 0 }
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"a healthy machine that is marked so needs nothing":            {of(is(health.Healthy, known)), ""},
		"a healthy machine is marked healthy":                          {of(is(health.Healthy)), healthy + ", " + noReport},
		"one that is being deleted keeps its conditions":               {of(is(health.Healthy, deleting)), ""},
		"one that an older check acts on keeps its conditions":         {of(is(health.Healthy, older)), ""},
		"a pending machine keeps its conditions and its request":       {of(is(health.Pending, marked, requested(OwnRequest))).with(external), ""},
		"an unknown machine too":                                       {of(is(health.Unknown, marked, requested(OwnRequest))).with(external), ""},
		"the request of a healthy machine is deleted":                  {of(is(health.Healthy, requested(OwnRequest))).with(external), "delete request, " + healthy + ", " + noReport},
		"also if an older check acts on it":                            {of(is(health.Healthy, older, requested(OwnRequest))).with(external), "delete request"},
		"also if it is marked healthy":                                 {of(is(health.Healthy, known, requested(OwnRequest))).with(external), "delete request, " + healthy + ", " + noReport},
		"one that was not created by the check is adopted before":      {of(is(health.Healthy, known, requested(AdoptableRequest))).with(external), "adopt request"},
		"a request of another check is not deleted":                    {of(is(health.Healthy, reports, requested(ForeignRequest))).with(external), healthy},
		"a report stands while it is not known which requests exist":   {of(is(health.Healthy, reports)).with(external).with(func(f *Facts) { f.Template.Known = false }), healthy},
		"the owner of an unhealthy machine is asked":                   {of(bad()), "request owner remediation, " + unhealthy + ", " + asked + ", " + noReport},
		"it is not asked beyond the limits":                            {of(bad()).with(tooMany), unhealthy + ", " + noReport},
		"one that was asked stays asked":                               {of(bad(ownerAsked)).with(atOnce(0)), unhealthy + ", " + asked + ", " + noReport},
		"but is not asked anew beyond the limits":                      {of(bad(ownerAsked)).with(tooMany), unhealthy + ", " + noReport},
		"a machine that is being deleted keeps the reason":             {of(bad(deleting)), ""},
		"a machine that an older check acts on is not marked":          {of(bad(older)), ""},
		"being marked does not request what was asked before":          {of(bad(askedWhileHealthy)).with(tooMany), unhealthy + ", " + notAsked + ", " + noReport},
		"a request is created":                                         {of(bad()).with(external), "create request, " + unhealthy + ", " + waiting},
		"an owner that cannot remediate is not asked any more":         {of(bad(func(t *given) { t.Owner = CannotRemediate })).with(external), "create request, " + unhealthy + ", " + notAsked + ", " + waiting},
		"one that exists is enough":                                    {of(bad(marked, requested(OwnRequest))).with(external), unhealthy},
		"one that was created before a crash is announced":             {of(bad(requested(OwnRequest))).with(external), unhealthy + ", " + waiting},
		"the report of its provider stands":                            {of(bad(reports, requested(OwnRequest))).with(external), unhealthy},
		"an adoptable one is adopted":                                  {of(bad(marked, requested(AdoptableRequest))).with(external), "adopt request, " + unhealthy + ", " + waiting},
		"unless it is being deleted":                                   {of(bad(marked, requested(AdoptableRequest), func(t *given) { t.RequestDeleting = true })).with(external), unhealthy},
		"one of another check is in the way":                           {of(bad(requested(ForeignRequest))).with(external), unhealthy + ", RemediationRequestCreationFailed because of RequestInTheWay"},
		"a template that is missing is reported":                       {of(bad()).with(external).with(func(f *Facts) { f.Template.Missing = "it is gone" }), unhealthy + ", RemediationTemplateNotFound because of TemplateMissing"},
		"so is one that can be none":                                   {of(bad()).with(external).with(func(f *Facts) { f.Template.Refused = true }), unhealthy + ", RemediationTemplateNotFound because of TemplateRefused"},
		"so is one of no use":                                          {of(bad(func(t *given) { t.Unusable = true })).with(external), unhealthy + ", RemediationRequestCreationFailed because of TemplateUnusable"},
		"that it was missing is removed":                               {of(bad(func(t *given) { t.TemplateNotFound, t.RequestFailed = true, true })).with(external).with(atOnce(0)), unhealthy + ", " + noReport},
		"while requests are listed for the first time nothing is set":  {of(bad()).with(external).with(func(f *Facts) { f.Template.Known, f.Template.Syncing = false, true }), ""},
		"but on a machine that is marked":                              {of(bad(marked)).with(external).with(func(f *Facts) { f.Template.Known, f.Template.Syncing = false, true }), unhealthy},
		"what this process created is announced before it is observed": {of(bad(func(t *given) { t.begun = true })).with(external), unhealthy + ", " + waiting},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.given).Decisions[0].steps(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestASkippedMachineIsReleasedIfACheckHasMarkedIt(t *testing.T) {
	for name, tc := range map[string]struct {
		given Target
		want  int
	}{
		"one that is marked":                {Target{Marked: true}, 1},
		"not one that never was":            {Target{}, 0},
		"not one that is being deleted":     {Target{Marked: true, Deleting: true}, 0},
		"not one that an older check marks": {Target{Marked: true, Older: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := len(Decide(of().with(func(f *Facts) { f.Skipped = []*Target{&tc.given} })).Releases); got != tc.want {
				t.Errorf("%d are released, want %d", got, tc.want)
			}
		})
	}
}

func TestARequestIsCreatedOrAnOwnerAskedExactlyWhereARemediationStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts.Draw(t, "facts")
		for i, d := range Decide(f).Decisions {
			if begins := d.Step == CreateRequest || d.Step == RequestOwnerRemediation; begins != d.Starts() {
				t.Fatalf("machine %d starts: %t, and the step is %q", i, d.Starts(), d.Step)
			}
			if d.Step != NoStep && d.Target.Deleting {
				t.Fatalf("machine %d is being deleted, and the step is %q", i, d.Step)
			}
		}
	})
}
