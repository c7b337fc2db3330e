package test

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A manager on somebody's own machine is nothing that other machines should reach.
func TestMakeRunListensOnLoopbackAlone(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "make", "-C", root, "-n", "run").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for _, flag := range regexp.MustCompile(`--([a-z]+-(?:addr|address|host))=(\S+)`).FindAllStringSubmatch(string(out), -1) {
		got = append(got, flag[1]+" "+flag[2])
	}
	want := []string{"health-addr 127.0.0.1:9440", "diagnostics-address 127.0.0.1:8443", "webhook-host 127.0.0.1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
