// Package endpoints has the manager's HTTP servers: webhooks, metrics and health checks. It sets their bounds and says when a replica is ready.
package endpoints

import (
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Webhooks returns the server of the webhooks.
func (o *Options) Webhooks() webhook.Server {
	return boundedServer(webhook.NewServer(webhook.Options{Host: o.WebhookHost, Port: o.WebhookPort, CertDir: o.WebhookCertDir}))
}

// Filled returns a check that succeeds once c has read these kinds, of which there are most. It does not wait for others: the API server asks a replica
// that is ready to convert Metal3Remediations of old versions, so a replica that is alone would wait for itself for ever. And kinds of requests that
// are watched later may take their time.
func Filled(c cache.Cache, kinds ...client.Object) healthz.Checker {
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
