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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
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

// engine is the controllers on a world, with the clock and the event log.
type engine struct {
	world    *snapshot.World
	state    *state.State
	client   client.Client // of the state
	clock    *clock
	eventLog *eventLog

	question Question
	played   played
	managed  []manager
	// nodes is of the manager that acts on NodeHealthChecks, or of one who only looks at them.
	nodes *nodehealthcheck.Reconciler

	// due is when each of the objects is to be looked at again, tries how often that has failed in a row.
	due   map[actor]time.Time
	tries map[actor]int
}

// actor is an object that a controller makes passes over.
type actor struct{ kind, namespace, name string }

func (a actor) ref() explain.Ref {
	return explain.Ref{Kind: a.kind, Namespace: a.namespace, Name: a.name}
}

func newEngine(ctx context.Context, w *snapshot.World, q Question) (*engine, error) {
	s := &engine{world: w, question: q, clock: &clock{now: q.From}, due: map[actor]time.Time{}, tries: map[actor]int{}}
	s.state = state.New(w, s.clock)
	s.client = s.state.Client()
	s.eventLog = &eventLog{clock: s.clock, begin: q.From, said: map[string]bool{}}
	s.played = playedOf(ctx, w, inspect.ManagersOf(ctx, w, q.From))
	if err := machinehealthcheck.AddIndexes(ctx, w); err != nil {
		return nil, err
	}
	ofNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	for _, cluster := range w.Workloads() {
		if err := w.Workload(cluster).IndexField(ctx, &corev1.Pod{}, "spec.nodeName", ofNode); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// unreadable reports whether err says that a kind is not installed, or was not read: then it has no objects here.
func unreadable(err error) bool {
	return meta.IsNoMatchError(err) || errors.Is(err, explain.ErrUnread)
}

// nodes are those of workload clusters in memory. Nothing is watched: whatever leaves a node is seen by the next pass.
type nodes struct{ *fence.Nodes }

func (s *engine) newNodes() nodes {
	return nodes{fence.NewNodes(inMemory{s.world.Clusters(), s.state}, func(client.ObjectKey, string) {})}
}

// ModeFor implements hostremediation.Nodes. Every Kubernetes that is supported knows the taint.
func (nodes) ModeFor(_ context.Context, _ client.ObjectKey, override fence.Mode) (fence.Mode, error) {
	if override == fence.Delete {
		return fence.Delete, nil
	}
	return fence.Taint, nil
}

// Watch implements hostremediation.Nodes.
func (nodes) Watch(context.Context, client.ObjectKey, string, fence.Seen) error { return nil }

// Unwatch implements hostremediation.Nodes.
func (nodes) Unwatch(client.ObjectKey, string) {}

// Forget implements hostremediation.Nodes.
func (nodes) Forget(client.ObjectKey) {}

// inMemory are workload clusters that nobody can connect to.
type inMemory struct {
	*snapshot.Clusters

	state *state.State
}

// GetUncachedClient implements fence.Clusters.
func (c inMemory) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if _, err := c.Clusters.GetUncachedClient(ctx, cluster); err != nil {
		return nil, err
	}
	return c.state.Of(cluster).Client(), nil
}

var errInMemory = errors.New("a cluster in memory has no connection")

// GetRESTConfig implements fence.Clusters.
func (inMemory) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, errInMemory
}

// Watch implements fence.Clusters.
func (inMemory) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return errInMemory
}

// actors are all objects that passes are made over, checks first, each kind by name; also those that are gone since, once more.
func (s *engine) actors(ctx context.Context) ([]actor, error) {
	var all []actor
	add := func(kind string, list client.ObjectList) error {
		if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
			return fmt.Errorf("list the objects of kind %s: %w", kind, err)
		}
		return meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			all = append(all, actor{kind, obj.GetNamespace(), obj.GetName()})
			return nil
		})
	}
	err := errors.Join(add("MachineHealthCheck", &clusterv1.MachineHealthCheckList{}), add("NodeHealthCheck", &nhcv1.NodeHealthCheckList{}))
	for _, kind := range s.kindsOnMetal() {
		err = errors.Join(err, add(kind.Kind, kind.List()))
	}
	there := make(map[actor]bool, len(all))
	for _, a := range all {
		there[a] = true
	}
	var gone []actor
	for a := range s.due {
		if !there[a] {
			gone = append(gone, a)
		}
	}
	slices.SortFunc(gone, compareActors)
	return append(all, gone...), err
}

func compareActors(a, b actor) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// passes makes a pass over each of some objects, and notes when they are to be looked at again.
func (s *engine) passes(ctx context.Context, all []actor) {
	for _, a := range all {
		ctx := log.IntoContext(ctx, logr.New(errorLog{s.eventLog, a.ref()}))
		next, err := s.pass(ctx, a)
		if err != nil {
			s.tries[a]++
			s.eventLog.trouble(a.ref(), err)
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

// pass makes a pass over an object by each controller that is there for it, and returns when the next one is due; zero if that is when
// something changes.
func (s *engine) pass(ctx context.Context, a actor) (time.Time, error) {
	controllers, err := s.controllers(ctx, a)
	if err != nil {
		return time.Time{}, err
	}
	next, errs := time.Time{}, make([]error, 0, len(controllers))
	for _, c := range controllers {
		result, err := c.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: a.namespace, Name: a.name}})
		if errs = append(errs, err); result.RequeueAfter > 0 {
			next = health.Earliest(next, s.clock.Now().Add(result.RequeueAfter))
		}
	}
	return next, errors.Join(errs...)
}

// dueNow are the objects whose time has come.
func (s *engine) dueNow() []actor {
	now := s.clock.Now()
	var all []actor
	for a, at := range s.due {
		if !at.After(now) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, compareActors)
	return all
}

// next is when the first of the objects is to be looked at again; zero if none is.
func (s *engine) next() time.Time {
	var next time.Time
	for _, at := range s.due {
		next = health.Earliest(next, at)
	}
	return next
}

// looks are looks at the checks that are wanted: what passes at this moment would see and decide.
func (s *engine) looks(ctx context.Context, wanted func(explain.Ref) bool) ([]explain.Check, error) {
	all, err := s.actors(ctx)
	if err != nil {
		return nil, err
	}
	checks := []explain.Check{}
	ctx = log.IntoContext(ctx, logr.Discard())
	for _, a := range all {
		if !wanted(a.ref()) {
			continue
		}
		is, err := s.look(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", a.ref(), err)
		}
		if is != nil {
			checks = append(checks, *is)
		}
	}
	return checks, nil
}

// look is a look at a check, as the managers that are played would have it; nil if there is none.
func (s *engine) look(ctx context.Context, a actor) (*explain.Check, error) {
	managers := inspect.Managers{All: s.played.managers}
	switch a.kind {
	case "MachineHealthCheck":
		check, key := &clusterv1.MachineHealthCheck{}, client.ObjectKey{Namespace: a.namespace, Name: a.name}
		if err := s.client.Get(ctx, key, check, client.UnsafeDisableDeepCopy); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		by := s.machineController(managerlease.Announcement{}) // who looks although it is not theirs
		if of := s.managerOf(check); of != nil {
			by = of.machines
		}
		is, err := by.Explain(ctx, key, s.clock.Now())
		if is != nil {
			managers.Attend(is, check)
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
