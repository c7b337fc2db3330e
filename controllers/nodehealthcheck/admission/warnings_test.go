package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func TestWarnings(t *testing.T) {
	const empty = "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane"
	const noSingle = " allows no remediation, not even of a single node"
	const unlimited = " limits nothing: nodes are remediated however many are unhealthy"
	atLeast := func(value string) func(*nhcv1.NodeHealthCheck) {
		return func(c *nhcv1.NodeHealthCheck) { c.Spec.MinHealthy = ptr.To(intstr.Parse(value)) }
	}
	atMost := func(value string) func(*nhcv1.NodeHealthCheck) {
		return func(c *nhcv1.NodeHealthCheck) { c.Spec.MaxUnhealthy = ptr.To(intstr.Parse(value)) }
	}
	everywhere := func(c *nhcv1.NodeHealthCheck) { c.Spec.Selector = metav1.LabelSelector{} }
	v := with(template("a")).validation(t)
	for name, row := range map[string]struct {
		check *nhcv1.NodeHealthCheck
		want  []string
	}{
		"a sound check":              {check(), nil},
		"an empty selector":          {check(everywhere), []string{empty}},
		"all have to be healthy":     {check(atLeast("100%")), []string{"spec.minHealthy 100%" + noSingle}},
		"none has to be healthy":     {check(atLeast("0%")), []string{"spec.minHealthy 0%" + unlimited}},
		"no number has to be":        {check(atLeast("0")), []string{"spec.minHealthy 0" + unlimited}},
		"all may be unhealthy":       {check(atMost("100%")), []string{"spec.maxUnhealthy 100%" + unlimited}},
		"none may be unhealthy":      {check(atMost("0%")), []string{"spec.maxUnhealthy 0%" + noSingle}},
		"no number may be unhealthy": {check(atMost("0")), []string{"spec.maxUnhealthy 0" + noSingle}},
	} {
		created, err := v.ValidateCreate(t.Context(), row.check)
		if diff := cmp.Diff(row.want, []string(created)); diff != "" || err != nil {
			t.Errorf("%s: on creation %v (-want +got):\n%s", name, err, diff)
		}
		updated, err := v.ValidateUpdate(t.Context(), check(selecting("storage")), row.check)
		if diff := cmp.Diff(row.want, []string(updated)); diff != "" || err != nil {
			t.Errorf("%s: on update %v (-want +got):\n%s", name, err, diff)
		}
	}
	if said, err := v.ValidateUpdate(t.Context(), check(), check(badSelector)); err == nil || said != nil {
		t.Errorf("on a refused update %v, %q", err, said)
	}
}
