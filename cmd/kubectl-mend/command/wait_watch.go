package command

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// polled is how often is read what may not be watched.
const polled = 5 * time.Second

// telling are the kinds whose changes may change an explanation.
var telling = []kind{machineKind, machineCheckKind, hostKind, metal3Kind, ownKind, nodeKind, nodeCheckKind}

// watched tells of changes until ctx ends, those of what is waited for among them: by watches of metadata, as any change has another resourceVersion, and in
// intervals of what may not be watched.
func (w *waiting) watched(ctx context.Context, named []subject) (<-chan struct{}, error) {
	if w.changes != nil {
		return w.changes, nil
	}
	config, err := w.config()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: snapshot.New().Scheme()})
	if err != nil {
		return nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	namespace, err := w.namespace()
	if err != nil {
		return nil, err
	}
	changes := make(chan struct{}, 1)
	kinds := telling
	for _, n := range named {
		if _, is := groups[n.kind]; is && !slices.Contains(kinds, n.kind) {
			kinds = append(slices.Clip(kinds), n.kind)
		}
	}
	w.warnings = make(chan error, len(kinds))
	for _, k := range kinds {
		go w.watch(ctx, c, k, namespace, changes)
	}
	return changes, nil
}

// watch tells of changes of one kind until ctx ends. A kind that is not installed has none.
func (w *waiting) watch(ctx context.Context, c client.WithWatch, k kind, namespace string, changes chan<- struct{}) {
	said := false
	for ctx.Err() == nil {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(groups[k].GroupVersion().WithKind(groups[k].Kind + "List"))
		events, err := c.Watch(ctx, list, client.InNamespace(namespace))
		switch {
		case err == nil:
			for range events.ResultChan() {
				tell(changes)
			}
		case meta.IsNoMatchError(err):
			return
		case ctx.Err() == nil && !said && apierrors.IsForbidden(err):
			said = true
			w.warnings <- fmt.Errorf("%ss cannot be watched, so they are read every %s: %w", k, polled, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(polled):
			tell(changes)
		}
	}
}

// tell never waits: one change that was not seen yet is as good as many.
func tell(changes chan<- struct{}) {
	select {
	case changes <- struct{}{}:
	default:
	}
}
