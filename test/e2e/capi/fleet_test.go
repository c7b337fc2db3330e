package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	// fleetEnv is how many clusters the fleet has. test/bench sets it; the spec alone makes do with three.
	fleetEnv = "KUBEMEND_FLEET"
	// figuresEnv is the file that the figures are written to.
	figuresEnv = "KUBEMEND_FLEET_FIGURES"
	// slowness is how much longer the slow API server takes for each answer.
	slowness = 500 * time.Millisecond
)

var _ = Describe("A fleet of clusters from a class, of which one is unreachable and one has a slow API server", func() {
	It("is judged in all other clusters as if these were not there", func(ctx SpecContext) {
		for _, env := range fleet {
			env.allHealthy(ctx)
			DeferCleanup(env.remove)
		}
		cut, slow, others := fleet[0], fleet[1], fleet[2:]
		manager.Kill()
		cut.isUnreachable(ctx)
		slow.isSlow(ctx)
		for _, env := range fleet {
			Expect(builders.Apply(ctx, here, env.judgesAll())).To(Succeed())
		}

		By("starting the manager")
		f := figures{Clusters: len(fleet), Machines: len(cut.identities(ctx))}
		begun := time.Now()
		startManager(ctx)
		for _, env := range others {
			Eventually(env.counts(ctx, everything)).Should(Equal(env.allCounted()))
		}
		f.Judged = time.Since(begun)
		Expect(cut.reachable(ctx)()).NotTo(Equal("False/Unreachable"), "the others were judged before the one that is cut off was given up")
		Eventually(slow.counts(ctx, everything)).Should(Equal(slow.allCounted()))
		f.Slow = time.Since(begun)
		Eventually(cut.reachable(ctx)).Should(Equal("False/Unreachable"))

		By("losing a worker in each of them")
		// Where nothing runs for half a minute, verdicts are late once. A kubemend that waits for the other clusters is late each time.
		Eventually(func(g Gomega) {
			late := f.loses(ctx, slow, others)
			g.Expect(f.OtherLongest).To(BeNumerically("<", cutPatience), "%v", late)
		}).Should(Succeed())
		f.report()
		Expect(cut.machineVerdicts(ctx)).To(BeEmpty(), "what was seen last is not believed")
	}, SpecTimeout(specPatience))
})

const (
	// fleetPrefix is how the names of the clusters begin, which their namespaces have too.
	fleetPrefix = "fleet-"
	// everything is the name of the check of all machines of a cluster.
	everything = "all"
	// cutPatience is less than kubemend takes to give up a cluster that does not answer.
	cutPatience = 30 * time.Second
)

// figures are what test/bench reads; see classFigures there.
type figures struct {
	Clusters, Machines                                 int
	Judged, Slow, Median, OtherLongest, SlowestVerdict time.Duration
	Memory, Processor                                  float64
}

// loses has the node of a worker turn bad in each of these clusters, notes how late the verdicts are, and returns that by machine. All are healthy again then.
func (f *figures) loses(ctx context.Context, slow *environment, others []*environment) map[string]time.Duration {
	GinkgoHelper()
	all := append([]*environment{slow}, others...)
	verdicts := awaitVerdicts(ctx)
	cpu := process(ctx, "process_cpu_seconds_total")
	due := map[string]time.Time{}
	for _, env := range all {
		name := env.names(ctx, worker)[0]
		due[name] = env.turnedBad(ctx, name).Add(patience)
	}
	Eventually(verdicts).Should(HaveLen(len(due)))
	f.Processor = process(ctx, "process_cpu_seconds_total") - cpu
	f.Memory = process(ctx, "process_resident_memory_bytes")
	late := map[string]time.Duration{}
	for name, at := range verdicts() {
		late[name] = at.Sub(due[name])
	}
	f.count(late, slow.names(ctx, worker)[0])
	for _, env := range all {
		env.turn(ctx, env.names(ctx, worker)[0], corev1.ConditionTrue)
		Eventually(env.counts(ctx, everything)).Should(Equal(env.allCounted()))
	}
	return late
}

// count sorts how late the verdicts were, that on a machine of the slow cluster apart.
func (f *figures) count(late map[string]time.Duration, slow string) {
	f.SlowestVerdict = late[slow]
	others := maps.Clone(late)
	delete(others, slow)
	sorted := slices.Sorted(maps.Values(others))
	f.Median, f.OtherLongest = sorted[len(sorted)/2], sorted[len(sorted)-1]
}

func (f *figures) report() {
	GinkgoHelper()
	content, err := json.MarshalIndent(f, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("figures", string(content))
	if file := os.Getenv(figuresEnv); file != "" {
		Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	}
}

func fleetSize() int {
	GinkgoHelper()
	if os.Getenv(fleetEnv) == "" {
		return 3
	}
	number, err := strconv.Atoi(os.Getenv(fleetEnv))
	Expect(err).NotTo(HaveOccurred())
	Expect(number).To(BeNumerically(">=", 3))
	return number
}

// newFleet are clusters of one control-plane and one worker machine.
func newFleet(number int) []*environment {
	all := make([]*environment, number)
	for i := range all {
		name := fmt.Sprintf("%s%d", fleetPrefix, i)
		all[i] = &environment{namespace: name, name: name, class: "in-memory", version: "v1.35.0", controlPlanes: 1, workers: 1}
	}
	return all
}

// judgesAll is a check of all machines of the cluster that starts no remediation.
func (env *environment) judgesAll() *clusterv1.MachineHealthCheck {
	none := intstr.FromInt32(0)
	return builders.MachineHealthCheck(env.cluster, everything, builders.Claimed, builders.Patience(patience), func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Selector.MatchExpressions = nil
		c.Spec.Selector.MatchLabels = map[string]string{clusterv1.ClusterNameLabel: env.name}
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &none
	})
}

// allCounted is what its check counts when all machines are healthy.
func (env *environment) allCounted() string {
	all := env.controlPlanes + env.workers
	return fmt.Sprintf("%d of %d", all, all)
}

// turnedBad has the node of a machine report that it is not ready, and returns since when the node says so, in whole seconds.
func (env *environment) turnedBad(ctx context.Context, machine string) time.Time {
	GinkgoHelper()
	env.turn(ctx, machine, corev1.ConditionFalse)
	node := &corev1.Node{}
	Expect(env.there.Get(ctx, client.ObjectKey{Name: machine}, node)).To(Succeed())
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	return node.Status.Conditions[i].LastTransitionTime.Time
}

// reachable is what the check says of the workload cluster, as "Status/Reason".
func (env *environment) reachable(ctx context.Context) func() string {
	return func() string {
		check := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKey{Namespace: env.namespace, Name: everything}, check)).To(Succeed())
		c := conditions.Get(check, mendv1.WorkloadClusterReachable)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

// machineVerdicts are the machines of the cluster with a bad verdict.
func (env *environment) machineVerdicts(ctx context.Context) (names []string) {
	GinkgoHelper()
	for name, m := range env.machines(ctx) {
		if conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition) {
			names = append(names, name)
		}
	}
	return names
}

// awaitVerdicts begins to watch the machines of the fleet, and returns when each is first seen with a bad verdict from then on.
func awaitVerdicts(ctx context.Context) func() map[string]time.Time {
	GinkgoHelper()
	changes, err := rig.Follow(ctx, here, &clusterv1.MachineList{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(changes.Stop)
	var mu sync.Mutex
	seen := map[string]time.Time{}
	go func() {
		for e := range changes.ResultChan() {
			m, is := e.Object.(*clusterv1.Machine)
			if !is || !strings.HasPrefix(m.Namespace, fleetPrefix) || !conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition) {
				continue
			}
			mu.Lock()
			if _, known := seen[m.Name]; !known {
				seen[m.Name] = time.Now()
			}
			mu.Unlock()
		}
	}()
	return func() map[string]time.Time {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

// process is a figure of the manager's process.
func process(ctx context.Context, name string) float64 {
	GinkgoHelper()
	value, err := strconv.ParseFloat(suite.Metric(ctx, manager, name)(NewGomega(Fail)), 64)
	Expect(err).NotTo(HaveOccurred())
	return value
}
