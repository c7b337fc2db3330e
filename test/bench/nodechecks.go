package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

// nodeScale is how much of a NodeHealthCheck is measured.
type nodeScale struct {
	nodes, unhealthy  int
	reconciles, beats int
	// nodes become unhealthy one after another within spreadOver.
	spreadOver, idle time.Duration
}

func nodeScaleOf(quick bool) nodeScale {
	if quick {
		return nodeScale{nodes: 200, unhealthy: 10, reconciles: 5, beats: 200, spreadOver: 5 * time.Second, idle: 5 * time.Second}
	}
	return nodeScale{nodes: 5000, unhealthy: 50, reconciles: 20, beats: 1000, spreadOver: 40 * time.Second, idle: 20 * time.Second}
}

// nodeTimeout is the timeout of the check.
const nodeTimeout = 5 * time.Second

// benchCheck is the name of the check and of both templates.
const benchCheck = "bench"

// remediationKinds are the kinds of the remediations of the check's two templates. No remediator runs: only the check is measured.
func remediationKinds() []schema.GroupVersionKind {
	group := schema.GroupVersion{Group: "bench.kubemend.io", Version: "v1alpha1"}
	return []schema.GroupVersionKind{group.WithKind("FirstRemediation"), group.WithKind("SecondRemediation")}
}

// nodeEnvironment is an environment of one control plane, with the nodes, their check and its remediations.
type nodeEnvironment struct {
	*environment
	watching client.WithWatch
	requests watch.Interface

	mu sync.Mutex
	// seen has the moments at which remediations were first seen, by node; more is closed when there is another one.
	seen map[string]time.Time
	more chan struct{}
}

// What is measured of NodeHealthChecks.
const (
	nodeFirstReconcile measured = "First reconcile of all nodes after the start"
	nodeReconcileTime  measured = "Steady reconcile: time"
	nodeReconcileCPU   measured = "Steady reconcile: processor time"
	nodeReconcileCalls measured = "Steady reconcile: calls to the API server"

	dueMedian     measured = "Timeout of a node → its remediation, p50"
	dueWorst      measured = "Timeout of a node → its remediation, p99"
	dueReconciles measured = "A node that becomes unhealthy: reconciles"
	dueReads      measured = "A node that becomes unhealthy: reads"
	dueWrites     measured = "A node that becomes unhealthy: writes (remediation, lease, status, events)"
)

func nodeRows() []row {
	return []row{
		{nodeFirstReconcile, seconds, noAim},
		{nodeReconcileTime, milliseconds, noAim},
		{nodeReconcileCPU, milliseconds, 60},
		{nodeReconcileCalls, count, 0.5}, // of watches that are made again
		{dueMedian, seconds, noAim},
		{dueWorst, seconds, 0.3},
		{dueReconciles, count, noAim},
		{dueReads, count, 1.5},
		{dueWrites, count, 8},
		{beatCPU, seconds, 1},
		{beatReconciles, count, 10}, // of resyncs; a heartbeat causes none
		{idleCPU, milliseconds1000, 0.01},
		{idleCalls, count, 1},
		{residentSteady, mebibytes, noAim},
		{residentHighest, mebibytes, 160},
	}
}

const nodeMethod = `One API server with nodes of about 8 KiB, and one NodeHealthCheck of all of them with two
templates. No remediator runs, so the remediations stay.

- **Steady reconcile**: forced by a label on one node. Its time is from
  controller_runtime_reconcile_time_seconds; calls are in rest_client_requests_total.
- **Timeout of a node → its remediation**: nodes become Unknown one after another, and are unhealthy
  5 s after the whole second that is stored as their transition; until the watch event with which
  the remediation is seen.
- **A node that becomes unhealthy**: all reconciles and calls of that phase, divided by the nodes.
`

// measureNodeChecks measures a check of nodes of which some become unhealthy.
func measureNodeChecks(ctx context.Context, b bench) (s section, err error) {
	much := nodeScaleOf(b.quick)
	s = section{title: "NodeHealthChecks", method: nodeMethod}
	w, err := setUpNodes(ctx, much.nodes, b.crds)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.tearDown()) }()
	p := b.kubemend("--node-monitor-grace-period=0s") // the kubelets of these nodes do not report
	p.controller = "nodehealthcheck"
	t := &trial{environment: w.environment, figures: figures{}, scale: scale{idle: much.idle, beats: much.beats}}
	if err := w.firstReconcile(ctx, t, p); err != nil {
		return s, fmt.Errorf("first reconcile: %w", err)
	}
	defer t.end()
	for _, phase := range []struct {
		name string
		run  func() error
	}{
		{"idle", func() error { return t.measureIdle(ctx) }},
		{"heartbeats", func() error { return t.heartbeats(ctx) }},
		{"steady reconciles", func() error { return w.reconciles(ctx, t, much.reconciles) }},
		{"nodes that become unhealthy", func() error { return w.failNodes(ctx, t, much) }},
	} {
		if err := phase.run(); err != nil {
			return s, fmt.Errorf("%s: %w%s", phase.name, err, tail(t.manager.Log))
		}
		progress("%d nodes: %s: done", much.nodes, phase.name)
	}
	t.figures[residentHighest] = t.highest / mebibyte
	s.tables = []table{tableOf(nodeRows(), []string{fmt.Sprintf("%d nodes, %d unhealthy", much.nodes, much.unhealthy)}, t.figures)}
	return s, nil
}

func setUpNodes(ctx context.Context, nodes int, crds []string) (*nodeEnvironment, error) {
	w := &nodeEnvironment{environment: &environment{size: size{machines: nodes, clusters: 1}}, seen: map[string]time.Time{}, more: make(chan struct{})}
	since := time.Now()
	if err := w.fillNodes(ctx, crds); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a control plane with %d nodes: %w", nodes, err), w.tearDown())
	}
	progress("%d nodes created in %.1fs", nodes, time.Since(since).Seconds())
	return w, nil
}

func (w *nodeEnvironment) fillNodes(ctx context.Context, crds []string) (err error) {
	if w.rig, err = rig.Start(ctx, rig.Options{}); err != nil {
		return err
	}
	w.management, err = w.rig.Management(ctx, rig.ManagementOptions{CRDs: crds})
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), nhcv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	if w.watching, err = client.NewWithWatch(unlimited(w.management.Config()), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	w.managementClient = w.watching
	if err := w.managementClient.Create(ctx, builders.Namespace(nhcv1.DefaultLeaseNamespace)); err != nil {
		return fmt.Errorf("create the namespace of the leases on nodes: %w", err)
	}
	api, err := kubernetes.NewForConfig(unlimited(w.management.Config()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	w.nodesAPI = api.CoreV1().RESTClient()
	for _, kind := range remediationKinds() {
		if err := simulator.InstallRemediator(w.management.Config(), kind); err != nil {
			return err
		}
	}
	err = w.each(ctx, w.machines(0, w.size.machines), func(ctx context.Context, i int) error {
		return w.nodesAPI.Post().Resource("nodes").Body(nodeOf(w.size, i)).Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	return w.fillCheck(ctx)
}

// fillCheck creates the check with its templates, and begins to watch its remediations.
func (w *nodeEnvironment) fillCheck(ctx context.Context) error {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: benchCheck}}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		check.Spec.UnhealthyConditions = append(check.Spec.UnhealthyConditions, nhcv1.UnhealthyCondition{
			Type: corev1.NodeReady, Status: status, Duration: metav1.Duration{Duration: nodeTimeout},
		})
	}
	for order, kind := range remediationKinds() {
		template := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(order)}}},
		}}
		template.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "Template"))
		template.SetNamespace(metav1.NamespaceDefault)
		template.SetName(benchCheck)
		if err := w.managementClient.Create(ctx, template); err != nil {
			return err
		}
		check.Spec.EscalatingRemediations = append(check.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
			Order: order, Timeout: metav1.Duration{Duration: time.Hour},
			RemediationTemplate: corev1.ObjectReference{
				APIVersion: template.GetAPIVersion(), Kind: template.GetKind(), Namespace: template.GetNamespace(), Name: template.GetName(),
			},
		})
	}
	if err := w.managementClient.Create(ctx, check); err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(remediationKinds()[0].GroupVersion().WithKind(remediationKinds()[0].Kind + "List"))
	var err error
	if w.requests, err = rig.Follow(ctx, w.watching, list); err != nil {
		return fmt.Errorf("watch remediations: %w", err)
	}
	go w.see()
	return nil
}

// see notes when remediations appear, until the watch ends.
func (w *nodeEnvironment) see() {
	for e := range w.requests.ResultChan() {
		request, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type != watch.Added {
			continue
		}
		w.mu.Lock()
		w.seen[request.GetAnnotations()[nhcv1.NodeNameAnnotation]] = time.Now()
		close(w.more)
		w.more = make(chan struct{})
		w.mu.Unlock()
	}
}

// await waits for the remediation of a node and returns when it was seen.
func (w *nodeEnvironment) await(ctx context.Context, node string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		at, seen := w.seen[node]
		more := w.more
		w.mu.Unlock()
		if seen {
			return at, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the remediation of node %s: %w", node, ctx.Err())
		}
	}
}

// tearDown ends all of it.
func (w *nodeEnvironment) tearDown() error {
	if w.requests != nil {
		w.requests.Stop()
	}
	return w.environment.tearDown()
}

// firstReconcile starts the manager, and waits until its check has counted all nodes.
func (w *nodeEnvironment) firstReconcile(ctx context.Context, t *trial, p program) (err error) {
	since := time.Now()
	if t.runner, err = w.launch(ctx, p); err != nil {
		return err
	}
	defer t.watchMemory(ctx)()
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, managerTimeout, true, func(ctx context.Context) (bool, error) {
		check := &nhcv1.NodeHealthCheck{}
		err := w.managementClient.Get(ctx, client.ObjectKey{Name: benchCheck}, check)
		return ptr.Deref(check.Status.HealthyNodes, 0) == w.size.machines, err
	})
	if err != nil {
		t.end()
		return fmt.Errorf("wait until all nodes are counted: %w%s", err, tail(t.manager.Log))
	}
	t.figures[nodeFirstReconcile] = time.Since(since).Seconds()
	return nil
}

// touchEvery is the time between two forced reconciles. It is longer than the time for which kubemend collects events.
const touchEvery = 500 * time.Millisecond

// reconciles makes the manager reconcile the check although there is nothing to do.
func (w *nodeEnvironment) reconciles(ctx context.Context, t *trial, n int) error {
	last := w.size.machine(w.size.machines - 1)
	d, err := t.during(ctx, func() error {
		return t.paced(ctx, w.machines(0, n), touchEvery, func(ctx context.Context, _ int) error {
			// A selector may be about a label; annotations without a meaning are not even cached.
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, touchLabel, time.Now().UnixNano())
			return w.nodesAPI.Patch(types.MergePatchType).Resource("nodes").Name(last).Body(patch).Do(ctx).Error()
		})
	})
	if err != nil {
		return err
	}
	if d.reconciles == 0 {
		return errors.New("there was no reconcile")
	}
	t.figures[nodeReconcileTime] = d.took / d.reconciles * 1000
	t.figures[nodeReconcileCPU] = d.cpu / d.reconciles * 1000
	t.figures[nodeReconcileCalls] = (d.reads + d.writes()) / d.reconciles
	return nil
}

// failNodes makes nodes Unknown one after another, and measures how long after its timeout a remediation was created for each.
func (w *nodeEnvironment) failNodes(ctx context.Context, t *trial, much nodeScale) error {
	chosen, err := w.takeUnused(much.unhealthy)
	if err != nil {
		return err
	}
	defer t.watchMemory(ctx)()
	var seen delays
	d, err := t.during(ctx, func() error {
		return t.paced(ctx, chosen, much.spreadOver/time.Duration(much.unhealthy), func(ctx context.Context, i int) error {
			since := time.Now().Truncate(time.Second) // as it is stored
			if err := w.patchNode(ctx, i, unknownSince(since)); err != nil {
				return err
			}
			at, err := w.await(ctx, w.size.machine(i))
			return seen.add(max(at.Sub(since.Add(nodeTimeout)), 0), err)
		})
	})
	if err != nil {
		return err
	}
	each := float64(much.unhealthy)
	t.record(seen.all, dueMedian, dueWorst)
	t.figures[dueReconciles] = d.reconciles / each
	t.figures[dueReads] = d.reads / each
	t.figures[dueWrites] = d.writes() / each
	return nil
}
