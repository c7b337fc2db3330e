package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func TestWhatIsDoneAboutRequests(t *testing.T) {
	delayed := healthyDelay(10 * time.Minute)
	marked := delayedSince(time.Minute)
	others := func(n *Node) { n.Others = []*unstructured.Unstructured{requestOf("Reboot", "o", "o")} }
	ours := leased(leaseFor(us, 11*time.Minute, 0, 0))
	delays := listedDelayed(epoch.Add(-time.Minute))
	one, both := []int{0}, []int{0, 1}
	type done struct {
		End, Flag, Delay, Resume, Stop, Adopt, GiveUp []int
		Delayed, Unconfirm                            bool
		Lease                                         LeaseAction
		Start                                         int
	}
	remembers := func(known RequestMemory) func(*Facts) {
		return func(f *Facts) { f.Memory.Requests = map[string]RequestMemory{"r": known} }
	}
	old, counted := asked(startedBefore(49*time.Hour)), done{Flag: one, Lease: TakeLease, Start: -1}
	for name, tc := range map[string]struct {
		given Facts
		want  done
	}{
		"W18: an old one is counted":              {of(lost(old)), counted},
		"W18: also while the check is paused":     {of(lost(old)).with(pausedBy("me")), counted},
		"W18: also while the cluster is upgraded": {of(lost(old)).with(func(f *Facts) { f.Upgrade.Progressing = "version" }), counted},
		"W18: also while the check is disabled":   {of(lost(old)).with(func(f *Facts) { f.Disabled = Disabled{"X", "x"} }), counted},
		"W18: also while too many are unhealthy":  {of(lost(old)).with(limit("0")), counted},
		"W18: also of a node that is gone":        {of(gone(asked(startedBefore(49*time.Hour), kept))), counted},

		"the request of a healthy node ends":        {of(healthy(asked())), done{End: one, Lease: TakeLease, Start: -1}},
		"also of a check that is disabled":          {of(healthy(asked())).with(func(f *Facts) { f.Disabled = Disabled{"X", "x"} }), done{End: one, Lease: TakeLease, Start: -1}},
		"C61: with a healthy delay it is kept":      {of(healthy(asked())).with(delayed), done{Delay: one, Delayed: true, Lease: TakeLease, Start: -1}},
		"one that is listed without a moment, too":  {of(healthy(asked(), statusLists(time.Time{}))).with(delayed), done{Delay: one, Delayed: true, Lease: TakeLease, Start: -1}},
		"it is kept for the delay":                  {of(healthy(asked(), statusLists(epoch))).with(delayed), done{Delayed: true, Lease: TakeLease, Start: -1}},
		"and ends after it":                         {of(healthy(asked(), statusLists(epoch.Add(-time.Hour)))).with(delayed), done{End: one, Lease: TakeLease, Start: -1}},
		"a person ends a delay without end":         {of(healthy(asked())).with(healthyDelay(-1)), done{Delayed: true, Lease: TakeLease, Start: -1}},
		"C62, W6: by a confirmation":                {of(healthy(asked(), confirmed)).with(healthyDelay(-1)), done{End: one, Lease: TakeLease, Start: -1}},
		"one that is deleted already is waited for": {of(healthy(asked(deleting(time.Minute)))), done{Lease: TakeLease, Start: -1}},
		"once": {of(lost(asked(startedBefore(49*time.Hour), notedIn(nhcv1.OldRequestAnnotation, 0)))), done{Lease: TakeLease, Start: -1}},
		"W5: a delay that was begun in vain is reverted":           {of(lost(asked(marked))).with(delayed), done{Resume: one, Lease: TakeLease, Start: -1}},
		"it does not end if there are steps":                       {of(lost(asked(succeeded(escalation.Yes)), delays)).with(steps(reboot(0))), done{Lease: TakeLease, Start: -1}},
		"it does not if the node was never healthy meanwhile":      {of(lost(asked(succeeded(escalation.Yes)))), done{Lease: TakeLease, Start: -1}},
		"C64, W31: the request of a node that is gone ends":        {of(gone(asked())), done{End: one, Start: -1}},
		"its remediator is notified to stop, if it keeps it":       {of(gone(asked(kept, deleting(0)))), done{Stop: one, Start: -1}},
		"unless that is forbidden":                                 {of(gone(asked(kept, deleting(0)))).with(remembers(RequestMemory{Unpatchable: true})), done{Start: -1}},
		"one that a remediator keeps waits for the node":           {of(gone(asked(kept))), done{Lease: TakeLease, Start: -1}},
		"one whose Machine is there, too":                          {of(gone(asked(machineThere))), done{Lease: TakeLease, Start: -1}},
		"a step that failed is given up":                           {of(lost(asked(failed))).with(steps(reboot(0), reboot(0))), done{GiveUp: one, Start: 1, Lease: TakeLease}},
		"the first step takes the lease":                           {of(lost()), done{Start: 0, Lease: TakeLease}},
		"what is left of the last failure is adopted":              {of(lost(asked(deleting(0), kept))), done{Adopt: one, Start: -1, Lease: TakeLease}},
		"a confirmation is removed when it has ended the requests": {of(healthy(confirmed)), done{Unconfirm: true, Start: -1}},
		"and not before": {of(healthy(asked(deleting(0)), confirmed, ours)), done{Start: -1}},
		"nor while the request of another check may wait for it":                          {of(healthy(confirmed, others)), done{Start: -1}},
		"nor from a node that is unhealthy":                                               {of(lost(confirmed, excluded)), done{Start: -1}},
		"two days are not too old":                                                        {of(lost(asked(startedBefore(tooOld)), ours)), done{Start: -1}},
		"what is older is, of a healthy node too":                                         {of(healthy(asked(startedBefore(tooOld+1)), ours)), done{End: one, Flag: one, Start: -1}},
		"also if it cannot be deleted":                                                    {of(healthy(asked(startedBefore(tooOld+1), deleting(0)), ours)), done{Flag: one, Start: -1}},
		"it is not counted again after a write that failed":                               {of(lost(asked(startedBefore(tooOld+1)), ours)).with(remembers(RequestMemory{Flagged: true})), done{Start: -1}},
		"the delay ends when it is over":                                                  {of(healthy(asked(marked), ours)).with(healthyDelay(time.Minute)), done{End: one, Start: -1}},
		"and not a moment before":                                                         {of(healthy(asked(marked), ours)).with(healthyDelay(time.Minute + 1)), done{Delayed: true, Start: -1}},
		"each request has its own":                                                        {of(healthy(asked(marked), asked(), ours)).with(delayed), done{Delay: []int{1}, Delayed: true, Start: -1}},
		"nor one that is being deleted":                                                   {of(lost(asked(marked, deleting(0), inStatus(24*time.Hour)), ours)).with(delayed), done{Start: -1}},
		"a single remediation that had succeeded ends when the node is unhealthy again":   {of(lost(asked(succeeded(escalation.Yes)), delays, ours)), done{End: one, Start: -1}},
		"nothing is done while requests cannot be read":                                   {of(lost(unseen)), done{Lease: TakeLease, Start: -1}},
		"not of a healthy node either":                                                    {of(healthy(asked(), unseen, ours)), done{Start: -1}},
		"nor for a node that OpenShift is ending":                                         {of(lost(asked(), ours, terminating)).with(func(f *Facts) { f.TerminatingLeft = true }), done{Start: -1}},
		"all requests of a healthy node end":                                              {of(healthy(asked(), asked(on(1)), ours)), done{End: both, Start: -1}},
		"all requests of a step are given up":                                             {of(lost(asked(failed), asked(failed))).with(steps(reboot(0), reboot(0))), done{GiveUp: both, Start: 1, Lease: TakeLease}},
		"but not those of others":                                                         {of(lost(asked(), asked(on(1), failed))).with(steps(reboot(0), reboot(0), reboot(0))), done{GiveUp: []int{1}, Start: 2, Lease: TakeLease}},
		"a step is not given up while another holder has the lease":                       {of(lost(asked(failed, deleting(0), kept), leased(leaseFor("NMO", time.Hour, 0, 0)))).with(steps(reboot(0))), done{Start: -1}},
		"a step that succeeded is given up when its time is over":                         {of(lost(asked(startedBefore(5*time.Minute), succeeded(escalation.Yes)))).with(steps(reboot(0), reboot(0))), done{GiveUp: one, Start: 1, Lease: TakeLease}},
		"what is left of the last failure is not adopted while something blocks the node": {of(lost(asked(deleting(0), kept), excluded)), done{Lease: TakeLease, Start: -1}},
		"a request that has succeeded ends with its node":                                 {of(gone(asked(kept, succeeded(escalation.Yes)))), done{End: one, Stop: one, Start: -1}},
		"so does one that has failed":                                                     {of(gone(asked(kept, failed))), done{End: one, Stop: one, Start: -1}},
		"its remediator is notified once":                                                 {of(gone(asked(kept, failed, notified))), done{End: one, Start: -1}},
		"by whatever value of the annotation": {of(gone(asked(kept, failed, func(r *Request) {
			r.Object.SetAnnotations(map[string]string{nhcv1.TimedOutAnnotation: "true"})
		}))), done{End: one, Start: -1}},
		"a step whose remediator was told so by another client is given up, too": {of(lost(asked(func(r *Request) {
			notes := r.Object.GetAnnotations()
			notes[nhcv1.TimedOutAnnotation] = "true"
			r.Object.SetAnnotations(notes)
		}))).with(steps(reboot(0), reboot(0))), done{Start: 1, Lease: TakeLease}},
		"one that a remediator keeps ends with its patience":       {of(gone(asked(kept), statusLists(epoch.Add(-nodeAway)))), done{End: one, Stop: one, Start: -1}},
		"C63: one that deletes the node is waited for":             {of(gone(asked(deletesNode(escalation.Yes)))), done{Lease: TakeLease, Start: -1}},
		"C63: until it has succeeded":                              {of(gone(asked(deletesNode(escalation.Yes), succeeded(escalation.Yes)))), done{End: one, Start: -1}},
		"one that deletes the node ends with the time of its step": {of(gone(asked(startedBefore(5*time.Minute), deletesNode(escalation.Yes)))).with(steps(reboot(0))), done{End: one, Start: -1}},
		"the lease of a healthy node is given back":                {of(healthy(ours)), done{Lease: DropLease, Start: -1}},
		"of one that is gone after its last request":               {of(gone(ours)), done{Lease: DropLease, Start: -1}},
		"the lease is kept until then":                             {of(gone(asked(deleting(0)), ours)), done{Start: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := p.Decisions[0]
			noted := func(annotation string, removed bool) []int {
				return which(d, func(r RequestState) bool {
					value, noted := r.Note[annotation]
					return noted && (value == nil) == removed && !r.GiveUp
				})
			}
			got := done{
				which(d, func(r RequestState) bool { return r.End }), noted(nhcv1.OldRequestAnnotation, false),
				noted(nhcv1.HealthyDelayAnnotation, false), noted(nhcv1.HealthyDelayAnnotation, true), noted(nhcv1.TimedOutAnnotation, false),
				which(d, func(r RequestState) bool { return r.Adopt }), which(d, func(r RequestState) bool { return r.GiveUp }),
				d.Delayed, d.Unconfirm, d.Leasing, d.Start,
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

// which returns the indexes of the requests for which decided is true.
func which(d *Decision, decided func(RequestState) bool) []int {
	var places []int
	for j := range d.Requests {
		if decided(d.Requests[j]) {
			places = append(places, j)
		}
	}
	return places
}

// ladderOf returns facts with templates of these names, with a timeout of five minutes each.
func ladderOf(names ...string) *Facts {
	f := of()
	var templates []Template
	for _, name := range names {
		templates = append(templates, templateOf("", "x", "t", schema.GroupVersionKind{Kind: name}, 0))
	}
	steps(templates...)(&f)
	return &f
}

func TestTheAnswerOfAnEscalation(t *testing.T) {
	two, single := ladderOf("A", "B"), ladderOf("A")
	single.Check.Spec.RemediationTemplate = &corev1.ObjectReference{}
	expires := time.Date(2026, 1, 1, 12, 4, 0, 0, time.UTC)
	const a, b = "A from template x/t", "B from template x/t"
	for name, tc := range map[string]struct {
		facts  *Facts
		answer escalation.Decision
		want   string
	}{
		"not asked":        {two, escalation.Decision{}, ""},
		"none":             {ladderOf(), escalation.Decision{Do: escalation.Exhausted, Reason: escalation.NoTemplateLeft}, "The check names no template"},
		"at work":          {two, escalation.Decision{Reason: escalation.InProgress, Expires: expires}, "Waiting for " + a + " until 2026-01-01T12:04:00Z"},
		"at work, no end":  {two, escalation.Decision{Reason: escalation.InProgress}, "Waiting for " + a},
		"too late":         {two, escalation.Decision{Do: escalation.GiveUp, Reason: escalation.TimedOut}, a + " did not bring the node back within 5m0s"},
		"the next":         {two, escalation.Decision{Do: escalation.Start, Step: 1, Reason: escalation.NextStep}, a + " was given up, " + b + " is next"},
		"alone":            {single, escalation.Decision{Reason: escalation.InProgress}, "Waiting for " + a + ", which has no timeout"},
		"alone, succeeded": {single, escalation.Decision{Reason: escalation.AwaitingNode}, a + " says that it has succeeded, waiting for the node"},
		"one is passed over": {
			two, escalation.Decision{Do: escalation.Start, Step: 1, Reason: passedOver}, a + " cannot be used for this node, " + b + " is next",
		},
	} {
		must.Is(t, tc.want, EscalationText(tc.facts, tc.answer), "%s:", name)
	}
}

func TestLeaseStep(t *testing.T) {
	classic, step := Term{Length: defaultTerm}, Term{Length: 5 * time.Minute, Overdue: 15 * time.Minute}
	timeless := leaseFor(us, 6*time.Minute, 0, 0)
	timeless.Spec.AcquireTime = nil
	for name, tc := range map[string]struct {
		lease *Lease
		term  Term
		since time.Duration // ago
		want  LeaseAction
	}{
		"one without a time counts from the remediation": {timeless, step, 901 * time.Second, DropLease},
		"none is taken":                                             {nil, classic, time.Minute, TakeLease},
		"a fresh one of ours is kept":                               {leaseFor(us, 11*time.Minute, 0, 0), classic, 0, KeepLease},
		"ours is kept for half its term":                            {leaseFor(us, 11*time.Minute, 5*time.Minute, 299*time.Second), classic, 0, KeepLease},
		"ours is renewed after half its term":                       {leaseFor(us, 11*time.Minute, 6*time.Minute, 5*time.Minute), classic, 0, RenewLease},
		"C53: ours is renewed for the next step's term":             {leaseFor(us, 11*time.Minute, 0, 0), step, 0, RenewLease},
		"C41: somebody else's is theirs":                            {leaseFor("NMO", 11*time.Minute, 0, 0), classic, 0, KeepLease},
		"C42: somebody else's that has expired is taken over":       {leaseFor("NMO", 60*time.Second, 2*time.Minute, 61*time.Second), classic, 0, TakeLease},
		"one renewed in the future counts for nothing":              {leaseFor("NMO", 60*time.Second, 0, -time.Hour), classic, 0, TakeLease},
		"one renewed a little in the future counts: clocks differ":  {leaseFor("NMO", 60*time.Second, 0, -30*time.Second), classic, 0, KeepLease},
		"by more than that it does not":                             {leaseFor("NMO", 60*time.Second, 0, -31*time.Second), classic, 0, TakeLease},
		"one without a holder is taken":                             {leaseFor("", 60*time.Second, 0, 0), classic, 0, TakeLease},
		"W13: without a ladder it is renewed for ever":              {leaseFor(us, 11*time.Minute, 100*time.Hour, 6*time.Minute), classic, 100 * time.Hour, RenewLease},
		"C42: with a ladder that leads nowhere it is given back":    {leaseFor(us, 6*time.Minute, 901*time.Second, 0), step, 901 * time.Second, DropLease},
		"given back, it is not taken again":                         {nil, step, 901 * time.Second, KeepLease},
		"given back and somebody else's, it is theirs":              {leaseFor("NMO", 6*time.Minute, 0, 0), step, 901 * time.Second, KeepLease},
		"at three times its term it is just not overdue":            {leaseFor(us, 6*time.Minute, 15*time.Minute, 5*time.Minute), step, 15 * time.Minute, RenewLease},
		"lost in the middle of a remediation it is taken once more": {nil, step, 10 * time.Minute, TakeLease},
	} {
		t.Run(name, func(t *testing.T) {
			got, again := tc.lease.next(tc.term, epoch.Add(-tc.since), epoch)
			must.Is(t, tc.want, got, "next() =")
			if !again.IsZero() && !again.After(epoch) || got == RenewLease && !again.Equal(epoch.Add(tc.term.Length/2)) {
				t.Errorf("to be looked at again at %v", again)
			}
		})
	}
}

func TestTheTermOfALeaseIsThatOfItsStep(t *testing.T) {
	steps := []escalation.Step{{Timeout: 3 * time.Minute}, {Timeout: 20 * time.Minute}, {Timeout: time.Minute}}
	for step, want := range map[int]Term{
		-1: {Length: defaultTerm},
		0:  {Length: 3 * time.Minute, Overdue: 9 * time.Minute},
		1:  {Length: 20 * time.Minute, Overdue: 63 * time.Minute}, // W2: two templates of a kind have different timeouts
		2:  {Length: time.Minute, Overdue: 26 * time.Minute},
		3:  {Length: defaultTerm},
	} {
		must.Is(t, want, termOf(steps, step), "termOf(%d) =", step)
	}
}

func TestALeaseOfAnyTimeoutIsOne(t *testing.T) {
	if got := (Term{Length: 999999 * time.Hour}).Seconds(); got <= 0 {
		t.Errorf("a lease of %d s", got)
	}
	must.Is(t, 6*60, (Term{Length: 5 * time.Minute}).Seconds(), "a step of five minutes has a minute more: seconds are")
}

func TestTheLeaseOfANode(t *testing.T) {
	const minute = time.Minute
	two := steps(reboot(0), reboot(0))
	step, single := Term{Length: 5 * minute}, Term{Length: defaultTerm}
	last := Term{Length: 5 * minute, Overdue: 20 * minute} // three times the last timeout, plus the timeout before
	ours := func(length, acquired time.Duration) func(*Node) { return leased(leaseFor(us, length, acquired, 0)) }
	longest := func(f *Facts) { f.Templates[1].Step.Timeout.Duration = 20 * minute }
	stopped := func(ago time.Duration) func(*Request) {
		return func(r *Request) {
			says(nhcv1.ProcessingCondition, escalation.No, ago)(r)
			startedBefore(2 * time.Hour)(r)
		}
	}
	hasFailed := func(ago time.Duration) func(*Request) {
		return func(r *Request) {
			says(nhcv1.SucceededCondition, escalation.No, ago)(r)
			startedBefore(2 * time.Hour)(r)
		}
	}
	unsure := succeeded(escalation.Unsure)
	for name, tc := range map[string]struct {
		given Facts
		want  LeaseAction
		term  Term
	}{
		"C40: is taken for the time of the step":                 {of(lost(asked())).with(two), TakeLease, step},
		"W2: for that of the highest one that has a request":     {of(lost(asked(on(1)), asked())).with(two, longest), TakeLease, Term{Length: 20 * minute}},
		"for that of one that cannot be read":                    {of(lost(func(n *Node) { n.Unseen = []Listed{was(1, 0)} })).with(two, longest), TakeLease, Term{Length: 20 * minute}},
		"for ten minutes without a timeout":                      {of(lost(asked())), TakeLease, single},
		"for ten minutes if the template is not named now":       {of(lost(asked(on(-1)), since(minute))).with(two), TakeLease, single},
		"is kept while it is fresh":                              {of(lost(asked(), ours(6*minute, 0))).with(two), KeepLease, step},
		"W14: is kept however long a step goes on":               {of(lost(asked(startedBefore(4*minute)), ours(6*minute, 90*minute))).with(two), KeepLease, step},
		"is kept for a while when no step is left":               {of(lost(asked(on(1), notified), ours(6*minute, 19*minute))).with(two), KeepLease, last},
		"is given back after it":                                 {of(lost(asked(on(1), notified), ours(6*minute, 21*minute))).with(two), DropLease, last},
		"is not given back while a step is left":                 {of(lost(asked(failed), ours(6*minute, 21*minute))).with(two, pausedBy("me")), KeepLease, step},
		"is given back half an hour after a failure":             {of(lost(asked(hasFailed(30*minute)), ours(11*minute, 0))), DropLease, Term{}},
		"and not before":                                         {of(lost(asked(hasFailed(30*minute-1)), ours(11*minute, 0))), KeepLease, single},
		"given back, it is not taken again":                      {of(lost(asked(hasFailed(30 * minute)))), KeepLease, Term{}},
		"is given back half an hour after a stop":                {of(lost(asked(stopped(30*minute)), ours(11*minute, 0))), DropLease, Term{}},
		"but not if its end is in doubt":                         {of(lost(asked(stopped(30*minute), unsure), ours(11*minute, 0))), KeepLease, single},
		"nor while the remediator is at work":                    {of(lost(asked(startedBefore(2*time.Hour)), ours(11*minute, 0))), KeepLease, single},
		"nor while that of one of two requests is":               {of(lost(asked(hasFailed(time.Hour)), asked(), ours(11*minute, 0))), KeepLease, single},
		"nor while a request cannot be read":                     {of(lost(asked(hasFailed(time.Hour)), unseen, ours(11*minute, 0))), KeepLease, single},
		"nor while an orphaned one is there":                     {of(lost(asked(hasFailed(time.Hour)), orphaned, ours(11*minute, 0))), KeepLease, single},
		"nor while steps are left":                               {of(lost(asked(hasFailed(time.Hour)), ours(6*minute, 0))).with(two, pausedBy("me")), KeepLease, step},
		"half an hour after the later one of two failures":       {of(lost(asked(hasFailed(time.Hour)), asked(hasFailed(29*minute)), ours(11*minute, 0))), KeepLease, single},
		"counted from the request, if it was made later":         {of(lost(asked(hasFailed(time.Hour), startedBefore(29*minute)), ours(11*minute, 0))), KeepLease, single},
		"and half an hour after a deletion that is not done":     {of(healthy(asked(deleting(30*minute)), ours(11*minute, 0))), DropLease, Term{}},
		"of a node that a person has deleted is given back":      {of(gone(ours(11*minute, 0))), DropLease, Term{}},
		"that another holder has is not":                         {of(healthy(leased(leaseFor("NMO", time.Hour, 0, 0)))), KeepLease, Term{}},
		"of a node whose request somebody has deleted stays":     {of(lost(deleted(was(0, 10*time.Second)), ours(11*minute, 0))), KeepLease, Term{}},
		"but not if nothing will be made again":                  {of(lost(unselected, deleted(was(0, 10*time.Second)), ours(11*minute, 0))), DropLease, Term{}},
		"of a pending node without a request is given back":      {of(lost(since(minute), ours(11*minute, 0))), DropLease, Term{}},
		"of a healthy node stays while an orphaned one is there": {of(healthy(orphaned, deleted(Listed{}), ours(11*minute, 0))), KeepLease, single},
		"is taken for an orphaned request":                       {of(healthy(orphaned)), TakeLease, single},
		"also if the status remembers another one":               {of(healthy(orphaned, deleted(Listed{}))), TakeLease, single},
		"is taken when the first step starts":                    {of(lost()).with(two), TakeLease, Term{Length: 5 * minute, Overdue: 15 * minute}},
		"is renewed then if it is one of ours from before":       {of(lost(ours(6*minute, time.Hour))).with(two), RenewLease, Term{Length: 5 * minute, Overdue: 15 * minute}},
		"of a check without a template is given back":            {of(lost(ours(11*minute, 0))).with(steps()), DropLease, Term{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := p.Decisions[0]
			if d.Leasing != tc.want || d.Term != tc.term {
				t.Errorf("got %v for %+v, want %v for %+v", d.Leasing, d.Term, tc.want, tc.term)
			}
			if n := &tc.given.Nodes[0]; d.Leasing == KeepLease && n.Lease.own() && (p.Recheck.IsZero() || p.Recheck.After(n.Lease.expiry())) {
				t.Errorf("the lease expires at %s, and is looked at again at %s", n.Lease.expiry(), p.Recheck)
			}
		})
	}
}
