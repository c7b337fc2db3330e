package command

import (
	"errors"
	"testing"
)

func TestNamesAreReadAsUsersWriteThem(t *testing.T) {
	all := []kind{machineKind, nodeKind, hostKind, machineCheckKind, nodeCheckKind, remediationKind, metal3Kind, ownKind}
	for arg, want := range map[string]kind{
		"machine/a": machineKind, "machines/a": machineKind, "Machine/a": machineKind, "machines.cluster.x-k8s.io/a": machineKind,
		"node/a": nodeKind, "nodes/a": nodeKind,
		"host/a": hostKind, "hosts/a": hostKind, "bmh/a": hostKind, "baremetalhost/a": hostKind, "baremetalhosts/a": hostKind,
		"mhc/a": machineCheckKind, "machinehealthcheck/a": machineCheckKind, "machinehealthchecks/a": machineCheckKind,
		"nhc/a": nodeCheckKind, "nodehealthcheck/a": nodeCheckKind, "nodehealthchecks/a": nodeCheckKind,
		"remediation/a": remediationKind, "m3r/a": metal3Kind, "metal3remediation/a": metal3Kind, "metal3remediations/a": metal3Kind,
		"hrem/a": ownKind, "hostremediation/a": ownKind, "hostremediations/a": ownKind,
	} {
		if got, name, err := parse(arg, all...); got != want || name != "a" || err != nil {
			t.Errorf("%s: got %s %q, %v; want %s", arg, got, name, err, want)
		}
	}
}

func TestAWrongNameIsAnsweredWithWhatWasExpected(t *testing.T) {
	expected := []kind{machineCheckKind, nodeKind, machineKind}
	for arg, want := range map[string]string{
		"workers":     `"workers": expected mhc/NAME, node/NAME or machine/NAME`,
		"mhc/":        `"mhc/": expected mhc/NAME, node/NAME or machine/NAME`,
		"/workers":    `"/workers": expected mhc/NAME, node/NAME or machine/NAME`,
		"mhc/a/b":     `"mhc/a/b": expected mhc/NAME, node/NAME or machine/NAME`,
		"pod/workers": `"pod/workers": there is no kind "pod" here: expected mhc/NAME, node/NAME or machine/NAME`,
		"bmh/host-0":  `"bmh/host-0" names a BareMetalHost: expected mhc/NAME, node/NAME or machine/NAME`,
	} {
		_, _, err := parse(arg, expected...)
		if exit := (Exit{}); err == nil || err.Error() != want || !errors.As(err, &exit) || exit.Code != Misused {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
	if _, _, err := parse("x", machineCheckKind); err == nil || err.Error() != `"x": expected mhc/NAME` {
		t.Errorf("one kind: %v", err)
	}
}
