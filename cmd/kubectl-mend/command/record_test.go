package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

var recordedAt = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// recorder is a command line in front of a cluster, and notes the scope in which it is read.
func recorder(t *testing.T, scope *snapshot.Scope) (o *Options, out, errOut *bytes.Buffer) {
	t.Helper()
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	config := genericclioptions.NewConfigFlags(false)
	config.KubeConfig = ptr.To(filepath.Join(t.TempDir(), "kubeconfig"))
	if err := os.WriteFile(*config.KubeConfig, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o = &Options{IOStreams: streams, Name: "kubectl mend", Config: config, Clock: clock.RealClock{}}
	o.read = func(_ context.Context, is snapshot.Scope) (*snapshot.Snapshot, error) {
		*scope = is
		w := snapshot.New()
		w.Taken = recordedAt
		w.Lacks("BareMetalHosts in all namespaces", "forbidden: no")
		w.SetNodes(client.ObjectKey{Namespace: "ns", Name: "c1"}, []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}})
		err := w.Add(
			&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1"}},
			&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: clusterv1.MachineSpec{ClusterName: "c1"}},
		)
		return w, err
	}
	return o, out, errOut
}

func run(t *testing.T, o *Options, args ...string) int {
	t.Helper()
	root := o.root("dev")
	root.SetArgs(args)
	return Run(t.Context(), root, o.IOStreams)
}

func TestARecordIsWhatTheOtherCommandsRead(t *testing.T) {
	var scope snapshot.Scope
	o, out, errOut := recorder(t, &scope)
	file := filepath.Join(t.TempDir(), "record")
	if code := run(t, o, "record", "-A", "--cluster", "c1", "-o", file); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	if scope.Namespace != "" || scope.Cluster != "c1" || !scope.Nodes || !scope.Events || out.Len() != 0 {
		t.Errorf("read was %+v, and printed %q", scope, out)
	}
	want := "Could not be read:\n  BareMetalHosts in all namespaces: forbidden: no\n" +
		"Recorded clusters: 1, machines: 1, their nodes: 1. Written to " + file + ".\n"
	if errOut.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", errOut, want)
	}
	o.from = file
	w, err := o.snapshot(t.Context(), snapshot.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if !w.Clock.Now().Equal(recordedAt) || w.Node(client.ObjectKey{Namespace: "ns", Name: "c1"}, "n") == nil {
		t.Errorf("loaded, it is %s there, and the nodes are %v", w.Clock.Now(), w.Nodes(client.ObjectKey{Namespace: "ns", Name: "c1"}))
	}
}

func TestARecordTakesThePlaceOfAnotherOneWhole(t *testing.T) {
	o, _, errOut := recorder(t, &snapshot.Scope{})
	folder := t.TempDir()
	file := filepath.Join(folder, "record")
	if err := os.WriteFile(file, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code := run(t, o, "record", "-o", file); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	if is, err := os.Stat(file); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v: others may read names of everything", is.Mode(), err)
	}
	if _, err := load(file); err != nil {
		t.Error(err)
	}
	if code := run(t, o, "record", "-o", filepath.Join(folder, "nowhere", "record")); code != Failed || !strings.Contains(errOut.String(), "write the record: ") {
		t.Errorf("into a folder that is not there: exit code %d: %s", code, errOut)
	}
	link := filepath.Join(folder, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if code := run(t, o, "record", "-o", link); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	if _, err := load(file); err != nil {
		t.Errorf("behind a link: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 2 {
		t.Errorf("there are %v, %v", left, err)
	}
}

func TestARecordGoesToThePipeUnlessAFileIsNamed(t *testing.T) {
	var scope snapshot.Scope
	o, out, errOut := recorder(t, &scope)
	if code := run(t, o, "record", "-n", "ns"); code != Done || scope.Namespace != "ns" {
		t.Fatalf("exit code %d of namespace %q: %s", code, scope.Namespace, errOut)
	}
	if _, err := snapshot.Load(out); err != nil {
		t.Error(err)
	}
	if !strings.Contains(errOut.String(), "Written to the standard output.") {
		t.Errorf("it says %s", errOut)
	}
}

func TestTheNamespaceOfAFileIsNotThatOfAKubeconfig(t *testing.T) {
	for name, tc := range map[string]struct {
		from string
		args []string
		want string
	}{
		"a cluster is looked at in the namespace of the kubeconfig": {"", nil, "default"},
		"or in the one that is named":                               {"", []string{"-n", "ns"}, "ns"},
		"or in all":                                                 {"", []string{"-A"}, ""},
		"a file in all":                                             {"file", nil, ""},
		"or in the one that is named for it":                        {"file", []string{"-n", "ns"}, "ns"},
		"all wins":                                                  {"file", []string{"-A", "-n", "ns"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, _, _ := recorder(t, &snapshot.Scope{})
			cmd := o.root("dev")
			o.addSourceFlags(cmd)
			if err := cmd.ParseFlags(append(tc.args, "--from", tc.from)); err != nil {
				t.Fatal(err)
			}
			if got, err := o.namespace(); err != nil || got != tc.want {
				t.Errorf("namespace %q, want %q (%v)", got, tc.want, err)
			}
		})
	}
}

func TestAFileThatIsNoneIsSaid(t *testing.T) {
	o, _, _ := recorder(t, &snapshot.Scope{})
	o.from = filepath.Join(t.TempDir(), "other")
	if _, err := o.snapshot(t.Context(), snapshot.Scope{}); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(o.from, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := o.from + ": load a record: it is no file that `kubectl mend record` has written"
	if _, err := o.snapshot(t.Context(), snapshot.Scope{}); err == nil || err.Error() != want {
		t.Errorf("another file: %v", err)
	}
}

func TestATerminalIsNotWrittenTo(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no pseudo-terminals: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	o, _, errOut := recorder(t, &snapshot.Scope{})
	o.Out = terminal
	if code := run(t, o, "record"); code != Misused || !strings.Contains(errOut.String(), "name a file with -o") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(reader.Close(), writer.Close()) }()
	for name, out := range map[string]io.Writer{"a buffer": &bytes.Buffer{}, "a pipe": writer} {
		if text.IsTerminal(out) {
			t.Errorf("%s is taken for a terminal", name)
		}
	}
}
