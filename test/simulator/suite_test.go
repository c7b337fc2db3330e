package simulator_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/test/rig"
)

// patience is for what should happen soon, on a machine that does much else.
const patience = time.Minute

// One rig serves all tests here; they keep apart by their namespaces, and by clusters of their own where nodes matter.
var (
	theRig     *rig.Rig
	management *rig.ControlPlane
	workload   *rig.ControlPlane
	scheme     = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))
	ctrl.SetLogger(logr.New(logf.NullLogSink{}))
	// These tests wait for others nearly all the time: as many as there are may do so at once, whatever the processors.
	flag.Parse()
	utilruntime.Must(flag.Set("test.parallel", "12"))
	os.Exit(runSuite(m))
}

func runSuite(m *testing.M) (code int) {
	ctx := context.Background()
	r, err := rig.Start(ctx, rig.Options{Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	theRig = r
	defer func() {
		if err := r.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		management, err = r.Management(ctx, rig.ManagementOptions{Core: true, ControllerManager: true})
		return err
	})
	group.Go(func() (err error) {
		workload, err = r.Workload(ctx, "workload", rig.WorkloadOptions{})
		return err
	})
	if err := group.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func clientOf(t *testing.T, plane *rig.ControlPlane) client.Client {
	t.Helper()
	c, err := client.New(plane.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
