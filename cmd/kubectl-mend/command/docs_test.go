package command

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubemend/kubemend/test/golden"
)

const readme = "../../../docs/cli/README.md"

// Scripts go by the exit codes; what they mean is what the comments of the constants say.
func TestExitCodesAreDocumented(t *testing.T) {
	const begin, end = "<!-- exit codes -->\n", "<!-- end -->"
	content, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the exit codes", readme)
	}
	golden.Compare(t, readme, before+begin+exitCodes(t)+end+after)
}

// exitCodes are the constants of command.go in which a comment says what the code says.
func exitCodes(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "command.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| code | says that |\n|---|---|\n")
	codes := 0
	for _, d := range file.Decls {
		constants, is := d.(*ast.GenDecl)
		if !is || constants.Tok != token.CONST {
			continue
		}
		for _, s := range constants.Specs {
			v := s.(*ast.ValueSpec)
			meaning, says := strings.CutPrefix(v.Doc.Text(), v.Names[0].Name+" says that ")
			if !says {
				continue
			}
			codes++
			meaning = strings.TrimSuffix(strings.Join(strings.Fields(meaning), " "), ".")
			fmt.Fprintf(&b, "| %s | %s |\n", v.Values[0].(*ast.BasicLit).Value, meaning)
		}
	}
	if codes != 9 {
		t.Fatalf("%d exit codes are found", codes)
	}
	return b.String()
}

// The page lists the commands.
func TestEveryCommandIsListed(t *testing.T) {
	content, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	root := New(genericiooptions.NewTestIOStreamsDiscard(), "kubectl mend", "dev")
	for _, c := range root.Commands() {
		if row := "`kubectl mend " + c.Name() + "`"; !strings.Contains(string(content), row) {
			t.Errorf("%s does not list %s", readme, row)
		}
	}
}

// A shell asks while somebody types: what goes wrong is no answer.
func TestNothingIsCompletedWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	for _, line := range []string{"__complete explain machine/", "__complete claim mhc/", "__complete explain node/"} {
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		root := New(streams, "kubectl mend", "dev")
		args := strings.Fields(line) // the last one is what is being typed
		root.SetArgs(append([]string{args[0], "--server=http://127.0.0.1:1"}, args[1:]...))
		if code := Run(t.Context(), root, streams); code != Done || out.String() != ":4\n" || strings.Contains(problems.String(), "rror") {
			t.Errorf("%s: code %d\n%s%s", line, code, out, problems)
		}
	}
}

func TestEveryShellIsCompleted(t *testing.T) {
	for shell, begins := range map[string]string{"bash": "# bash completion V2", "zsh": "#compdef kubectl-mend", "fish": "# fish completion", "powershell": "# powershell completion"} {
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		root := New(streams, "kubectl mend", "dev")
		root.SetArgs([]string{"completion", shell})
		if code := Run(t.Context(), root, streams); code != Done || !strings.HasPrefix(out.String(), begins) || problems.Len() > 0 {
			t.Errorf("%s: code %d\n%.60s\n%s", shell, code, out, problems)
		}
	}
}
