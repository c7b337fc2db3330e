// Command capi-kubeadm runs one of the Cluster API providers that together make clusters without machines: the kubeadm bootstrap and
// control-plane providers, and the docker provider with its in-memory backend, which simulates machines, kubelets, API servers and etcd
// members.
//
//	capi-kubeadm bootstrap|control-plane|in-memory [flags]
//
// Controllers and webhooks are upstream's; only their setup is ours, see package program. test/rig/build changes one file of the docker
// provider so that the simulated API servers listen on loopback.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/kubemend/kubemend/test/rig/capi/program"
)

// providers create the manager of each provider; a provider may add its own flags.
var providers = map[string]func(*pflag.FlagSet) func() program.Manager{
	"bootstrap":     bootstrap,
	"control-plane": controlPlane,
	"in-memory":     inMemory,
}

func main() {
	known := slices.Sorted(maps.Keys(providers))
	if len(os.Args) < 2 || providers[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: capi-kubeadm PROVIDER [flags], where PROVIDER is one of %q\n", known)
		os.Exit(2)
	}
	flags := pflag.NewFlagSet("capi-kubeadm "+os.Args[1], pflag.ExitOnError)
	s := program.Settings{}
	s.AddFlags(flags)
	manager := providers[os.Args[1]](flags)
	_ = flags.Parse(os.Args[2:]) // ExitOnError: it never returns an error
	program.Main(manager(), s)
}

// newScheme returns a scheme with the kinds that every provider reads, and more.
func newScheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, runtimev1.AddToScheme,
	}, more...) {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// webhook serves the admission and conversion of one kind.
type webhook interface {
	SetupWebhookWithManager(mgr ctrl.Manager) error
}

func setUpWebhooks(mgr ctrl.Manager, hooks ...webhook) error {
	for _, hook := range hooks {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("set up webhook %T: %w", hook, err)
		}
	}
	return nil
}

// setUpControllers sets up controllers; an error names the controller.
func setUpControllers(ctx context.Context, all map[string]func(context.Context) error) error {
	for name, setUp := range all {
		if err := setUp(ctx); err != nil {
			return fmt.Errorf("set up controller %s: %w", name, err)
		}
	}
	return nil
}
