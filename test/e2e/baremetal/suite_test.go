// Package baremetal tests the built manager on bare-metal hosts: real control planes, Cluster API's own controllers for machines,
// kube-controller-manager's for pods and volumes, and simulated hosts and kubelets. The manager has no rights but those that it ships with,
// in either cluster; whatever else it tried to do fails the suite.
package baremetal

import (
	"context"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
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
	attacher   *simulator.Attacher // of the fixture's cluster
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig

	// fixture is the cluster of all specs but those that move one, named as in the manifests of the documentation. Each spec leaves it as
	// it found it. With fewer machines that are healthy, kube-controller-manager takes an outage for one of the network.
	fixture = &environment{suite.Site{Namespace: "metal3", Name: "test1", ControlPlanes: 3, Workers: 4, Spare: 3}}
)

func TestBareMetal(t *testing.T) {
	suite.Run(t, "Bare metal", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	control = suite.Rig(ctx)
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, Controllers: rig.OwnerControllers(), Own: true, Webhooks: true, Audit: true,
		})
		return err
	})
	group.Go(func() (err error) {
		fixture.Plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{
			Controllers: slices.Concat(rig.NodeControllers(), rig.PodControllers(), []string{"disruption-controller"}), Audit: true,
		})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{management, fixture.Plane}) })
	here = clientFor(management.Config())
	var err error
	account, err = management.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	startCluster()
	startManager(ctx)
	fixture.Build(ctx, here, provider, inPool)
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or starts it again after it was killed.
func startManager(ctx context.Context, more ...string) {
	GinkgoHelper()
	var err error
	manager, err = management.Kubemend(ctx, "baremetal", account, append(management.WebhookFlags(), more...)...)
	Expect(err).NotTo(HaveOccurred())
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, nhcv1.AddToScheme,
		bmov1alpha1.AddToScheme, infrav1beta1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme)
}

// startCluster starts the simulators of what this machine cannot have.
func startCluster() {
	GinkgoHelper()
	hosts, provider = suite.Hardware(management.Config())
	scheduler, err := simulator.NewScheduler(fixture.Plane.Config())
	Expect(err).NotTo(HaveOccurred())
	attacher, err = simulator.NewAttacher(fixture.Plane.Config())
	Expect(err).NotTo(HaveOccurred())
	suite.Beside(scheduler.Start)
	suite.Beside(attacher.Start)
}
