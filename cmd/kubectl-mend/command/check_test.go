package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestWhatIsMissingIsFound(t *testing.T) {
	kinds := func(installed ...string) []string {
		return missingKinds(func(crd string) bool { return slices.Contains(installed, crd) })
	}
	manager := func(edit func(*managerlease.Manager)) []string {
		announced := &managerlease.Announcement{Version: "v1", Kinds: []managerlease.Kind{{CRD: crdgate.OwnCRD, Because: "why"}}}
		m := managerlease.Manager{Namespace: "a", Alive: true, Announcement: announced}
		edit(&m)
		return missingManagers([]managerlease.Manager{m})
	}
	serves := func(reason string) func(*managerlease.Manager) {
		return func(m *managerlease.Manager) { m.Announcement.Kinds[0].Reason = reason }
	}
	for name, tc := range map[string]struct {
		missing []string
		says    string // empty if nothing is missing
	}{
		"all kinds":                        {kinds(crdgate.MachineCheckCRD, crdgate.RecordCRD, crdgate.HostCRD, crdgate.OwnCRD, certificateCRD), ""},
		"NodeHealthChecks alone":           {kinds(crdgate.NodeCheckCRD, crdgate.RecordCRD), ""},
		"no kind of checks":                {kinds(crdgate.RecordCRD), "the kind machinehealthchecks.cluster.x-k8s.io or nodehealthchecks.remediation.medik8s.io is not installed"},
		"no records":                       {kinds(crdgate.NodeCheckCRD), "the kind remediationrecords.kubemend.io is not installed"},
		"hosts that nobody power-cycles":   {kinds(crdgate.NodeCheckCRD, crdgate.RecordCRD, crdgate.HostCRD), "no host can be power-cycled"},
		"no cert-manager":                  {kinds(crdgate.MachineCheckCRD, crdgate.RecordCRD), "certificates.cert-manager.io is not installed"},
		"a manager that serves its kinds":  {manager(serves("")), ""},
		"one whose flags leave a kind out": {manager(serves(crdgate.OffReason)), ""},
		"one that may not serve a kind":    {manager(serves(crdgate.ForbiddenReason)), "does not serve hostremediations.kubemend.io: why"},
		"one that is gone":                 {manager(func(m *managerlease.Manager) { m.Alive, m.Gone = false, noon }), "has not run since"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.says == "" && len(tc.missing) > 0 || tc.says != "" && (len(tc.missing) != 1 || !strings.Contains(tc.missing[0], tc.says)) {
				t.Errorf("missing: %v, want %q", tc.missing, tc.says)
			}
		})
	}
}

func TestWhatIsMissingIsListed(t *testing.T) {
	rights := granted(t)
	_, mend := guarded(t, rights)
	if code, said := mend("check", "-A"); code != Failed || strings.Count(said, "missing  ") != 1 ||
		!strings.HasPrefix(said, "missing  The kind certificates.cert-manager.io is not installed") {
		t.Errorf("code %d:\n%s", code, said)
	}
	delete(rights, right{"list", "metal3.io", "baremetalhosts"})
	if code, said := mend("check", "-A"); code != Failed || !strings.Contains(said, "missing  You cannot read BareMetalHosts in all namespaces: forbidden") {
		t.Errorf("code %d:\n%s", code, said)
	}
}
