package command

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestObjectsAreExplainedByTheirLabels(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	sample := filepath.Join("..", "..", "..", "docs", "cli", "samples", "three-of-five.json")
	for line, tc := range map[string]struct {
		code int
		says string
	}{
		"machines -l cluster.x-k8s.io/cluster-name=c1 -o name": {Done, "machine.cluster.x-k8s.io/w1\nmachine.cluster.x-k8s.io/w2\n"},
		"mhc -l no=where":      {Failed, "no MachineHealthCheck has labels that match no=where"},
		"machine/w1 -l a=b":    {Misused, `"machine/w1": with --selector, expected one kind and no name`},
		"nodes -l a=b":         {Misused, `"nodes": with --selector, expected one kind and no name: machine, host, mhc`},
		"machines -l a==b==c,": {Misused, "--selector: "},
	} {
		code, out, problems := mended(t, append([]string{"explain", "--from", sample}, strings.Fields(line)...)...)
		if code != tc.code || !strings.Contains(out+problems, tc.says) {
			t.Errorf("%s: code %d\n%s%s", line, code, out, problems)
		}
	}
}
