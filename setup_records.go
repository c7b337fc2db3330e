package main

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/records"
)

// newCache returns the cache of the manager, which has of records the open ones alone. No cache can be set up so for a kind that is not installed:
// where that is installed while the manager runs, it has all of them until the manager is restarted.
func newCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	_, err := o.Mapper.RESTMapping(mendv1.GroupVersion.WithKind("RemediationRecord").GroupKind())
	if err == nil {
		o.ByObject = maps.Clone(o.ByObject)
		o.ByObject[&mendv1.RemediationRecord{}] = records.CacheOptions()
	} else if !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("find out whether there are records: %w", err)
	}
	return cache.New(cfg, o)
}

// newRecords returns the records that all controllers of mgr share: what one has just written, the others know before the cache shows it.
func newRecords(mgr ctrl.Manager, services *crdgate.Reconciler, o *options) *records.Records {
	return &records.Records{
		Client: client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner), Live: mgr.GetAPIReader(),
		Installed: services.Installed, Clock: clock.RealClock{}, Namespace: o.namespace,
	}
}
