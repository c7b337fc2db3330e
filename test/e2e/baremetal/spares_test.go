package baremetal

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// startup is how long a machine may take until it has a node.
const startup = 45 * time.Second

// docs/recipes/spares.md says what happens.
var _ = Describe("A machine that is replaced while no host is free", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("has a successor that starts, is replaced after nodeStartupTimeout by one that waits as well, and runs once a host is free", func(ctx SpecContext) {
		check := builders.MachineHealthCheck(fixture.Cluster, "no-spare", builders.Claimed, builders.Patience(2*time.Second), builders.StartsWithin(startup))
		Expect(builders.Apply(ctx, here, check)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
		name, host := fixture.anIdleWorker(ctx)
		free := fixture.markFreeHosts(ctx, host.Key())
		before, lost := fixture.WorkerNames(ctx), fixture.storyOf(ctx, name)

		fixture.silence(ctx, name)

		By("waiting as one that starts")
		fixture.replaced(ctx, lost)
		first := fixture.newcomer(ctx, before)
		Expect(next(ctx, first, "STARTING: unhealthy at ")).To(BeTemporally("~", fixture.Machine(ctx, first).CreationTimestamp.Add(startup), time.Second))

		By("being replaced by another one that waits")
		Eventually(func() string {
			m := &clusterv1.Machine{}
			Expect(client.IgnoreNotFound(here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: first}, m))).To(Succeed())
			return conditions.GetReason(m, clusterv1.MachineHealthCheckSucceededCondition)
		}).Should(Equal(clusterv1.MachineHealthCheckNodeStartupTimeoutReason))
		second := fixture.newcomer(ctx, append(before, first))
		Expect(here.Delete(ctx, check)).To(Succeed())

		By("freeing a host")
		free(ctx)
		fixture.AllWell(ctx)
		Expect(fixture.WorkerNames(ctx)).To(ContainElement(second))
	}, SpecTimeout(specPatience))
})

// docs/recipes/spares.md, "Wait for a spare".
var _ = Describe("A check that waits for a spare host", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("has no machine replaced while no host fits, also after the manager was killed, and at once when one does", func(ctx SpecContext) {
		name, _ := fixture.anIdleWorker(ctx)
		free, lost := fixture.markFreeHosts(ctx), fixture.storyOf(ctx, name)
		check := fixture.waiting(ctx, longAgo+10*time.Minute)

		fixture.silence(ctx, name)

		By("waiting, and saying so")
		Eventually(saysOfSpare(ctx, fixture.Machine(ctx, name))).Should(Equal("False/NoSpareHost"))
		Eventually(saysOfSpare(ctx, check)).Should(Equal("False/NoSpareHost"))
		const waits = "UNHEALTHY, NOT REMEDIATED: NoSpareHost"
		deadline := next(ctx, name, waits)
		Expect(deadline).To(BeTemporally("~", lost.began.Add(10*time.Minute), time.Minute), "the deadline counts from when the node fell silent")

		By("killing the manager, and starting it again")
		manager.Kill()
		startManager(ctx)
		Consistently(saysOfSpare(ctx, fixture.Machine(ctx, name))).Should(Equal("False/NoSpareHost"))
		Expect(fixture.Machine(ctx, name).DeletionTimestamp.IsZero()).To(BeTrue(), "the machine is deleted although no host is free")
		Expect(next(ctx, name, waits)).To(BeTemporally("==", deadline))

		By("freeing a host")
		free(ctx)
		Eventually(func() map[string]int {
			return fixture.events(ctx, "MachineHealthCheck", check.GetName(), lost.began)
		}).WithTimeout(time.Until(deadline)).Should(HaveKey("RemediationStarted"))
		fixture.replaced(ctx, lost)
		fixture.AllWell(ctx)
		Eventually(saysOfSpare(ctx, check)).Should(Equal("-"))
	}, SpecTimeout(specPatience))

	It("has a machine replaced without a host after its deadline", func(ctx SpecContext) {
		const wait = 45 * time.Second // long enough for a busy machine to see it
		name, _ := fixture.anIdleWorker(ctx)
		free, lost := fixture.markFreeHosts(ctx), fixture.storyOf(ctx, name)
		check := fixture.waiting(ctx, longAgo+wait)

		fixture.silence(ctx, name)

		Eventually(saysOfSpare(ctx, fixture.Machine(ctx, name))).Should(Equal("False/NoSpareHost"))
		fixture.replaced(ctx, lost)
		Expect(time.Since(lost.began)).To(BeNumerically(">=", wait-5*time.Second), "the owner was asked before the deadline")
		Eventually(fixture.notesOf(ctx, "RemediationStarted", check.GetName(), lost.began)).Should(
			ContainElement(HavePrefix("Asked the owner to remediate " + name + ". No spare host fits its replacement, and the wait for one ended at ")))
		free(ctx)
		fixture.AllWell(ctx)
	}, SpecTimeout(specPatience))
})

// waiting makes a check whose owner remediations wait for a spare host for that long, for as long as the spec runs.
func (env *environment) waiting(ctx context.Context, timeout time.Duration) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := builders.MachineHealthCheck(env.Cluster, "waits-for-spare", builders.Claimed, builders.Patience(2*time.Second))
	metav1.SetMetaDataAnnotation(&check.ObjectMeta, mendv1.WaitForSpareAnnotation, "true")
	metav1.SetMetaDataAnnotation(&check.ObjectMeta, mendv1.WaitForSpareTimeoutAnnotation, timeout.String())
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
	return check
}

// saysOfSpare is what an object says of spare hosts, as "Status/Reason"; "-" if nothing.
func saysOfSpare(ctx context.Context, obj interface {
	client.Object
	conditions.Getter
},
) func() string {
	return func() string {
		if err := here.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err.Error()
		}
		c := conditions.Get(obj, mendv1.SpareHostAvailable)
		if c == nil {
			return "-"
		}
		return string(c.Status) + "/" + c.Reason
	}
}

// notesOf are the texts of the events of a reason about a check since a moment, for Eventually.
func (env *environment) notesOf(ctx context.Context, reason, check string, since time.Time) func() []string {
	return func() []string {
		GinkgoHelper()
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list, client.InNamespace(env.Namespace))).To(Succeed())
		var notes []string
		for _, e := range list.Items {
			if e.Reason == reason && e.Regarding.Name == check && !e.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
				notes = append(notes, e.Note)
			}
		}
		return notes
	}
}

// markFreeHosts marks all hosts that no machine has, and those that are named, so that no machine is put on them. The returned function removes the marks, at
// the latest when the spec ends.
func (env *environment) markFreeHosts(ctx context.Context, named ...client.ObjectKey) (free func(context.Context)) {
	GinkgoHelper()
	list := &bmov1alpha1.BareMetalHostList{}
	Expect(here.List(ctx, list, client.InNamespace(env.Namespace))).To(Succeed())
	var marked []client.ObjectKey
	mark := func(ctx context.Context, key client.ObjectKey, value *string) {
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		suite.Annotate(ctx, here, bmh, infrav1.UnhealthyAnnotation, value)
	}
	for i := range list.Items {
		bmh := &list.Items[i]
		key := client.ObjectKeyFromObject(bmh)
		_, is := bmh.Annotations[infrav1.UnhealthyAnnotation]
		if is || bmh.Spec.ConsumerRef != nil && !slices.Contains(named, key) {
			continue
		}
		mark(ctx, key, new("no-spare"))
		marked = append(marked, key)
	}
	free = func(ctx context.Context) {
		for _, key := range marked {
			mark(ctx, key, nil)
		}
	}
	DeferCleanup(func(ctx SpecContext) { free(ctx) })
	return free
}

// newcomer waits for a worker that was not there before.
func (env *environment) newcomer(ctx context.Context, before []string) (name string) {
	GinkgoHelper()
	Eventually(func() []string {
		fresh := slices.DeleteFunc(env.WorkerNames(ctx), func(n string) bool { return slices.Contains(before, n) })
		name = strings.Join(fresh, ", ")
		return fresh
	}).Should(HaveLen(1))
	return name
}

// next waits until the command line begins with these words about a machine, and returns when it says that the next thing happens. While a busy manager is late
// with its lease it says that no manager acts, and no time.
func next(ctx context.Context, machine, begins string) time.Time {
	GinkgoHelper()
	var at time.Time
	Eventually(func(g Gomega) {
		e := explained(ctx, machine)
		g.Expect(e.Message).To(HavePrefix(begins))
		g.Expect(e.Next.Time).NotTo(BeNil(), "%+v", e.Next)
		at = e.Next.Time.Time
	}).Should(Succeed())
	return at
}

// explained is what kubectl mend explain says of a machine.
func explained(ctx context.Context, machine string) *cliv1.Explanation {
	GinkgoHelper()
	run, err := rig.Kubectl(ctx, management.KubeconfigFile(), "mend", "explain", "machine/"+machine, "--namespace", fixture.Namespace, "-o", "json")
	Expect(err).NotTo(HaveOccurred())
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	Expect(run.Run()).To(Succeed(), complaint.String())
	e := &cliv1.Explanation{}
	Expect(json.Unmarshal(out.Bytes(), e)).To(Succeed())
	return e
}
