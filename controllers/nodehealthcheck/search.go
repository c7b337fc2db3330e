package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// searchRetry is how soon kinds are searched again that could not be.
const searchRetry = 15 * time.Second

// search is the search, at the start, for kinds of requests that no check names any more: one that was deleted while nobody ran has left
// requests behind, whose remediators may be at work.
type search struct{ tried, done atomic.Bool }

// open is why it is not known whose remediations are under way: the search is not over. It is empty if it is. Until it was tried for the
// first time that is no more than a moment, and nothing to report.
func (s *search) open() (why string, brief bool) {
	if s.done.Load() {
		return "", false
	}
	return "requests that were left behind could not be searched for", !s.tried.Load()
}

// searching is likewise why it is not known: without a manager there is no search, and nothing that it could find.
func (r *Reconciler) searching() (why string, brief bool) {
	if r.Discovery == nil {
		return "", false
	}
	return r.search.open()
}

// searchLeftovers searches until it could look everywhere.
func (r *Reconciler) searchLeftovers(ctx context.Context) error {
	r.memory.begin(r.Clock.Now()) // the first check may come much later
	// It ends with success or with the manager; neither is an error.
	_ = wait.PollUntilContextCancel(ctx, searchRetry, true, func(ctx context.Context) (bool, error) {
		err := r.searchOnce(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot search everywhere for requests that NodeHealthChecks have left behind")
		}
		r.enqueueAll()
		return err == nil, nil
	})
	return nil
}

// searchOnce watches all kinds of which there are requests that a NodeHealthCheck made. Groups of APIs that are not served now are in the
// error, but do not keep the search open: they are those of other API servers, a metrics server for one, which may run on the very node that
// is bad. Requests are of CustomResourceDefinitions, which the API server itself serves.
func (r *Reconciler) searchOnce(ctx context.Context) error {
	lists, err := r.Discovery.ServerPreferredResources()
	_, others := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil {
		err = fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	failed := r.Watches.Discover(ctx, lists, remediationrequest.NodeChecksMarks()...)
	r.search.tried.Store(true)
	if failed == nil && (err == nil || others) {
		r.search.done.Store(true)
	}
	return errors.Join(err, failed)
}

// enqueueAll makes all checks be reconciled, and those that are gone and have left something behind.
func (r *Reconciler) enqueueAll() {
	select {
	case r.resumed <- event.GenericEvent{Object: &nhcv1.NodeHealthCheck{}}:
	default: // they are to be woken already
	}
}

// everybody returns all checks, and those that are gone and have left requests or leases behind.
func (r *Reconciler) everybody(ctx context.Context, obj client.Object) []reconcile.Request {
	names := map[reconcile.Request]bool{}
	for _, check := range r.everyCheck(ctx, obj) {
		names[check] = true
	}
	for _, kind := range r.requestKinds() {
		list, err := r.list(ctx, kind)
		if err != nil {
			continue // the cache is shutting down
		}
		for i := range list {
			if by := makerOf(&list[i]); by.Name != "" {
				names[requestFor(by.Name)] = true
			}
		}
	}
	leases, _ := r.listLeases(ctx) // likewise
	for i := range leases {
		if by, is := strings.CutPrefix(ptr.Deref(leases[i].Spec.HolderIdentity, ""), nhcv1.LeaseHolderPrefix); is {
			names[requestFor(by)] = true
		}
	}
	return slices.Collect(maps.Keys(names))
}
