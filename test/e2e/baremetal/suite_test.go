// Package baremetal tests the built manager on bare-metal hosts: two real control planes, Cluster API's own controllers for machines,
// kube-controller-manager's for pods and volumes, and simulated hosts and kubelets.
package baremetal

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

const (
	namespace    = "rack"
	gate         = "--feature-gates=HostRemediation=true"
	specPatience = 4 * time.Minute
	workers      = 4 // with fewer that are healthy, kube-controller-manager takes an outage for one of the network
)

// What all specs share.
var (
	management *rig.ControlPlane
	plane      *rig.ControlPlane // of the workload cluster
	here       client.Client     // to the management cluster
	there      client.Client     // to the workload cluster
	hosts      *simulator.Hosts
	provider   *simulator.Infrastructure
	attacher   *simulator.Attacher
	manager    *rig.Kubemend
	cluster    *clusterv1.Cluster
)

func TestBareMetal(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(3 * time.Second)
	RunSpecs(t, "Bare metal")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	control, err := rig.Start(ctx, rig.Options{Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(control.Stop()).To(Succeed()) })
	group, booting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = control.Management(booting, rig.ManagementOptions{
			Core: true, ControllerManager: true, CRDs: []string{filepath.Join("..", "..", "..", "config", "crd", "bases")},
		})
		return err
	})
	group.Go(func() (err error) {
		plane, err = control.Workload(booting, "workload", rig.WorkloadOptions{Controllers: slices.Concat(rig.NodeControllers(), rig.PodControllers())})
		return err
	})
	Expect(group.Wait()).To(Succeed())
	here, there = clientFor(management.Config()), clientFor(plane.Config())
	startWorld()
	manager, err = management.Kubemend(ctx, "baremetal", nil, gate)
	Expect(err).NotTo(HaveOccurred())
	build(ctx)
}, NodeTimeout(3*time.Minute))

// Whatever failed, the log of the manager says most.
var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() || manager == nil {
		return
	}
	if content, err := os.ReadFile(manager.Log); err == nil {
		AddReportEntry("the manager's log", string(content[max(0, len(content)-16<<10):]))
	}
})

func clientFor(config *rest.Config) client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bmov1alpha1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// startWorld starts everybody who plays what this machine cannot have.
func startWorld() {
	GinkgoHelper()
	var err error
	hosts, err = simulator.NewHosts(management.Config(), simulator.HostsOptions{Namespace: namespace})
	Expect(err).NotTo(HaveOccurred())
	provider, err = simulator.NewInfrastructure(management.Config(), simulator.InfrastructureOptions{
		Namespace: namespace, Hosts: hosts, Every: 200 * time.Millisecond,
	})
	Expect(err).NotTo(HaveOccurred())
	scheduler, err := simulator.NewScheduler(plane.Config(), logr.Discard())
	Expect(err).NotTo(HaveOccurred())
	attacher, err = simulator.NewAttacher(plane.Config(), logr.Discard())
	Expect(err).NotTo(HaveOccurred())
	for _, start := range []func(context.Context) error{hosts.Start, provider.Start, scheduler.Start, attacher.Start} {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- start(ctx) }()
		DeferCleanup(func() {
			stop()
			Expect(<-ended).To(Succeed())
		})
	}
}

// build makes a cluster of one control-plane machine and some workers, on hosts of which two are spare.
func build(ctx context.Context) {
	GinkgoHelper()
	cluster = builders.Cluster(namespace, "metal")
	key := client.ObjectKeyFromObject(cluster)
	Expect(provider.Serve(key, plane.Config())).To(Succeed())
	objects := []client.Object{builders.Namespace(namespace), rig.KubeconfigSecret(key, plane), builders.Metal3Cluster(cluster), cluster}
	objects = append(objects, builders.BareMetalHosts(namespace, "host", workers+3)...)
	objects = append(objects, builders.ControlPlane(cluster, 1)...)
	objects = append(objects, builders.Workers(cluster, "metal-md-0", workers)...)
	Expect(builders.Apply(ctx, here, objects...)).To(Succeed())
}
