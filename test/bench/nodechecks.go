package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

// nodeTimeout is the timeout of the check.
const nodeTimeout = 5 * time.Second

// benchCheck is the name of the check and of both templates.
const benchCheck = "bench"

// remediationKinds are the kinds of remediations of the check's two templates. No remediator runs, since only the check is measured.
func remediationKinds() []schema.GroupVersionKind {
	group := schema.GroupVersion{Group: "bench.kubemend.io", Version: "v1alpha1"}
	return []schema.GroupVersionKind{group.WithKind("FirstRemediation"), group.WithKind("SecondRemediation")}
}

const nodeMethod = `One API server with nodes of about 8 KiB, and one NodeHealthCheck of all of them with two templates.
No remediator runs, so the remediations stay. A steady reconcile is forced by a label on one node.
`

func measureNodeChecks(ctx context.Context, b bench) (s section, err error) {
	nodes, unhealthy, reconciles := 5000, 50, 20
	if b.quick {
		nodes, unhealthy, reconciles = 200, 10, 5
	}
	s = section{title: "NodeHealthChecks", method: nodeMethod}
	e := &environment{count: nodes, ownKinds: true, nodesOnly: true}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	if err := e.fillNodes(ctx); err != nil {
		return s, fmt.Errorf("set up a control plane with %d nodes: %w", nodes, err)
	}
	t := &nodeTrial{&trial{environment: e, scale: scaleOf(nodes, b.quick), controller: "nodehealthcheck"}}
	t.scale.beatsCPU = 1
	if err := t.firstReconcile(ctx); err != nil {
		return s, fmt.Errorf("first reconcile: %w", err)
	}
	measured, err := t.run(ctx, []phase{
		{"idle", t.measureIdle}, {"heartbeats", t.heartbeats},
		{"steady reconciles", func(ctx context.Context) error { return t.reconciles(ctx, reconciles) }},
		{"nodes that become unhealthy", func(ctx context.Context) error { return t.failNodes(ctx, unhealthy) }},
	})
	if err != nil {
		return s, err
	}
	err = s.add(fmt.Sprintf("%d nodes, %d unhealthy", nodes, unhealthy), measured)
	return s, err
}

func (e *environment) fillNodes(ctx context.Context) error {
	if err := e.startControlPlanes(ctx); err != nil {
		return err
	}
	if err := e.managementClient.Create(ctx, builders.Namespace(nhcv1.DefaultLeaseNamespace)); err != nil {
		return fmt.Errorf("create the namespace of the leases on nodes: %w", err)
	}
	for _, kind := range remediationKinds() {
		if err := simulator.InstallRemediator(e.management.Config(), kind); err != nil {
			return err
		}
	}
	err := e.each(ctx, e.machines(0, e.count), func(ctx context.Context, i int) error {
		return e.nodesAPI.Post().Resource("nodes").Body(nodeOf(i)).Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	return e.fillCheck(ctx)
}

// fillCheck creates the check and its templates, and starts to watch its remediations.
func (e *environment) fillCheck(ctx context.Context) error {
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
		if err := e.managementClient.Create(ctx, template); err != nil {
			return err
		}
		check.Spec.EscalatingRemediations = append(check.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
			Order: order, Timeout: metav1.Duration{Duration: time.Hour},
			RemediationTemplate: corev1.ObjectReference{
				APIVersion: template.GetAPIVersion(), Kind: template.GetKind(), Namespace: template.GetNamespace(),
				Name: template.GetName(),
			},
		})
	}
	if err := e.managementClient.Create(ctx, check); err != nil {
		return err
	}
	remediations := &unstructured.Unstructured{}
	remediations.SetGroupVersionKind(remediationKinds()[0])
	return e.watch(remediations)
}

// nodeTrial is a trial of a NodeHealthCheck.
type nodeTrial struct{ *trial }

// firstReconcile starts the manager, and waits until the check has counted all nodes.
func (t *nodeTrial) firstReconcile(ctx context.Context) error {
	since := time.Now()
	// The nodes have no kubelets, so the manager must not wait for their reports.
	if err := t.launch(ctx, "--node-monitor-grace-period=0s"); err != nil {
		return err
	}
	defer t.watchMemory(ctx)()
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, managerTimeout, true, func(ctx context.Context) (bool, error) {
		check := &nhcv1.NodeHealthCheck{}
		err := t.managementClient.Get(ctx, client.ObjectKey{Name: benchCheck}, check)
		return ptr.Deref(check.Status.HealthyNodes, 0) == t.count, err
	})
	if err != nil {
		t.end()
		return fmt.Errorf("wait until all nodes are counted: %w%s", err, tail(t.manager.Log))
	}
	t.add("First reconcile of all nodes after the start", time.Since(since).Seconds(), seconds, noAim)
	return nil
}

// touchEvery is the interval of forced reconciles. It is longer than the time for which kubemend collects events.
const touchEvery = 500 * time.Millisecond

// reconciles makes the manager reconcile the check although nothing has to be done.
func (t *nodeTrial) reconciles(ctx context.Context, n int) error {
	last := machineName(t.count - 1)
	d, err := t.during(ctx, func() error {
		return t.paced(ctx, t.machines(0, n), touchEvery, func(ctx context.Context, _ int) error {
			// A change of a label counts, because a selector may match it. kubemend does not even cache most annotations.
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, touchLabel, time.Now().UnixNano())
			return t.nodesAPI.Patch(types.MergePatchType).Resource("nodes").Name(last).Body(patch).Do(ctx).Error()
		})
	})
	if err != nil {
		return err
	}
	if d.reconciles == 0 {
		return errors.New("there was no reconcile")
	}
	t.add("Steady reconcile: time", d.took/d.reconciles*1000, milliseconds, noAim)
	t.add("Steady reconcile: processor time", d.cpu/d.reconciles*1000, milliseconds, 60)
	t.add("Steady reconcile: calls to the API server", d.calls()/d.reconciles, count, 0.5) // for watches that start again
	return nil
}

// failNodes makes nodes Unknown one after another, and measures for each how long after the timeout its remediation was created.
func (t *nodeTrial) failNodes(ctx context.Context, unhealthy int) error {
	defer t.watchMemory(ctx)()
	_, seen, d, err := t.changes(ctx, unhealthy, func(chosen []int, seen *delays) error {
		return t.paced(ctx, chosen, t.scale.spreadOver/time.Duration(unhealthy), func(ctx context.Context, i int) error {
			remediated := t.machineWatch.becomes(machineName(i), "")
			since := time.Now().Truncate(time.Second) // the API stores whole seconds
			if err := t.patchNode(ctx, i, unknownSince(since)); err != nil {
				return err
			}
			at, err := t.machineWatch.await(ctx, remediated)
			return seen.add(max(at.Sub(since.Add(nodeTimeout)), 0), err)
		})
	})
	if err != nil {
		return err
	}
	each := float64(unhealthy)
	t.addDelays("Timeout of a node → its remediation", seen, noAim, 0.3)
	t.add("A node that becomes unhealthy: reconciles", d.reconciles/each, count, noAim)
	t.add("A node that becomes unhealthy: reads", d.reads/each, count, 1.5)
	t.add("A node that becomes unhealthy: writes (remediation, lease, status, events)", d.writes()/each, count, 8)
	return nil
}
