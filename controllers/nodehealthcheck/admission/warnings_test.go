package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	const all = "spec.selector is empty: all nodes of the cluster are watched, also those of the control plane"
	of := func(nodes int) outlook { return outlook{nodes: &nodes} }
	for name, row := range map[string]struct {
		check   *nhcv1.NodeHealthCheck
		outlook outlook
		want    []string
	}{
		"a sound check":                     {check(), of(20), nil},
		"a sound check, and nothing known":  {check(), outlook{}, nil},
		"an empty selector":                 {check(everywhere), of(20), []string{all}},
		"an empty selector without a node":  {check(everywhere), of(0), []string{all}},
		"a selector that selects no node":   {check(), of(0), []string{"spec.selector selects no node now"}},
		"a status in small letters":         {check(status("unknown")), of(20), []string{`spec.unhealthyConditions[1].status is "unknown", which no node's condition ever is: Unknown is meant`}},
		"a status with a space":             {check(status("False ")), of(20), []string{`spec.unhealthyConditions[1].status is "False ", which no node's condition ever is: False is meant`}},
		"a status that is none":             {check(status("Perhaps")), of(20), []string{`spec.unhealthyConditions[1].status is "Perhaps", which no node's condition ever is: it is one of True, False, Unknown`}},
		"all have to be healthy":            {check(atLeast("100%")), of(20), []string{"spec.minHealthy 100% allows no remediation, not even of a single node"}},
		"none has to be healthy":            {check(atLeast("0%")), of(20), []string{"spec.minHealthy 0% limits nothing: nodes are remediated however many are unhealthy"}},
		"no number has to be healthy":       {check(atLeast("0")), of(20), []string{"spec.minHealthy 0 limits nothing: nodes are remediated however many are unhealthy"}},
		"all may be unhealthy":              {check(atMost("100%")), of(20), []string{"spec.maxUnhealthy 100% limits nothing: nodes are remediated however many are unhealthy"}},
		"none may be unhealthy":             {check(atMost("0%")), of(20), []string{"spec.maxUnhealthy 0% allows no remediation, not even of a single node"}},
		"no number may be unhealthy":        {check(atMost("0")), outlook{}, []string{"spec.maxUnhealthy 0 allows no remediation, not even of a single node"}},
		"as many healthy as there are":      {check(atLeast("3")), of(3), []string{"spec.minHealthy 3 allows no remediation with the number of nodes that are selected now, 3"}},
		"one healthy less than there are":   {check(atLeast("3")), of(4), nil},
		"the default with two nodes":        {check(), of(2), []string{"spec.minHealthy 51%, the default, allows no remediation with the number of nodes that are selected now, 2"}},
		"the default with three nodes":      {check(), of(3), nil},
		"a percentage of too few nodes":     {check(atMost("40%")), of(2), []string{"spec.maxUnhealthy 40% allows no remediation with the number of nodes that are selected now, 2"}},
		"a percentage of enough":            {check(atMost("40%")), of(3), nil},
		"more unhealthy than there are":     {check(atMost("7")), of(3), nil},
		"a percentage of nodes not counted": {check(atLeast("99%")), outlook{}, nil},
		"a limit that cannot be read": {check(func(c *nhcv1.NodeHealthCheck) {
			c.Spec.MinHealthy = &intstr.IntOrString{Type: intstr.String, StrVal: "many"}
		}), of(3), nil},
		"a template that does not exist":    {check(), outlook{missing: []corev1.ObjectReference{*ref("RebootTemplate", "a")}}, []string{"remediation template RebootTemplate default/a does not exist: the check will be Disabled until it does"}},
		"a template without a namespace":    {check(), outlook{missing: []corev1.ObjectReference{{Kind: "RebootTemplate", Name: "a"}}}, []string{"remediation template RebootTemplate a, without a namespace, does not exist: the check will be Disabled until it does"}},
		"a node that another check watches": {check(), outlook{shared: []shared{{"all", "node-1"}}}, []string{"NodeHealthChecks workers and all select the same nodes, such as node-1: whichever is first remediates, and the other one waits"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := warnings(row.check, row.outlook)
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

func TestWhatIsSeenForWarnings(t *testing.T) {
	others := func(edits ...func(*nhcv1.NodeHealthCheck)) *nhcv1.NodeHealthCheck {
		other := check(edits...)
		other.Name = "other"
		return other
	}
	many := make([]client.Object, 0, counted)
	for i := range counted {
		many = append(many, node(fmt.Sprintf("node-%d", i), "worker"))
	}
	gone := []corev1.ObjectReference{*ref("RebootTemplate", "a")}
	for name, row := range map[string]struct {
		observed observed
		check    *nhcv1.NodeHealthCheck
		want     outlook
	}{
		"nothing but nodes":            {with(node("a", "worker"), node("b", "storage")), check(), outlook{nodes: ptr.To(1), missing: gone}},
		"a template":                   {with(template("a")), check(), outlook{nodes: ptr.To(0)}},
		"a template by name":           {with(template("b")), check(), outlook{nodes: ptr.To(0), missing: gone}},
		"a kind that is none":          {failing("RebootTemplate", uninstalled("RebootTemplate")), check(), outlook{nodes: ptr.To(0), missing: gone}},
		"all nodes":                    {with(template("a"), node("a", "worker"), node("b", "storage")), check(everywhere), outlook{nodes: ptr.To(2)}},
		"as many nodes as are counted": {with(many...), check(), outlook{nodes: ptr.To(counted), missing: gone}},
		"steps, as they are taken, each template once": {
			with(), check(steps(step(3, "FenceTemplate", "a"), step(1, "RebootTemplate", "a"), step(2, "RebootTemplate", "a"))),
			outlook{nodes: ptr.To(0), missing: []corev1.ObjectReference{*ref("RebootTemplate", "a"), *ref("FenceTemplate", "a")}},
		},
		"another check of the same nodes": {with(template("a"), node("a", "worker"), others()), check(), outlook{nodes: ptr.To(1), shared: []shared{{"other", "a"}}}},
		"another check of all nodes":      {with(template("a"), node("a", "worker"), others(everywhere)), check(), outlook{nodes: ptr.To(1), shared: []shared{{"other", "a"}}}},
		"another check of no common node": {with(template("a"), node("a", "worker"), others(selecting("storage"))), check(), outlook{nodes: ptr.To(1)}},
		"another check without nodes":     {with(template("a"), others()), check(), outlook{nodes: ptr.To(0)}},
		"another check that is going":     {with(template("a"), node("a", "worker"), dying(others())), check(), outlook{nodes: ptr.To(1)}},
		"another check that is invalid":   {with(template("a"), node("a", "worker"), others(badSelector)), check(), outlook{nodes: ptr.To(1)}},
		"the check itself":                {with(template("a"), node("a", "worker"), check()), check(), outlook{nodes: ptr.To(1)}},
		"an invalid selector":             {with(template("a"), node("a", "worker")), check(badSelector), outlook{}},
		"no right to see nodes":           {failing("Node", forbidden("nodes"), template("a"), others()), check(), outlook{}},
		"no right to see templates":       {failing("RebootTemplate", forbidden("reboottemplates")), check(), outlook{nodes: ptr.To(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := row.observed.validation(t).lookOut(t.Context(), row.check)
			if diff := cmp.Diff(row.want, got, cmp.AllowUnexported(outlook{}, shared{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
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
	if got := v.lookOut(t.Context(), check()).nodes; got != nil {
		t.Errorf("%d nodes", *got)
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
