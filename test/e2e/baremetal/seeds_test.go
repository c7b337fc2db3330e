package baremetal

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// soon is less than a place in the queue lasts that is not given up, and long enough for a busy computer.
const soon = time.Minute

// The manifests are those of Metal3's documentation, as printed: in v1beta1, for checks and for templates.
var _ = Describe("The manifests of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { seeded.AllWell(ctx) })

	It("have a worker power-cycled, with the retries and the timeout that they ask for", func(ctx SpecContext) {
		applied(ctx, "003/workers.yaml")
		name := seeded.WorkerNames(ctx)[0]
		identity, host, began := seeded.Machine(ctx, name).UID, seeded.Host(name), time.Now()
		host.Take(simulator.Times{PowerOff: 2 * time.Second}) // so that the request can be observed
		DeferCleanup(func() { host.Take(simulator.Times{}) })

		seeded.silence(ctx, name)

		asked := &infrav1beta1.Metal3Remediation{}
		Eventually(func() error { return here.Get(ctx, client.ObjectKey{Namespace: seeded.Namespace, Name: name}, asked) }).Should(Succeed())
		Expect(asked.Spec.Strategy).NotTo(BeNil())
		Expect(asked.Spec.Strategy.RetryLimit).To(Equal(2))
		Expect(asked.Spec.Strategy.Timeout).NotTo(BeNil())
		Expect(asked.Spec.Strategy.Timeout.Duration).To(Equal(5 * time.Minute))
		seeded.cycled(ctx, name, identity, began)
		Eventually(seeded.recordedEvents(ctx, theirs.name, name, began)).Should(And(HaveKeyWithValue("Fenced", 1), freed))
	}, SpecTimeout(specPatience))

	It("have three control-plane hosts that fail at once power-cycled in turn, and those that wait report for which one", func(ctx SpecContext) {
		applied(ctx, "003/control-plane.yaml")
		names := seeded.ControlPlaneNames(ctx)
		identities, began := map[string]types.UID{}, time.Now()
		for _, name := range names {
			identities[name] = seeded.Machine(ctx, name).UID
			seeded.Host(name).Take(simulator.Times{PowerOff: 500 * time.Millisecond, PowerOn: 500 * time.Millisecond, Boot: 500 * time.Millisecond})
		}
		DeferCleanup(func() {
			for _, name := range names {
				seeded.Host(name).Take(simulator.Times{})
			}
		})
		seen := follow(ctx, seeded.Namespace)

		for _, name := range names {
			seeded.silence(ctx, name)
		}

		var histories []simulator.History
		for _, name := range names {
			seeded.cycled(ctx, name, identities[name], began)
			histories = append(histories, seeded.Host(name).History().Since(began))
		}
		Expect(seen.heldTogether()).To(BeEmpty(), "kept powered off at the same time")
		Expect(simulator.MostOff(histories...)).To(Equal(1), "off at the same time")
		slices.SortFunc(histories, func(a, b simulator.History) int { return a[0].At.Compare(b[0].At) })
		for i, next := range histories[1:] {
			Expect(next[0].At).To(BeTemporally("~", histories[i][1].At, soon), "the next host in the queue is powered off as soon as the one before it is back")
		}
		said, waited := map[string][]string{}, 0
		for _, name := range names {
			said[name] = seen.said(name)
			if waitedForAnother(said[name], name, names) {
				waited++
			}
		}
		Expect(waited).To(BeNumerically(">=", len(names)-1), "%v", said)
	}, SpecTimeout(specPatience))
})

var _ = Describe("Two control-plane hosts that have lost their power", func() {
	It("do not wait for each other", func(ctx SpecContext) {
		seeded.AllWell(ctx)
		DeferCleanup(func(ctx SpecContext) { // when there is no check any more that would ask again
			Expect(here.DeleteAllOf(ctx, &infrav1.Metal3Remediation{}, client.InNamespace(seeded.Namespace))).To(Succeed())
			seeded.AllWell(ctx)
		})
		applied(ctx, "003/control-plane.yaml")
		names := seeded.ControlPlaneNames(ctx)[:2]
		for _, name := range names {
			seeded.losesItsPower(ctx, seeded.Host(name))
		}
		for _, name := range names {
			seeded.silence(ctx, name)
		}
		Eventually(func(g Gomega) {
			begun := 0
			for _, name := range names {
				rem := &infrav1.Metal3Remediation{}
				g.Expect(here.Get(ctx, client.ObjectKey{Namespace: seeded.Namespace, Name: name}, rem)).To(Succeed())
				if rem.Status.LastRemediated != nil {
					begun++
				}
			}
			g.Expect(begun).To(Equal(1), "one is power-cycled, and the other one waits in the queue")
		}).Should(Succeed())
	}, SpecTimeout(specPatience))
})

// losesItsPower powers a host off, and keeps it off until the spec ends. Were it only unplugged, Ironic would go on to say that it is
// on: it forces what it knows on hosts that differ from that.
func (env *environment) losesItsPower(ctx context.Context, host *simulator.Host) {
	GinkgoHelper()
	const by = bmov1alpha1.RebootAnnotationPrefix + "/outage"
	seen := func(g Gomega) *bmov1alpha1.BareMetalHost {
		bmh := &bmov1alpha1.BareMetalHost{}
		g.Expect(here.Get(ctx, host.Key(), bmh)).To(Succeed())
		return bmh
	}
	change := func(annotations map[string]any) {
		GinkgoHelper()
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		Expect(err).NotTo(HaveOccurred())
		Expect(here.Patch(ctx, seen(Default), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
	change(map[string]any{by: `{"mode":"hard"}`})
	Eventually(func(g Gomega) { g.Expect(seen(g).Status.PoweredOn).To(BeFalse()) }).Should(Succeed())
	host.Die(true)
	DeferCleanup(func() { host.Die(false) })
	change(map[string]any{by: nil})
}

// waitedForAnother reports whether one of the messages of a machine's remediation says that it waits, and names another machine.
func waitedForAnother(messages []string, name string, all []string) bool {
	return slices.ContainsFunc(messages, func(message string) bool {
		_, why, waits := strings.Cut(message, "Waiting in its queue (")
		return waits && !strings.Contains(why, name) && slices.ContainsFunc(all, func(other string) bool { return strings.Contains(why, other) })
	})
}

// cycled waits until a silenced machine was power-cycled once and is healthy, and nothing of its remediation is left.
func (env *environment) cycled(ctx context.Context, name string, identity types.UID, began time.Time) {
	GinkgoHelper()
	host := env.Host(name)
	Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
	Eventually(func() corev1.ConditionStatus { return env.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
	Eventually(func() bool { return env.gone(ctx, theirs, name) }).Should(BeTrue())
	env.nothingIsLeft(ctx, host, name)
	Expect(host.History().Since(began)).To(HaveLen(2), "off and on")
	Expect(env.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
}

// applied creates the objects of a printed manifest as they are, and then claims the check for kubemend, until the spec ends.
func applied(ctx context.Context, file string) {
	GinkgoHelper()
	for _, object := range suite.Seed(file) {
		Expect(here.Create(ctx, object, client.FieldValidation("Strict"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
		if object.GetKind() != "MachineHealthCheck" {
			continue
		}
		check := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(object), check)).To(Succeed())
		before := check.DeepCopy()
		builders.Claimed(check)
		Expect(here.Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
	}
}
