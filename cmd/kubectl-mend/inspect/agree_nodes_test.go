package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodePlay is a play of NodeHealthChecks.
type nodePlay struct {
	*play
	reconciler *nodehealthcheck.Reconciler
}

func (s *nodeScene) play(t reporter) *nodePlay {
	t.Helper()
	w := s.snapshot(t)
	p := &nodePlay{play: played(t, w, managerlease.Announcement{Version: "v0.1.0", NodeLeaseNamespace: nhcv1.DefaultLeaseNamespace})}
	c := w.Writable(p.clock)
	p.reconciler = &nodehealthcheck.Reconciler{
		Client: c, Management: c, Live: c, Mapper: w.RESTMapper(), Requests: &remediationrequest.Requests{Client: c, Live: c}, Installed: w.Installed,
		Kinds:    snapshot.NewKinds[*unstructured.Unstructured](w, ""),
		Gate:     &begin.Gate{Clock: p.clock},
		Recorder: p.recorder, Clock: p.clock, LeaseNamespace: nhcv1.DefaultLeaseNamespace,
	}
	return p
}

// requests are those of all kinds, by the name of their node.
func (p *nodePlay) requests() map[string][]unstructured.Unstructured {
	p.Helper()
	all := map[string][]unstructured.Unstructured{}
	for _, kind := range requestKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(remediators.WithKind(kind + "List"))
		if err := p.snapshot.ReadOnly().List(quiet(), list); err != nil {
			p.Fatalf("%v", err)
		}
		for _, obj := range list.Items {
			node := obj.GetAnnotations()[nhcv1.NodeNameAnnotation]
			all[node] = append(all[node], obj)
		}
	}
	return all
}

func (p *nodePlay) stored(check string) *nhcv1.NodeHealthCheck {
	p.Helper()
	is := &nhcv1.NodeHealthCheck{}
	if err := p.snapshot.ReadOnly().Get(quiet(), client.ObjectKey{Name: check}, is); err != nil {
		p.Fatalf("%v", err)
	}
	return is
}

func (p *nodePlay) ask(check string) *explain.Check {
	p.Helper()
	all, err := p.asker.NodeChecks(quiet(), func(c *nhcv1.NodeHealthCheck) bool { return c.Name == check })
	if err != nil || len(all) != 1 {
		p.Fatalf("ask about %s: %d answers, %v", check, len(all), err)
	}
	return &all[0]
}

// pass asks about a check, has the controller make its pass, and compares. It returns what was said.
func (p *nodePlay) pass(check string) *explain.Check {
	p.Helper()
	said, before := p.ask(check), p.requests()
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: check}}
	result, err := p.reconciler.Reconcile(quiet(), req)
	if err == nil && result.RequeueAfter == enqueue.MergeWindow { // it waits for a kind that it has asked for
		result, err = p.reconciler.Reconcile(quiet(), req)
	}
	if err != nil {
		p.Fatalf("pass over %s: %v", check, err)
	}
	after, is := p.requests(), p.stored(check)
	begins := false
	for i := range said.Targets {
		t := &said.Targets[i]
		begins = begins || t.StartsNow
		p.compareNode(t, said, before[t.Name], after[t.Name])
		p.compareListed(t, is)
	}
	p.sameConditions(said.String(), said.Conditions, is.Status.Conditions)
	if total, healthy := *is.Status.ObservedNodes, *is.Status.HealthyNodes; total != said.Counts.Total() || healthy != said.Counts.Healthy {
		p.Errorf("%s: said to watch %+v, and stored %d, of which %d are healthy", said, said.Population, total, healthy)
	}
	now := p.clock.Now()
	// Where several things hold a node up the pass goes by the first of them; that another one ends meanwhile changes nothing.
	among := slices.ContainsFunc(said.Targets, func(t explain.Target) bool { return t.Name == nodeOf(said.Next) && len(t.Blockers) > 1 })
	if at := said.Next.At; !begins && !among && !at.IsZero() && (result.RequeueAfter == 0 || now.Add(result.RequeueAfter).After(at.Add(time.Millisecond))) {
		p.Errorf("%s: next is said to be %+v, and the next reconcile is in %s", said, said.Next, result.RequeueAfter)
	}
	return said
}

func (p *nodePlay) compareNode(t *explain.Target, said *explain.Check, before, after []unstructured.Unstructured) {
	p.Helper()
	begun := slices.ContainsFunc(after, func(is unstructured.Unstructured) bool {
		return !slices.ContainsFunc(before, func(was unstructured.Unstructured) bool { return was.GetUID() == is.GetUID() })
	})
	switch {
	case t.StartsNow != begun:
		p.Errorf("%s: %s is said to begin %t, begun %t; blocked by %+v", said, t.Name, t.StartsNow, begun, t.Blockers)
	case begun && len(t.Blockers) > 0:
		p.Errorf("%s: %s was begun, and is said to be blocked by %+v", said, t.Name, t.Blockers)
	case t.State == cliv1.StateUnhealthy && !t.InFlight && !begun && len(t.Blockers) == 0:
		p.Errorf("%s: %s is unhealthy and nothing was begun, and it is not said why", said, t.Name)
	}
}

// compareListed compares a verdict with what the status says of the node.
func (p *nodePlay) compareListed(t *explain.Target, is *nhcv1.NodeHealthCheck) {
	p.Helper()
	at := slices.IndexFunc(is.Status.UnhealthyNodes, func(n nhcv1.UnhealthyNode) bool { return n.Name == t.Name })
	node := &corev1.Node{}
	err := p.snapshot.ReadOnly().Get(quiet(), client.ObjectKey{Name: t.Name}, node)
	selected := err == nil && labels.SelectorFromSet(is.Spec.Selector.MatchLabels).Matches(labels.Set(node.Labels))
	switch {
	case t.State == cliv1.StateUnhealthy && selected && at < 0:
		p.Errorf("%s is said to be unhealthy, and is not listed", t.Name)
	case t.State == cliv1.StateHealthy && at >= 0 && is.Status.UnhealthyNodes[at].ConditionsHealthyTimestamp == nil:
		p.Errorf("%s is said to be healthy, and is listed as %+v", t.Name, is.Status.UnhealthyNodes[at])
	case t.State == cliv1.StateHealthy && !t.InFlight && at >= 0 && len(is.Status.UnhealthyNodes[at].Remediations) > 0:
		p.Errorf("%s is said not to be remediated, and is listed as %+v", t.Name, is.Status.UnhealthyNodes[at])
	}
}

// story reconciles a check until a moment that was foretold has come: what was foretold happens then, and not before.
func (p *nodePlay) story(check string) {
	p.Helper()
	for range 3 { // what a reconcile changes enqueues the check again
		p.pass(check)
	}
	before := p.ask(check)
	next := before.Next
	was := p.givenUp(check, next)
	if !next.At.After(p.clock.Now().Add(time.Second)) {
		return
	}
	// Leases are renewed meanwhile, or others would take them.
	for soon := p.clock.Now().Add(time.Minute); soon.Before(next.At.Add(-time.Second)) && soon.Before(noon.Add(time.Hour)); soon = soon.Add(time.Minute) {
		p.at(soon)
		p.pass(check)
	}
	if p.clock.Now().Add(time.Minute).Before(next.At) {
		return // it is too long a time
	}
	if soon := next.At.Add(-time.Second); soon.After(p.clock.Now()) {
		p.at(soon)
	}
	if p.clock.Now().Before(next.At) {
		p.pass(check)
		p.happened(check, next, was, false)
	}
	p.at(next.At)
	then := p.pass(check)
	p.happened(check, next, was, true)
	p.begins(before, then)
}

// begins compares what was said of a node whose time was to run out with what the pass did when it had run out.
func (p *nodePlay) begins(before, then *explain.Check) {
	p.Helper()
	of := func(c *explain.Check) int {
		return slices.IndexFunc(c.Targets, func(t explain.Target) bool { return t.Name == nodeOf(before.Next) })
	}
	was, is := of(before), of(then)
	if was < 0 || is < 0 || before.Targets[was].State != cliv1.StatePending || before.Targets[was].InFlight {
		return
	}
	together := 0 // who becomes unhealthy in the same moment may go first
	for i := range before.Targets {
		if before.Targets[i].Next.At.Equal(before.Next.At) {
			together++
		}
	}
	foreseen := strings.Contains(before.Next.Text, "counts as unhealthy unless ") && strings.Contains(before.Next.Text, ", and kubemend ")
	if begins := then.Targets[is].StartsNow; together == 1 && begins != foreseen {
		p.Errorf("%s: it is said that %q; then it begins: %t, blocked by %+v", nodeOf(before.Next), before.Next.Text, begins, then.Targets[is].Blockers)
	}
}

// givenUp is how many requests for the node of a step were given up.
func (p *nodePlay) givenUp(check string, next explain.Step) int {
	p.Helper()
	n := 0
	for _, node := range p.stored(check).Status.UnhealthyNodes {
		for _, req := range node.Remediations {
			if node.Name == nodeOf(next) && req.TimedOut != nil {
				n++
			}
		}
	}
	return n
}

// nodeOf is the node that a step is about.
func nodeOf(next explain.Step) string {
	of, _, _ := strings.Cut(next.Text, ": ")
	return strings.TrimPrefix(of, "Node ")
}

// happened reports whether what was said to happen has happened, or has not. So many requests had been given up when it was said.
func (p *nodePlay) happened(check string, next explain.Step, was int, want bool) {
	p.Helper()
	node := nodeOf(next)
	_, text, _ := strings.Cut(next.Text, ": ")
	switch is := p.ask(check); {
	case strings.HasPrefix(text, "it counts as unhealthy unless "):
		i := slices.IndexFunc(is.Targets, func(t explain.Target) bool { return t.Name == node })
		if got := is.Targets[i].State == cliv1.StateUnhealthy; got != want {
			p.Errorf("%s at %s: unhealthy %t, and %+v was said", node, p.clock.Now(), got, next)
		}
	case strings.Contains(text, " is given up unless the node is back"):
		if got := p.givenUp(check, next) > was; got != want {
			p.Errorf("%s at %s: given up %t, and %+v was said", node, p.clock.Now(), got, next)
		}
	case strings.HasPrefix(next.Text, "the cooldown after the storm is over"):
		c := slices.IndexFunc(is.Conditions, func(c metav1.Condition) bool {
			return c.Type == nhcv1.StormActiveCondition && c.Status == metav1.ConditionTrue
		})
		if got := c < 0; got != want {
			p.Errorf("%s at %s: the storm is over %t, and %+v was said", check, p.clock.Now(), got, next)
		}
	}
}

func TestNodeHealthChecksAreSeenAsTheControllerActs(t *testing.T) {
	begun := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := aRandomNodeScene(t)
		p := s.play(t)
		before := len(p.requests())
		for _, check := range s.checks {
			p.story(check.Name)
		}
		begun[len(p.requests()) > before]++
	})
	// The fifth of the scenes that a short run draws may all end alike; `make test` draws all.
	if same := begun[true] == 0 || begun[false] == 0; same && !testing.Short() {
		t.Errorf("the scenes show nothing: %v", begun)
	}
}
