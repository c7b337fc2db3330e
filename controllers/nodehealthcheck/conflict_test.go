package nodehealthcheck

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
)

// machineCheck is a MachineHealthCheck of OpenShift, beside the Machines, with a condition of each of those types.
func machineCheck(name string, conditions ...string) *unstructured.Unstructured {
	var all []any
	for _, kind := range conditions {
		all = append(all, map[string]any{"type": kind, "status": "True", "timeout": "0s"})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"unhealthyConditions": all}}}
	u.SetGroupVersionKind(openshift.MachineHealthChecks)
	u.SetNamespace("openshift-machine-api")
	u.SetName(name)
	return u
}

// shippedCheck is the one that OpenShift brings along, with a change to its spec.
func shippedCheck(change ...func(spec map[string]any)) *unstructured.Unstructured {
	u := machineCheck("machine-api-termination-handler", "Terminating")
	spec := u.Object["spec"].(map[string]any)
	spec["selector"] = map[string]any{"matchLabels": map[string]any{"machine.openshift.io/interruptible-instance": ""}}
	spec["maxUnhealthy"], spec["nodeStartupTimeout"] = "100%", "0"
	for _, f := range change {
		f(spec)
	}
	return u
}

func TestWhatCountsAsTheMachineHealthCheckThatOpenShiftBringsAlong(t *testing.T) {
	condition := func(key, value string) func(map[string]any) {
		return func(spec map[string]any) { spec["unhealthyConditions"].([]any)[0].(map[string]any)[key] = value }
	}
	with := func(key string, value any) func(map[string]any) {
		return func(spec map[string]any) { spec[key] = value }
	}
	labels := func(selector map[string]any) func(map[string]any) { return with("selector", selector) }
	elsewhere := shippedCheck()
	elsewhere.SetNamespace("default")
	renamed := shippedCheck()
	renamed.SetName("mine")
	for name, row := range map[string]struct {
		check *unstructured.Unstructured
		want  bool
	}{
		"as it is shipped":                           {shippedCheck(), true},
		"with the same durations, written otherwise": {shippedCheck(with("nodeStartupTimeout", "0s"), condition("timeout", "0m")), true},
		"under another name":                         {renamed, false},
		"in another namespace":                       {elsewhere, false},
		"with another limit":                         {shippedCheck(with("maxUnhealthy", "40%")), false},
		"with a limit that is a number":              {shippedCheck(with("maxUnhealthy", int64(100))), false},
		"with a timeout for nodes to start":          {shippedCheck(with("nodeStartupTimeout", "10m")), false},
		"with a template":                            {shippedCheck(with("remediationTemplate", map[string]any{"kind": "Metal3RemediationTemplate", "name": "m"})), false},
		"with another type":                          {shippedCheck(condition("type", "Ready")), false},
		"with another status":                        {shippedCheck(condition("status", "False")), false},
		"with another timeout":                       {shippedCheck(condition("timeout", "300s")), false},
		"with no condition":                          {shippedCheck(with("unhealthyConditions", []any{})), false},
		"for all machines":                           {shippedCheck(labels(map[string]any{})), false},
		"for fewer machines": {shippedCheck(labels(map[string]any{"matchLabels": map[string]any{
			"machine.openshift.io/interruptible-instance": "", "zone": "a",
		}})), false},
		"for machines of an expression": {shippedCheck(labels(map[string]any{
			"matchLabels":      map[string]any{"machine.openshift.io/interruptible-instance": ""},
			"matchExpressions": []any{map[string]any{"key": "zone", "operator": "Exists"}},
		})), false},
		"with what cannot be read": {shippedCheck(with("nodeStartupTimeout", "soon")), false},
	} {
		t.Run(name, func(t *testing.T) {
			yes := func(context.Context, string) (bool, error) { return true, nil }
			is, _, err := openshift.Cluster{
				Installed: yes, Readable: func(context.Context, schema.GroupVersionKind) (bool, error) { return true, nil },
				List: func(context.Context, schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
					return []unstructured.Unstructured{*row.check}, nil
				},
			}.MachineChecks(t.Context())
			if err != nil || is.Default != row.want || is.Custom == row.want {
				t.Errorf("got %+v, %v; want that it is: %v", is, err, row.want)
			}
		})
	}
}

const (
	disabled = "disabling NHC in order to avoid conflict with custom MHCs configured in the cluster"
	resumed  = "re-enabling NHC, no conflicting MHC configured in the cluster"
	ignored  = "ignoring unhealthy Node, it is terminating and will be handled by MHC"
)

// logged makes a reconcile, and returns what it logs of what documents of others quote.
func (k *fixture) logged(check string) []string {
	k.t.Helper()
	var lines []string
	k.r.Log = funcr.New(func(name, line string) { lines = append(lines, name+" "+line) }, funcr.Options{})
	ctx := log.IntoContext(k.t.Context(), logr.Discard().WithValues("controller", "what is not quoted"))
	if _, err := k.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: check}}); err != nil {
		k.t.Fatal(err)
	}
	return lines
}

// Node a is terminating, node b is not, and both are bad.
func TestBesideTheMachineHealthChecksOfOpenShift(t *testing.T) {
	keys := `"NodeHealthCheck"="/nhc-worker-default"`
	line := func(name, text, keys string) string { return fmt.Sprintf(`%s "level"=0 "msg"=%q %s`, name, text, keys) }
	conflict := []string{line("controllers/NodeHealthCheck", disabled, keys)}
	for name, tc := range map[string]struct {
		checks   []*unstructured.Unstructured
		requests []string
		phase    nhcv1.Phase
		logged   []string
	}{
		"seed 1.13, seed 1.14: the default one is left the nodes that are terminating, and no other": {
			[]*unstructured.Unstructured{shippedCheck()}, []string{"Reboot/b"}, nhcv1.PhaseRemediating, []string{line("MHCChecker", ignored, `"NodeName"="a"`)},
		},
		"seed 1.15: that is logged, as it always was": {
			[]*unstructured.Unstructured{shippedCheck()}, []string{"Reboot/b"}, nhcv1.PhaseRemediating,
			[]string{`MHCChecker "level"=0 "msg"="ignoring unhealthy Node, it is terminating and will be handled by MHC" "NodeName"="a"`},
		},
		"seed 1.16, seed 1.17: beside another one the check is disabled": {
			[]*unstructured.Unstructured{shippedCheck(), machineCheck("another", "Terminating")}, nil, nhcv1.PhaseDisabled, conflict,
		},
		"seed 1.16: so it is if the default one is modified":         {[]*unstructured.Unstructured{machineCheck(shippedCheck().GetName(), "Ready")}, nil, nhcv1.PhaseDisabled, conflict},
		"seed 1.16: or has another condition":                        {[]*unstructured.Unstructured{machineCheck(shippedCheck().GetName(), "Terminating", "Ready")}, nil, nhcv1.PhaseDisabled, conflict},
		"where there is none, terminating nodes are nodes as others": {nil, []string{"Reboot/a", "Reboot/b"}, nhcv1.PhaseRemediating, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := besideMachineChecks(t, tc.checks...)
			logged := k.logged("nhc-worker-default")
			k.settle("nhc-worker-default")
			k.wants("a is terminating and b is not", tc.requests...)
			if got := k.check("nhc-worker-default").Status.Phase; got != tc.phase {
				t.Errorf("the phase is %s, want %s", got, tc.phase)
			}
			if diff := cmp.Diff(tc.logged, logged); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhenOnlyTheDefaultMachineHealthCheckIsThereAgain(t *testing.T) {
	another := machineCheck("another", "Ready")
	k := besideMachineChecks(t, shippedCheck(), another)
	k.settle("nhc-worker-default")
	if err := k.client.Delete(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	logged := k.logged("nhc-worker-default")
	t.Run("seed 1.18: the check is enabled", func(t *testing.T) {
		if got := k.check("nhc-worker-default").Status.Phase; got != nhcv1.PhaseRemediating {
			t.Errorf("the phase is %s", got)
		}
	})
	t.Run("seed 1.17, seed 1.19: that is logged as of old", func(t *testing.T) {
		want := `controllers/NodeHealthCheck "level"=0 "msg"="` + resumed + `" "NodeHealthCheck"="/nhc-worker-default"`
		if !strings.Contains(strings.Join(logged, "\n"), want) {
			t.Errorf("logged:\n%s\nwant:\n%s", strings.Join(logged, "\n"), want)
		}
	})
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
	n := &corev1.Node{}
	if err := k.client.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)})
	if err := k.client.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	k.bad("b")
	return k
}
