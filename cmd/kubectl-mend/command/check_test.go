package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// missingOf are the findings that are missing.
func missingOf(found []finding) string {
	var says []string
	for _, f := range found {
		if f.missing {
			says = append(says, f.text)
		}
	}
	return strings.Join(says, "\n")
}

func TestWhichKindsAreMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		installed []string
		says      string // of what is missing; empty if nothing is
	}{
		"all":                            {[]string{crdgate.MachineCheckCRD, crdgate.RecordCRD, crdgate.HostCRD, crdgate.OwnCRD, certificateCRD}, ""},
		"NodeHealthChecks alone":         {[]string{crdgate.NodeCheckCRD, crdgate.RecordCRD}, ""},
		"none":                           {[]string{crdgate.RecordCRD}, "the kind machinehealthchecks.cluster.x-k8s.io or nodehealthchecks.remediation.medik8s.io is not installed"},
		"no records":                     {[]string{crdgate.NodeCheckCRD}, "the kind remediationrecords.kubemend.io is not installed"},
		"hosts that nobody power-cycles": {[]string{crdgate.NodeCheckCRD, crdgate.RecordCRD, crdgate.HostCRD}, "no host can be power-cycled"},
		"no cert-manager":                {[]string{crdgate.MachineCheckCRD, crdgate.RecordCRD}, "certificates.cert-manager.io is not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := missingOf(checkKinds(func(crd string) bool { return slices.Contains(tc.installed, crd) }))
			if tc.says == "" && got != "" || !strings.Contains(got, tc.says) {
				t.Errorf("missing: %q, want %q", got, tc.says)
			}
		})
	}
}

func TestAManagerThatDoesNotRunOrServeIsMissing(t *testing.T) {
	serving := func(reason string) managerlease.Manager {
		kinds := []managerlease.Kind{{CRD: crdgate.OwnCRD, Reason: reason, Because: "why"}}
		return managerlease.Manager{Namespace: "a", Alive: true, Announcement: &managerlease.Announcement{Version: "v1", Kinds: kinds}}
	}
	for name, tc := range map[string]struct {
		manager managerlease.Manager
		says    string
	}{
		"one that serves its kinds":        {serving(""), ""},
		"one whose flags leave a kind out": {serving(crdgate.OffReason), ""},
		"one that may not serve a kind":    {serving(crdgate.ForbiddenReason), "does not serve hostremediations.kubemend.io: why"},
		"one that is gone":                 {managerlease.Manager{Namespace: "a", Gone: noon}, "has not run since"},
	} {
		t.Run(name, func(t *testing.T) {
			got := missingOf(checkManagers([]managerlease.Manager{tc.manager}))
			if tc.says == "" && got != "" || !strings.Contains(got, tc.says) {
				t.Errorf("missing: %q, want %q", got, tc.says)
			}
		})
	}
}

func TestWhatIsMissingIsListedFirst(t *testing.T) {
	rights := granted(t)
	_, mend := guarded(t, rights)
	if code, said := mend("check", "-A"); code != Failed || strings.Count(said, "missing  ") != 1 ||
		!strings.HasPrefix(said, "missing  The kind certificates.cert-manager.io is not installed") || !strings.Contains(said, "are missing") {
		t.Errorf("code %d:\n%s", code, said)
	}
	delete(rights, right{"list", "metal3.io", "baremetalhosts"})
	if code, said := mend("check", "-A"); code != Failed || !strings.Contains(said, "missing  You cannot read BareMetalHosts in all namespaces: forbidden") {
		t.Errorf("code %d:\n%s", code, said)
	}
}
