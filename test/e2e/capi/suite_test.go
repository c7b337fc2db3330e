// Package capi tests the built manager among Cluster API's own providers: a cluster of three control-plane and three worker machines is
// made from a ClusterClass, its machines are replaced by the real MachineDeployment and KubeadmControlPlane, and only machines,
// kubelets, API servers and etcd members are simulated, by upstream's in-memory infrastructure.
//
// Most specs share that cluster, which takes a minute to make. Each leaves it as it found it: all machines healthy, and no check.
package capi

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	specPatience = suite.SpecPatience
	// patience is that of the checks: a node is unhealthy after it.
	patience = 4 * time.Second
)

// What all specs share.
var (
	control    *rig.Rig
	management *rig.ControlPlane
	here       client.WithWatch // to the management cluster
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig
	// shared is the cluster of most specs, shrinks that of one.
	shared  = &environment{namespace: "plant", name: "plant", class: "in-memory", version: "v1.35.0", controlPlanes: 3, workers: 3}
	shrinks = &environment{namespace: "shrinks", name: "shrinks", class: "in-memory", version: "v1.35.0", controlPlanes: 3, workers: 2}
)

func TestClusterAPI(t *testing.T) {
	suite.Run(t, "Cluster API", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join("..", "..", "..", "bin", "manager")).To(BeAnExistingFile(), "run make build")
	control = suite.Rig(ctx)
	var err error
	management, err = control.Management(ctx, rig.ManagementOptions{
		Providers: true, Controllers: rig.RoleControllers(), Own: true, Webhooks: true, Audit: true,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		suite.NothingForbidden([]*rig.ControlPlane{management}, "bootstrap.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io")
	})
	here = clientFor(management.Config())
	account, err = management.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	startManager(ctx)
	shared.build(ctx)
	shared.allHealthy(ctx)
	shrinks.build(ctx) // its spec waits for it: it comes up beside those that run first
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or starts it again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = management.Kubemend(ctx, "capi", account, management.WebhookFlags()...)
	Expect(err).NotTo(HaveOccurred())
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, clusterv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme)
}
