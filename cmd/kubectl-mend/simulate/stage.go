package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/ask"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/health"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/request"
	"github.com/kubemend/kubemend/controllers/wake"
)

// stage is the controllers on a world, with the clock and the diary.
type stage struct {
	world  *snapshot.World
	client client.Client
	clock  *clock
	diary  *diary

	settings settings
	machines *machinehealthcheck.Reconciler
	nodes    *nodehealthcheck.Reconciler
	hosts    []*hostremediation.Reconciler

	// due is when each of the objects is to be looked at again, tries how often that has failed in a row.
	due   map[actor]time.Time
	tries map[actor]int
}

// actor is an object that a controller makes passes over.
type actor struct{ kind, namespace, name string }

func (a actor) ref() look.Ref { return look.Ref{Kind: a.kind, Namespace: a.namespace, Name: a.name} }

func newStage(ctx context.Context, w *snapshot.World, q Question) (*stage, error) {
	s := &stage{world: w, client: w.Client(), clock: &clock{now: q.From}, due: map[actor]time.Time{}, tries: map[actor]int{}}
	s.diary = &diary{clock: s.clock, begin: q.From, said: map[string]bool{}}
	s.settings = settingsOf(ask.ManagersOf(ctx, w, q.From))
	w.Clock = s.clock
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

// build sets the controllers up, as the manager does: those whose kinds are there.
func (s *stage) build(ctx context.Context) error {
	w, c := s.world, s.client
	requests := &request.Requests{Client: c, Live: c}
	s.machines = &machinehealthcheck.Reconciler{
		Client: c, Clusters: w.Clusters(), Requests: requests, Recorder: s.diary, Clock: s.clock,
		Kinds:     snapshot.NewKinds[*request.Metadata](w, client.HasLabels{mendv1.MadeByUIDLabel}),
		Unclaimed: s.settings.unclaimed, WatchFilterValue: s.settings.watchFilter,
	}
	s.nodes = &nodehealthcheck.Reconciler{
		Client: c, Management: c, Live: c, Mapper: w.RESTMapper(), Requests: requests, Installed: w.Installed, Recorder: s.diary, Clock: s.clock,
		Kinds:          snapshot.NewKinds[*unstructured.Unstructured](w, request.NodeChecksMarks()...),
		LeaseNamespace: s.settings.leases,
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := c.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return fmt.Errorf("list BareMetalHosts: %w", err)
	}
	if len(hosts.Items) == 0 {
		return nil // nobody can be played who has no host
	}
	installed := func() ([]hostremediation.Kind, error) { return hostremediation.InstalledKinds(w.RESTMapper()) }
	kinds, err := installed()
	if err != nil {
		return err
	}
	nodes, turns, wakeups := newNodes(w), &hostremediation.Turns{}, &hostremediation.Wakeups{}
	for _, kind := range kinds {
		if kind.New == nil {
			continue
		}
		s.hosts = append(s.hosts, &hostremediation.Reconciler{
			Kind: kind, Installed: installed, Client: c, Live: c, Hosts: &host.Hosts{Client: c, Live: c}, Clusters: w.Clusters(), Nodes: nodes,
			Wakeups: wakeups, Turns: turns, Recorder: s.diary, Clock: s.clock, Fencing: s.settings.fencing,
			WatchFilterValue: s.settings.watchFilter, Unwatched: true,
		})
	}
	return nil
}

// unreadable reports whether err says that a kind is not installed, or was not read: then it has no objects here.
func unreadable(err error) bool {
	return meta.IsNoMatchError(err) || errors.Is(err, snapshot.ErrUnread)
}

// nodes are those of workload clusters in memory. Nothing is watched: whatever leaves a node is seen by the next pass.
type nodes struct{ *fence.Nodes }

func newNodes(w *snapshot.World) nodes {
	return nodes{fence.NewNodes(inMemory{w.Clusters()}, func(client.ObjectKey, string) {})}
}

// ModeFor implements hostremediation.Nodes. Every Kubernetes that is supported knows the taint.
func (nodes) ModeFor(_ context.Context, _ client.ObjectKey, override fence.Mode) (fence.Mode, error) {
	if override == fence.Delete {
		return fence.Delete, nil
	}
	return fence.Taint, nil
}

// Watch implements hostremediation.Nodes.
func (nodes) Watch(context.Context, client.ObjectKey, string) error { return nil }

// Unwatch implements hostremediation.Nodes.
func (nodes) Unwatch(client.ObjectKey, string) {}

// Forget implements hostremediation.Nodes.
func (nodes) Forget(client.ObjectKey) {}

// inMemory are workload clusters that nobody can connect to.
type inMemory struct{ *snapshot.Clusters }

var errInMemory = errors.New("a cluster in memory has no connection")

// GetRESTConfig implements fence.Clusters.
func (inMemory) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, errInMemory
}

// Watch implements fence.Clusters.
func (inMemory) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return errInMemory
}

// version changes with every write to the world, or to one of its workload clusters.
func (s *stage) version() int64 {
	sum := s.world.Version()
	for _, cluster := range s.world.Workloads() {
		sum += s.world.Workload(cluster).Version()
	}
	return sum
}

// actors are all objects that passes are made over, checks first, each kind by name; also those that are gone since, once more.
func (s *stage) actors(ctx context.Context) ([]actor, error) {
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
	for _, r := range s.hosts {
		err = errors.Join(err, add(r.Kind.Kind, r.Kind.List()))
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
func (s *stage) passes(ctx context.Context, all []actor) {
	for _, a := range all {
		ctx := log.IntoContext(ctx, logr.New(errorLog{s.diary, a.ref()}))
		key := client.ObjectKey{Namespace: a.namespace, Name: a.name}
		result, err := s.controller(a.kind).Reconcile(ctx, reconcile.Request{NamespacedName: key})
		after := result.RequeueAfter
		if err != nil {
			s.tries[a]++
			s.diary.trouble(a.ref(), err)
			after = wake.Backoff(s.tries[a])
		} else {
			delete(s.tries, a)
		}
		delete(s.due, a)
		if after > 0 {
			s.due[a] = s.clock.Now().Add(after)
		}
	}
}

// controller is the one that makes passes over the objects of a kind.
func (s *stage) controller(kind string) reconcile.Reconciler {
	switch kind {
	case "MachineHealthCheck":
		return s.machines
	case "NodeHealthCheck":
		return s.nodes
	}
	for _, r := range s.hosts {
		if r.Kind.Kind == kind {
			return r
		}
	}
	return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
}

// dueNow are the objects whose time has come.
func (s *stage) dueNow() []actor {
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
func (s *stage) next() time.Time {
	var next time.Time
	for _, at := range s.due {
		next = health.Earliest(next, at)
	}
	return next
}

// looks are looks at the checks that are wanted: what passes at this moment would see and decide.
func (s *stage) looks(ctx context.Context, wanted func(look.Ref) bool) ([]look.Check, error) {
	all, err := s.actors(ctx)
	if err != nil {
		return nil, err
	}
	checks := []look.Check{}
	ctx = log.IntoContext(ctx, logr.Discard())
	for _, a := range all {
		if !wanted(a.ref()) {
			continue
		}
		var is *look.Check
		switch a.kind {
		case "MachineHealthCheck":
			is, err = s.machines.Look(ctx, client.ObjectKey{Namespace: a.namespace, Name: a.name}, s.clock.Now())
		case "NodeHealthCheck":
			is, err = s.nodes.Look(ctx, a.name, s.clock.Now())
		}
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", a.ref(), err)
		}
		if is != nil {
			checks = append(checks, *is)
		}
	}
	return checks, nil
}
