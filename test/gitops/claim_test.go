package gitops

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

var (
	beClaimed   = HaveKeyWithValue(clusterv1.PausedAnnotation, mendv1.Claim)
	beUnclaimed = Not(HaveKey(clusterv1.PausedAnnotation))
)

// applyAgain applies the manifest twice, unchanged and with a change, like a tool that reconciles it repeatedly.
func (t tool) applyAgain(ctx context.Context, m manifest) manifest {
	GinkgoHelper()
	t.apply(ctx, m)
	m.patience *= 2
	t.apply(ctx, m)
	m.applied(ctx)
	return m
}

var _ = Describe("A claim by kubectl mend", func() {
	for _, t := range fieldwise {
		It("stays when "+t.name+" applies the check", func(ctx SpecContext) {
			m := newManifest()
			t.apply(ctx, m)
			said := mend(ctx, "claim", "mhc/"+m.name, "--yes")
			if t.name == flux.name {
				Expect(strings.Join(strings.Fields(said), " ")).To(ContainSubstring("Flux applies the check"))
			}
			Expect(m.stored(ctx).Annotations).To(beClaimed)
			Expect(m.stored(ctx).ManagedFields).To(ContainElement(
				HaveField("Manager", mendv1.CommandLineFieldOwner)), "the name by which Flux does not know kubectl")

			m = t.applyAgain(ctx, m)

			Expect(m.stored(ctx).Annotations).To(beClaimed)
			mend(ctx, "release", "mhc/"+m.name, "--yes")
			Expect(m.stored(ctx).Annotations).To(beUnclaimed)
			m = t.applyAgain(ctx, m)
			Expect(m.stored(ctx).Annotations).To(beUnclaimed, "and no tool keeps it")
		})
	}

	It("is overwritten by every tool that applies another value", func(ctx SpecContext) {
		for _, t := range fieldwise {
			m := newManifest()
			t.apply(ctx, m)
			mend(ctx, "claim", "mhc/"+m.name, "--yes")
			m.paused = "true"
			t.apply(ctx, m)
			Expect(m.stored(ctx).Annotations).To(HaveKeyWithValue(clusterv1.PausedAnnotation, "true"), t.name)
		}
	})

	It("is removed by kubectl replace, and by Argo CD with Replace=true", func(ctx SpecContext) {
		m := newManifest()
		argo.apply(ctx, m)
		mend(ctx, "claim", "mhc/"+m.name, "--yes")
		m.patience *= 2
		wholesale.apply(ctx, m)
		m.applied(ctx)
		Expect(m.stored(ctx).Annotations).To(beUnclaimed)
	})
})

// Policies and overrides are separate objects and change nothing in the check, so no tool can revert them there.
var _ = Describe("A policy that claims checks, a hold and an allowance", func() {
	BeforeEach(func(ctx SpecContext) {
		Expect(client.IgnoreAlreadyExists(here.Create(ctx, builders.Cluster(namespace, "prod")))).To(Succeed())
	})
	for _, t := range fieldwise {
		It("stay when "+t.name+" applies the check", func(ctx SpecContext) {
			m := newManifest()
			t.apply(ctx, m)
			policy := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name}}
			policy.Spec.Mode = mendv1.PolicyActs
			policy.Spec.Selector.Checks = &metav1.LabelSelector{MatchLabels: map[string]string{"gitops": m.name}}
			Expect(here.Create(ctx, policy)).To(Succeed())
			annotations := func() map[string]string { return m.stored(ctx).Annotations }
			Eventually(annotations).Should(beClaimed)
			mend(ctx, "hold", "mhc/"+m.name, "--for=1h", "--reason=switch swap", "--yes")
			mend(ctx, "allow", "mhc/"+m.name, "--max-unhealthy=60%", "--max-in-flight=1", "--for=1h", "--reason=power is back", "--yes")

			m = t.applyAgain(ctx, m)

			Expect(annotations()).To(beClaimed)
			overrides := &mendv1.RemediationOverrideList{}
			Expect(here.List(ctx, overrides, client.InNamespace(namespace))).To(Succeed())
			Expect(overrides.Items).To(ContainElements(
				HaveField("Spec", And(HaveField("TargetRef.Name", m.name), HaveField("Action", mendv1.OverrideHold))),
				HaveField("Spec", And(HaveField("TargetRef.Name", m.name), HaveField("Action", mendv1.OverrideAllow)))))
			Expect(here.Delete(ctx, policy)).To(Succeed())
			Eventually(annotations).Should(beUnclaimed)
			t.applyAgain(ctx, m)
			Expect(annotations()).To(beUnclaimed, "and no tool keeps it")
		})
	}
})

var _ = Describe("A claim by a field manager whose name begins with kubectl", func() {
	// This is what kubectl mend used to do. These specs show that the specs above can detect what Flux removes.
	as := func(owner string) func(context.Context, manifest) {
		return func(ctx context.Context, m manifest) {
			GinkgoHelper()
			check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name}}
			patch := []byte(`{"metadata":{"annotations":{"` + clusterv1.PausedAnnotation + `":"` + mendv1.Claim + `"}}}`)
			Expect(here.Patch(ctx, check, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner))).To(Succeed())
		}
	}
	byKubectl := func(_ context.Context, m manifest) {
		GinkgoHelper()
		kubectl(annotates, m, "annotate", "machinehealthcheck", m.name, clusterv1.PausedAnnotation+"="+mendv1.Claim)
	}

	for name, claim := range suite.InOrder(map[string]func(context.Context, manifest){
		"kubectl-mend": as("kubectl-mend"), "kubectl-annotate, that of kubectl annotate,": byKubectl,
	}) {
		It("is removed by Flux, which takes over the fields of "+name, func(ctx SpecContext) {
			m := newManifest()
			flux.apply(ctx, m)
			claim(ctx, m)
			Expect(m.stored(ctx).Annotations).To(beClaimed)

			flux.apply(ctx, m)

			Expect(m.stored(ctx).Annotations).To(beUnclaimed)
		})
	}

	It("stays when kubectl annotate has another field manager", func(ctx SpecContext) {
		m := newManifest()
		flux.apply(ctx, m)
		kubectl(annotates, m, "annotate", "machinehealthcheck", m.name, clusterv1.PausedAnnotation+"="+mendv1.Claim,
			"--field-manager="+mendv1.CommandLineFieldOwner)
		m = flux.applyAgain(ctx, m)
		Expect(m.stored(ctx).Annotations).To(beClaimed)
	})

	It("stays with every other tool", func(ctx SpecContext) {
		for _, t := range fieldwise {
			if t.name == flux.name {
				continue
			}
			m := newManifest()
			t.apply(ctx, m)
			byKubectl(ctx, m)
			m = t.applyAgain(ctx, m)
			Expect(m.stored(ctx).Annotations).To(beClaimed, t.name)
		}
	})
})

var _ = Describe("A claim in Git", func() {
	It("exists from the first apply on, returns after a release, and ends when its line is removed", func(ctx SpecContext) {
		for _, t := range fieldwise {
			m := newManifest()
			m.paused = mendv1.Claim
			t.apply(ctx, m)
			Expect(m.stored(ctx).Annotations).To(beClaimed, t.name)

			mend(ctx, "release", "mhc/"+m.name, "--yes")
			m = t.applyAgain(ctx, m)
			if t.name == helm3.name {
				Expect(m.stored(ctx).Annotations).To(beUnclaimed, "Helm 3 compares only the manifests")
			} else {
				Expect(m.stored(ctx).Annotations).To(beClaimed, t.name)
			}

			m.paused = ""
			m = t.applyAgain(ctx, m)
			Expect(m.stored(ctx).Annotations).To(beUnclaimed, t.name)
		}
	})
})
