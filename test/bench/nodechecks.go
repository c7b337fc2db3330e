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

// nodeResults are what was measured of a check of that many nodes.
type nodeResults struct {
	nodeScale
	figures figures
}

// measureNodeChecks measures NodeHealthChecks.
func (r *report) measureNodeChecks(ctx context.Context, binaries map[string]string) (err error) {
	much := nodeScaleOf(r.settings.quick)
	if r.nodes, err = measureNodes(ctx, much, r.settings, binaries); err != nil {
		return fmt.Errorf("measure a NodeHealthCheck of %d nodes: %w", much.nodes, err)
	}
	return nil
}

// measureNodes measures a check of nodes of which some become unhealthy.
func measureNodes(ctx context.Context, much nodeScale, s settings, binaries map[string]string) (_ nodeResults, err error) {
	results := nodeResults{nodeScale: much, figures: figures{}}
	w, err := setUpNodes(ctx, much.nodes)
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, w.tearDown()) }()
	c := s.kubemend()
	c.controller = "nodehealthcheck"
	t := &trial{environment: w.environment, figures: results.figures, scale: scale{idle: much.idle, beats: much.beats}}
	if err := w.firstReconcile(ctx, t, c, binaries[c.source]); err != nil {
		return results, fmt.Errorf("first reconcile: %w", err)
	}
	defer t.end()
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"idle", t.measureIdle},
		{"heartbeats", t.heartbeats},
		{"steady reconciles", func(ctx context.Context) error { return w.reconciles(ctx, t, much.reconciles, steadyNodeReconcile) }},
		{"nodes that become unhealthy", func(ctx context.Context) error { return w.failNodes(ctx, t, much) }},
		{"steady reconciles with unhealthy nodes", func(ctx context.Context) error { return w.reconciles(ctx, t, much.reconciles, unhealthyNodeReconcile) }},
	} {
		if err := phase.run(ctx); err != nil {
			return results, fmt.Errorf("%s: %w%s", phase.name, err, tail(t.manager.Log))
		}
		t.progress("%s: done", phase.name)
	}
	results.figures[residentHighest] = t.highest / mebibyte
	return results, nil
}

func setUpNodes(ctx context.Context, nodes int) (*nodeEnvironment, error) {
	w := &nodeEnvironment{environment: &environment{size: size{machines: nodes, clusters: 1}}, seen: map[string]time.Time{}, more: make(chan struct{})}
	since := time.Now()
	if err := w.fillNodes(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a control plane with %d nodes: %w", nodes, err), w.tearDown())
	}
	progress("%d nodes created in %.1fs", nodes, time.Since(since).Seconds())
	return w, nil
}

func (w *nodeEnvironment) fillNodes(ctx context.Context) error {
	crds, err := ownCRDs(ctx)
	if err != nil {
		return err
	}
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

// firstReconcile starts the contender, and waits until its check has counted all nodes.
func (w *nodeEnvironment) firstReconcile(ctx context.Context, t *trial, c contender, binary string) (err error) {
	since := time.Now()
	if t.runner, err = w.launch(ctx, c, binary); err != nil {
		return err
	}
	defer t.watchMemory(ctx)()
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
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

// reconcileFigures are the figures of one kind of reconciles.
type reconcileFigures struct{ time, cpu, allocations, calls measured }

var (
	steadyNodeReconcile    = reconcileFigures{nodeReconcileTime, nodeReconcileCPU, nodeReconcileAllocations, nodeReconcileCalls}
	unhealthyNodeReconcile = reconcileFigures{unhealthyReconcileTime, unhealthyReconcileCPU, unhealthyReconcileAllocations, unhealthyReconcileCalls}
)

// reconciles makes the contender reconcile the check although there is nothing to do.
func (w *nodeEnvironment) reconciles(ctx context.Context, t *trial, n int, into reconcileFigures) error {
	last := w.size.machine(w.size.machines - 1)
	// When paced returns, the last reconcile ended an interval ago.
	before, after, err := between(ctx, t.shortQuiet, t.read, func() error {
		return t.paced(ctx, w.machines(0, n), touchEvery, func(ctx context.Context, _ int) error {
			// A selector may be about a label; annotations without a meaning are not even cached.
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, touchAnnotation, time.Now().UnixNano())
			return w.nodesAPI.Patch(types.MergePatchType).Resource("nodes").Name(last).Body(patch).Do(ctx).Error()
		})
	})
	if err != nil {
		return err
	}
	if d := after.minus(before); d.reconciles == 0 {
		return errors.New("there was no reconcile")
	}
	d := t.busy(before, after)
	t.figures[into.time] = d.took / d.reconciles * 1000
	t.figures[into.cpu] = d.cpu / d.reconciles * 1000
	t.figures[into.allocations] = d.mallocs / d.reconciles
	t.figures[into.calls] = (d.reads + d.patches + d.creates + d.others) / d.reconciles
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
	before, after, err := between(ctx, t.shortQuiet, t.shortQuiet, func() error {
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
	d, each := after.minus(before), float64(much.unhealthy)
	t.record(seen.all, dueMedian, dueWorst)
	t.figures[dueReconciles] = d.reconciles / each
	t.figures[dueReconcileTime] = d.took / d.reconciles * 1000
	t.figures[dueReads] = d.reads / each
	t.figures[duePatches] = d.patches / each
	t.figures[dueCreates] = d.creates / each
	t.figures[dueSamples] = each
	return nil
}
