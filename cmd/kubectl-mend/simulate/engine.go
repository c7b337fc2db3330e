package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/state"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// engine is the controllers on a state, with a virtual clock and the event log.
type engine struct {
	snapshot *snapshot.Snapshot
	state    *state.State
	client   client.Client // of the state
	clock    *clocktesting.FakePassiveClock
	eventLog *eventLog

	question Question
	managers managers
	managed  []manager
	// nodes is of the manager that acts on NodeHealthChecks, or of one that only explains them.
	nodes *nodehealthcheck.Reconciler

	// due is when each of the objects is to be reconciled again, tries how often that has failed in a row.
	due   map[object]time.Time
	tries map[object]int
}

// object is a check or a remediation, which a controller reconciles.
type object struct{ kind, namespace, name string }

func (a object) ref() explain.Ref {
	return explain.Ref{Kind: a.kind, Namespace: a.namespace, Name: a.name}
}

func newEngine(ctx context.Context, w *snapshot.Snapshot, q Question) (*engine, error) {
	s := &engine{
		snapshot: w, question: q, clock: clocktesting.NewFakePassiveClock(q.From), due: map[object]time.Time{}, tries: map[object]int{},
		managers: simulatedManagers(ctx, w, inspect.ManagersOf(ctx, w, q.From)),
	}
	s.state = state.New(w, s.clock)
	s.client = s.state.Client()
	s.eventLog = &eventLog{clock: s.clock, begin: q.From, logged: map[string]bool{}}
	ofNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	for _, cluster := range w.Workloads() {
		if err := w.Workload(cluster).IndexField(ctx, &corev1.Pod{}, "spec.nodeName", ofNode); err != nil {
			return nil, err
		}
	}
	return s, machinehealthcheck.AddIndexes(ctx, w)
}

// objects are all that are reconciled, checks first, each kind by name; also those that are gone since, once more.
func (s *engine) objects() []object {
	var all []object
	add := func(kind string, obj client.Object) {
		all = append(all, object{kind, obj.GetNamespace(), obj.GetName()})
	}
	for _, check := range snapshot.All[clusterv1.MachineHealthCheck](s.snapshot, "") {
		add("MachineHealthCheck", check)
	}
	for _, check := range snapshot.All[nhcv1.NodeHealthCheck](s.snapshot, "") {
		add("NodeHealthCheck", check)
	}
	for _, kind := range s.kindsOnMetal() {
		for _, req := range s.snapshot.Objects(kind.GroupVersionKind, "") {
			add(kind.Kind, req)
		}
	}
	there := make(map[object]bool, len(all))
	for _, a := range all {
		there[a] = true
	}
	return append(all, s.dueWhere(func(a object, _ time.Time) bool { return !there[a] })...)
}

// dueNow are the objects whose time has come.
func (s *engine) dueNow() []object {
	return s.dueWhere(func(_ object, at time.Time) bool { return !at.After(s.clock.Now()) })
}

func (s *engine) dueWhere(wanted func(object, time.Time) bool) []object {
	var all []object
	for a, at := range s.due {
		if wanted(a, at) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return all
}

// reconcileAll reconciles objects one after the other, and notes when each of them is due again.
func (s *engine) reconcileAll(ctx context.Context, all []object) {
	for _, a := range all {
		ctx := log.IntoContext(ctx, logr.New(errorLog{s.eventLog, a.ref()}))
		next, err := s.reconcile(ctx, a)
		if err != nil {
			s.tries[a]++
			s.eventLog.failure(a.ref(), err)
			next = s.clock.Now().Add(enqueue.Backoff(s.tries[a]))
		} else {
			delete(s.tries, a)
		}
		delete(s.due, a)
		if !next.IsZero() {
			s.due[a] = next
		}
	}
}

// reconcile has each controller that is there for an object observe, decide and apply, and returns when that is due again; zero if that is when
// something changes.
func (s *engine) reconcile(ctx context.Context, a object) (time.Time, error) {
	controllers := s.reconcilersOf(a)
	next, errs := time.Time{}, make([]error, 0, len(controllers))
	for _, c := range controllers {
		result, err := c.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: a.namespace, Name: a.name}})
		if errs = append(errs, err); result.RequeueAfter > 0 {
			next = health.Earliest(next, s.clock.Now().Add(result.RequeueAfter))
		}
	}
	return next, errors.Join(errs...)
}

// next is when the first of the objects is due; zero if none is.
func (s *engine) next() time.Time {
	var next time.Time
	for _, at := range s.due {
		next = health.Earliest(next, at)
	}
	return next
}

// explanations are how the wanted checks are decided about now.
func (s *engine) explanations(ctx context.Context, wanted func(explain.Ref) bool) ([]explain.Check, error) {
	checks := []explain.Check{}
	ctx = log.IntoContext(ctx, logr.Discard())
	for _, a := range s.objects() {
		if !wanted(a.ref()) {
			continue
		}
		is, err := s.explain(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("explain %s: %w", a.ref(), err)
		}
		if is != nil {
			checks = append(checks, *is)
		}
	}
	return checks, nil
}

// explain is how the manager that reconciles a check decides about it now; nil if there is no such check.
func (s *engine) explain(ctx context.Context, a object) (*explain.Check, error) {
	managers := inspect.Managers{All: s.managers.all}
	switch a.kind {
	case "MachineHealthCheck":
		key := client.ObjectKey{Namespace: a.namespace, Name: a.name}
		check := snapshot.One[clusterv1.MachineHealthCheck](s.snapshot, key)
		if check == nil {
			return nil, nil
		}
		by := s.machineController(managerlease.Announcement{}) // it explains what no manager reconciles
		if of := s.managerOf(check); of != nil {
			by = of.machines
		}
		is, err := by.Explain(ctx, key, s.clock.Now())
		if is != nil {
			managers.Attend(is, check, s.clusterOf(check))
		}
		return is, err
	case "NodeHealthCheck":
		is, err := s.nodes.Explain(ctx, a.name, s.clock.Now())
		if is != nil {
			managers.Serve(is, crdgate.NodeCheckCRD)
		}
		return is, err
	}
	return nil, nil
}
