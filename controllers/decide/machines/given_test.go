package machines

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// of are the facts of a check that kubemend acts on, without limits, whose owners remediate.
func of(targets ...given) Facts {
	f := Facts{
		Now: noon, Mode: Active, Check: "uid-of-check", Cluster: Cluster{Initialized: true, InfrastructureReady: true, Link: LinkUp},
		Template: Template{Known: true}, Limits: budget.Limits{AtMost: 100, InFlight: budget.Unlimited},
	}
	f.Memory = Memory{Refused: map[string]time.Time{}}
	for i := range targets {
		t := &targets[i]
		t.Name = string(rune('a' + i))
		t.ID = "uid-of-" + t.Name
		f.Targets = append(f.Targets, &t.Target)
		f.Verdicts = append(f.Verdicts, t.Verdict)
		if !t.refused.IsZero() {
			f.Memory.Failed(t.ID, t.refused)
		}
	}
	return f
}

// given is a machine and the verdict on it.
type given struct {
	Target
	Verdict health.Verdict
	refused time.Time
}

func (f Facts) with(changes ...func(*Facts)) Facts {
	for _, change := range changes {
		change(&f)
	}
	return f
}

// is a machine in a state, which has an owner; one that is unhealthy has been so for a minute, and the timeout of others expires in one.
func is(state health.State, changes ...func(*given)) given {
	t := given{Target: Target{Owned: true}, Verdict: health.Verdict{State: state}}
	switch state {
	case health.Unhealthy:
		t.Verdict.Findings = []health.Finding{{Reason: health.NodeCondition, Due: ago(time.Minute)}}
	case health.Pending, health.Starting:
		t.Verdict.Recheck = noon.Add(time.Minute)
	case health.Healthy, health.Unknown:
	}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func bad(changes ...func(*given)) given { return is(health.Unhealthy, changes...) }

func due(d time.Duration) func(*given) {
	return func(t *given) { t.Verdict.Findings[0].Due = ago(d) }
}

func byPerson(t *given) {
	t.Verdict.Findings = append(t.Verdict.Findings, health.Finding{Reason: health.MarkedByHand})
}

// What a machine may be.
func deleting(t *given)          { t.Deleting = true }
func older(t *given)             { t.Older = true }
func updating(t *given)          { t.Updating = true }
func onHost(t *given)            { t.OnHost = true }
func cycled(t *given)            { t.Cycle = &Cycle{} }
func unowned(t *given)           { t.Owned = false }
func unusable(t *given)          { t.Unusable, t.UnusableWhy = true, "it is odd" }
func markedHealthy(t *given)     { t.Healthy = true }
func marked(t *given)            { t.Failed = true }
func asked(t *given)             { t.Owner, t.Failed = Asked, true }
func refuses(t *given)           { t.Owner, t.Failed = CannotRemediate, true }
func askedWhileHealthy(t *given) { t.AskedWhileHealthy = true }
func announced(t *given)         { t.Announced = true }
func reports(t *given)           { t.ProviderReports = true }
func notFound(t *given)          { t.RequestFailed, t.TemplateNotFound = true, true }
func requestFailed(t *given)     { t.RequestFailed = true }
func requestDeleting(t *given)   { t.RequestDeleting = true }

// saidToFail is a machine whose provider once wrote that it has failed, and whose node is Ready.
func saidToFail(t *given) {
	t.NodeReady, t.Verdict.Findings = true, []health.Finding{{Reason: health.MachineFailed}}
}

func quiet(t *given) {
	t.Verdict.Findings = append(t.Verdict.Findings, health.Finding{Reason: health.NodeCondition, Due: ago(time.Minute)})
}

func awaited(t *given) { t.Health.Node = health.NodeAwaited }

func requested(r Request) func(*given) {
	return func(t *given) { t.Request, t.RequestFacts = r, &RequestFacts{Name: "req"} }
}

// unjudgedSincePause is a machine of which something is known that Cluster API wrote before a pause.
func unjudgedSincePause(t *given) { t.Verdict.Void = []health.Void{{Doubt: health.NotSincePause}} }

// What may be so of the check, its template and its cluster.
func external(f *Facts)         { f.Template.External = true }
func unknown(f *Facts)          { f.Template.External, f.Template.Known = true, false }
func missing(f *Facts)          { f.Template.External, f.Template.Missing = true, "it is gone" }
func unread(f *Facts)           { f.Template = Template{External: true, Unread: true} }
func explained(f *Facts)        { f.Explains = true }
func observe(f *Facts)          { f.Mode = Observed }
func tooMany(f *Facts)          { f.Limits.AtMost = 0 }
func tooFew(f *Facts)           { f.Limits.AtLeast = 8 }
func invalid(f *Facts)          { f.Invalid = true }
func limitsMatter(f *Facts)     { f.Limited = true }
func storming(f *Facts)         { f.Storm.Active = true }
func unsettled(f *Facts)        { f.Cluster.Link = LinkUnsure }
func atOnce(n int) func(*Facts) { return func(f *Facts) { f.Limits.InFlight = n } }

// refused is a kind that can be no template: then it is not looked for.
func refused(f *Facts) {
	f.Template = Template{External: true, Refused: true, Missing: "it is a Lease"}
}

func capacityMissing(f *Facts) { f.Capacity.Missing = 1 }

func coolsFor(d time.Duration) func(*Facts) { return func(f *Facts) { f.Cooldown = &d } }

func cooling(since time.Duration) func(*Facts) {
	return func(f *Facts) { f.Storm = budget.Storm{Active: true, CoolingSince: ago(since)} }
}

// knownSince says that the machine of that name is known not to be healthy for so long.
func knownSince(name string, d time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Memory.Check, f.Memory.NotHealthy = f.Check, map[string]time.Time{"uid-of-" + name: ago(d)}
	}
}

// starting are the names of the machines whose remediation starts, in their order.
func (f Facts) starting() string {
	var names []byte
	for i, d := range Decide(f).Decisions {
		if d.Starts() {
			names = append(names, f.Targets[i].Name...)
		}
	}
	slices.Sort(names)
	return string(names)
}
