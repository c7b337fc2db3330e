package setup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/replica"
)

func parsed(t *testing.T, args ...string) *Options {
	t.Helper()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o := NewOptions(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTheManagerAnnouncesKindsThatNoCRDDecides(t *testing.T) {
	machines := managerlease.Kind{CRD: crdgate.MachineCheckCRD}
	off := func(crd, gate string) managerlease.Kind {
		return managerlease.Kind{CRD: crd, Reason: "Off", Because: "the feature gate " + gate + " is off"}
	}
	for name, tc := range map[string]struct {
		args []string
		want []managerlease.Kind
	}{
		"every manager serves MachineHealthChecks":         {want: []managerlease.Kind{machines}},
		"a gate switches off NodeHealthChecks":             {args: []string{"--feature-gates=NodeHealthCheck=false"}, want: []managerlease.Kind{machines, off(crdgate.NodeCheckCRD, "NodeHealthCheck")}},
		"one gate switches off both kinds of remediations": {args: []string{"--feature-gates=HostRemediation=false"}, want: []managerlease.Kind{machines, off(crdgate.Metal3CRD, "HostRemediation"), off(crdgate.OwnCRD, "HostRemediation")}},
		"a teardown serves no MachineHealthChecks":         {args: []string{"--teardown"}},
		"a teardown ends power cycles whatever the gate":   {args: []string{"--teardown", "--feature-gates=HostRemediation=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fixedKinds(parsed(t, tc.args...))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheManagerAnnouncesItsSettings(t *testing.T) {
	o := parsed(t, "--namespace=metal", "--watch-filter=a", "--node-lease-namespace=leases", "--teardown")
	started, kinds := metav1.Unix(1, 0), []managerlease.Kind{{CRD: crdgate.OwnCRD}}
	want := managerlease.Announcement{
		Version: "v1.2.3", Started: started, Unclaimed: "observe", Namespace: "metal", WatchFilter: "a", Fencing: "auto", NodeLeaseNamespace: "leases", Teardown: true,
		Kinds: kinds, Outside: true,
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if diff := cmp.Diff(want, announcement(kinds, started, replica.Replica{}, "v1.2.3", o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Outside = false
	if diff := cmp.Diff(want, announcement(kinds, started, replica.Replica{Namespace: "kubemend-system"}, "v1.2.3", o)); diff != "" {
		t.Errorf("in a pod (-want +got):\n%s", diff)
	}
}
