package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capiflags "sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// diagnosticsOptions are those of the endpoint of metrics. It has the certificate of the webhooks, if there is one and no other is given: one that it
// makes itself when it starts is one that nobody can verify.
func (o *options) diagnosticsOptions() (*metricsserver.Options, error) {
	_, diagnostics, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return nil, fmt.Errorf("read the flags of the diagnostics endpoint: %w", err)
	}
	if diagnostics.SecureServing {
		diagnostics.CertDir = cmp.Or(o.diagnosticsCertDir, o.webhookCertDir)
	}
	return diagnostics, nil
}

// longestReview is how many bytes the API server may ask a webhook about at once. It accepts no object of more than 3 MiB, and asks about one at a time.
const longestReview = 16 << 20

// boundedWebhooks refuses to read more than longestReview of what it is asked: who asks is known by nothing, and controller-runtime bounds admission
// alone (v0.24, pkg/webhook/conversion).
type boundedWebhooks struct{ webhook.Server }

// Register implements webhook.Server.
func (s boundedWebhooks) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.MaxBytesHandler(hook, longestReview))
}

func addChecks(mgr ctrl.Manager, leave bool) error {
	kinds := []client.Object{&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{}}
	if leave {
		kinds = nil // it waits for what it reads itself
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", filled(mgr.GetCache(), kinds...))); err != nil {
		return fmt.Errorf("set up health checks: %w", err)
	}
	return nil
}

// filled is healthy once these kinds have been read, of which there are most. It does not wait for others: the API server asks a replica that is ready
// to convert Metal3Remediations of old versions, so a replica that is alone would wait for itself for ever. And kinds of requests that are watched
// later may take their time.
func filled(c cache.Cache, kinds ...client.Object) healthz.Checker {
	return func(req *http.Request) error {
		for _, kind := range kinds {
			informer, err := c.GetInformer(req.Context(), kind, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Errorf("read a cache: %w", err)
			}
			if !informer.HasSynced() {
				return fmt.Errorf("the cache of %T is not filled yet", kind)
			}
		}
		return nil
	}
}
