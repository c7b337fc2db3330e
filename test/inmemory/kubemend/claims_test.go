package kubemend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// Which checks a label claims is tested beside the controller. This is what it hears of.
func TestALabelOfAClusterOrANamespaceClaimsChecksThatAreThereOrMadeLaterAndReleasesThem(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		label := func(o client.Object, value string) {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, mendv1.ClaimLabel, value)
			Expect(e.here.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		claimed := func(name string) func() map[string]string {
			return func() map[string]string { return e.check(ctx, name).Annotations }
		}
		by := func(kind string) map[string]string {
			return map[string]string{clusterv1.PausedAnnotation: mendv1.Claim, mendv1.ClaimedByAnnotation: kind}
		}
		const observing = "--unclaimed-machine-health-checks=observe"
		manager := e.start(t, observing)
		defer func() { manager.Kill() }()
		e.furnish(ctx)
		time.Sleep(time.Minute)
		Expect(claimed("check")()).To(BeEmpty())
		label(e.cluster, `"act"`)
		Eventually(claimed("check")).Should(Equal(by("Cluster")))
		Expect(e.here.Delete(ctx, e.check(ctx, "check"))).To(Succeed())
		time.Sleep(time.Minute)
		for _, name := range []string{"check", "later"} {
			Expect(e.here.Create(ctx, builders.MachineHealthCheck(e.cluster, name))).To(Succeed())
			Eventually(claimed(name)).Should(Equal(by("Cluster")))
		}

		manager.Kill()
		label(e.cluster, "null")
		manager = e.start(t, observing)
		Eventually(claimed("check")).Should(BeEmpty())
		label(builders.Namespace("ns"), `"act"`)
		time.Sleep(time.Second) // no event of a Cluster comes to help
		Expect(claimed("check")()).To(Equal(by("Namespace")))
		Expect(claimed("later")()).To(Equal(by("Namespace")))

		manager.Kill()
		manager = e.start(t, "--teardown")
		Eventually(claimed("check")).Should(BeEmpty())
		Expect(e.here.Create(ctx, builders.MachineHealthCheck(e.cluster, "last"))).To(Succeed())
		time.Sleep(time.Hour)
		Expect(claimed("last")()).To(BeEmpty())
	})
}
