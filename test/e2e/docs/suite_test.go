// Package docs does what the pages of the documentation tell their readers to do: it runs their commands in order, with the built plugin, kubectl,
// the built manager and Cluster API's own controllers, on real control planes with simulated hosts and kubelets; and it applies their manifests.
//
// The specs share one cluster, but for those that install kubemend. Each leaves it as it found it: one control-plane machine and five workers, all healthy, and no check.
package docs

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const specPatience = suite.SpecPatience

// project is the top of it.
var project = filepath.Join("..", "..", "..")

// What all specs share.
var (
	management *rig.ControlPlane
	here       client.WithWatch // to the management cluster
	manager    *rig.Kubemend

	fixture = suite.Site{Namespace: "fleet", Name: "prod", ControlPlanes: 1, Workers: 5, Spare: 3}
)

func TestPages(t *testing.T) {
	suite.Run(t, "Pages", suite.Patience{Eventually: suite.Wait, Consistently: 2 * time.Second, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(plugin).To(BeAnExistingFile(), "run make build")
	control := suite.Rig(ctx)
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, CoreArgs: []string{"--feature-gates=ClusterTopology=true"}, Controllers: rig.RoleControllers(), Own: true, Webhooks: true,
		})
		return err
	})
	group.Go(func() (err error) {
		fixture.Plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	here = suite.Client(management.Config(), clusterv1.AddToScheme, nhcv1.AddToScheme, mendv1.AddToScheme, bmov1alpha1.AddToScheme)
	account, err := management.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	_, provider := suite.Hardware(management.Config())
	manager, err = management.Kubemend(ctx, "docs", account, management.WebhookFlags()...)
	Expect(err).NotTo(HaveOccurred())
	fixture.Build(ctx, here, provider)
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// checked makes a check of the workers that allows 40% of them to be not healthy, until the spec ends, and waits until it counts them.
func checked(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	most := intstr.FromString("40%")
	check := builders.MachineHealthCheck(fixture.Cluster, name, append([]func(*clusterv1.MachineHealthCheck){func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &most
	}}, edits...)...)
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
	Eventually(func(g Gomega) {
		g.Expect(stored(ctx, g, check).Status.CurrentHealthy).To(HaveValue(Equal(fixture.Workers)))
	}).Should(Succeed())
	return check
}

// nodesChecked makes a NodeHealthCheck that selects no node, until the spec ends, and returns its name.
func nodesChecked(ctx context.Context) string {
	GinkgoHelper()
	check := suite.Objects([]byte(`
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: nodes
spec:
  selector:
    matchLabels: {pages: none}
  minHealthy: 1
  remediationTemplate: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: none, namespace: default}
`))[0]
	Expect(here.Create(ctx, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, check)).To(Succeed()) })
	return check.GetName()
}

// stored is a check as it is now.
func stored(ctx context.Context, g Gomega, check *clusterv1.MachineHealthCheck) *clusterv1.MachineHealthCheck {
	now := &clusterv1.MachineHealthCheck{}
	g.Expect(here.Get(ctx, client.ObjectKeyFromObject(check), now)).To(Succeed())
	return now
}

// silence hangs the kubelets of machines, until the spec ends.
func silence(machines ...string) {
	GinkgoHelper()
	for _, name := range machines {
		kubelet := fixture.Host(name).Kubelet()
		kubelet.Stop()
		DeferCleanup(kubelet.Start)
	}
}

// pauseTheOwner keeps the owner of the workers from replacing any, until the spec ends.
func pauseTheOwner(ctx context.Context) {
	GinkgoHelper()
	list := &clusterv1.MachineSetList{}
	Expect(here.List(ctx, list, client.InNamespace(fixture.Namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	set := &list.Items[0]
	annotate := func(ctx context.Context, value any) {
		Expect(here.Patch(ctx, set, patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{clusterv1.PausedAnnotation: value}}}))).To(Succeed())
	}
	annotate(ctx, "e2e")
	DeferCleanup(func(ctx SpecContext) { annotate(ctx, nil) })
	Eventually(func(g Gomega) {
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
		g.Expect(conditions.IsTrue(set, clusterv1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
}
