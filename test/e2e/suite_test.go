// Package e2e tests the built manager as a user would have it: beside Cluster API's own controllers, against a workload
// cluster of its own, with the manifests that ship in templates/. Only hosts and their kubelets are simulated.
//
// The manager has no rights but those that it ships with, in either cluster; whatever else it tried to do fails the suite.
//
// The specs share one cluster, named as in the seed's manifests. Each leaves it as it found it: three control-plane
// machines and five workers, all healthy, and no check.
package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	// The shared cluster is named as in the seed's manifests, which have no namespace.
	defaultNamespace = "default"
	quickstart       = "capi-quickstart"

	// reader is the role that the manager needs in workload clusters where it power-cycles no hosts.
	reader = "kubemend-workload-reader"

	specPatience = suite.SpecPatience
	// together is the patience of a check with nodes that fall silent together. That they are is found out one by one, seconds apart.
	together = "25s"
)

// What all specs share.
var (
	control    *rig.Rig
	management *rig.ControlPlane
	here       client.Client // to the management cluster
	provider   *simulator.Infrastructure
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig
	shared     *environment
)

func TestEndToEnd(t *testing.T) {
	suite.Run(t, "End to end", suite.Patience{Eventually: suite.Wait, Consistently: 6 * time.Second, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join("..", "..", "bin", "manager")).To(BeAnExistingFile(), "run make build")
	control = suite.Rig(ctx)

	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{Core: true, Own: true, ControllerManager: true, Audit: true})
		return err
	})
	shared = &environment{namespace: defaultNamespace, controlPlanes: 3, workers: 5}
	group.Go(func() (err error) {
		shared.plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{Audit: true})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{management, shared.plane}) })
	here = clientFor(management.Config())
	var err error
	account, err = management.Install(ctx, "default")
	Expect(err).NotTo(HaveOccurred())
	startInfrastructure()
	startManager(ctx)
	shared.build(ctx, quickstart)
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, clusterv1.AddToScheme)
}

func startInfrastructure() {
	GinkgoHelper()
	var err error
	provider, err = simulator.NewInfrastructure(management.Config(), simulator.InfrastructureOptions{})
	Expect(err).NotTo(HaveOccurred())
	suite.Beside(provider.Start)
}

// startManager starts the manager, or starts it again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = management.Kubemend(ctx, "e2e", account)
	Expect(err).NotTo(HaveOccurred())
}
