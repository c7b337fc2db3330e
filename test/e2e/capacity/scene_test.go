package capacity

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	// moments is how many random moments a scene is looked at.
	moments = 10
	// gap is the longest time between two of them.
	gap = 4 * time.Second
	// timeout is how long the check lets a node be not Ready.
	timeout = 2 * time.Second
	// startup is how long it lets a machine be without a node: longer than all scenes take, or else what comes in place of the worker would be replaced in turn.
	startup = 2 * suite.SpecPatience
	// looksAtOnce bounds how many commands run at the same time: one that takes long says what was true long ago.
	looksAtOnce = 2
)

// unhealthy is the annotation with which CAPM3 takes no host.
const unhealthy = "capm3.metal3.io/unhealthy"

// scene is a worker that is made unhealthy, what happens to it and meanwhile, and how that ends.
type scene struct {
	suite.Site

	// rule is what the spec about it holds.
	rule string
	// pool changes the MachineDeployment.
	pool func(*clusterv1.MachineDeployment)
	// before happens before the worker is unhealthy.
	before func(ctx context.Context, s *scene)
	// acts happen before the look of that number; the one of number moments happens after the last one.
	acts map[int]func(ctx context.Context, s *scene)
	// sees are what has to be waited for at one moment at least, else the scene did not happen. ends is how it has to end.
	sees []string
	ends string

	// old is the worker, first are all workers at the beginning.
	old   string
	first []string
	host  client.Object // that of the worker, where the scene marks it
	dice  *rand.Rand
	seen  []string
	// conditions are what the check said of the capacity, one write after the other.
	conditions []string
}

// places are those of the commands that run.
var places = make(chan struct{}, looksAtOnce)

// build makes the cluster of the scene. Its nodes are in the control plane of all.
func (s *scene) build(ctx context.Context, seed int64) {
	GinkgoHelper()
	s.dice = rand.New(rand.NewSource(seed))
	s.Name, s.ControlPlanes, s.Workers, s.Plane = s.Namespace, 1, 2, workload
	var edits []func(*clusterv1.MachineDeployment)
	if s.pool != nil {
		edits = append(edits, s.pool)
	}
	s.Build(ctx, here, provider, edits...)
	// The Secret is as a management cluster has it: an administrator's. What blocks a drain is read with it.
	Expect(builders.Apply(ctx, here, rig.KubeconfigSecret(client.ObjectKeyFromObject(s.Cluster), workload))).To(Succeed())
}

// play makes a worker unhealthy, looks at the scene at random moments, and waits for its end.
func (s *scene) play(ctx context.Context) {
	GinkgoHelper()
	s.AllWell(ctx)
	s.first = s.WorkerNames(ctx)
	s.old = s.first[0]
	if s.before != nil {
		s.before(ctx, s)
	}
	Expect(builders.Apply(ctx, here, builders.MachineHealthCheck(s.Cluster, "workers", builders.Claimed, builders.Patience(timeout), builders.StartsWithin(startup)))).To(Succeed())
	defer s.follows(ctx)()
	s.Host(s.old).Kubelet().Report(corev1.NodeReady, corev1.ConditionFalse, "KubeletSays")
	Eventually(func() bool { return s.begun(ctx) }).WithContext(ctx).WithPolling(50*time.Millisecond).Should(BeTrue(), "%s: its owner is asked", s.Name)

	for n := range moments {
		if act := s.acts[n]; act != nil {
			act(ctx, s)
		}
		suite.AtRandom(ctx, s.dice, gap)
		s.look(ctx, n)
	}
	if act := s.acts[moments]; act != nil {
		act(ctx, s)
	}
	Eventually(func() []string { return s.endings(s.observe(ctx)) }).WithContext(ctx).Should(HaveEach(s.ends), s.Name)
	s.look(ctx, moments)
}

// begun reports whether the owner was asked to replace the worker, or it is gone already.
func (s *scene) begun(ctx context.Context) bool {
	m := s.observe(ctx).machine(s.old)
	return m == nil || !m.DeletionTimestamp.IsZero() || conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)
}

// endings are how the wait has ended, by all that may be true; one that is empty goes on. A worker that is not replaced has to be gone besides.
func (s *scene) endings(f *facts) []string {
	var all []string
	for _, is := range s.truths(f) {
		all = append(all, is.Ends)
	}
	if f.machine(s.old) != nil {
		all = append(all, "")
	}
	return all
}

// look asks what the worker waits for, and in turn one of those that should know as well.
func (s *scene) look(ctx context.Context, n int) {
	old := func(c *cliv1.Capacity) bool { return c.Machine == s.old }
	of := func(f *facts) []suite.Blocker {
		all := s.truths(f)
		if f.leaving != "" && f.machine(s.old) == nil { // its record goes as well
			all = append(all, suite.Blocker{Ends: suite.NoSuchObject})
		}
		return all
	}
	s.ask(ctx, n, "machine/"+s.old, old, of)

	if n%2 == 1 {
		return
	}
	about := func(c *cliv1.Capacity) bool {
		return c.Machine == s.old || c.Machine == "" || !slices.Contains(s.first, c.About)
	}
	f := s.observe(ctx)
	fresh := s.newcomers(f)
	switch n % 3 {
	case 0:
		s.ask(ctx, n, "machinedeployment/"+s.Pool(), about, s.ofOwner)
	case 1:
		s.ask(ctx, n, "cluster/"+s.Name, about, s.ofOwner)
	case 2:
		if len(fresh) == 0 {
			return
		}
		name := fresh[0].Name
		s.ask(ctx, n, "machine/"+name, func(*cliv1.Capacity) bool { return true }, func(f *facts) []suite.Blocker {
			if m := f.machine(name); m != nil && m.DeletionTimestamp.IsZero() {
				return []suite.Blocker{s.arrival(f, m)}
			} else if m != nil {
				return []suite.Blocker{s.deletion(f, m)}
			}
			return nil
		})
	}
}

// ofOwner is what the owner, or the Cluster, says of it: nothing once nothing is missing.
func (s *scene) ofOwner(f *facts) []suite.Blocker {
	all := s.truths(f)
	for i := range all {
		if all[i].Ends != "" {
			all[i] = suite.Blocker{Ends: suite.Back}
		}
	}
	if len(f.sets) > 1 { // of a rollout it lists all machines that come
		for _, m := range s.newcomers(f) {
			all = append(all, s.arrival(f, m))
		}
	}
	if len(f.deployments) == 0 || f.cluster == nil {
		all = append(all, suite.Blocker{Ends: suite.NoSuchObject})
	}
	return all
}

// ask compares what is said of an object with what is true.
func (s *scene) ask(ctx context.Context, n int, object string, which func(*cliv1.Capacity) bool, of func(*facts) []suite.Blocker) {
	GinkgoHelper()
	places <- struct{}{}
	defer func() { <-places }()
	what := fmt.Sprintf("%s, look %d at %s: %s", s.Name, n+1, time.Now().UTC().Format(time.TimeOnly), object)
	history := suite.HistoryOf(ctx, here, s.workers()...)
	defer history.Stop()
	truths := looks.Compare(ctx, what, func() (suite.Said, error) {
		e, err := suite.Explain(ctx, management, s.Namespace, object)
		return suite.SaidOf(e, which), err
	}, func() []suite.Blocker {
		now := s.observe(ctx)
		all := of(now)
		for _, then := range history.Since() {
			all = append(all, of(now.with(then))...)
		}
		return all
	})
	for _, is := range truths {
		s.seen = append(s.seen, is.Reason)
	}
}
