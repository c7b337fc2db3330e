package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestTheManagerAnnouncesItsKinds(t *testing.T) {
	machines, hosts := managerlease.Kind{CRD: crdgate.MachineCheckCRD}, managerlease.Kind{CRD: crdgate.OwnCRD, Reason: "Waiting", Because: "these are not installed: " + crdgate.HostCRD}
	looked := []crdgate.Kind{{CRD: crdgate.OwnCRD, Reason: hosts.Reason, Because: hosts.Because}}
	off := func(crd, gate string) managerlease.Kind {
		return managerlease.Kind{CRD: crd, Reason: "Off", Because: "the feature gate " + gate + " is off"}
	}
	for name, tc := range map[string]struct {
		gates  string
		leave  bool
		looked []crdgate.Kind
		want   []managerlease.Kind
	}{
		"MachineHealthChecks are served by each":         {want: []managerlease.Kind{machines}},
		"what was looked at is as it was found":          {looked: looked, want: []managerlease.Kind{hosts, machines}},
		"what a gate keeps off is never looked at":       {gates: "NodeHealthCheck=false", want: []managerlease.Kind{machines, off(crdgate.NodeCheckCRD, "NodeHealthCheck")}},
		"one gate keeps off both kinds of power cycles":  {gates: "HostRemediation=false", want: []managerlease.Kind{off(crdgate.OwnCRD, "HostRemediation"), machines, off(crdgate.Metal3CRD, "HostRemediation")}},
		"who leaves serves no MachineHealthChecks":       {leave: true, looked: looked, want: []managerlease.Kind{hosts}},
		"who leaves ends power cycles whatever the gate": {leave: true, gates: "HostRemediation=false", looked: looked, want: []managerlease.Kind{hosts}},
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
	want := managerlease.Announcement{
		Version: version, Started: started, Unclaimed: "observe", Namespace: "metal", WatchFilter: "a", Fencing: "auto", NodeLeaseNamespace: "leases", Leaving: true,
	}
	if diff := cmp.Diff(want, announcement(nil, started, o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
