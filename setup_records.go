package main

import (
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/records"
)

// newRecords returns the records that all controllers of mgr share: what one has just written, the others know before the cache shows it.
func newRecords(mgr ctrl.Manager, services *crdgate.Reconciler, o *options) *records.Records {
	return &records.Records{
		Client: client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner), Live: mgr.GetAPIReader(),
		Installed: services.Installed, Clock: clock.RealClock{}, Namespace: o.namespace,
	}
}
