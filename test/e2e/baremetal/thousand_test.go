package baremetal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/spec"
)

const (
	many = 1000
	few  = 100
	// writersAtOnce is how many objects are written at the same time.
	writersAtOnce = 24
	// callsEach is how many calls of the manager a remediation may cost, from the node that falls silent to the machine that is well and
	// the request that is gone: those to the management cluster, events included, and those to the workload cluster. docs/performance.md
	// states them.
	callsHere, callsThere = 50, 12
)

// crowd is a cluster of many machines on hosts that nobody looks after but kubemend and those who switch their power: what machines and
// nodes report, the spec writes.
type crowd struct {
	here, there client.WithWatch
	cluster     *clusterv1.Cluster
	hosts       *simulator.Hosts
	plane       *rig.ControlPlane // of the management cluster
	manager     *rig.Kubemend
}

var _ = Describe("A thousand hosts", func() {
	It("of which a hundred fail together are power-cycled where they failed, in a stated number of API calls", func(ctx SpecContext) {
		plane, err := control.Management(ctx, rig.ManagementOptions{Name: "many", Own: true, Audit: true})
		Expect(err).NotTo(HaveOccurred())
		nodes, err := control.Workload(ctx, "many-nodes", rig.WorkloadOptions{Bare: true, Audit: true})
		Expect(err).NotTo(HaveOccurred())
		c := &crowd{plane: plane, here: clientFor(plane.Config()), there: clientFor(nodes.Config())}
		c.hosts, err = simulator.NewHosts(plane.Config(), simulator.HostsOptions{Poll: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		spec.Beside(c.hosts.Start)
		c.build(ctx, nodes)
		account, err := plane.Install(ctx, "standalone")
		Expect(err).NotTo(HaveOccurred())
		c.manager, err = plane.Kubemend(ctx, "many", account)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { spec.NothingForbidden([]*rig.ControlPlane{plane, nodes}) })
		DeferCleanup(func() { c.manager.Kill() })
		c.watched(ctx)
		before, began := c.quietCalls(ctx), time.Now()

		spec.AtOnce(writersAtOnce, few, func(n int) { Expect(c.fail(ctx, failing(n))).To(Succeed()) })

		Eventually(func(g Gomega) {
			for n := range few {
				g.Expect(c.host(failing(n)).History().Since(began)).To(HaveLen(2), "off and on")
			}
			list := &mendv1.HostRemediationList{}
			g.Expect(c.here.List(ctx, list)).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
		}).WithTimeout(3 * time.Minute).WithPolling(time.Second).Should(Succeed())
		AddReportEntry("from the first host that failed to the last request that was gone", time.Since(began).Round(time.Second).String())
		Eventually(func(g Gomega) { c.isWell(ctx, g) }).WithPolling(2 * time.Second).Should(Succeed())
		spent := c.quietCalls(ctx).minus(before)
		AddReportEntry("calls for each remediation", spent.each(few))
		for n := range many {
			if n%(many/few) != 0 {
				Expect(c.host(n).History().Since(began)).To(BeEmpty(), "a host that had not failed")
			}
		}
		Expect(spent.here()/few).To(BeNumerically("<=", callsHere), spent.each(few))
		Expect(spent.there()/few).To(BeNumerically("<=", callsThere), spent.each(few))
	}, SpecTimeout(12*time.Minute))
})

func machineName(n int) string { return fmt.Sprintf("machine-%04d", n) }

func hostName(n int) string { return fmt.Sprintf("host-%04d", n) }

// failing is the number of the n-th machine that fails: they are spread over all.
func failing(n int) int { return n * many / few }

func (c *crowd) host(n int) *simulator.Host {
	return c.hosts.Host(client.ObjectKey{Namespace: c.cluster.Namespace, Name: hostName(n)})
}

// build makes the cluster, and returns when all hosts are on.
func (c *crowd) build(ctx context.Context, nodes *rig.ControlPlane) {
	GinkgoHelper()
	c.cluster = builders.Cluster(metav1.NamespaceDefault, "crowd")
	ofManager, err := nodes.GrantWorkloadUser(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(builders.Apply(ctx, c.here, rig.SharedKubeconfigSecret(client.ObjectKeyFromObject(c.cluster), nodes, ofManager), c.cluster)).To(Succeed())
	c.cluster.Status = builders.Standing()
	Expect(c.here.Status().Update(ctx, c.cluster)).To(Succeed())
	spec.AtOnce(writersAtOnce, many, func(n int) { Expect(c.add(ctx, n)).To(Succeed()) })
	Eventually(func() int {
		on := 0
		for n := range many {
			if c.host(n).Powered() {
				on++
			}
		}
		return on
	}).WithTimeout(2*time.Minute).Should(Equal(many), "hosts that are on")
}

// add makes a machine with its node and its host, all well.
func (c *crowd) add(ctx context.Context, n int) error {
	name := machineName(n)
	host := builders.BareMetalHost(c.cluster.Namespace, hostName(n), builders.Deployed, builders.ConsumedBy(name))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.NodeInfo.BootID = "first"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}
	machine := builders.ControlPlaneMachine(c.cluster, name, func(m *clusterv1.Machine) {
		delete(m.Labels, clusterv1.MachineControlPlaneLabel)
		m.Labels["nodepool"] = "nodepool-0"
	})
	between := builders.Metal3Machine(machine)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: host.Namespace + "/" + host.Name})
	for _, object := range []client.Object{host, between, machine} {
		if err := c.here.Create(ctx, object); err != nil {
			return err
		}
	}
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: name}
	machine.Status.Conditions = []metav1.Condition{builders.LongTrue(clusterv1.MachineInfrastructureReadyCondition)}
	if err := c.here.Status().Update(ctx, machine); err != nil {
		return err
	}
	return c.there.Create(ctx, node)
}

// watched makes the check and the template that ship, and returns when all machines are found to be well.
func (c *crowd) watched(ctx context.Context) {
	GinkgoHelper()
	var check client.Object
	for _, file := range []string{"host-remediation-template.yaml", "machine-health-check-workers-host-remediation-v1beta2.yaml"} {
		object, err := builders.Template(file, map[string]string{"CLUSTER_NAME": c.cluster.Name})
		Expect(err).NotTo(HaveOccurred())
		Expect(builders.Apply(ctx, c.here, object)).To(Succeed())
		check = object
	}
	Eventually(func(g Gomega) {
		is := &clusterv1.MachineHealthCheck{}
		g.Expect(c.here.Get(ctx, client.ObjectKeyFromObject(check), is)).To(Succeed())
		g.Expect(is.Status.CurrentHealthy).To(HaveValue(BeEquivalentTo(many)))
	}).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Succeed())
}

// fail hangs a kubelet: its node looks as if nothing had been heard of it for half an hour, until its host boots anew.
func (c *crowd) fail(ctx context.Context, n int) error {
	name, host := machineName(n), c.host(n)
	host.Mute(1)
	host.Carry(simulator.NewKubelet(c.there, simulator.KubeletOptions{Node: name, Every: 30 * time.Second}))
	node := &corev1.Node{}
	if err := c.there.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-longAgo))
	return c.there.Status().Patch(ctx, node, client.StrategicMergeFrom(before))
}

// isWell says that all machines are well, and that nothing of a remediation is left anywhere.
func (c *crowd) isWell(ctx context.Context, g Gomega) {
	machines, all, nodes := &clusterv1.MachineList{}, &bmov1alpha1.BareMetalHostList{}, &corev1.NodeList{}
	g.Expect(c.here.List(ctx, machines)).To(Succeed())
	g.Expect(machines.Items).To(HaveLen(many))
	for i := range machines.Items {
		m := &machines.Items[i]
		g.Expect(conditions.IsTrue(m, clusterv1.MachineHealthCheckSucceededCondition)).To(BeTrue(), m.Name)
		g.Expect(conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), m.Name)
	}
	g.Expect(c.here.List(ctx, all)).To(Succeed())
	for i := range all.Items {
		g.Expect(all.Items[i].Annotations).To(BeEmpty(), all.Items[i].Name)
	}
	g.Expect(c.there.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		g.Expect(outOfService(&nodes.Items[i])).To(BeFalse(), nodes.Items[i].Name)
	}
}

// calls are requests of the manager, by where they go and what they do. ClusterCache's probes are not among them.
type calls map[string]float64

// countCalls reads them off the metrics of the manager.
func (c *crowd) countCalls(ctx context.Context) calls {
	GinkgoHelper()
	text, err := c.manager.Scrape(ctx)
	Expect(err).NotTo(HaveOccurred())
	near := strings.TrimPrefix(c.plane.Config().Host, "https://")
	all := calls{}
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		name, labels, _ := strings.Cut(series, "{")
		number, _ := strconv.ParseFloat(value, 64) // what is no number has no name of these
		switch name {
		case "rest_client_requests_total":
			where := "there"
			if strings.Contains(labels, fmt.Sprintf("host=%q", near)) {
				where = "here"
			}
			_, method, _ := strings.Cut(labels, `method="`)
			method, _, _ = strings.Cut(method, `"`)
			all[where+" "+method] += number
		case "capi_cluster_cache_healthchecks_total":
			all["there GET"] -= number
		}
	}
	return all
}

// quietCalls counts them when the manager has no more to do.
func (c *crowd) quietCalls(ctx context.Context) (last calls) {
	GinkgoHelper()
	Eventually(func() bool {
		now := c.countCalls(ctx)
		quiet := maps.Equal(now, last)
		last = now
		return quiet
	}).WithTimeout(2*time.Minute).WithPolling(3*time.Second).Should(BeTrue(), "the manager has nothing more to do")
	return last
}

func (c calls) minus(before calls) calls {
	more := calls{}
	for what, number := range c {
		if number != before[what] {
			more[what] = number - before[what]
		}
	}
	return more
}

func (c calls) here() float64  { return c.to("here ") }
func (c calls) there() float64 { return c.to("there ") }

func (c calls) to(where string) (sum float64) {
	for what, number := range c {
		if strings.HasPrefix(what, where) {
			sum += number
		}
	}
	return sum
}

// each says how many of each there are for one of so many.
func (c calls) each(of float64) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", what, c[what]/of))
	}
	return fmt.Sprintf("here %.1f, there %.1f: %s", c.here()/of, c.there()/of, strings.Join(parts, ", "))
}
