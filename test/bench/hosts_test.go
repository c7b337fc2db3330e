package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// How many hosts there are, and how many of them fail.
const hostCount, failing = 20, 4

// allowance is how many requests a power cycle may take. docs/performance.md states how many it takes. Writes are the same on any computer; about 10 of them are
// for the RemediationRecord. Reads are allowed more than they take: when an API server does not answer for half a minute, connections break and every watch is made
// again. A controller that reads in a loop is above that all the same.
type allowance struct{ writes, reads, workload float64 }

var (
	ofRequest = allowance{writes: 30, reads: 50, workload: 14}
	ofCheck   = allowance{writes: 42, reads: 60, workload: 14}
)

// keeps fails the test where more was needed for each of the hosts.
func (a allowance) keeps(t *testing.T, all reading) {
	t.Helper()
	was := allowance{writes: all.writes() / failing, reads: all.reads / failing, workload: all.workloadCalls / failing}
	t.Logf("%.1f writes to and %.1f reads from the management cluster, %.1f calls to the workload cluster", was.writes, was.reads, was.workload)
	if was.writes > a.writes || was.reads > a.reads || was.workload > a.workload || was.writes == 0 {
		t.Errorf("a power cycle took %+v, want at most %+v and a write", was, a)
	}
}

// TestExactlyTheMachinesThatFailAreRemediated runs, with few hosts, what `make bench ARGS="-only power-cycles"` measures with a thousand.
func TestExactlyTheMachinesThatFailAreRemediated(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // only a test that fails takes it
	defer cancel()
	r, err := setUpHosts(ctx, hostCount)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.tearDown(); err != nil {
			t.Error(err)
		}
	})
	manager, err := filepath.Abs("../../bin/manager")
	if err != nil {
		t.Fatal(err)
	}
	tr := &trial{environment: r.environment, figures: figures{}}
	if err := tr.firstPass(ctx, contenders()[0], manager); err != nil {
		t.Fatal(err)
	}
	defer tr.end()
	if r.witness, err = r.watch(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("an undisturbed power cycle takes few calls", func(t *testing.T) { cyclesByHand(ctx, t, r, tr) })
	t.Run("hosts that fail together are power-cycled, no other one is, and nothing is left", func(t *testing.T) { cyclesAFew(ctx, t, r, tr) })
	t.Run("without a template exactly the machines that fail are to be remediated by their owner", func(t *testing.T) { requestsOwnerRemediation(ctx, t, r, tr) })
}

func cyclesByHand(ctx context.Context, t *testing.T, r *hostEnvironment, tr *trial) {
	all, err := r.byHand(ctx, tr, failing)
	if err != nil {
		t.Fatal(err)
	}
	ofRequest.keeps(t, all)
}

func cyclesAFew(ctx context.Context, t *testing.T, r *hostEnvironment, tr *trial) {
	began := time.Now()
	all, err := r.mass(ctx, tr, failing)
	if err != nil {
		t.Fatal(err)
	}
	cycled := 0
	for i := range hostCount {
		switch changes := r.host(i).History().Since(began); len(changes) {
		case 0:
		case 2:
			cycled++
		default:
			t.Errorf("the power of host %d changed %d times: %v", i, len(changes), changes)
		}
	}
	if cycled != failing {
		t.Errorf("%d hosts were power-cycled, want %d", cycled, failing)
	}
	ofCheck.keeps(t, all)
	requests, hosts, nodes := &mendv1.HostRemediationList{}, &bmov1alpha1.BareMetalHostList{}, &corev1.NodeList{}
	for list, from := range map[client.ObjectList]client.Client{requests: r.managementWatcher, hosts: r.managementWatcher, nodes: r.workloadWatcher} {
		if err := from.List(ctx, list); err != nil {
			t.Fatal(err)
		}
	}
	if len(requests.Items) > 0 || len(hosts.Items) != hostCount || len(nodes.Items) != hostCount {
		t.Errorf("%d remediations, %d hosts and %d nodes exist", len(requests.Items), len(hosts.Items), len(nodes.Items))
	}
	for i := range hosts.Items {
		if len(hosts.Items[i].Annotations) > 0 {
			t.Errorf("host %s has annotations: %v", hosts.Items[i].Name, hosts.Items[i].Annotations)
		}
	}
	for i := range nodes.Items {
		if slices.ContainsFunc(nodes.Items[i].Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }) {
			t.Errorf("node %s is still out of service", nodes.Items[i].Name)
		}
	}
	if bad := unhealthy(ctx, t, r); len(bad) > 0 {
		t.Errorf("machines are still unhealthy: %v", bad)
	}
}

func requestsOwnerRemediation(ctx context.Context, t *testing.T, r *hostEnvironment, tr *trial) {
	cluster, _ := clusterOf(r.size.cluster(0))
	check := checkOf(cluster)
	if err := r.managementClient.Patch(ctx, check, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"remediation":null}}`))); err != nil {
		t.Fatal(err)
	}
	machines, err := r.takeUnused(failing)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, i := range machines {
		name := r.size.machine(i)
		want[name] = true
		marked := r.machineWatch.becomes(name, failed)
		if err := r.patchNode(ctx, i, longUnknown(time.Now())); err != nil {
			t.Fatal(err)
		}
		if _, err := r.machineWatch.await(ctx, marked); err != nil {
			t.Fatal(err)
		}
	}
	late := time.After(contenderTimeout)
	for len(unhealthy(ctx, t, r)) < failing {
		select {
		case <-late:
			t.Fatalf("remediation by their owner is requested for %v, want %v", unhealthy(ctx, t, r), want)
		case <-time.After(readEvery):
		}
	}
	if _, err := tr.quiet(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, unhealthy(ctx, t, r)); diff != "" {
		t.Errorf("remediation by their owner is requested for (-want +got):\n%s", diff)
	}
}

// unhealthy are the machines that their owners would replace. Every other machine must be reported as healthy, unless it has just failed.
func unhealthy(ctx context.Context, t *testing.T, r *hostEnvironment) map[string]bool {
	t.Helper()
	list := &clusterv1.MachineList{}
	if err := r.managementWatcher.List(ctx, list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != hostCount {
		t.Fatalf("%d machines, want %d", len(list.Items), hostCount)
	}
	found := map[string]bool{}
	for i := range list.Items {
		m := &list.Items[i]
		switch {
		case collections.IsUnhealthyAndOwnerRemediated(m):
			found[m.Name] = true
		case conditions.IsTrue(m, clusterv1.MachineHealthCheckSucceededCondition) && conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition):
			t.Errorf("%s is healthy, and remediation by its owner is requested", m.Name)
		}
	}
	return found
}
