package baremetal

import (
	"context"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// A deadline is at least 100 s away: what is broken first is checked last, and a cluster is moved meanwhile.
var _ = Describe("A power cycle that runs into its deadlines", Ordered, func() {
	var dead story

	BeforeAll(func(ctx SpecContext) {
		fixture.AllWell(ctx)
		fixture.watched(ctx, ours)
		dead = fixture.storyOf(ctx, fixture.WorkerNames(ctx)[0])
		dead.host.Die(true)
		dead.host.Kubelet().Stop()
	}, NodeTimeout(specPatience))

	It("keeps no other cluster from being moved: clusterctl waits until its host is released, and the power cycle continues where it was",
		clusterIsMoved, SpecTimeout(specPatience))

	It("because of a dead BMC is retried, and then the machine is replaced on another host", func(ctx SpecContext) {
		fixture.replaced(ctx, dead)
		marked(ctx, dead.host)
		Expect(dead.host.History().Since(dead.began)).To(BeEmpty())
		dead.host.Die(false)
	}, SpecTimeout(specPatience))

	It("leaves no machine on a host that it has marked", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		for _, name := range fixture.WorkerNames(ctx) {
			Expect(fixture.Host(name).Key()).NotTo(Equal(dead.host.Key()))
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
	}).WithContext(ctx).WithTimeout(specPatience).Should(Succeed())
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

var _ = Describe("A power cycle", func() {
	It("moves the workload, and continues under the other replica when the one that acts is killed", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		const app = "stateful"
		workload := append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))
		Expect(builders.Apply(ctx, fixture.There, workload...)).To(Succeed())
		manager.Kill()
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) })
		replica := func(name string) *rig.Kubemend {
			r, err := management.Kubemend(ctx, name, account, "--leader-elect", "--leader-elect-namespace="+rig.Namespace)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() {
				r.Kill()
				suite.LogOf("the "+name+" replica", r, CurrentSpecReport())
			})
			return r
		}
		leads := func(r *rig.Kubemend) func() (bool, error) {
			return func() (bool, error) {
				page, err := r.Scrape(ctx)
				return strings.Contains(page, `leader_election_master_status{name="leader.kubemend.io"} 1`), err
			}
		}
		first := replica("first")
		Eventually(leads(first)).Should(BeTrue())
		other := replica("other")
		name := fixture.nodeOf(ctx, app)
		host, began := fixture.Host(name), time.Now()
		attacher.Stick(true) // a volume that is not detached keeps the host off until the other replica leads
		DeferCleanup(func() { attacher.Stick(false) })
		rem := fixture.byHand(ctx, name)
		Eventually(powered(host)).Should(BeFalse())
		Expect(leads(other)()).To(BeFalse())

		first.Kill()
		Eventually(leads(other)).Should(BeTrue())
		attacher.Stick(false)

		Eventually(func(g Gomega) {
			g.Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
			g.Expect(rem.Status.Step).To(Equal("Succeeded"))
		}).Should(Succeed())
		Expect(rem.Status.Attempt).To(BeEquivalentTo(1))
		Expect(fixture.nodeOf(ctx, app)).NotTo(Equal(name))
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})
