// Package badinput puts wrong values into all that users write: each has to be refused or reported with its object, its field
// and the expected value, must not delay anything else, and must leave no trace once it is corrected. The tests write
// docs/reference/bad-input.md.
package badinput

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/schemas"
)

func TestBadInputsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString(documentHead)
	var rows [][]string
	for _, row := range schemas.Manifests {
		rows = append(rows, []string{row.Kind, row.Field, written(row.Value), row.Says})
	}
	table(&b, rows, 2)
	b.WriteString(checksHead)
	rows = nil
	for _, row := range checks {
		rows = append(rows, []string{row.field, written(row.value), row.condition + "=False/" + row.reason, row.says})
	}
	table(&b, rows, 1)
	b.WriteString(annotationsHead)
	rows = nil
	for _, row := range annotations {
		rows = append(rows, []string{row.kind, row.key, written(row.value), row.says, map[bool]string{true: "yes", false: "no"}[row.remediated]})
	}
	table(&b, rows, 2)
	b.WriteString(memoriesHead)
	rows = nil
	for _, row := range memories {
		rows = append(rows, []string{row.key, written(row.value), row.says})
	}
	table(&b, rows, 1)
	b.WriteString(kubeconfigsHead)
	for _, row := range kubeconfigs {
		fmt.Fprintf(&b, "| %s | `%s` |\n", row.what, strings.TrimPrefix(row.says, refusedKubeconfig))
	}
	b.WriteString(flagsHead)
	golden.Compare(t, "../../docs/reference/bad-input.md", b.String())
	if all := len(schemas.Manifests) + len(checks) + len(annotations) + len(memories) + len(kubeconfigs) + len(flags); all < 60 {
		t.Errorf("there are %d rows, want 60 at least", all)
	}
}

// What the page says above its tables. Every refusal of a kubeconfig begins with refusedKubeconfig, which the page says once.
const (
	documentHead = `# Bad input

What kubemend does about a wrong value. ` + "`test/badinput`" + ` tries each, and
` + "`make generate`" + ` writes this page. A wrong value blocks nothing else, and its correction needs no
restart.

## Manifests that the API server refuses

The CustomResourceDefinitions refuse them, without a webhook.

| kind | field | value | message |
|---|---|---|---|
`
	checksHead = `
## MachineHealthChecks

Cluster API's webhook refuses some of these as well. Otherwise a condition of the check shows them.

| field | value | condition | message |
|---|---|---|---|
`
	annotationsHead = `
## Annotations that mean the same whatever their value

Cluster API defines them so. ` + "`kubectl mend explain`" + ` prints the message.

| of a | annotation | value | message | remediated |
|---|---|---|---|---|
`
	memoriesHead = `
## The memory of a HostRemediation

Only kubemend writes it; [a policy](../security.md#what-a-remediation-remembers) keeps others from it.
A remediation with an unreadable memory fails, because starting over could repeat every step.
kubemend leaves its host alone, and the next remediation of the machine starts.

| annotation | value | message |
|---|---|---|
`
	kubeconfigsHead = `
## Kubeconfigs

In the Secret ` + "`<cluster>-kubeconfig`" + `. The check reports
` + "`WorkloadClusterReachable=False/KubeconfigRefused`" + `, its nodes are unknown, and an event is on the
Cluster. ` + "`kubectl mend`" + ` refuses the same. Each message begins with "the kubeconfig is refused".

| content | message |
|---|---|
`
	flagsHead = `
## Flags

The program ends at once, with an exit code other than 0. The message has the flag, the value and what
is expected, such as ` + "`--sync-period 0s: must be more than 0`" + `.
`
	refusedKubeconfig = "the kubeconfig is refused: "
)

// table writes rows, of code. Those that follow one another and differ in the cell of values alone are one row.
func table(b *strings.Builder, rows [][]string, values int) {
	for i := 0; i < len(rows); {
		cells := make([]string, len(rows[i]))
		for c, cell := range rows[i] {
			cells[c] = code(cell)
		}
		next := i + 1
		for ; next < len(rows) && sameBut(values, rows[i], rows[next]); next++ {
			cells[values] += ", " + code(rows[next][values])
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		i = next
	}
}

// sameBut says whether two rows differ in the cell of values at most.
func sameBut(values int, one, other []string) bool {
	for c := range one {
		if c != values && one[c] != other[c] {
			return false
		}
	}
	return true
}

func code(cell string) string { return "`" + strings.ReplaceAll(cell, "|", "\\|") + "`" }

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
