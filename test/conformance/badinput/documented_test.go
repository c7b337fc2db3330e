// Package badinput puts wrong values into all that users write: each has to be refused or reported with its object, its field
// and the expected value, must not delay anything else, and must leave no trace once it is corrected. The tests write docs/bad-input.md.
package badinput

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

func TestBadInputsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Bad input\n\nWhat becomes of a wrong value, by where it stands. Generated from `test/conformance/badinput` by `make generate`, which tries each.\n" +
		"Nothing else is held up by one, and none needs a restart when it has been corrected.\n\n" +
		"## Manifests that the API server refuses\n\nBy the CustomResourceDefinitions, so without a webhook. Nothing is stored.\n\n| kind | field | value | message |\n|---|---|---|---|\n")
	for _, row := range manifests {
		line(&b, row.kind, row.field, written(row.value), row.says)
	}
	b.WriteString("\n## MachineHealthChecks\n\nThey are Cluster API's, whose webhook refuses some of these as well. Where it does not, or does not run, the check says so in a condition.\n\n" +
		"| field | value | condition | message |\n|---|---|---|---|\n")
	for _, row := range checks {
		line(&b, row.field, written(row.value), row.condition+"=False/"+row.reason, row.says)
	}
	b.WriteString("\n## Annotations that mean the same whatever their value\n\nAs Cluster API defines them. What is said is what `kubectl mend explain` prints.\n\n" +
		"| of a | annotation | value | said | remediated |\n|---|---|---|---|---|\n")
	for _, row := range annotations {
		line(&b, row.kind, row.key, written(row.value), row.says, map[bool]string{true: "yes", false: "no"}[row.remediated])
	}
	b.WriteString("\n## What a HostRemediation remembers\n\nOnly kubemend writes these, and [a policy](security.md#what-a-remediation-remembers) keeps others from it. A remediation whose memory\n" +
		"cannot be read has failed: to begin anew could do everything twice. Nothing is done to its host, and the next remediation of the machine begins.\n\n" +
		"| annotation | value | message |\n|---|---|---|\n")
	for _, row := range memories {
		line(&b, row.key, written(row.value), row.says)
	}
	b.WriteString("\n## Kubeconfigs\n\nOf the Secret `<cluster>-kubeconfig`. The check says `WorkloadClusterReachable=False/KubeconfigRefused`, its nodes cannot be judged, and an event\n" +
		"tells the Cluster. `kubectl mend` refuses the same.\n\n| what is in it | message |\n|---|---|\n")
	for _, row := range kubeconfigs {
		fmt.Fprintf(&b, "| %s | `%s` |\n", row.what, row.says)
	}
	b.WriteString("\n## Flags\n\nThe program ends at once, with a code other than 0.\n\n| program | flag | message |\n|---|---|---|\n")
	for _, row := range flags {
		line(&b, row.program, strings.Join(row.args, " "), row.says)
	}
	golden.Compare(t, "../../../docs/bad-input.md", b.String())
	if all := len(manifests) + len(checks) + len(annotations) + len(memories) + len(kubeconfigs) + len(flags); all < 60 {
		t.Errorf("there are %d rows, want 60 at least", all)
	}
}

// line writes a row of a table, of code.
func line(b *strings.Builder, cells ...string) {
	for _, cell := range cells {
		fmt.Fprintf(b, "| `%s` ", strings.ReplaceAll(cell, "|", "\\|"))
	}
	b.WriteString("|\n")
}

// written is a value as it stands in a manifest.
func written(value any) string {
	if value == nil {
		return "missing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
