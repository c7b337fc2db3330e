package kubemend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// nodeChecks serves NodeHealthChecks, and returns their CRD.
func (e *environment) nodeChecks(ctx context.Context) *unstructured.Unstructured {
	kind := kubemend.Global(nhcv1.GroupVersion.Group, nhcv1.GroupVersion.Version, "NodeHealthCheck")
	e.management.Serve(kind)
	crd := kubemend.CRD(kind)
	Expect(e.here.Create(ctx, crd)).To(Succeed())
	return crd
}

// pointless is a check with a template that does not exist, so that all it can come to is to say so.
func pointless(name string) *nhcv1.NodeHealthCheck {
	c := &nhcv1.NodeHealthCheck{}
	c.Name, c.Spec.Selector.MatchLabels = name, map[string]string{"none": "none"}
	c.Spec.RemediationTemplate = &corev1.ObjectReference{APIVersion: "example.org/v1", Kind: "RebootRemediationTemplate", Namespace: "ns", Name: "none"}
	return c
}

// observed says whether a manager has written what it thinks of a check.
func (e *environment) observed(ctx context.Context, c *nhcv1.NodeHealthCheck) func() bool {
	return func() bool {
		Expect(e.here.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		return len(c.Status.Conditions) > 0
	}
}

func TestTheFlagNodeHealthChecksDecidesWhetherTheyAreActedOnAndAMetricSaysWhyNot(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		crd := e.nodeChecks(ctx)
		// What the Operator Lifecycle Manager puts on the kinds that it installs.
		olm := func(value string) {
			patch := fmt.Sprintf(`{"metadata":{"labels":{"operators.coreos.com/node-healthcheck-operator.ns":%s}}}`, value)
			Expect(e.here.Patch(ctx, crd, client.RawPatch(client.Merge.Type(), []byte(patch)))).To(Succeed())
		}
		olm(`""`)
		manager := e.start(t)
		defer func() { manager.Kill() }()
		served := func(reason string, value int) {
			text, err := manager.Scrape(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Split(text, "\n")).To(ContainElement(SatisfyAll(HavePrefix("kubemend_kind_served{"),
				ContainSubstring(`kind="nodehealthchecks.remediation.medik8s.io"`), ContainSubstring("reason=%q", reason), HaveSuffix(" %d", value))))
		}
		unseen, leftAlone := pointless("unseen"), pointless("left-alone")
		Expect(e.here.Create(ctx, builders.Namespace("ns"))).To(Succeed())
		Expect(e.here.Create(ctx, unseen)).To(Succeed())
		time.Sleep(time.Hour)
		served("Foreign", 0)
		Expect(e.observed(ctx, unseen)()).To(BeFalse(), "it is the affair of the operator that was installed")

		olm("null")
		Eventually(e.observed(ctx, unseen)).Should(BeTrue(), "the kind is free")
		served("", 1)
		olm(`""`)
		time.Sleep(time.Minute)
		Expect(e.here.Create(ctx, leftAlone)).To(Succeed())
		time.Sleep(time.Hour)
		served("Foreign", 0)
		Expect(e.observed(ctx, leftAlone)()).To(BeFalse(), "it is not free any more")

		manager.Kill()
		manager = e.start(t, "--node-health-checks=on")
		Eventually(e.observed(ctx, leftAlone)).Should(BeTrue(), "whichever project installed the kind")
		served("", 1)

		manager.Kill()
		manager = e.start(t, "--node-health-checks=off")
		ignored := pointless("ignored")
		Expect(e.here.Create(ctx, ignored)).To(Succeed())
		time.Sleep(time.Hour)
		served("Off", 0)
		Expect(e.observed(ctx, ignored)()).To(BeFalse())
	})
}

func TestTheFlagDefaultNodeHealthCheckTemplateMakesACheckOnceAndOnlyIfThereIsNone(t *testing.T) {
	const flag = "--default-node-health-check-template=RebootRemediationTemplate.v1.example.org/ns/none"
	world(t, func(ctx context.Context, e *environment) {
		e.nodeChecks(ctx)
		another := pointless("another")
		Expect(e.here.Create(ctx, builders.Namespace("ns"))).To(Succeed())
		Expect(e.here.Create(ctx, another)).To(Succeed())
		manager := e.start(t, flag)
		defer func() { manager.Kill() }()
		checks := func() (found []nhcv1.NodeHealthCheck) {
			list := &nhcv1.NodeHealthCheckList{}
			Expect(e.here.List(ctx, list)).To(Succeed())
			return list.Items
		}
		Eventually(e.observed(ctx, another)).Should(BeTrue())
		Expect(checks()).To(ConsistOf(HaveField("Name", "another")))

		Expect(e.here.Delete(ctx, another)).To(Succeed())
		manager.Kill()
		manager = e.start(t, flag)
		Eventually(checks).Should(ConsistOf(HaveField("Name", "nhc-worker-default")))
		made := &checks()[0]
		Expect(made.Spec.RemediationTemplate.Name).To(Equal("none"))
		Expect(e.here.Patch(ctx, made, client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"minHealthy":3}}`)))).To(Succeed())

		manager.Kill()
		manager = e.start(t, flag)
		time.Sleep(time.Hour)
		kept := checks()
		Expect(kept).To(HaveLen(1))
		Expect(kept[0].UID).To(Equal(made.UID))
		Expect(kept[0].Spec).To(Equal(made.Spec), "it is as its owner wants it")
	})
}
