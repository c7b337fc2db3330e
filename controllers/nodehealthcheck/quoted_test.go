package nodehealthcheck

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	_ "github.com/kubemend/kubemend/controllers/console" // --logging-format=console
)

// managersLog sets logging up as the manager does, by its flags, and returns what is written. It is for the lines of this process alone.
func managersLog(t *testing.T, args ...string) *bytes.Buffer {
	t.Helper()
	options, flags, written := logs.NewOptions(), pflag.NewFlagSet("manager", pflag.ContinueOnError), &bytes.Buffer{}
	logsv1.AddFlags(options, flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := logsv1.ResetForTest(nil); err != nil {
		t.Fatal(err)
	}
	if err := logsv1.ValidateAndApplyWithOptions(options, &logsv1.LoggingOptions{ErrorStream: written, InfoStream: io.Discard}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logsv1.ResetForTest(nil) })
	return written
}

// The lines of the documentation, by the manager's own logger.
func TestQuotedLinesHaveTheFormOfTheDocumentation(t *testing.T) {
	for format, row := range map[string]struct {
		lines []string
		after string // what stands before the line: the time, and with text also the process and the place in the code
	}{
		"console": {after: "\t", lines: []string{
			`INFO MHCChecker ignoring unhealthy Node, it is terminating and will be handled by MHC {"NodeName": "a"}`,
			`INFO controllers.NodeHealthCheck disabling NHC in order to avoid conflict with custom MHCs configured in the cluster ` +
				`{"NodeHealthCheck": "/nhc-worker-default"}`,
			`INFO controllers.NodeHealthCheck re-enabling NHC, no conflicting MHC configured in the cluster {"NodeHealthCheck": "/nhc-worker-default"}`,
		}},
		"text": {after: "] ", lines: []string{
			`"ignoring unhealthy Node, it is terminating and will be handled by MHC" logger="MHCChecker" NodeName="a"`,
			`"disabling NHC in order to avoid conflict with custom MHCs configured in the cluster" logger="controllers.NodeHealthCheck" ` +
				`NodeHealthCheck="/nhc-worker-default"`,
			`"re-enabling NHC, no conflicting MHC configured in the cluster" logger="controllers.NodeHealthCheck" NodeHealthCheck="/nhc-worker-default"`,
		}},
	} {
		t.Run(format, func(t *testing.T) {
			k := besideMachineChecks(t, shippedCheck())
			written := managersLog(t, "--logging-format="+format)
			k.r.Log = klog.Background()
			another := machineCheck("another", "Ready")
			k.settle("nhc-worker-default")
			k.create(another)
			k.settle("nhc-worker-default")
			k.remove(another)
			k.turn("a", corev1.ConditionTrue)
			k.settle("nhc-worker-default")
			klog.Flush()
			var got []string
			for line := range strings.Lines(written.String()) {
				_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), row.after)
				got = append(got, strings.ReplaceAll(line, "\t", " "))
			}
			if !slices.Equal(got, row.lines) {
				t.Errorf("logged:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(row.lines, "\n"))
			}
		})
	}
}

// besideMachineChecks is a check that has been enabled, with two bad nodes of which one is terminating, where OpenShift's kinds are installed.
func besideMachineChecks(t *testing.T, all ...*unstructured.Unstructured) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), check("nhc-worker-default"))...)
	k.installs("machinehealthchecks.machine.openshift.io")
	k.settle("nhc-worker-default")
	for _, obj := range all {
		k.makes(obj)
	}
	k.turn("a", corev1.ConditionUnknown)
	n := k.node("a")
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)})
	if err := k.client.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	k.bad("b")
	return k
}
