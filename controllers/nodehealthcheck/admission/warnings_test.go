package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func limit(value string) *intstr.IntOrString { return ptr.To(intstr.Parse(value)) }

func atLeast(value string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.MinHealthy = limit(value) }
}

func atMost(value string) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.MaxUnhealthy = limit(value) }
}

func everywhere(c *nhcv1.NodeHealthCheck) { c.Spec.Selector = metav1.LabelSelector{} }

func status(s corev1.ConditionStatus) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Status = s }
}

func TestWarnings(t *testing.T) {
	const empty = "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane"
	const none, noSingle = "spec.selector selects no node now", " allows no remediation, not even of a single node"
	const unlimited = " limits nothing: nodes are remediated however many are unhealthy"
	const noStatus = "which no node's condition ever is: it is one of True, False, Unknown"
	sees := func(workers int, more ...client.Object) observed {
		for i := range workers {
			more = append(more, node(fmt.Sprintf("node-%d", i), "worker"))
		}
		return with(more...)
	}
	for name, row := range map[string]struct {
		observed observed
		check    *nhcv1.NodeHealthCheck
		want     []string
	}{
		"a sound check":                    {sees(20), check(), nil},
		"one, and nothing known":           {failing("Node", forbidden("nodes"), template("a")), check(), nil},
		"an empty selector":                {sees(20), check(everywhere), []string{empty}},
		"an empty selector without a node": {sees(0), check(everywhere), []string{empty}},
		"a selector that selects no node":  {sees(0, node("a", "storage")), check(), []string{none}},
		"a status that is none":            {sees(20), check(status("Perhaps")), []string{`spec.unhealthyConditions[1].status is "Perhaps", ` + noStatus}},
		"all have to be healthy":           {sees(20), check(atLeast("100%")), []string{"spec.minHealthy 100%" + noSingle}},
		"none has to be healthy":           {sees(20), check(atLeast("0%")), []string{"spec.minHealthy 0%" + unlimited}},
		"no number has to be healthy":      {sees(20), check(atLeast("0")), []string{"spec.minHealthy 0" + unlimited}},
		"all may be unhealthy":             {sees(20), check(atMost("100%")), []string{"spec.maxUnhealthy 100%" + unlimited}},
		"none may be unhealthy":            {sees(20), check(atMost("0%")), []string{"spec.maxUnhealthy 0%" + noSingle}},
		"no number may be unhealthy":       {failing("Node", forbidden("nodes"), template("a")), check(atMost("0")), []string{"spec.maxUnhealthy 0" + noSingle}},
		"an invalid selector":              {sees(0), check(badSelector), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := row.observed.validation(t).warnings(t.Context(), row.check)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, text := range got {
				if len(text) > 256 { // and what is longer, the API server cuts off
					t.Errorf("%d characters: %s", len(text), text)
				}
			}
		})
	}
}

func TestWarningsDelayAndFailNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	said, err := NodeHealthCheck{Live: stuck{}}.ValidateUpdate(ctx, check(), check(atLeast("100%")))
	if err != nil || len(said) != 1 || !strings.HasPrefix(said[0], "spec.minHealthy 100%") {
		t.Errorf("refused with %v, warned of %q", err, said)
	}
}

func TestWarningsAreGivenForWhatIsAccepted(t *testing.T) {
	v := with(template("a")).validation(t)
	want := []string{"spec.selector selects no node now"}
	said, err := v.ValidateCreate(t.Context(), check())
	if diff := cmp.Diff(want, []string(said)); diff != "" || err != nil {
		t.Errorf("on creation %v (-want +got):\n%s", err, diff)
	}
	if said, err = v.ValidateUpdate(t.Context(), check(selecting("storage")), check()); err != nil || len(said) != 1 {
		t.Errorf("on update %v, %q", err, said)
	}
	if said, err = v.ValidateUpdate(t.Context(), check(), check(badSelector)); err == nil || said != nil {
		t.Errorf("on a refused update %v, %q", err, said)
	}
}
