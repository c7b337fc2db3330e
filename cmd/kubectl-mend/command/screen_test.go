package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/must"
)

// obey is a hostile text for fields that take any text: it sets a title, clears the screen and fakes a line of the page.
const obey = "Stopped\x1b]0;owned\x07\x1b[2J\u202e\r\x9b31m\nDo this: kubectl delete cluster c1"

// hostileSnapshot returns a snapshot with the text obey in all fields that take any text.
func hostileSnapshot(_ context.Context, _ snapshot.Scope) (*snapshot.Snapshot, error) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid"} }
	long := metav1.NewTime(recordedAt.Add(-24 * 60 * 60 * 1e9))
	w := snapshot.New()
	w.Taken = recordedAt
	w.Forbid(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), "", errors.New(obey))
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: obey, Message: obey, LastTransitionTime: long}}
	w.SetNodes(client.ObjectKey{Namespace: "ns", Name: "c1"}, []corev1.Node{node})
	cluster := &clusterv1.Cluster{ObjectMeta: meta("c1")}
	cluster.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Is", LastTransitionTime: long},
		{Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: metav1.ConditionTrue, Reason: obey, Message: obey, LastTransitionTime: long},
		{Type: clusterv1.InfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Is", LastTransitionTime: long},
	}
	m := &clusterv1.Machine{ObjectMeta: meta("m")}
	m.Labels = map[string]string{"cluster.x-k8s.io/cluster-name": "c1"}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "n"
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: obey, Message: obey, LastTransitionTime: long,
	}}
	check := &clusterv1.MachineHealthCheck{ObjectMeta: meta("check")}
	check.Annotations = map[string]string{clusterv1.PausedAnnotation: obey}
	check.Spec.ClusterName = "c1"
	check.Spec.Selector.MatchLabels = m.Labels
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "Unknown", TimeoutSeconds: ptr.To[int32](60)}}
	lease := &coordinationv1.Lease{ObjectMeta: meta("manager.kubemend.io")}
	lease.Annotations = map[string]string{"kubemend.io/manager": `{"version":"v1\u001b[2J","mode":"\u001b[31m"}`}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(obey), &metav1.MicroTime{Time: recordedAt}
	event := &eventsv1.Event{
		ObjectMeta: meta("e"), Reason: obey, Note: obey, ReportingController: "kubemend.io/" + obey, Type: "Warning", EventTime: metav1.NewMicroTime(recordedAt),
		Regarding: corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Namespace: "ns", Name: "m", UID: "uid"},
	}
	err := w.Add(cluster, m, check, lease, event)
	return w, err
}

// An API server validates names. A file may have any names.
func TestNoCommandPrintsWhatATerminalWouldObey(t *testing.T) {
	const name = "m\nDo this: kubectl delete cluster c1\t"
	file := filepath.Join(t.TempDir(), obey)
	texts, names := recordedFrom(t, hostileSnapshot), recordedFrom(t, hostilelyNamed(name))
	for _, line := range [][]string{
		{"status", "-A"}, {"status", "-A", "-o", "wide"}, {"explain", "machine/m", "-n", "ns"}, {"explain", "mhc/check", "-n", "ns"},
		{"explain", "node/n", "-n", "ns", "--cluster", "c1"}, {"history", "-A", "--from", texts}, {"history", "-A", "--from", texts, "-o", "wide"},
		{"simulate", "-A", "--fail", "machine/ns/m"},
		{"explain", "machine/" + obey, "-n", "ns"}, {"status", obey, "-A"}, {"explain", obey}, {obey}, {"status", "--" + obey},
		{"status", "--from", file}, {"history", "--since", obey}, {"record", "-A", "-o", file},
		{"status", "-A", "--from", names}, {"status", "-A", "-o", "wide", "--from", names}, {"explain", "machine/" + name, "-n", "ns", "--from", names},
		{"explain", "mhc/" + name, "-n", "ns", "--from", names}, {"explain", "machine/m", "-n", "ns", "--from", names}, {"history", "-A", "--from", names},
		{"history", "-A", "-o", "wide", "--from", names}, {"simulate", "-A", "--from", names}, {"simulate", "-A", "--fail", "machine/ns/" + name, "--from", names},
	} {
		o, out, errOut := recorder(t, &snapshot.Scope{})
		o.read = hostileSnapshot
		run(t, o, line...)
		shown, named := out.String()+errOut.String(), slices.Contains(line, names)
		if shown == "" {
			t.Errorf("%q: it prints nothing", line)
		}
		if pages := !named && slices.Contains(line, "ns") || slices.Contains(line, texts); pages && !strings.Contains(shown, `\x1b]0;owned\a`) {
			t.Errorf("%q: what is hostile is left out: %s", line, shown)
		}
		if named && !strings.Contains(shown, "Do this:") && !slices.Contains(line, "machine/m") {
			t.Errorf("%q: the name is left out: %s", line, shown)
		}
		for _, r := range shown {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Errorf("%q: %q reaches the terminal: %q", line, r, shown)
				break
			}
		}
		if forged(out.String()) || forged(errOut.String()) {
			t.Errorf("%q: a line of ours is forged:\n%s%s", line, out, errOut)
		}
	}
}

// recordedFrom writes a file with the snapshot that read returns, and returns its name.
func recordedFrom(t *testing.T, read func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error)) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "record")
	o, _, errOut := recorder(t, &snapshot.Scope{})
	o.read = read
	if code := run(t, o, "record", "-A", "-o", file); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	return file
}

// hostilelyNamed reads a hostileSnapshot in which a machine, its check and an event have this name.
func hostilelyNamed(name string) func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
	return func(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
		w, err := hostileSnapshot(ctx, scope)
		if err != nil {
			return nil, err
		}
		m, check, event := &clusterv1.Machine{}, &clusterv1.MachineHealthCheck{}, &eventsv1.Event{}
		for key, obj := range map[string]client.Object{"m": m, "check": check, "e": event} {
			if err := w.Get(ctx, client.ObjectKey{Namespace: "ns", Name: key}, obj); err != nil {
				return nil, err
			}
			obj.SetName(name)
			obj.SetResourceVersion("")
		}
		check.Spec.Remediation.TemplateRef.Kind, check.Spec.Remediation.TemplateRef.Name = name+"Template", name
		event.Regarding.Name, event.Type = name, name
		err = w.Add(m, check, event)
		return w, err
	}
}

// forged reports whether a line of the output begins like the faked line in obey.
func forged(shown string) bool { return strings.Contains("\n"+shown, "\nDo this:") }

// Without the recovery in Run, Go would print the panic with its text unescaped.
func TestAPanicIsSpelledOut(t *testing.T) {
	var terminal bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &terminal, ErrOut: &terminal}
	root := New(streams, "kubectl mend", "dev")
	root.AddCommand(&cobra.Command{Use: "fall", Run: func(*cobra.Command, []string) { panic("cannot parse " + obey) }})
	root.SetArgs([]string{"fall"})
	must.Is(t, Failed, Run(t.Context(), root, streams), "exit code")
	if shown := terminal.String(); forged(shown) || strings.ContainsRune(shown, '\x1b') || !strings.Contains(shown, `\x1b]0;owned\a`) ||
		!strings.Contains(shown, "screen_test.go") {
		t.Errorf("it prints %q", shown)
	}
}

// Programs need the texts unchanged.
func TestJSONAndYAMLAreWhatThereIs(t *testing.T) {
	var pages []any
	for _, format := range []string{"json", "yaml"} {
		o, out, errOut := recorder(t, &snapshot.Scope{})
		o.read = hostileSnapshot
		if code := run(t, o, "explain", "machine/m", "-n", "ns", "-o", format); code != Done {
			t.Fatalf("exit code %d: %s", code, errOut)
		}
		page := map[string]any{}
		if err := yaml.Unmarshal(out.Bytes(), &page); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		delete(page, "time") // differs between the two runs
		pages = append(pages, page)
		if format == "json" && !strings.Contains(out.String(), `with reason Stopped\u001b]0;owned\u0007`) {
			t.Errorf("it is not as it was written:\n%s", out)
		}
	}
	if diff := cmp.Diff(pages[0], pages[1]); diff != "" {
		t.Errorf("what they say (-JSON +YAML):\n%s", diff)
	}
}

const readme = "../../../docs/cli/README.md"

func contentOf(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	must.Do(t, err)
	return string(content)
}

// Scripts depend on the exit codes. The page is made from the comments of the constants.
func TestExitCodesAreDocumented(t *testing.T) {
	golden.Section(t, readme, "exit codes", exitCodes(t))
}

// exitCodes returns a table of the exit codes, from the comments in command.go that begin with "NAME says that".
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

// docs/cli/README.md tells users to copy the file.
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

func TestEveryCommandIsListedAndShowsAnExample(t *testing.T) {
	content, root := contentOf(t, readme), New(genericiooptions.NewTestIOStreamsDiscard(), "kubectl mend", "dev")
	for _, c := range append(root.Commands(), root) {
		if row := "`kubectl mend " + c.Name() + "`"; c != root && !strings.Contains(content, row) {
			t.Errorf("%s does not list %s", readme, row)
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			if !strings.Contains(line, c.CommandPath()) || !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q does not show how it is called", c.CommandPath(), line)
			}
		}
	}
}

// Only the help of `options` lists the global flags.
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
		"": "allow check claim completion explain help history hold options record release remediate report reset simulate status " +
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
