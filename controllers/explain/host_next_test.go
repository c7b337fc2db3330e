package explain

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

var (
	advice = regexp.MustCompile("^- ((?:`[A-Za-z]+`(?:, )?)+): (.*)$")
	quoted = regexp.MustCompile("`([A-Za-z]+)`")
)

// documented is what docs/conditions.md says is to be done about the reasons of remediations of hosts: items of a list, which may go on
// in the next lines.
func documented(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "### What to do about a reason\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(section, "\n  ", " ")) {
		item := advice.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if item == nil {
			continue
		}
		for _, reason := range quoted.FindAllStringSubmatch(item[1], -1) {
			all[reason[1]] = strings.ReplaceAll(item[2], "`", "")
		}
	}
	return all
}

func TestWhatAPersonHasToDoIsDocumented(t *testing.T) {
	is := map[string]string{}
	for reason, text := range persons {
		is[string(reason)] = text
	}
	if diff := cmp.Diff(documented(t), is); diff != "" {
		t.Errorf("docs/conditions.md (-) and the program (+) tell people to do other things:\n%s", diff)
	}
}

func TestAPersonLearnsWhatIsLeftToDoAfterTheEnd(t *testing.T) {
	unfenced := powercycle.Facts{
		Memory: powercycle.Memory{State: powercycle.Failed, Fencing: true}, Node: powercycle.NodeUnseen, Machine: powercycle.MachinePresent,
	}
	with := func(change func(*powercycle.Facts)) powercycle.Facts {
		f := unfenced
		change(&f)
		return f
	}
	const h, none = true, false
	switchedOff := powercycle.Cause{Reason: powercycle.HostSwitchedOffReason}
	for name, tc := range map[string]struct {
		facts powercycle.Facts
		host  bool
		want  string
	}{
		"nothing before the end":                  {with(func(f *powercycle.Facts) { f.State = powercycle.Booting }), h, ""},
		"a node that may be fenced and is unseen": {unfenced, h, persons[powercycle.UnfenceTimedOutReason]},
		"not one that can be seen":                {with(func(f *powercycle.Facts) { f.Node = powercycle.NodePresent }), h, ""},
		"not that of a machine that is gone":      {with(func(f *powercycle.Facts) { f.Machine = powercycle.MachineGone }), h, ""},
		"a host of a machine to be replaced": {
			powercycle.Facts{Memory: powercycle.Memory{State: powercycle.OwnerRequested}}, h, persons[powercycle.OwnerRequestedReason]},
		"nothing if that has no host": {powercycle.Facts{Memory: powercycle.Memory{State: powercycle.OwnerRequested}}, none, ""},
		"the cause of a failure, with a host or without": {
			powercycle.Facts{Memory: powercycle.Memory{State: powercycle.Failed, Cause: switchedOff}}, none,
			persons[powercycle.HostSwitchedOffReason]},
	} {
		p := &PowerCycle{Facts: tc.facts, Host: HostDetails{Known: tc.host}}
		if got := p.afterwards(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if persons[powercycle.HostSwitchedOffReason] == "" {
		t.Error("a person has nothing to do about a host that is switched off")
	}
}
