package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func TestNamesAreReadAsUsersWriteThem(t *testing.T) {
	all := []kind{machineKind, nodeKind, hostKind, machineCheckKind, nodeCheckKind, metal3Kind, ownKind}
	for arg, want := range map[string]kind{
		"machine/a": machineKind, "machines/a": machineKind, "Machine/a": machineKind, "machines.cluster.x-k8s.io/a": machineKind,
		"node/a": nodeKind, "nodes/a": nodeKind,
		"host/a": hostKind, "hosts/a": hostKind, "bmh/a": hostKind, "baremetalhost/a": hostKind, "baremetalhosts/a": hostKind,
		"mhc/a": machineCheckKind, "machinehealthcheck/a": machineCheckKind, "machinehealthchecks/a": machineCheckKind,
		"nhc/a": nodeCheckKind, "nodehealthcheck/a": nodeCheckKind, "nodehealthchecks/a": nodeCheckKind,
		"m3r/a": metal3Kind, "metal3remediation/a": metal3Kind, "metal3remediations/a": metal3Kind,
		"hrem/a": ownKind, "hostremediation/a": ownKind, "hostremediations/a": ownKind,
	} {
		if got, err := parse(arg, all...); got.kind != want || got.name != "a" || err != nil {
			t.Errorf("%s: got %v, %v; want %s", arg, got, err, want)
		}
	}
}

// All commands report a wrong command line, or a missing object, in the same way.
func TestWhatIsTypedIsAnsweredInOneWay(t *testing.T) {
	for line, tc := range map[string]struct {
		code int
		says string
	}{
		"expain machine/m":              {Misused, `there is no command "expain": did you mean explain?`},
		"claim":                         {Misused, "expected mhc/NAME"},
		"claim workers":                 {Misused, `"workers": expected mhc/NAME`},
		"claim mhc/":                    {Misused, `"mhc/": expected mhc/NAME`},
		"claim /workers":                {Misused, `"/workers": expected mhc/NAME`},
		"claim mhc/a/b":                 {Misused, `"mhc/a/b": expected mhc/NAME`},
		"claim machine/a":               {Misused, `"machine/a" names a Machine: expected mhc/NAME`},
		"claim mhc/a --dry-run=maybe":   {Misused, `Must be "none", "server", or "client"`},
		"claim mhc/a --no-such-flag":    {Misused, "unknown flag: --no-such-flag"},
		"claim mhc/a --kubeconfig=/no":  {Failed, "read the kubeconfig: "},
		"history -o table":              {Misused, `--output "table": expected go-template,`},
		"history machine/m -o svg":      {Failed, "no kubeconfig was found"}, // svg is a valid format
		"history -o jsonpath={.a":       {Misused, `unclosed action`},
		"history machine a b":           {Misused, `expected one object, not 2`},
		"report --by rack":              {Misused, `--by "rack": expected cluster, check or cause`},
		"report --since=-1d":            {Misused, "not a valid duration"},
		"report machine/a":              {Misused, "takes no arguments"},
		"status --from nowhere.json":    {Failed, "read the record: open nowhere.json: "},
		"status --from names_test.go":   {Failed, "names_test.go: load a record: it was not written by `kubectl mend record`"},
		"status c1 -n ns":               {Misused, "takes no arguments"},
		"status --cluster c2 -n ns":     {Failed, "there is no Cluster c2 in namespace ns"},
		"status --cluster c1 -n no":     {Failed, "there is no Cluster c1 in namespace no"},
		"status --cluster c1 -n ns":     {Done, ""},
		"status --color=sometimes":      {Misused, `--color "sometimes": expected auto, always or never`},
		"status --color=always -n ns":   {Done, ""},
		"explain":                       {Misused, "expected machine/NAME, node/NAME,"},
		"explain machine":               {Misused, `"machine" is a kind without a name: expected machine/NAME, node/NAME,`},
		"explain machine m -n ns":       {Done, ""},
		"explain Machines m m -n ns":    {Done, ""},
		"explain machine m x -n ns":     {Failed, "there is no Machine x in namespace ns"},
		"explain machine machine/m":     {Misused, `"machine/m": expected a name, as the kind is machine: write either KIND NAME or KIND/NAME`},
		"explain machine/a b":           {Misused, `"b": expected machine/NAME, node/NAME,`},
		"explain lease a":               {Misused, `"lease/a": there is no kind "lease" here: expected machine/NAME`},
		"explain pod a -n ns":           {Failed, "no kubeconfig was found"},
		"explain pod a -A":              {Misused, "pod/a: name its namespace too, as pod/NAMESPACE/a"},
		"explain pod/a --cluster c1":    {Misused, "pod/a: name its namespace too, as pod/NAMESPACE/a"},
		"explain po a/b --cluster c -A": {Misused, "say with -n in which namespace Cluster c is"},
		"explain pod ns/a --from f":     {Misused, "a record has no pods: name the node, as node/NAME"},
		"wait pod/a --for=healthy":      {Misused, `"pod/a" names a Pod: expected machine/NAME`},
		"explain machine/m -A":          {Done, ""},
		"explain machine/a -A":          {Failed, "there is no Machine a in any namespace"},
		"explain machine/m -n ns -o no": {Misused, `--output "no": expected go-template, go-template-file, json, jsonpath,`},
	} {
		t.Run(line, func(t *testing.T) {
			o, _, errOut := recorder(t, &snapshot.Scope{})
			if code := run(t, o, strings.Fields(line)...); code != tc.code || !strings.Contains(errOut.String(), tc.says) {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errOut)
			}
		})
	}
}

func TestAWidePageHasNoBrokenLines(t *testing.T) {
	t.Setenv("COLUMNS", "40")
	pages := map[string]string{}
	for _, args := range []string{"explain machine/m -n ns", "explain machine/m -n ns -o wide"} {
		o, out, errOut := recorder(t, &snapshot.Scope{})
		if code := run(t, o, strings.Fields(args)...); code != Done {
			t.Fatalf("%s: exit code %d: %s", args, code, errOut)
		}
		pages[args] = regexp.MustCompile(`Time: .*`).ReplaceAllString(out.String(), "Time: then") // the pages differ in their times
	}
	narrow, wide := pages["explain machine/m -n ns"], pages["explain machine/m -n ns -o wide"]
	if strings.Count(narrow, "\n") <= strings.Count(wide, "\n") {
		t.Errorf("wide is\n%s\nand narrow\n%s", wide, narrow)
	}
	if got, want := strings.Fields(wide), strings.Fields(narrow); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("wide says\n%s\nand narrow\n%s", wide, narrow)
	}
}

func TestWithoutAKubeconfigItIsSaidWhatToName(t *testing.T) {
	o, _, _ := recorder(t, &snapshot.Scope{})
	if _, err := o.config(); err == nil || !strings.Contains(err.Error(), "no kubeconfig was found, or it names no cluster") {
		t.Errorf("an empty one: %v", err)
	}
	o.Config.APIServer = ptr.To("https://203.0.113.1")
	if config, err := o.config(); err != nil || config.Host != "https://203.0.113.1" {
		t.Errorf("with --server: %v, %v", config, err)
	}
	o.Config.APIServer, o.Config.KubeConfig = nil, ptr.To(filepath.Join(t.TempDir(), "kubeconfig"))
	if _, err := o.config(); err == nil || !strings.HasPrefix(err.Error(), "read the kubeconfig: ") {
		t.Errorf("one that is not there: %v", err)
	}
	const whole = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "http://localhost:8080"}}]}`
	must.Do(t, os.WriteFile(*o.Config.KubeConfig, []byte(whole), 0o600))
	if config, err := o.config(); err != nil || config.Host != "http://localhost:8080" {
		t.Errorf("one that names the server of its own machine: %v, %v", config, err)
	}
}

func TestAnErrorOfTheAPIServerIsPassedOnAsKubectlDoes(t *testing.T) {
	machines := schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}
	forbidden := apierrors.NewForbidden(machines, "m", errors.New(`User "jane" cannot get resource "machines"`))
	const forbidding = `Error from server (Forbidden): machines.cluster.x-k8s.io "m" is forbidden: User "jane" cannot get resource "machines"`
	const refused = "The connection to the server api:6443 was refused - did you specify the right host or port?"
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"what is forbidden":            {fmt.Errorf("read Machine ns/m: %w", forbidden), forbidding},
		"what is missing":              {apierrors.NewNotFound(machines, "m"), `Error from server (NotFound): machines.cluster.x-k8s.io "m" not found`},
		"a login that has run out":     {apierrors.NewUnauthorized("Unauthorized"), "error: You must be logged in to the server (Unauthorized)"},
		"an answer without a reason":   {&apierrors.StatusError{ErrStatus: metav1.Status{Message: "no"}}, "Error from server: no"},
		"a server that is not there":   {&url.Error{Op: "Get", URL: "https://api:6443/api", Err: fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)}, refused},
		"a server that does not reply": {&url.Error{Op: "Get", URL: "https://api:6443", Err: errors.New("i/o timeout")}, "Unable to connect to the server: i/o timeout"},
		"an error of the program":      {errors.New("there is no Machine m"), "error: there is no Machine m"},
		"several":                      {errors.Join(errors.New("a"), forbidden), "error: a\n" + forbidden.Error()},
		"one with a code of its own":   {Exit{Refused, errors.Join(errors.New("a"), errors.New("b"))}, "error: a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, worded(tc.err))
		})
	}
}

// With --all-namespaces, checks that are OK are counted, and listed only with --all.
func TestChecksThatAreOKAreListedOnRequest(t *testing.T) {
	for line, listed := range map[string]bool{
		"-A": false, "-A --all": true, "-n ns": true, "-n ns --all": true,
	} {
		o, out, errOut := recorder(t, &snapshot.Scope{})
		o.read = func(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
			w, err := standingMachine(corev1.ConditionTrue, time.Hour)(ctx, scope)
			if err != nil {
				return nil, err
			}
			w.Clock = clocktesting.NewFakePassiveClock(noon)
			err = w.Add(lease(managerlease.UsualNamespace, managerlease.LeaseName, map[string]string{
				mendv1.ManagerAnnotation: `{"version":"dev","unclaimed":"observe"}`,
			}))
			return w, err
		}
		if code := run(t, o, strings.Fields("status "+line)...); code != Done {
			t.Fatalf("%s: exit code %d: %s", line, code, errOut)
		}
		counted := strings.Contains(out.String(), "1 check is OK and not listed: --all lists all.")
		if got := strings.Contains(out.String(), "mhc/check"); got != listed || counted == listed {
			t.Errorf("status %s prints\n%s", line, out)
		}
	}
}

func TestTheClockOfTheServerCounts(t *testing.T) {
	here := time.Date(2026, 1, 1, 12, 0, 0, 500_000_000, time.UTC)
	for name, tc := range map[string]struct {
		date string // the Date header of the API server
		want time.Time
		says string
	}{
		"where both agree that of this machine is finer":   {"Thu, 01 Jan 2026 12:00:00 GMT", here, ""},
		"two seconds are nothing":                          {"Thu, 01 Jan 2026 12:00:02 GMT", here, ""},
		"in neither direction":                             {"Thu, 01 Jan 2026 11:59:57 GMT", here, ""},
		"a machine that is behind":                         {"Thu, 01 Jan 2026 12:00:45 GMT", here.Add(44500 * time.Millisecond), "warning: the clock of this machine is 45s behind that of"},
		"a machine that is ahead":                          {"Thu, 01 Jan 2026 11:59:00 GMT", here.Add(-59500 * time.Millisecond), "warning: the clock of this machine is 1m0s ahead of that of"},
		"who says no time is not believed to have another": {"", here, ""},
		"nor who says nonsense":                            {"tomorrow", here, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var errOut bytes.Buffer
			c := &serverClock{PassiveClock: clocktesting.NewFakePassiveClock(here), warn: &errOut}
			ask := func(date string) {
				answered := snapshot.RoundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
				})
				response, err := c.watch(answered).RoundTrip(nil)
				must.Do(t, err)
				_ = response.Body.Close()
			}
			broken := snapshot.RoundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("the line is down") })
			if response, err := c.watch(broken).RoundTrip(nil); err == nil {
				_ = response.Body.Close()
				t.Error("the error is lost")
			}
			if !c.Now().Equal(here) {
				t.Error("before the first answer it is another time already")
			}
			ask(tc.date)
			if got := c.Now(); !got.Equal(tc.want) {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
			if got := errOut.String(); !strings.HasPrefix(got, tc.says) || strings.Count(got, "warning") != strings.Count(tc.says, "warning") {
				t.Errorf("it says %q", got)
			}
			if tc.says != "" {
				ask("Thu, 01 Jan 2026 12:30:00 GMT")
				if got := c.Now(); !got.Equal(tc.want) {
					t.Errorf("in the middle of it the time becomes %s", got)
				}
			}
		})
	}
}

func TestASlowAnswerIsNoOtherTime(t *testing.T) {
	var errOut bytes.Buffer
	here := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	c := &serverClock{PassiveClock: here, warn: &errOut}
	slow := snapshot.RoundTripper(func(*http.Request) (*http.Response, error) {
		answer := &http.Response{Header: http.Header{"Date": {here.Now().Format(http.TimeFormat)}}, Body: http.NoBody}
		here.SetTime(here.Now().Add(20 * time.Second))
		return answer, nil
	})
	response, err := c.watch(slow).RoundTrip(nil)
	must.Do(t, err)
	_ = response.Body.Close()
	if errOut.Len() > 0 || !c.Now().Equal(here.Now()) {
		t.Errorf("it is %s: %s", c.Now(), &errOut)
	}
}

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

func TestWhatIsMissingIsFound(t *testing.T) {
	kinds := func(installed ...string) []string {
		return missingKinds(func(crd string) bool { return slices.Contains(installed, crd) })
	}
	manager := func(edit func(*managerlease.Manager)) []string {
		announced := &managerlease.Announcement{Version: "v1", Kinds: []managerlease.Kind{{CRD: crdgate.OwnCRD, Because: "why"}}}
		m := managerlease.Manager{Namespace: "a", Alive: true, Announcement: announced}
		edit(&m)
		return missingManagers([]managerlease.Manager{m})
	}
	serves := func(reason string) func(*managerlease.Manager) {
		return func(m *managerlease.Manager) { m.Announcement.Kinds[0].Reason = reason }
	}
	for name, tc := range map[string]struct {
		missing []string
		says    string // empty if nothing is missing
	}{
		"all kinds":                        {kinds(crdgate.MachineCheckCRD, crdgate.RecordCRD, crdgate.HostCRD, crdgate.OwnCRD, certificateCRD), ""},
		"NodeHealthChecks alone":           {kinds(crdgate.NodeCheckCRD, crdgate.RecordCRD), ""},
		"no kind of checks":                {kinds(crdgate.RecordCRD), "the kind machinehealthchecks.cluster.x-k8s.io or nodehealthchecks.remediation.medik8s.io is not installed"},
		"no records":                       {kinds(crdgate.NodeCheckCRD), "the kind remediationrecords.kubemend.io is not installed"},
		"hosts that nobody power-cycles":   {kinds(crdgate.NodeCheckCRD, crdgate.RecordCRD, crdgate.HostCRD), "no host can be power-cycled"},
		"no cert-manager":                  {kinds(crdgate.MachineCheckCRD, crdgate.RecordCRD), "certificates.cert-manager.io is not installed"},
		"a manager that serves its kinds":  {manager(serves("")), ""},
		"one whose flags leave a kind out": {manager(serves(crdgate.OffReason)), ""},
		"one that may not serve a kind":    {manager(serves(crdgate.ForbiddenReason)), "does not serve hostremediations.kubemend.io: why"},
		"one that is gone":                 {manager(func(m *managerlease.Manager) { m.Alive, m.Gone = false, noon }), "has not run since"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.says == "" && len(tc.missing) > 0 || tc.says != "" && (len(tc.missing) != 1 || !strings.Contains(tc.missing[0], tc.says)) {
				t.Errorf("missing: %v, want %q", tc.missing, tc.says)
			}
		})
	}
}

func TestWhatIsMissingIsListed(t *testing.T) {
	rights := granted(t)
	_, mend := guarded(t, rights)
	if code, said := mend("check", "-A"); code != Failed || strings.Count(said, "missing  ") != 1 ||
		!strings.HasPrefix(said, "missing  The kind certificates.cert-manager.io is not installed") {
		t.Errorf("code %d:\n%s", code, said)
	}
	delete(rights, right{"list", "metal3.io", "baremetalhosts"})
	if code, said := mend("check", "-A"); code != Failed || !strings.Contains(said, "missing  You cannot read BareMetalHosts in all namespaces: forbidden") {
		t.Errorf("code %d:\n%s", code, said)
	}
}
