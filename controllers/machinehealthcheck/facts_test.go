package machinehealthcheck

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

func healthySince(t *target) { // its owner was asked before, and has not taken note yet
	markedBefore(t)
	withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)(t)
}

// What the facts come to is decided, and tested, in package machines.
func TestTheFactsAboutAMachine(t *testing.T) {
	const me, myUID = "check", "check-uid"
	reported := func(status metav1.ConditionStatus, reason string) func(*target) {
		return withCondition(clusterv1.MachineExternallyRemediatedCondition, status, reason)
	}
	templateNotFound := clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason
	is := func(changes ...func(*target)) *observed {
		return aCheck(a("m", health.Unhealthy, changes...)).external()
	}
	for name, tc := range map[string]struct {
		given *observed
		want  machines.Target
	}{
		"of which nothing was said":              {is(), machines.Target{Owned: true}},
		"without an owner":                       {is(withoutOwner), machines.Target{}},
		"that is being deleted":                  {is(beingDeleted), machines.Target{Owned: true, Deleting: true}},
		"that is being updated in place":         {is(beingUpdated), machines.Target{Owned: true, Updating: true}},
		"of which an older check speaks":         {is(olderCheck("old")), machines.Target{Owned: true, Older: true}},
		"that is said to be healthy":             {is(markedBefore), machines.Target{Owned: true, Healthy: true}},
		"whose owner was asked":                  {is(askedOwner), machines.Target{Owned: true, Owner: machines.Asked, Failed: true, Marked: true}},
		"whose owner has put it off":             {is(putOffByOwner), machines.Target{Owned: true, Owner: machines.Asked, Failed: true, Marked: true}},
		"whose owner cannot replace it":          {is(refusedByOwner), machines.Target{Owned: true, Owner: machines.CannotRemediate, Failed: true, Marked: true}},
		"that no owner was there to ask of":      {is(askedOwner, withoutOwner), machines.Target{Owner: machines.CannotRemediate, Failed: true, Marked: true}},
		"that was healthy since":                 {is(healthySince), machines.Target{Owned: true, Healthy: true, AskedWhileHealthy: true}},
		"for which no request could be made":     {is(refusedBefore), machines.Target{Owned: true, Failed: true, Marked: true, RequestFailed: true}},
		"whose template was missing":             {is(reported("False", templateNotFound)), machines.Target{Owned: true, Marked: true, RequestFailed: true, TemplateNotFound: true}},
		"whose provider is at work":              {is(reported("False", "PoweringOff")), machines.Target{Owned: true, Marked: true, Announced: true, ProviderReports: true}},
		"whose provider has succeeded":           {is(reported("True", "Done")), machines.Target{Owned: true, Marked: true, ProviderReports: true}},
		"with a request of this check":           {is(requestedBy(me, myUID)), machines.Target{Owned: true, Request: machines.OwnRequest}},
		"with one that is being deleted":         {is(requestedBy(me, myUID, onItsWayOut)), machines.Target{Owned: true, Request: machines.OwnRequest, RequestDeleting: true}},
		"W9: with one of another check":          {is(requestedBy("other", "x")), machines.Target{Owned: true, Request: machines.ForeignRequest}},
		"with one of its predecessor":            {is(requestedBy(me, "old-uid")), machines.Target{Owned: true, Request: machines.AdoptableRequest}},
		"with one that core made":                {is(requestedBy("", "")), machines.Target{Owned: true, Request: machines.AdoptableRequest}},
		"with one of another template then":      {is(requestedBy("", "", otherTemplate)), machines.Target{Owned: true, Request: machines.AdoptableRequest}},
		"with one of another check's template":   {is(requestedBy("", "", otherTemplate)).with(otherCheckWith("another")), machines.Target{Owned: true, Request: machines.ForeignRequest}},
		"with one of a template of another kind": {is(requestedBy("", "", otherTemplateKind)), machines.Target{Owned: true, Request: machines.ForeignRequest}},
		"with one of a Machine of that name":     {is(requestedBy(me, myUID, ofAnotherMachine)), machines.Target{Owned: true, Request: machines.ForeignRequest}},
	} {
		t.Run(name, func(t *testing.T) {
			is := tc.given.factsAbout(tc.given.targets[0])
			got := machines.Target{
				Owned: is.Owned, Owner: is.Owner, Deleting: is.Deleting, Updating: is.Updating, Older: is.Older, Healthy: is.Healthy, Failed: is.Failed,
				Marked: is.Marked, AskedWhileHealthy: is.AskedWhileHealthy, RequestFailed: is.RequestFailed, TemplateNotFound: is.TemplateNotFound,
				Announced: is.Announced, ProviderReports: is.ProviderReports, Request: is.Request, RequestDeleting: is.RequestDeleting,
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("a machine %s (-want +got):\n%s", name, diff)
			}
		})
	}
}
