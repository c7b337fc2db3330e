package machinehealthcheck

import (
	"testing"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestWhoseARequestIs(t *testing.T) {
	const me, myUID = "check", "check-uid"
	requested := func(name, uid string, changes ...func(*remediationrequest.Metadata)) *observed {
		return aCheck(a("m", health.Unhealthy, requestedBy(name, uid, changes...))).external()
	}
	for name, tc := range map[string]struct {
		given *observed
		want  Ownership
	}{
		"one of this check":                 {requested(me, myUID), OwnRequest},
		"W9: one of another check":          {requested("other", "x"), ForeignRequest},
		"one of its predecessor":            {requested(me, "old-uid"), AdoptableRequest},
		"one that core made":                {requested("", ""), AdoptableRequest},
		"one of another template then":      {requested("", "", otherTemplate), AdoptableRequest},
		"one of another check's template":   {requested("", "", otherTemplate).with(otherCheckWith("another")), ForeignRequest},
		"one of a template of another kind": {requested("", "", otherTemplateKind), ForeignRequest},
		"one of a Machine of that name":     {requested(me, myUID, ofAnotherMachine), ForeignRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.given.ownership(tc.given.Targets[0]); got != tc.want {
				t.Errorf("it is %d, want %d", got, tc.want)
			}
		})
	}
}
