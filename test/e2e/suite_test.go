// Package e2e tests the built manager and plugin beside Cluster API's own controllers, with a workload cluster and the manifests in
// templates/. It follows the pages of the documentation: it runs their commands in order and applies their manifests. Only hosts and their
// kubelets are simulated.
//
// The manager has only the rights that it ships with, in both clusters, and any other request fails the suite.
//
// All specs share one cluster, with the names of the pages. Each spec leaves one control-plane machine and five workers, all healthy, and
// no check. Tests in memory cover durations, numbers and order.
package e2e

import (
	"context"
	"path/filepath"
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

const (
	specPatience = suite.SpecPatience
	// together is the timeout of a check whose nodes fall silent together, because they become Unknown seconds apart.
	together = 25 * time.Second

	// fencing is the priority of specs that power-cycle hosts. Before they run, the manager lacks the rights for fencing, so that the other
	// specs prove that they do not need these rights.
	fencing = SpecPriority(-1)
	// installing is the priority of specs that install kubemend in the workload cluster. No other spec may run afterwards.
	installing = SpecPriority(-2)
)

// project is the path of the project's root.
var project = filepath.Join("..", "..")

// All specs share these.
var (
	management *rig.ControlPlane
	here       client.WithWatch // of the management cluster
	provider   *simulator.Infrastructure
	manager    *rig.Kubemend
	account    []byte // the manager's kubeconfig

	fixture = suite.Site{Namespace: "fleet", Name: "prod", ControlPlanes: 1, Workers: 5, Spare: 3,
		Roles: []string{"kubemend-workload-reader"}}
)

func TestEndToEnd(t *testing.T) {
	suite.Run(t, "End to end", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join(project, "bin", "manager")).To(BeAnExistingFile(), "run make build")
	Expect(plugin).To(BeAnExistingFile(), "run make build")
	certManager := suite.Must(rig.CertManager())
	control := suite.Rig(ctx)
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, CoreArgs: []string{"--feature-gates=ClusterTopology=true"}, Controllers: rig.RoleControllers(),
			Own: true, Webhooks: true, Audit: true,
		})
		return err
	})
	group.Go(func() (err error) {
		controllers := append(rig.NodeControllers(), rig.OwnerControllers()...)
		controllers = append(append(controllers, rig.PodControllers()...), rig.RoleControllers()...)
		fixture.Plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{
			Audit: true, Controllers: controllers, Kinds: append(certManager, filepath.Join("testdata", "kinds.yaml")),
		})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	DeferCleanup(func() {
		// `kubectl mend remediate` asks for PodDisruptionBudgets with the kubeconfig of the workload cluster, which is the manager's own
		// kubeconfig here.
		suite.NothingForbidden([]*rig.ControlPlane{management, fixture.Plane}, "remediation.example.org", "policy")
	})
	here = clientFor(management.Config())
	suite.LeadCore(ctx, here)
	account = suite.Must(management.Install(ctx, "standalone"))
	_, provider = suite.Hardware(management.Config())
	startManager(ctx)
	fixture.Build(ctx, here, provider, func(md *clusterv1.MachineDeployment) { md.Spec.Template.Labels["nodepool"] = "nodepool-0" })
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	manager = suite.Must(management.Kubemend(ctx, "e2e", account, management.WebhookFlags()...))
}

// mayFence gives the manager the rights to fence nodes of the workload cluster.
func mayFence(ctx context.Context) {
	GinkgoHelper()
	suite.Must(fixture.Plane.GrantWorkloadUser(ctx))
}

func clientFor(config *rest.Config) client.WithWatch {
	GinkgoHelper()
	return suite.Client(config, clusterv1.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme)
}
