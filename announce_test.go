package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/presence"
	"github.com/kubemend/kubemend/controllers/serving"
)

func TestTheManagerAnnouncesItsKinds(t *testing.T) {
	machines, hosts := presence.Kind{CRD: serving.MachineCheckCRD}, presence.Kind{CRD: serving.OwnCRD, Reason: "Waiting", Because: "these are not installed: " + serving.HostCRD}
	looked := []serving.Kind{{CRD: serving.OwnCRD, Reason: hosts.Reason, Because: hosts.Because}}
	off := func(crd, gate string) presence.Kind {
		return presence.Kind{CRD: crd, Reason: "Off", Because: "the feature gate " + gate + " is off"}
	}
	for name, tc := range map[string]struct {
		gates  string
		leave  bool
		looked []serving.Kind
		want   []presence.Kind
	}{
		"MachineHealthChecks are served by each":         {want: []presence.Kind{machines}},
		"what was looked at is as it was found":          {looked: looked, want: []presence.Kind{hosts, machines}},
		"what a gate keeps off is never looked at":       {gates: "NodeHealthCheck=false", want: []presence.Kind{machines, off(serving.NodeCheckCRD, "NodeHealthCheck")}},
		"one gate keeps off both kinds of power cycles":  {gates: "HostRemediation=false", want: []presence.Kind{off(serving.OwnCRD, "HostRemediation"), machines, off(serving.Metal3CRD, "HostRemediation")}},
		"who leaves serves no MachineHealthChecks":       {leave: true, looked: looked, want: []presence.Kind{hosts}},
		"who leaves ends power cycles whatever the gate": {leave: true, gates: "HostRemediation=false", looked: looked, want: []presence.Kind{hosts}},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaults()
			o.leave = tc.leave
			if err := o.gates.Set(tc.gates); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, kindsOf(tc.looked, o)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheManagerAnnouncesItsSettings(t *testing.T) {
	o := defaults()
	o.namespace, o.watchFilter, o.nodeLeaseNamespace, o.leave = "metal", "a", "leases", true
	started := metav1.Unix(1, 0)
	want := presence.Announcement{
		Version: version, Started: started, Unclaimed: "observe", Namespace: "metal", WatchFilter: "a", Fencing: "auto", NodeLeaseNamespace: "leases", Leaving: true,
	}
	if diff := cmp.Diff(want, announcement(nil, started, o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
