package baremetal

import (
	"context"
	"os/exec"
	"path/filepath"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// plugin is the built kubectl-mend.
var plugin = filepath.Join("..", "..", "..", "bin", "kubectl-mend")

// A deadline is at least 100 s away, so these stories wait together: what is broken first is checked last, and a cluster is moved meanwhile.
var _ = Describe("A power cycle that runs into its deadlines", Ordered, func() {
	var dead, lame story

	BeforeAll(func(ctx SpecContext) {
		fixture.AllWell(ctx)
		fixture.watched(ctx, ours, builders.StartsWithin(30*time.Second))
		dead = fixture.storyOf(ctx, fixture.WorkerNames(ctx)[0])
		dead.host.Die(true)
		dead.host.Kubelet().Stop()
		lame = fixture.storyOf(ctx, fixture.joinsNever(ctx))
	}, NodeTimeout(specPatience))

	It("because the workload cluster is unreachable brings a single control plane back, and then a worker", func(ctx SpecContext) {
		lonely := &environment{suite.Site{Namespace: "lonely", Name: "lonely", ControlPlanes: 1, Workers: 1}}
		var err error
		lonely.Plane, err = control.Workload(ctx, "lonely", rig.WorkloadOptions{Bare: true})
		Expect(err).NotTo(HaveOccurred())
		lonely.Build(ctx, here, provider, inPool)
		lonely.AllWell(ctx)
		first, worker := lonely.storyOf(ctx, lonely.ControlPlaneNames(ctx)[0]), lonely.storyOf(ctx, lonely.WorkerNames(ctx)[0])

		By("losing the API server, with the host that it runs on")
		Expect(lonely.Plane.StopAPIServer(ctx)).To(Succeed())
		first.host.Kubelet().Stop()
		worker.host.Kubelet().Stop()
		patiently := func(s *infrav1.RemediationStrategy) { s.TimeoutSeconds = 300 }
		ofFirst, ofWorker := lonely.byHand(ctx, first.name, patiently), lonely.byHand(ctx, worker.name, patiently)
		Eventually(powered(first.host)).Should(BeFalse())
		Eventually(powered(worker.host)).Should(BeFalse())
		Eventually(saidOf(ctx, ofWorker, infrav1.WorkloadMovedCondition)).Should(Equal("False/ClusterUnreachable"))
		Eventually(saidOf(ctx, ofFirst, infrav1.WorkloadMovedCondition)).Should(Equal("False/ClusterUnreachable"))

		By("waiting until the control plane is powered on although its node cannot be fenced")
		Eventually(powered(first.host)).Should(BeTrue())
		Expect(powered(worker.host)()).To(BeFalse(), "a worker can wait: the API does not run on it")
		Expect(lonely.Plane.StartAPIServer(ctx)).To(Succeed())

		By("waiting until the connection is there again")
		Eventually(step(ctx, ofWorker)).Should(Equal("Succeeded"))
		Eventually(step(ctx, ofFirst)).Should(Equal("Succeeded"))
		Eventually(lonely.recordedEvents(ctx, ours.name, worker.name, worker.began)).Should(And(HaveKeyWithValue("Fenced", 1), freed))
		Expect(lonely.events(ctx, ours.name, first.name, first.began)).NotTo(HaveKey("Fenced"))
		for _, s := range []story{first, worker} {
			Expect(changes(s.host.History().Since(s.began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
			Expect(lonely.Machine(ctx, s.name).UID).To(Equal(s.uid))
			lonely.nothingIsLeft(ctx, s.host, s.name)
		}
	}, SpecTimeout(specPatience))

	It("keeps no other cluster from being moved: clusterctl waits until its host is released, and the power cycle continues where it was",
		clusterIsMoved, SpecTimeout(specPatience))

	It("because of a dead BMC is retried, and then the machine is replaced on another host", func(ctx SpecContext) {
		fixture.replaced(ctx, dead)
		marked(ctx, dead.host)
		Expect(dead.host.History().Since(dead.began)).To(BeEmpty())
		dead.host.Die(false)
	}, SpecTimeout(specPatience))

	It("because the machine never had a node is retried, and then the machine is replaced on another host", func(ctx SpecContext) {
		fixture.replaced(ctx, lame)
		marked(ctx, lame.host)
		Expect(lame.host.History().Since(lame.began).Cycles()).To(Equal(2), "two attempts")
		Eventually(fixture.recordedEvents(ctx, ours.name, lame.name, lame.began)).Should(And(HaveKey("NodeStillUnhealthy"), HaveKey("OwnerRequested"), Not(HaveKey("Fenced"))))
	}, SpecTimeout(specPatience))

	It("leaves no machine on a host that it has marked", func(ctx SpecContext) {
		fixture.scale(ctx, fixture.Workers)
		fixture.AllWell(ctx)
		for _, name := range fixture.WorkerNames(ctx) {
			Expect(fixture.Host(name).Key()).NotTo(BeElementOf(dead.host.Key(), lame.host.Key()))
		}
	}, SpecTimeout(specPatience))

	It("leaves a host that a user may reset, with the plugin, once its machine is gone", func(ctx SpecContext) {
		for _, host := range []*simulator.Host{dead.host, lame.host} {
			run := exec.CommandContext(ctx, plugin, "reset", "host/"+host.Key().Name, "-n", host.Key().Namespace, "--yes", "--reason", "repaired",
				"--kubeconfig", management.KubeconfigFile())
			out, err := run.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
			Expect(string(out)).To(ContainSubstring("kubemend.io/marked-unhealthy-for: says for which machine kubemend marked the host"))
			bmh := &bmov1alpha1.BareMetalHost{}
			Expect(here.Get(ctx, host.Key(), bmh)).To(Succeed())
			Expect(bmh.Annotations).NotTo(Or(HaveKey(infrav1.UnhealthyAnnotation), HaveKey(infrav1.LegacyUnhealthyAnnotation), HaveKey(mendv1.MarkedForAnnotation)))
			Expect(bmh.Annotations).To(HaveKey(mendv1.ResetAnnotation))
			before := bmh.DeepCopy()
			delete(bmh.Annotations, mendv1.ResetAnnotation) // another spec looks for what kubemend leaves behind; this is a user's
			Expect(here.Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
		}
	}, SpecTimeout(specPatience))
})

// story is what was known of a machine before something happened to it.
type story struct {
	name  string
	uid   types.UID
	host  *simulator.Host
	began time.Time
}

func (env *environment) storyOf(ctx context.Context, machine string) story {
	GinkgoHelper()
	return story{name: machine, uid: env.Machine(ctx, machine).UID, host: env.Host(machine), began: time.Now()}
}

// joinsNever adds a worker whose kubelet does not come up, on whatever host, for as long as the spec runs.
func (env *environment) joinsNever(ctx context.Context) (name string) {
	GinkgoHelper()
	before := map[string]bool{}
	for _, known := range env.WorkerNames(ctx) {
		before[known] = true
	}
	lame := func(machine client.ObjectKey) bool {
		return machine.Namespace == env.Namespace && !before[machine.Name]
	}
	provider.RefuseToStart(lame)
	DeferCleanup(func() { provider.RefuseToStart(nil) })
	env.scale(ctx, env.Workers+1)
	Eventually(func(g Gomega) {
		for _, candidate := range env.WorkerNames(ctx) {
			if !before[candidate] {
				name = candidate
			}
		}
		g.Expect(name).NotTo(BeEmpty())
		g.Expect(env.Machine(ctx, name).Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
		g.Expect(provider.Host(client.ObjectKey{Namespace: env.Namespace, Name: name})).NotTo(BeNil())
		g.Expect(env.Host(name).Powered()).To(BeTrue())
	}).Should(Succeed())
	provider.RefuseToStart(func(machine client.ObjectKey) bool { return machine.Namespace == env.Namespace && machine.Name == name })
	return name
}

// replaced waits until the owner of a machine has begun to replace it.
func (env *environment) replaced(ctx context.Context, lost story) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		m := &clusterv1.Machine{}
		err := here.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: lost.name}, m)
		if apierrors.IsNotFound(err) {
			return
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.UID != lost.uid || !m.DeletionTimestamp.IsZero()).To(BeTrue(), "the machine is still there")
	}).WithContext(ctx).WithTimeout(specPatience).WithPolling(time.Second).Should(Succeed())
}

// marked checks that a host is marked for every generation of CAPM3, and that nothing acts on its power.
func marked(ctx context.Context, host *simulator.Host) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		bmh := &bmov1alpha1.BareMetalHost{}
		g.Expect(here.Get(ctx, host.Key(), bmh)).To(Succeed())
		g.Expect(bmh.Annotations).To(And(HaveKey(infrav1.UnhealthyAnnotation), HaveKey(infrav1.LegacyUnhealthyAnnotation)))
		for key := range bmh.Annotations {
			g.Expect(key).NotTo(HavePrefix(infrav1.PowerOffAnnotationPrefix), "the next consumer of this host could not power it on")
		}
	}).Should(Succeed())
}
