// Package capacity compares what kubectl mend explain says with what is true, at random moments between an unhealthy machine and its capacity: beside the
// built manager, Cluster API's own controllers, and a real control plane for the nodes, which drains and volumes need. Only hosts and kubelets are simulated.
//
// All scenes are played at once, each in a cluster of its own, and their nodes share one control plane. What is true a scene finds by itself, from the
// objects, and not by package capacity of the decisions.
package capacity

import (
	"path/filepath"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// What all scenes share.
var (
	management *rig.ControlPlane
	workload   *rig.ControlPlane
	here       client.WithWatch // to the management cluster
	provider   *simulator.Infrastructure
	manager    *rig.Kubemend
	looks      suite.Looks
)

func TestCapacity(t *testing.T) {
	suite.Run(t, "Capacity", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join("..", "..", "..", "bin", "manager")).To(BeAnExistingFile(), "run make build")
	control := suite.Rig(ctx)
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, ControllerManager: true, Controllers: rig.RoleControllers(), Own: true, Webhooks: true,
		})
		return err
	})
	group.Go(func() (err error) {
		workload, err = control.Workload(booting, "workload", rig.WorkloadOptions{Controllers: []string{"disruption-controller"}})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	here = suite.Client(management.Config(), clusterv1.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme)
	account, err := management.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	startHardware()
	manager, err = management.Kubemend(ctx, "capacity", account, management.WebhookFlags()...)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(suite.SpecPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startHardware starts hosts that take a little time for everything, so that there is something to see, and kubelets that leave the processor to others.
func startHardware() {
	GinkgoHelper()
	hosts, err := simulator.NewHosts(management.Config(), simulator.HostsOptions{Times: simulator.Times{
		PowerOff: time.Second, PowerOn: time.Second, Boot: time.Second, Provisioning: 2 * time.Second, Deprovisioning: 3 * time.Second,
	}})
	Expect(err).NotTo(HaveOccurred())
	provider, err = simulator.NewInfrastructure(management.Config(), simulator.InfrastructureOptions{Hosts: hosts, Every: 2 * time.Second})
	Expect(err).NotTo(HaveOccurred())
	suite.Beside(hosts.Start)
	suite.Beside(provider.Start)
}
