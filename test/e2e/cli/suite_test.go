// Package cli tests kubectl mend as its users have it: the built plugin, beside the built manager and Cluster API's own controllers, on real
// control planes with simulated hosts and kubelets. While failures run, what the plugin says is compared with what the manager then does, and
// when.
//
// The specs share one cluster. Each leaves it as it found it: one control-plane machine and five workers, all healthy, and no check.
package cli

import (
	"context"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

const specPatience = suite.SpecPatience

// What all specs share.
var (
	control    *rig.Rig
	management *rig.ControlPlane
	here       client.WithWatch // to the management cluster
	hosts      *simulator.Hosts
	provider   *simulator.Infrastructure
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig

	fixture = &environment{suite.Site{Namespace: "rack", Name: "metal", ControlPlanes: 1, Workers: 5, Spare: 3}}
)

func TestCommandLine(t *testing.T) {
	suite.Run(t, "Command line", suite.Patience{Eventually: suite.Wait, Consistently: 3 * time.Second, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(plugin).To(BeAnExistingFile(), "run make build")
	control = suite.Rig(ctx)
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, Controllers: rig.RoleControllers(), Own: true, Webhooks: true, Audit: true,
		})
		return err
	})
	group.Go(func() (err error) {
		fixture.Plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{Audit: true})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{management, fixture.Plane}) })
	here = clientFor(management.Config())
	var err error
	account, err = management.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	hosts, provider = suite.Hardware(management.Config())
	startManager(ctx)
	fixture.Build(ctx, here, provider)
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or starts it again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = management.Kubemend(ctx, "cli", account, management.WebhookFlags()...)
	Expect(err).NotTo(HaveOccurred())
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, clusterv1.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme)
}
