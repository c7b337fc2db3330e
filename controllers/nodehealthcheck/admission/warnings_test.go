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
	"k8s.io/apimachinery/pkg/labels"
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
	const unlimited, noneOf = " limits nothing: nodes are remediated however many are unhealthy", " allows no remediation with the number of nodes that are selected now, "
	missing := func(name string) string {
		return "remediation template " + name + " does not exist: the check will be Disabled until it does"
	}
	// sees is a cluster with that many workers, and the template of the check.
	sees := func(workers int, more ...client.Object) observed {
		for i := range workers {
			more = append(more, node(fmt.Sprintf("node-%d", i), "worker"))
		}
		return with(append(more, template("a"))...)
	}
	other := func(edits ...func(*nhcv1.NodeHealthCheck)) *nhcv1.NodeHealthCheck {
		other := check(edits...)
		other.Name = "other"
		return other
	}
	shared := []string{"NodeHealthChecks workers and other select the same nodes, such as node-0: whichever is first remediates, and the other one waits"}
	for name, row := range map[string]struct {
		observed observed
		check    *nhcv1.NodeHealthCheck
		want     []string
	}{
		"a sound check":                    {sees(20), check(), nil},
		"one, and nothing known":           {failing("Node", forbidden("nodes"), template("a"), other()), check(), nil},
		"an empty selector":                {sees(20), check(everywhere), []string{empty}},
		"an empty selector without a node": {sees(0), check(everywhere), []string{empty}},
		"a selector that selects no node":  {sees(0, node("a", "storage")), check(), []string{none}},
		"a status in small letters":        {sees(20), check(status("unknown")), []string{`spec.unhealthyConditions[1].status is "unknown", which no node's condition ever is: Unknown is meant`}},
		"a status with a space":            {sees(20), check(status("False ")), []string{`spec.unhealthyConditions[1].status is "False ", which no node's condition ever is: False is meant`}},
		"a status that is none":            {sees(20), check(status("Perhaps")), []string{`spec.unhealthyConditions[1].status is "Perhaps", which no node's condition ever is: it is one of True, False, Unknown`}},
		"all have to be healthy":           {sees(20), check(atLeast("100%")), []string{"spec.minHealthy 100%" + noSingle}},
		"none has to be healthy":           {sees(20), check(atLeast("0%")), []string{"spec.minHealthy 0%" + unlimited}},
		"no number has to be healthy":      {sees(20), check(atLeast("0")), []string{"spec.minHealthy 0" + unlimited}},
		"all may be unhealthy":             {sees(20), check(atMost("100%")), []string{"spec.maxUnhealthy 100%" + unlimited}},
		"none may be unhealthy":            {sees(20), check(atMost("0%")), []string{"spec.maxUnhealthy 0%" + noSingle}},
		"no number may be unhealthy":       {failing("Node", forbidden("nodes"), template("a")), check(atMost("0")), []string{"spec.maxUnhealthy 0" + noSingle}},
		"as many healthy as there are":     {sees(3), check(atLeast("3")), []string{"spec.minHealthy 3" + noneOf + "3"}},
		"one healthy less than there are":  {sees(4), check(atLeast("3")), nil},
		"the default with two nodes":       {sees(2), check(), []string{"spec.minHealthy 51%, the default," + noneOf + "2"}},
		"the default with three nodes":     {sees(3), check(), nil},
		"a percentage of too few nodes":    {sees(2), check(atMost("40%")), []string{"spec.maxUnhealthy 40%" + noneOf + "2"}},
		"a percentage of enough":           {sees(3), check(atMost("40%")), nil},
		"more unhealthy than there are":    {sees(3), check(atMost("7")), nil},
		"as many nodes as are counted":     {sees(counted), check(atLeast("100")), []string{"spec.minHealthy 100" + noneOf + "100"}},
		"a limit that cannot be read": {sees(3), check(func(c *nhcv1.NodeHealthCheck) {
			c.Spec.MinHealthy = &intstr.IntOrString{Type: intstr.String, StrVal: "many"}
		}), nil},
		"a template that does not exist":  {with(template("b"), node("a", "worker")), check(atMost("1")), []string{missing("RebootTemplate default/a")}},
		"a kind that is none":             {failing("RebootTemplate", uninstalled("RebootTemplate"), node("a", "worker")), check(atMost("1")), []string{missing("RebootTemplate default/a")}},
		"no right to see templates":       {failing("RebootTemplate", forbidden("reboottemplates"), node("a", "worker")), check(atMost("1")), nil},
		"a template without a namespace":  {sees(3), check(func(c *nhcv1.NodeHealthCheck) { c.Spec.RemediationTemplate.Namespace = "" }), []string{missing("RebootTemplate a, without a namespace,")}},
		"another check of the same nodes": {sees(3, other()), check(), shared},
		"another check of all nodes":      {sees(3, other(everywhere)), check(), shared},
		"another check of no common node": {sees(3, other(selecting("storage"))), check(), nil},
		"another check that is going":     {sees(3, dying(other())), check(), nil},
		"another check that is invalid":   {sees(3, other(badSelector)), check(), nil},
		"the check itself":                {sees(3, check()), check(), nil},
		"an invalid selector":             {sees(0, other()), check(badSelector), nil},
		"steps, as they are taken, each template once": {
			sees(3), check(steps(step(3, "FenceTemplate", "a"), step(1, "RebootTemplate", "b"), step(2, "RebootTemplate", "b"))),
			[]string{missing("RebootTemplate default/b"), missing("FenceTemplate default/a")},
		},
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

// paged is an API server with more nodes than are asked for.
type paged struct{ client.Reader }

func (paged) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.SetContinue("more")
	return nil
}

func TestMoreNodesThanAreCountedAreNotKnown(t *testing.T) {
	v := with().validation(t)
	v.Live = paged{v.Live}
	if nodes, known := v.count(t.Context(), labels.Everything()); known {
		t.Errorf("%d nodes", nodes)
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
	v := with(template("a"), node("a", "worker"), node("b", "worker")).validation(t)
	want := []string{"spec.minHealthy 51%, the default, allows no remediation with the number of nodes that are selected now, 2"}
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
