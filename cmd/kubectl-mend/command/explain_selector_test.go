package command

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestObjectsAreExplainedByTheirLabels(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for line, says := range map[string]string{
		"machines -l cluster.x-k8s.io/cluster-name=c1 -o jsonpath={.items[*].subject.name}": "w1 w2",
		"mhc -l no=where":      "no MachineHealthCheck has labels that match no=where",
		"machine/w1 -l a=b":    `"machine/w1": with --selector, expected one kind and no name`,
		"nodes -l a=b":         `"nodes": with --selector, expected one kind and no name: machine, host, mhc`,
		"machines -l a==b==c,": "--selector: ",
	} {
		_, out, problems := mended(t, strings.Fields("explain --from ../../../docs/cli/samples/three-of-five.json "+line)...)
		if !strings.Contains(out+problems, says) {
			t.Errorf("%s:\n%s%s", line, out, problems)
		}
	}
}
