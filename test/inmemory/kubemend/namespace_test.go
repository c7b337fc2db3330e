package kubemend_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
)

func TestAManagerOfOneNamespaceWorksThereAloneAndFindsThereWhatIsOrphaned(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		flags := []string{"--namespace=ns", "--unclaimed-machine-health-checks=act", "--node-health-checks=off"}
		manager := e.start(t, flags...)
		defer func() { manager.Kill() }()
		e.furnish(ctx)
		elsewhere := builders.Cluster("elsewhere", "c1")
		check := builders.MachineHealthCheck(elsewhere, "check")
		for _, o := range []client.Object{builders.Namespace("elsewhere"), elsewhere, check} {
			Expect(e.here.Create(ctx, o)).To(Succeed())
		}
		said := func() []metav1.Condition {
			Expect(e.here.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
			return check.Status.Conditions
		}
		e.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))

		manager.Kill()
		Expect(e.here.Delete(ctx, e.check(ctx, "check"))).To(Succeed())
		manager = e.start(t, flags...)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionUnknown))
		time.Sleep(time.Hour)
		Expect(said()).To(BeEmpty())

		manager.Kill()
		manager = e.start(t, "--unclaimed-machine-health-checks=act")
		Eventually(said).ShouldNot(BeEmpty(), "without the flag it is reconciled")
	})
}

func TestAManagerWithAFilterLeavesMachinesOfOtherManagersWhenItReleases(t *testing.T) {
	world(t, func(ctx context.Context, e *environment) {
		const acting = "--unclaimed-machine-health-checks=act"
		e.cluster.Labels = map[string]string{clusterv1.WatchLabel: "one"}
		manager := e.start(t, acting, "--watch-filter=one")
		defer func() { manager.Kill() }()
		e.furnish(ctx)
		e.reports(ctx, "a", corev1.ConditionUnknown)
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionFalse))
		manager.Kill()
		Expect(e.here.Delete(ctx, e.check(ctx, "check"))).To(Succeed())

		manager = e.start(t, acting, "--watch-filter=two")
		time.Sleep(time.Hour)
		Expect(e.health(ctx, "a")()).To(Equal(metav1.ConditionFalse), "this is not its Cluster")
		manager.Kill()
		manager = e.start(t, acting, "--watch-filter=one")
		Eventually(e.health(ctx, "a")).Should(Equal(metav1.ConditionUnknown))
	})
}
