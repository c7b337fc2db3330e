// Package badinput writes wrong values into everything that users configure. kubemend must refuse or report each of them with its object,
// field and expected value, must not delay anything else, and must leave no trace after the correction. The tests write
// docs/reference/bad-input.md.
package badinput

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/golden"
	"github.com/kubemend/kubemend/test/schemas"
)

// The tables of the page have the rows of the tests.
func TestBadInputsAreDocumented(t *testing.T) {
	var manifests, machineChecks, marks, records [][]string
	for _, row := range schemas.Manifests {
		manifests = append(manifests, []string{row.Kind, row.Field, written(row.Value), row.Says})
	}
	for _, row := range checks {
		machineChecks = append(machineChecks, []string{row.field, written(row.value), row.condition + "=False/" + row.reason, row.says})
	}
	for _, row := range annotations {
		remediated := map[bool]string{true: "yes", false: "no"}[row.remediated]
		marks = append(marks, []string{row.kind, row.key, written(row.value), row.says, remediated})
	}
	for _, row := range memories {
		records = append(records, []string{row.key, written(row.value), row.says})
	}
	const page = "../../docs/reference/bad-input.md"
	golden.Section(t, page, "manifests", table(2, []string{"kind", "field", "value", "message"}, manifests))
	golden.Section(t, page, "checks", table(1, []string{"field", "value", "condition", "message"}, machineChecks))
	golden.Section(t, page, "annotations", table(2, []string{"of a", "annotation", "value", "message", "remediated"}, marks))
	golden.Section(t, page, "memories", table(1, []string{"annotation", "value", "message"}, records))
	var configs strings.Builder
	configs.WriteString(table(0, []string{"content", "message"}, nil))
	for _, row := range kubeconfigs {
		fmt.Fprintf(&configs, "| %s | `%s` |\n", row.what, strings.TrimPrefix(row.says, refused))
	}
	golden.Section(t, page, "kubeconfigs", configs.String())
}

// table returns a Markdown table with code in its cells. Successive rows that differ only in the column of values become one row.
func table(values int, columns []string, rows [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for i := 0; i < len(rows); {
		cells := make([]string, len(rows[i]))
		for c, cell := range rows[i] {
			cells[c] = code(cell)
		}
		next := i + 1
		for ; next < len(rows) && sameBut(values, rows[i], rows[next]); next++ {
			cells[values] += ", " + code(rows[next][values])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		i = next
	}
	return b.String()
}

// sameBut reports whether two rows are equal except for the column of values.
func sameBut(values int, one, other []string) bool {
	for c := range one {
		if c != values && one[c] != other[c] {
			return false
		}
	}
	return true
}

func code(cell string) string { return "`" + strings.ReplaceAll(cell, "|", "\\|") + "`" }

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

// annotation is an annotation that a user writes on a Machine or MachineHealthCheck, with a value that may not do what the user wants.
type annotation struct {
	kind, key, value string
	// says is the message for the check or the Machine in `kubectl mend explain`.
	says string
	// remediated is whether the machine is remediated although it has the annotation.
	remediated bool
}

var annotations = []annotation{
	{"Machine", clusterv1.MachineSkipRemediationAnnotation, "", "The machine has the annotation cluster.x-k8s.io/skip-remediation", false},
	{"Machine", clusterv1.MachineSkipRemediationAnnotation, "false",
		"The machine has the annotation cluster.x-k8s.io/skip-remediation", false},
	{"Machine", clusterv1.PausedAnnotation, "false", "The machine has the annotation cluster.x-k8s.io/paused", false},
	{"Machine", clusterv1.PausedAnnotation, "kubemend", "The machine has the annotation cluster.x-k8s.io/paused", false},
	{"Machine", clusterv1.RemediateMachineAnnotation, "false",
		"marked for remediation via cluster.x-k8s.io/remediate-machine annotation", true},
	{"Machine", clusterv1.RemediateMachineAnnotation, "tomorrow",
		"marked for remediation via cluster.x-k8s.io/remediate-machine annotation", true},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, "", `The check has the annotation cluster.x-k8s.io/paused: ""`, false},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, "false", `The check has the annotation cluster.x-k8s.io/paused: "false"`, false},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, "Kubemend",
		`The check has the annotation cluster.x-k8s.io/paused: "Kubemend", which pauses it for all; "kubemend" claims it`, false},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, " kubemend",
		`The check has the annotation cluster.x-k8s.io/paused: " kubemend", which pauses it for all; "kubemend" claims it`, false},
}

func TestAnAnnotationIsReportedWhateverItsValueUntilItIsRemoved(t *testing.T) {
	for _, row := range annotations {
		t.Run(row.kind+" "+row.key+" "+written(row.value), func(t *testing.T) {
			f := newFixture(t)
			f.annotate("Machine", clusterv1.RemediateMachineAnnotation, nil)
			if !row.remediated {
				f.annotate("Machine", clusterv1.RemediateMachineAnnotation, new(string))
			}
			f.annotate(row.kind, row.key, &row.value)
			for range 2 {
				f.reconcile("bad")
				f.reconcile("good")
			}
			if f.asked("bad") != row.remediated || !f.asked("good") {
				t.Errorf("remediated: the machine %t, that of another check %t; want %t and true", f.asked("bad"), f.asked("good"),
					row.remediated)
			}
			if said := f.said("bad"); !strings.Contains(said, row.says) {
				t.Errorf("it is said:\n%s\nwant %s", said, row.says)
			}
			if row.remediated {
				return // kubemend does not remove an owner remediation request
			}
			f.annotate(row.kind, row.key, nil)
			f.reconcile("bad")
			if !f.asked("bad") {
				t.Errorf("without the annotation the machine is not remediated: %s", f.said("bad"))
			}
		})
	}
}

// annotate sets an annotation of the Machine or MachineHealthCheck "bad", or removes it if value is nil.
func (f *fixture) annotate(kind, key string, value *string) {
	f.t.Helper()
	var obj client.Object = &clusterv1.Machine{}
	if kind == "MachineHealthCheck" {
		obj = &clusterv1.MachineHealthCheck{}
	}
	must.Do(f.t, f.api.Get(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: "bad"}, obj))
	all := map[string]string{}
	for k, v := range obj.GetAnnotations() {
		all[k] = v
	}
	delete(all, key)
	if value != nil {
		all[key] = *value
	}
	obj.SetAnnotations(all)
	must.Do(f.t, f.api.Update(f.t.Context(), obj))
}

// said returns all messages of `kubectl mend explain` about a check and its machine.
func (f *fixture) said(check string) string {
	f.t.Helper()
	is, err := f.Explain(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: check}, f.clock.Now())
	must.Do(f.t, err)
	said := []string{is.ModeMessage, is.Message}
	for _, target := range is.Targets {
		said = append(said, target.Skipped)
		for _, finding := range target.Findings {
			said = append(said, finding.Message)
		}
	}
	for _, c := range is.Conditions {
		if c.Status != metav1.ConditionTrue {
			said = append(said, c.Message)
		}
	}
	return strings.Join(said, "\n")
}

// memory is an annotation of a HostRemediation that only kubemend writes, with a value that kubemend would never write.
type memory struct{ key, value, says string }

const unreadable = "metadata.annotations[" + mendv1.PowerCycleAnnotation + "]: expected what kubemend wrote there"

var memories = []memory{
	{mendv1.PowerCycleAnnotation, "", unreadable},
	{mendv1.PowerCycleAnnotation, "{", unreadable},
	{mendv1.PowerCycleAnnotation, "[]", unreadable},
	{mendv1.PowerCycleAnnotation, `"Ended"`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"state":7}`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"attempt":"two"}`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"since":"yesterday"}`, unreadable},
}

func TestAnUnreadableMemoryIsAnErrorThatNamesTheAnnotation(t *testing.T) {
	for _, row := range memories {
		t.Run(row.value, func(t *testing.T) {
			rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{row.key: row.value}}}
			if _, err := remediation.RecordOf(rem); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v; want %s", err, row.says)
			}
		})
	}
}

// kubeconfig is a kubeconfig that kubemend refuses.
type kubeconfig struct{ what, content, says string }

const refused = "the kubeconfig is refused: "

var kubeconfigs = []kubeconfig{
	{"a text that is no YAML", "{", refused + "it cannot be parsed"},
	{"another kind of object", "apiVersion: v1\nkind: Pod\n", refused + "it cannot be parsed"},
	{"a user with a token in a file", with("", "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"),
		refused + "users[u].user.tokenFile names a file, which kubemend would read from its own disk"},
	{"a user with a certificate in a file", with("", "client-certificate: /tls.crt"),
		refused + "users[u].user.client-certificate names a file, which kubemend would read from its own disk"},
	{"a user with a key in a file", with("", "client-key: /tls.key"),
		refused + "users[u].user.client-key names a file, which kubemend would read from its own disk"},
	{"a user whose token a program gives",
		with("", "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}"),
		refused + "users[u].user.exec names a program, which kubemend would run"},
	{"a user of an auth provider", with("", "auth-provider: {name: gcp}"),
		refused + "users[u].user.auth-provider names a program, which kubemend would run"},
	{"a CA in a file", with("certificate-authority: /ca.crt", ""),
		refused + "clusters[c].cluster.certificate-authority names a file, which kubemend would read from its own disk"},
	{"a proxy", with("proxy-url: 'http://192.0.2.2'", ""),
		refused + "clusters[c].cluster.proxy-url names a proxy, which kubemend would connect to"},
	{"a server of another scheme", strings.Replace(with("", ""), "https:", "workload:", 1),
		refused + "clusters[c].cluster.server names neither an https nor an http address"},
	{"a CA that is no certificate", with("certificate-authority-data: bm8=", ""),
		refused + "clusters[c].cluster.certificate-authority-data has no certificate in PEM"},
	{"a CA, and that it does not matter", with("certificate-authority-data: bm8=\n    insecure-skip-tls-verify: true", ""),
		refused + "clusters[c].cluster.insecure-skip-tls-verify cannot be set with certificate-authority-data"},
	{"a certificate of a user that is none", with("", "client-certificate-data: bm8=\n    client-key-data: bm8="),
		refused + "users[u].user.client-certificate-data and client-key-data are no certificate with its key, in PEM"},
	{"nothing", "", refused + "current-context does not name a cluster with a server and a user with one way to log in"},
	{"a current context that is not there", strings.Replace(with("", ""), "current-context: x", "current-context: other", 1),
		refused + "current-context does not name a cluster with a server and a user with one way to log in"},
}

// with returns a kubeconfig with one more field of its cluster and one of its user.
func with(cluster, user string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters:\n- name: c\n  cluster:\n    server: https://192.0.2.1\n    " + cluster +
		"\nusers:\n- name: u\n  user:\n    username: u\n    " + user + "\n"
}

func TestAKubeconfigIsRefusedWithTheNameOfItsEntry(t *testing.T) {
	if _, err := workload.RESTConfig([]byte(with("", ""))); err != nil {
		t.Fatal(err)
	}
	for _, row := range kubeconfigs {
		t.Run(row.what, func(t *testing.T) {
			var why *workload.RefusedError
			if _, err := workload.RESTConfig([]byte(row.content)); !errors.As(err, &why) || why.Error() != row.says {
				t.Errorf("got %v; want %s", err, row.says)
			}
		})
	}
}
