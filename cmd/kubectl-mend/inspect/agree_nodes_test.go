package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
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
	_, p.reconciler = p.asker.Acting(w.Writable(p.clock), p.clock)
	p.reconciler.Recorder = p.recorder
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

// story reconciles a check until what was foretold is due.
func (p *nodePlay) story(check string) {
	p.Helper()
	for range 3 { // what a reconcile changes enqueues the check again
		p.pass(check)
	}
	next := p.ask(check).Next.At
	if !next.After(p.clock.Now().Add(time.Second)) || next.After(noon.Add(time.Hour)) {
		return
	}
	// Leases are renewed meanwhile, or others would take them.
	for now := p.clock.Now().Add(time.Minute); now.Before(next.Add(-time.Second)); now = now.Add(time.Minute) {
		p.at(now)
		p.pass(check)
	}
	for _, now := range []time.Time{next.Add(-time.Second), next} {
		p.at(now)
		p.pass(check)
	}
}

// nodeOf is the node that a step is about.
func nodeOf(next explain.Step) string {
	of, _, _ := strings.Cut(next.Text, ": ")
	return strings.TrimPrefix(of, "Node ")
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
