package command

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

func TestAMachineIsMarkedForItsCheckByWhoAsks(t *testing.T) {
	p := aPlace(t)
	p.typed = "y\n"
	got, code := p.does("remediate", "machine/w1", func(b *byHand) { b.reason = "NIC drops packets" })
	for _, want := range []string{
		"remediate machine/w1 in metal: the annotation cluster.x-k8s.io/remediate-machine marks Machine w1 unhealthy for MachineHealthCheck metal/workers",
		"kubemend asks its owner, MachineSet md-0, to remediate it", "Proceed? [y/N] machine/w1 in metal marked",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	m := p.machine("w1")
	by, known := explain.AttributionOf(m, mendv1.RequestedAnnotation)
	if _, marked := m.Annotations[clusterv1.RemediateMachineAnnotation]; code != Done || !marked || !known ||
		by != (explain.Attribution{By: "alice", At: noon, Reason: "NIC drops packets"}) {
		t.Errorf("code %d, annotations %v, printed\n%s", code, m.Annotations, got)
	}
	if told := strings.Join(p.told(), "\n"); told != "Machine w1: RemediationRequested: remediation requested by alice: NIC drops packets" {
		t.Errorf("the events are %s", told)
	}
	got, code = p.does("remediate", "machine/w1", confirmed)
	if code != Done || !strings.HasPrefix(got, "nothing to do for machine/w1 in metal: Machine w1 is being remediated already") {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
	got, code = p.does("reset", "machine/w1", confirmed)
	if m = p.machine("w1"); code != Done || len(m.Annotations) != 1 || m.Annotations[mendv1.ResetAnnotation] == "" {
		t.Errorf("after its reset: code %d, annotations %v, printed\n%s", code, m.Annotations, got)
	}
}

func TestAHostIsPowerCycledByARequestOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		what  string
		edits []func(*place)
	}{
		"a host of a check that asks owners":         {"host/host-w1", nil},
		"a machine of a check that asks for cycles":  {"machine/w1", []func(*place){cycling}},
		"a node of a check that asks for cycles":     {"node/node-w1", []func(*place){cycling}},
		"a host of no check":                         {"host/host-w1", []func(*place){func(p *place) { p.machines["w1"].Labels["pool"] = "other" }}},
		"a host of a check that Cluster API acts on": {"host/host-w1", []func(*place){func(p *place) { p.check.Annotations = nil }}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			got, code := p.does("remediate", tc.what, confirmed)
			all := p.requests()
			if code != Done || len(all) != 1 || all[0].Name != "w1-by-hand" || all[0].OwnerReferences[0].UID != "w1" || *all[0].Spec.Strategy.RetryLimit != 1 {
				t.Fatalf("code %d, requests %v, printed\n%s", code, all, got)
			}
			if by, _ := explain.AttributionOf(&all[0], mendv1.RequestedAnnotation); by.By != "alice" || len(p.machine("w1").Annotations) > 0 {
				t.Errorf("it is asked for by %q, and the machine has %v", by.By, p.machine("w1").Annotations)
			}
			if !strings.Contains(got, "HostRemediation w1-by-hand power-cycles its host, in 2 attempts at most") || !strings.Contains(got, "Attempt 1 of 2") {
				t.Errorf("printed\n%s", got)
			}
			if got, code = p.does("remediate", tc.what, confirmed); code != Done || len(p.requests()) != 1 || !strings.HasPrefix(got, "nothing to do for") {
				t.Errorf("again: code %d, printed\n%s", code, got)
			}
		})
	}
}

func TestARequestThatEndedBlocksNoOther(t *testing.T) {
	p := aPlace(t, func(p *place) {
		ended := requestByHand(p.machines["w1"], nil)
		ended.UID, ended.Annotations = "ended", map[string]string{mendv1.PowerCycleAnnotation: `{"state":"Succeeded"}`}
		p.objects = append(p.objects, ended)
	})
	got, code := p.does("remediate", "host/host-w1", confirmed)
	if all := p.requests(); code != Done || len(all) != 2 || all[1].Name != "w1-by-hand-2" {
		t.Errorf("code %d, requests %v, printed\n%s", code, all, got)
	}
}

func TestNothingIsRequestedThatHarmsOrThatNoControllerActsOn(t *testing.T) {
	paused := func(p *place) { p.check.Annotations[clusterv1.PausedAnnotation] = "true" }
	for name, tc := range map[string]struct {
		what  string
		says  string
		edits []func(*place)
	}{
		"a machine that no check selects": {"machine/w1", "make a check that selects it", []func(*place){func(p *place) { p.machines["w1"].Labels["pool"] = "x" }}},
		"a host whose machine is left alone": {"host/host-w1", "The machine has the annotation cluster.x-k8s.io/skip-remediation", []func(*place){func(p *place) {
			p.machines["w1"].Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}}},
		"a host of a check that is paused":   {"host/host-w1", "The check has the annotation cluster.x-k8s.io/paused", []func(*place){paused}},
		"a machine without an owner":         {"machine/w1", "has no owner that could replace it", []func(*place){func(p *place) { p.machines["w1"].OwnerReferences = nil }}},
		"a host whose check is at its limit": {"host/host-w2", "a power cycle by hand waits for no limit", []func(*place){silentNodes("w1")}},
		"a host of no check, of a Cluster that is paused": {"host/host-w1", "Cluster c1 is paused", []func(*place){func(p *place) {
			p.machines["w1"].Labels["pool"] = "other"
			p.objects[len(p.objects)-3].(*clusterv1.Cluster).Spec.Paused = ptr.To(true)
		}}},
		"a host that claims a machine which is on another one": {"host/host-w2", "Machine w1 does not name this host as its own", []func(*place){func(p *place) {
			p.hosts["w2"].Spec.ConsumerRef.Name = "w1"
		}}},
		"a host without a machine": {"host/host-w1", "belongs to no Machine", []func(*place){func(p *place) { p.hosts["w1"].Spec.ConsumerRef = nil }}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			p.refuses = errors.New("something was written")
			got, code := p.does("remediate", tc.what, confirmed)
			if code != Refused || !strings.HasPrefix(got, "cannot remediate "+tc.what) || !strings.Contains(got, tc.says) {
				t.Errorf("code %d, printed\n%s", code, got)
			}
		})
	}
}

func TestNothingIsChangedByHandUnlessTheUserMayAndSaysSo(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}, "w1", errors.New("a policy says no"))
	for name, tc := range map[string]struct {
		what  string
		edit  func(*place)
		flags func(*byHand)
		code  int
		says  string
	}{
		"no":                             {"machine/w1", func(p *place) { p.typed = "n\n" }, func(*byHand) {}, Refused, "error: nothing was changed"},
		"no terminal":                    {"machine/w1", func(p *place) { p.asks = false }, func(*byHand) {}, Refused, "there is no terminal to ask at, so say --yes"},
		"a dry run":                      {"machine/w1", func(*place) {}, func(b *byHand) { b.dryRun = true }, Done, "Next: "},
		"a right is missing":             {"machine/w1", func(p *place) { p.mayNot = []string{"patch machines"} }, confirmed, Failed, "alice may not patch machines.cluster.x-k8s.io in namespace metal"},
		"a right is missing for a cycle": {"host/host-w1", func(p *place) { p.mayNot = []string{"create hostremediations"} }, confirmed, Failed, "alice may not create hostremediations.kubemend.io in namespace metal"},
		"a policy refuses":               {"machine/w1", func(p *place) { p.refuses = forbidden }, func(b *byHand) { b.dryRun = true }, Failed, "a policy says no"},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edit)
			got, code := p.does("remediate", tc.what, tc.flags)
			if code != tc.code || !strings.Contains(got, tc.says) || len(p.machine("w1").Annotations) > 0 || len(p.requests())+len(p.told()) > 0 {
				t.Errorf("code %d, want %d; annotations %v; events %v; printed\n%s", code, tc.code, p.machine("w1").Annotations, p.told(), got)
			}
		})
	}
}

func TestAMissingEventIsReportedBefore(t *testing.T) {
	p := aPlace(t, func(p *place) { p.mayNot = []string{"create events"} })
	got, code := p.does("remediate", "machine/w1", confirmed)
	if code != Done || !strings.Contains(got, "alice may not create events.events.k8s.io in namespace metal: the annotation alone records it") || len(p.told()) > 0 {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}
