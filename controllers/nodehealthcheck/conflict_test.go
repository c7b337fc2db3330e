package nodehealthcheck

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// machineCheck is a MachineHealthCheck of OpenShift, beside the Machines, with a condition of each of those types.
func machineCheck(name string, conditions ...string) *unstructured.Unstructured {
	var all []any
	for _, kind := range conditions {
		all = append(all, map[string]any{"type": kind, "status": "True", "timeout": "0s"})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"unhealthyConditions": all}}}
	u.SetGroupVersionKind(MachineHealthChecks)
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
		"with another condition besides": {shippedCheck(func(spec map[string]any) {
			another := map[string]any{"type": "Ready", "status": "Unknown", "timeout": "0s"}
			spec["unhealthyConditions"] = append(spec["unhealthyConditions"].([]any), another)
		}), false},
		"with no condition": {shippedCheck(with("unhealthyConditions", []any{})), false},
		"for all machines":  {shippedCheck(labels(map[string]any{})), false},
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
			is, _, err := openshiftCluster{
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
