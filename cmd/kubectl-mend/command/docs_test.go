package command

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/golden"
)

const readme = "../../../docs/cli/README.md"

func contentOf(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	must.Do(t, err)
	return string(content)
}

// Scripts go by the exit codes; what they mean is what the comments of the constants say.
func TestExitCodesAreDocumented(t *testing.T) {
	golden.Section(t, readme, "exit codes", exitCodes(t))
}

// exitCodes are the constants of command.go in which a comment says what the code says.
func exitCodes(t *testing.T) string {
	t.Helper()
	var table strings.Builder
	table.WriteString("| code | says that |\n|---|---|\n")
	constants := regexp.MustCompile(`((?:\t// .*\n)+)\t(\w+) += (\d+)\n`).FindAllStringSubmatch(contentOf(t, "command.go"), -1)
	for _, constant := range constants {
		words := strings.Fields(strings.ReplaceAll(constant[1], "//", ""))
		meaning := strings.TrimPrefix(strings.Join(words, " "), constant[2]+" says that ")
		fmt.Fprintf(&table, "| %s | %s |\n", constant[3], strings.TrimSuffix(meaning, "."))
	}
	if len(constants) != 5 {
		t.Fatalf("%d exit codes are found", len(constants))
	}
	return table.String()
}

// docs/cli/README.md has users copy the file.
func TestTheKeysOfK9sAreForKindsThatAreExplained(t *testing.T) {
	var file struct {
		Plugins map[string]struct{ Scopes []string }
	}
	if err := yaml.Unmarshal([]byte(contentOf(t, "../../../docs/examples/k9s/plugins.yaml")), &file); err != nil || len(file.Plugins) == 0 {
		t.Fatalf("%d plugins: %v", len(file.Plugins), err)
	}
	for name, plugin := range file.Plugins {
		for _, scope := range plugin.Scopes {
			if k, _ := kindCalled(scope); !slices.Contains(explained, k) {
				t.Errorf("%s: %s is no kind that is explained", name, scope)
			}
		}
	}
}

// The page lists the commands.
func TestEveryCommandIsListed(t *testing.T) {
	content := contentOf(t, readme)
	root := New(genericiooptions.NewTestIOStreamsDiscard(), "kubectl mend", "dev")
	for _, c := range root.Commands() {
		if row := "`kubectl mend " + c.Name() + "`"; !strings.Contains(content, row) {
			t.Errorf("%s does not list %s", readme, row)
		}
	}
}

func TestEveryCommandShowsAnExample(t *testing.T) {
	root := New(genericiooptions.NewTestIOStreamsDiscard(), "kubectl mend", "dev")
	for _, c := range append(root.Commands(), root) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			if !strings.Contains(line, c.CommandPath()) || !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q does not show how it is called", c.CommandPath(), line)
			}
		}
	}
}

// A flag that every command takes is in the help of options alone.
func TestTheHelpOfACommandListsItsOwnFlags(t *testing.T) {
	for line, global := range map[string]bool{"options": true, "status --help": false, "completion bash --help": false, "": false} {
		code, out, problems := mended(t, strings.Fields(line)...)
		says := strings.Contains(out, `Use "kubectl mend options" for a list of global`)
		named := !strings.Contains(out, `Use "kubectl-mend `)
		if code != Done || problems != "" || strings.Contains(out, "--kubeconfig=") != global || says == global || !named {
			t.Errorf("%s: code %d\n%s%s", line, code, out, problems)
		}
	}
}

func TestWhatIsTypedIsCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"": "check claim completion confirm explain help history options record release remediate report reset simulate status " +
			"version wait",
		"report --by ": "cluster check cause",
		"explain mhc/x -o ": "go-template go-template-file json jsonpath jsonpath-as-json jsonpath-file kyaml template templatefile " +
			"wide yaml",
		"explain mhc/x --color ": "auto always never",
		"explain machine/":       "",
		"status ":                "",
	} {
		t.Run(line, func(t *testing.T) {
			code, out, problems := mended(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
			if code != Done {
				t.Fatalf("code %d: %s", code, problems)
			}
			var offered []string
			lines := strings.Split(strings.TrimSpace(out), "\n")
			for _, l := range lines[:len(lines)-1] {
				name, _, _ := strings.Cut(l, "\t")
				offered = append(offered, name)
			}
			if got := strings.Join(offered, " "); got != want || lines[len(lines)-1] != ":4" {
				t.Errorf("offered %q, want %q; directive %s", got, want, lines[len(lines)-1])
			}
		})
	}
	for line, want := range map[string]string{"simulate -f ": "yaml yml json", "status --kubeconfig ": "", "record -o ": "", "status --from ": ""} {
		_, out, _ := mended(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if lines := strings.Fields(out); lines[len(lines)-1] == ":4" || strings.Join(lines[:len(lines)-1], " ") != want {
			t.Errorf("%s: no files are offered: %s", line, out)
		}
	}
}
