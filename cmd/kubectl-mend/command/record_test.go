package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

var recordedAt = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// recorder returns Options for a cluster, which write the scope of each read to scope.
func recorder(t *testing.T, scope *snapshot.Scope) (o *Options, out, errOut *bytes.Buffer) {
	t.Helper()
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	config := genericclioptions.NewConfigFlags(false)
	config.KubeConfig = ptr.To(filepath.Join(t.TempDir(), "kubeconfig"))
	must.Do(t, os.WriteFile(*config.KubeConfig, []byte("apiVersion: v1\nkind: Config\n"), 0o600))
	o = &Options{IOStreams: streams, Name: "kubectl mend", Config: config, Clock: clock.RealClock{}}
	o.read = func(_ context.Context, is snapshot.Scope) (*snapshot.Snapshot, error) {
		*scope = is
		w := snapshot.New()
		w.Taken = recordedAt
		w.Forbid(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), "",
			apierrors.NewForbidden(schema.GroupResource{Resource: "baremetalhosts"}, "", errors.New("no")))
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
	if scope.Namespace != "" || scope.Cluster != "c1" || !scope.Everything || out.Len() != 0 {
		t.Errorf("read was %+v, and printed %q", scope, out)
	}
	want := "Could not be read:\n  BareMetalHosts in all namespaces: forbidden: no\n" +
		"Recorded clusters: 1, machines: 1. Written to " + file + ".\n"
	if errOut.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", errOut, want)
	}
	if code := run(t, o, "history", "--from", file, "-o", "svg"); code != Done {
		t.Errorf("a drawing of its history: exit code %d: %s", code, errOut)
	}
	o.from = file
	w, err := o.snapshot(t.Context(), snapshot.Scope{})
	must.Do(t, err)
	if !w.Clock.Now().Equal(recordedAt) || w.Node(client.ObjectKey{Namespace: "ns", Name: "c1"}, "n") == nil {
		t.Errorf("loaded, it is %s there, and the nodes are %v", w.Clock.Now(), w.Nodes(client.ObjectKey{Namespace: "ns", Name: "c1"}))
	}
}

func TestARecordIsReadByItsOwnerAlone(t *testing.T) {
	o, _, errOut := recorder(t, &snapshot.Scope{})
	folder := t.TempDir()
	file := filepath.Join(folder, "record")
	must.Do(t, os.WriteFile(file, []byte("another"), 0o644))
	if code := run(t, o, "record", "-o", file); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	if is, err := os.Stat(file); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v: others may read names of everything", is.Mode(), err)
	}
	if _, err := load(file); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
		t.Errorf("besides the record there are %v, %v", files, err)
	}
	if code := run(t, o, "record", "-o", filepath.Join(folder, "nowhere", "record")); code != Failed || !strings.Contains(errOut.String(), "write the record: ") {
		t.Errorf("into a folder that is not there: exit code %d: %s", code, errOut)
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
			must.Do(t, cmd.ParseFlags(append(tc.args, "--from", tc.from)))
			if got, err := o.namespace(); err != nil || got != tc.want {
				t.Errorf("namespace %q, want %q (%v)", got, tc.want, err)
			}
		})
	}
}

// recorded returns a command line for a management cluster that the user may read, with the RemediationRecord of a machine that is gone.
func recorded(t *testing.T, edit func(map[string]string, map[right]string)) func(line string) (int, string, string) {
	t.Helper()
	t.Setenv("COLUMNS", "")
	rights := granted(t)
	w, _ := guarded(t, rights)
	now := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	ref := func(kind, name string) *mendv1.RecordRef {
		return &mendv1.RecordRef{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Namespace: "x", Name: name, UID: name}
	}
	record := mendv1.RemediationRecord{
		TypeMeta: metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: "RemediationRecord"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "gone-1", UID: "1", CreationTimestamp: now,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubemend", Operation: metav1.ManagedFieldsOperationUpdate}}},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown", UnhealthySince: &now, Due: &now, Decided: now,
			Target:    mendv1.RecordTarget{ClusterName: "x", Machine: ref("Machine", "gone"), Owner: ref("MachineSet", "x-md-0"), Node: ref("Node", "node-of-gone")},
			Requester: mendv1.RecordRequester{Check: ref("MachineHealthCheck", "c1-workers")},
		},
		Status: mendv1.RemediationRecordStatus{
			Attempted: &now, Begun: &now, CapacityBack: &now, Ended: &now, Outcome: mendv1.RecordReplaced,
			Replacement: &mendv1.RecordReplacement{Machine: *ref("Machine", "new")},
			Steps:       []mendv1.RecordStep{{Time: metav1.NewMicroTime(now.Time), Reason: "WaitingForVolumeDetach", Message: "waited"}, {Time: metav1.NewMicroTime(now.Time), Reason: "Replaced", Message: "replaced"}},
		},
	}
	content, err := json.Marshal(record)
	must.Do(t, err)
	w.objects["kubemend.io/v1alpha1/remediationrecords"] = string(content)
	edit(w.objects, rights)
	server := w.serve(t)
	return func(line string) (int, string, string) {
		return mended(t, append(strings.Fields(line), "--server="+server, "--cache-dir="+t.TempDir())...)
	}
}

func TestAReportIsOfTheRecordsThatCanBeRead(t *testing.T) {
	all := func(map[string]string, map[right]string) {}
	without := func(group, resource string) func(map[string]string, map[right]string) {
		return func(_ map[string]string, rights map[right]string) { delete(rights, right{"list", group, resource}) }
	}
	uninstalled := func(objects map[string]string, _ map[right]string) {
		delete(objects, "kubemend.io/v1alpha1/remediationrecords")
	}
	for name, tc := range map[string]struct {
		edit              func(map[string]string, map[right]string)
		line              string
		code              int
		prints, complains string
	}{
		"one record":                     {all, "report -n x -o jsonpath={.total.remediations}{.items[*].cluster.name}", Done, "1x", ""},
		"of all namespaces":              {all, "report -A --by cause", Done, "Ready=Unknown   1 ", ""},
		"of another cluster":             {all, "report -n x --cluster y -o jsonpath={.total.remediations}", Done, "0", ""},
		"from before":                    {all, "report -n x --since 10m -o jsonpath={.total.remediations}", Done, "0", ""},
		"records that may not be read":   {without("kubemend.io", "remediationrecords"), "report -n x", Failed, "", "cannot list resource \"remediationrecords\""},
		"records that are not installed": {uninstalled, "report -n x", Done, ": 0.", "RemediationRecords are not installed"},
		"a history of what is gone":      {all, "history machine/gone -n x", Done, "remediation decided for MachineHealthCheck c1-workers: Ready=Unknown", ""},
		"a history of another machine":   {all, "history machine/other -n x", Done, "", "No RemediationRecord and no event was found"},
		"a history by its node":          {all, "history node node-of-gone -n x", Done, "RemediationDecided", ""},
		"a history from before":          {all, "history machine/gone -n x --since 10m", Done, "", "no event was found since "},
		"a history without records":      {without("kubemend.io", "remediationrecords"), "history -n x --since 0", Done, "", "left out: RemediationRecords: "},
		"a history, where none can be":   {uninstalled, "history -n x --since 0", Done, "", "no event was found."},
		"a history as YAML":              {all, "history machine/gone -n x -o yaml", Done, "kind: History", ""},
		"a history for programs":         {all, `history machine/gone -n x -o jsonpath={.items[0].source}={.items[0].record.name}`, Done, "Record=gone-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, problems := recorded(t, tc.edit)(tc.line)
			problems = strings.Join(strings.Fields(problems), " ")
			if code != tc.code || !strings.Contains(out, tc.prints) || !strings.Contains(problems, tc.complains) || tc.complains == "" && problems != "" {
				t.Errorf("code %d, printed\n%s%s", code, out, problems)
			}
		})
	}
}

// A file of kubectl mend record has the RemediationRecords, and a report from it is of the time at which the file was written.
func TestAReportIsOfARecording(t *testing.T) {
	mend := recorded(t, func(map[string]string, map[right]string) {})
	file := filepath.Join(t.TempDir(), "fleet.json")
	if code, _, problems := mend("record -n x -o " + file); code != Done {
		t.Fatal(problems)
	}
	content, err := os.ReadFile(file)
	if err != nil || bytes.Contains(content, []byte("managedFields")) {
		t.Fatal(err, "or managed fields")
	}
	var got cliv1.Report
	code, out, problems := mend("report -A -o json --from " + file)
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != Done || got.Total.Remediations != 1 || got.Items[0].TimeToCapacityBack == nil {
		t.Errorf("code %d, %v, printed\n%s%s", code, err, out, problems)
	}
	if code, out, problems := mend("history machine/gone --from " + file); code != Done || !strings.Contains(out, "RemediationDecided") || !strings.Contains(out, "WaitingForVolumeDetach") {
		t.Errorf("code %d, printed\n%s%s", code, out, problems)
	}
}

func told(name, namespace string, about corev1.ObjectReference, reason string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, EventTime: metav1.NewMicroTime(noon), Regarding: about,
		Reason: reason, Note: "it is so", ReportingController: "kubemend",
	}
}

func TestHistoryIsReadFromAllThatRemembers(t *testing.T) {
	objs := clientWith(t, told("a", "metal", corev1.ObjectReference{Kind: "Machine", Namespace: "metal", Name: "m-1"}, "Marked"),
		told("b", "default", corev1.ObjectReference{Kind: "NodeHealthCheck", Name: "all"}, "Skipped"),
		told("c", "default", corev1.ObjectReference{Kind: "Machine", Namespace: "default", Name: "m-2"}, "Elsewhere"))
	c := interceptor.NewClient(objs, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, machines := list.(*clusterv1.MachineList); machines {
			return apierrors.NewForbidden(clusterv1.GroupVersion.WithResource("machines").GroupResource(), "", errors.New("not you"))
		}
		return c.List(ctx, list, opts...)
	}})
	objects, trouble, err := observeHistory(t.Context(), c, "metal")
	if err != nil || len(trouble) != 1 || !strings.HasPrefix(trouble[0], "Machines: ") {
		t.Errorf("the trouble is %q, want that of the one kind that may not be read", trouble)
	}
	var got []string
	for _, e := range history.Of(objects, history.Scope{Namespace: "metal"}).Items {
		got = append(got, e.Object.Kind+" "+e.Object.Name+" "+e.Reason)
	}
	slices.Sort(got)
	must.Equal(t, []string{"Machine m-1 Marked", "NodeHealthCheck all Skipped"}, got)
}

func TestWhereNothingCanBeReadIsNoPlaceWithoutAPast(t *testing.T) {
	without := interceptor.NewClient(clientWith(t), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, machines := list.(*clusterv1.MachineList); machines { // Cluster API is not installed
			return &meta.NoKindMatchError{}
		}
		return c.List(ctx, list, opts...)
	}})
	if _, trouble, err := observeHistory(t.Context(), without, "metal"); err != nil || len(trouble) > 0 {
		t.Errorf("where there is nothing: %q, %v", trouble, err)
	}
	down := interceptor.NewClient(clientWith(t), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the line is down")
	}})
	if _, _, err := observeHistory(t.Context(), down, "metal"); err == nil || err.Error() != "nothing could be read: RemediationRecords: the line is down" {
		t.Errorf("where nothing answers: %v", err)
	}
}
