package simulator

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// requestPatience bounds every request of a player: an API server that is stopped must not hold one for ever.
const requestPatience = 10 * time.Second

// newManager makes the manager that a player runs in. It logs nothing.
func newManager(cluster *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))
	manager, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:  scheme,
		Logger:  logr.New(logf.NullLogSink{}), // a manager takes a logger without a sink for one that is not set
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		// Tests start one after another in the same process, and the check is about metrics, which are off.
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(requestPatience),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager of a simulator: %w", err)
	}
	return manager, nil
}
