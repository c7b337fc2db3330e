package machinehealthcheck

import (
	"slices"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/health"
)

func TestOnlyTheEventOfAnOwnWriteIsIgnored(t *testing.T) {
	version := func(name, version string) *clusterv1.Machine {
		m := a(name, health.Healthy).machine
		m.ResourceVersion = version
		return m
	}
	var written ownWrites
	written.note(version("m1", "8"))
	steps := []struct {
		name    string
		machine *clusterv1.Machine
		want    bool
	}{
		{"what came before the write, and is only told late, is looked at", version("m1", "7"), true},
		{"another machine of that version is looked at", version("m2", "8"), true},
		{"the write itself is not", version("m1", "8"), false},
		{"what others wrote on top of it is", version("m1", "9"), true},
		{"a version is ignored once: nothing is kept of it", version("m1", "8"), true},
	}
	for _, step := range steps {
		if got := written.ignored().Update(event.UpdateEvent{ObjectOld: step.machine, ObjectNew: step.machine}); got != step.want {
			t.Errorf("%s: passes: %t, want %t", step.name, got, step.want)
		}
	}
	written.note(version("m1", "10"))
	if !written.ignored().Delete(event.DeleteEvent{Object: version("m1", "11")}) {
		t.Error("the deletion of a machine is not looked at")
	}
	if _, kept := written.versions.Load(version("m1", "").UID); kept {
		t.Error("a machine that is gone is remembered")
	}
}

// A rollout exceeds the limits without a bad machine: no warning, and no all-clear afterwards.
func TestThatRemediationIsAllowedAgainIsToldToThoseWhoWereWarned(t *testing.T) {
	starting, bad, well := a("m1", health.Starting), a("m1", health.Unhealthy), a("m1", health.Healthy)
	cases := map[string]struct {
		passes []target
		want   []string
	}{
		"a rollout is not worth a word":                              {[]target{well, starting, starting, well}, nil},
		"a bad machine is, and its recovery":                         {[]target{well, bad, well}, []string{mendv1.EventRemediationRestricted, mendv1.EventRemediationAllowed}},
		"also if the limit was exceeded before":                      {[]target{well, starting, bad, well}, []string{mendv1.EventRemediationRestricted, mendv1.EventRemediationAllowed}},
		"a manager that has just started cannot know who was warned": {[]target{starting, well}, []string{mendv1.EventRemediationAllowed}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var m memory
			var told []string
			check := aWorld().check
			if tc.passes[0].verdict.State != health.Healthy { // what the stored check says was said by a manager before
				w := aWorld(tc.passes[0]).limited("0%")
				check, tc.passes = statusAfter(w, weigh(w)), tc.passes[1:]
			}
			for _, seen := range tc.passes {
				w := aWorld(seen).limited("0%")
				w.check.Status = check.Status
				s := weigh(w)
				check = statusAfter(w, s)
				m.pass(w)
				for _, n := range m.paired(w, check, turnNotes(w, s, check)) {
					told = append(told, n.reason)
				}
			}
			if !slices.Equal(told, tc.want) {
				t.Errorf("told %v, want %v", told, tc.want)
			}
		})
	}
}
