// Command capi-core runs Cluster API's own core controllers and webhooks for the rig.
//
// The controllers and webhooks are upstream's, unchanged; only their set-up is ours, because upstream's program
// cannot bind its webhook server to loopback and outlives the process that started it. See package program.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"

	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1alpha1 "sigs.k8s.io/cluster-api/api/ipam/v1alpha1"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1alpha1 "sigs.k8s.io/cluster-api/api/runtime/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/version"

	"github.com/kubemend/kubemend/test/rig/capi/program"
)

const name = "cluster-api-controller-manager"

func main() {
	s := program.Settings{}
	var leaveOut []string
	flags := pflag.NewFlagSet("capi-core", pflag.ExitOnError)
	s.AddFlags(flags)
	flags.StringSliceVar(&leaveOut, "leave-out", nil, "Controllers that shall not run, for example MachineHealthCheck.")
	_ = flags.Parse(os.Args[1:]) // ExitOnError: it never returns an error

	scheme := newScheme()
	program.Main(program.Manager{
		Name: name, Scheme: scheme,
		Cache: setup.ManagerCacheOptions(scheme, name, "", program.Resync), Client: setup.ManagerClientOptions(),
		SetUp: func(ctx context.Context, mgr ctrl.Manager) error { return setUp(ctx, mgr, leaveOut) },
	}, s)
}

func setUp(ctx context.Context, mgr ctrl.Manager, leaveOut []string) error {
	oldest := version.MinimumKubernetesVersion
	if feature.Gates.Enabled(feature.ClusterTopology) {
		oldest = version.MinimumKubernetesVersionClusterTopology
	}
	if err := version.CheckKubernetesVersion(mgr.GetConfig(), oldest); err != nil {
		return fmt.Errorf("check the version of the management cluster: %w", err)
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return fmt.Errorf("set up indexes: %w", err)
	}
	clusters, err := setUpControllers(ctx, mgr, leaveOut)
	if err != nil {
		return err
	}
	return setUpWebhooks(mgr, clusters)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, storagev1.AddToScheme,
		clusterv1beta1.AddToScheme, clusterv1.AddToScheme,
		addonsv1beta1.AddToScheme, addonsv1.AddToScheme,
		runtimev1alpha1.AddToScheme, runtimev1.AddToScheme,
		ipamv1alpha1.AddToScheme, ipamv1beta1.AddToScheme, ipamv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
