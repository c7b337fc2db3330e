package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		"unless that is forbidden":                                 {of(gone(asked(kept, deleting(0)))).with(func(f *Facts) { f.Memory.Unpatchable = map[string]bool{"r": true} }), done{Start: -1}},
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
		"it is not counted again after a write that failed":                               {of(lost(asked(startedBefore(tooOld+1)), ours)).with(func(f *Facts) { f.Memory.Flagged = map[string]bool{"r": true} }), done{Start: -1}},
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
		"one that a remediator keeps ends with its patience":                              {of(gone(asked(kept), statusLists(epoch.Add(-nodeAway)))), done{End: one, Stop: one, Start: -1}},
		"one that deletes the node ends with the time of its step":                        {of(gone(asked(startedBefore(5*time.Minute), deletesNode(escalation.Yes)))).with(steps(reboot(0))), done{End: one, Start: -1}},
		"the lease of a healthy node is given back":                                       {of(healthy(ours)), done{Lease: DropLease, Start: -1}},
		"of one that is gone after its last request":                                      {of(gone(ours)), done{Lease: DropLease, Start: -1}},
		"the lease is kept until then":                                                    {of(gone(asked(deleting(0)), ours)), done{Start: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			d := &p.Decisions[0]
			got := done{d.End, d.Flag, d.Delay, d.Resume, d.Stop, d.Adopt, d.GiveUp, d.Delayed, d.Unconfirm, d.Lease, d.Start}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}
