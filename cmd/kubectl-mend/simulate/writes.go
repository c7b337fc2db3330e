package simulate

import (
	"context"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// cluster is the copy of the management cluster on which the controllers act. It is no API server: no write is refused, what is deleted is
// gone at once, and resource versions are left out. What it does not implement the controllers do not call.
type cluster struct {
	client.Client // reads

	snapshot *snapshot.Snapshot
	clock    clock.PassiveClock
	// changes counts the writes that have changed anything.
	changes int
}

// Create adds a new object.
func (c *cluster) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	created := obj.DeepCopyObject().(client.Object)
	created.SetCreationTimestamp(metav1.NewTime(c.clock.Now()).Rfc3339Copy())
	created.SetGeneration(1)
	c.changes++
	if err := c.snapshot.Add(created); err != nil {
		return err
	}
	return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Update gives an object, which is a lease, the fields of another.
func (c *cluster) Update(ctx context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return c.Patch(ctx, obj, client.Merge)
}

// Patch applies a merge patch (RFC 7386).
func (c *cluster) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	gvk, err := apiutil.GVKForObject(obj, snapshot.Scheme)
	if err != nil {
		return err
	}
	tree := &unstructured.Unstructured{}
	tree.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), tree); err != nil {
		return err
	}
	before, err := tree.MarshalJSON()
	if err != nil {
		return err
	}
	changes, err := patch.Data(obj)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, changes)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	if !jsonpatch.Equal(before, after) {
		c.changes++
		if err := tree.UnmarshalJSON(after); err != nil {
			return err
		}
		if err := c.snapshot.Add(tree); err != nil {
			return err
		}
	}
	return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Delete removes an object.
func (c *cluster) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	gvk, err := apiutil.GVKForObject(obj, snapshot.Scheme)
	if err == nil {
		c.changes++
		c.snapshot.Remove(gvk, client.ObjectKeyFromObject(obj))
	}
	return err
}

// Status patches the whole object: a controller changes nothing else together with the status.
func (c *cluster) Status() client.SubResourceWriter { return status{cluster: c} }

type status struct {
	client.SubResourceWriter

	cluster *cluster
}

// Patch patches the whole object.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.cluster.Patch(ctx, obj, patch)
}
