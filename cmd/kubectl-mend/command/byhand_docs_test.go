package command

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/golden"
)

// docs/cli/remediate.md shows what is printed at 100 columns.
func TestTheVerbsOfAPersonAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/remediate.md"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	for _, example := range []struct {
		what  string
		edits []func(*place)
	}{
		{"remediate machine/w1", nil},
		{"remediate machine/w2", []func(*place){silentNodes("w1")}},
		{"remediate host/host-w1", nil},
		{"reset host/host-w1", []func(*place){exhausted("gone")}},
		{"reset host/host-w2", []func(*place){exhausted("w2"), func(p *place) { p.hosts["w2"].Annotations = p.hosts["w1"].Annotations }}},
	} {
		page = withExample(t, page, example.what, printedBy(t, example.what, example.edits...))
	}
	golden.Compare(t, path, page)
}

// printedBy is what a command prints for alice, who says yes.
func printedBy(t *testing.T, what string, edits ...func(*place)) string {
	t.Helper()
	p := aPlace(t, edits...)
	t.Setenv("COLUMNS", "100")
	p.typed = "y\n"
	var out bytes.Buffer
	o := p.options(&out)
	verb, object, _ := strings.Cut(what, " ")
	b := &byHand{IOStreams: o.IOStreams, verb: verb, client: p.client, now: noon, asks: true}
	named, err := parseOne([]string{object}, remediable...)
	switch {
	case err != nil:
	case verb == "reset":
		err = b.resetNamed(t.Context(), named, "metal")
	default:
		err = o.remediateNamed(t.Context(), b, named, "")
	}
	if err != nil {
		out.WriteString("error: " + err.Error() + "\n")
	}
	return strings.Replace(out.String(), "[y/N] ", "[y/N] y\n", 1) // what is typed ends the line
}

// withExample is a page with what a command prints below the line in which it is typed.
func withExample(t *testing.T, page, what, printed string) string {
	t.Helper()
	const begins, ends = "```text\n$ kubectl mend ", "```\n"
	before, rest, found := strings.Cut(page, begins+what)
	flags, rest, _ := strings.Cut(rest, "\n")
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		t.Fatalf("the page has no example of %s", what)
	}
	return before + begins + what + flags + "\n" + printed + ends + after
}
