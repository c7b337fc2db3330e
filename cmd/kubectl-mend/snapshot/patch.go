package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch implements client.Writer, for merge patches and JSON patches.
func (a *api) Patch(_ context.Context, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
	return a.patch(obj, patch, "", (&client.PatchOptions{}).ApplyOptions(options).DryRun)
}

func (a *api) patch(obj client.Object, patch client.Patch, part string, dryRun []string) error {
	data, err := patch.Data(obj)
	if err != nil {
		return fmt.Errorf("make a patch of %s: %w", client.ObjectKeyFromObject(obj), err)
	}
	_, gvk, done, err := a.writes(obj, dryRun)
	if err != nil {
		return err
	}
	defer done()
	r, err := a.world.lookUp(gvk, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	was, err := r.content(gvk)
	if err != nil {
		return err
	}
	next, err := patched(was.Object, patch.Type(), data)
	if err != nil {
		return err
	}
	return a.world.change(r, gvk, next, part, obj)
}

// patched is what a patch makes of content, which belongs to it.
func patched(content map[string]any, kind types.PatchType, patch []byte) (map[string]any, error) {
	next := map[string]any{}
	switch kind {
	case types.MergePatchType:
		if err := utiljson.Unmarshal(patch, &next); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return mergedInto(content, next), nil
	case types.JSONPatchType:
		doc, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		steps, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if doc, err = steps.Apply(doc); err == nil {
			err = utiljson.Unmarshal(doc, &next)
		}
		if err != nil { // it is a patch, but none of this object
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return next, nil
	}
	return nil, fmt.Errorf("a snapshot knows no patch of the type %s", kind)
}

// mergedInto merges a patch into content: null takes a field away, an object is merged, and everything else is put in the place of what was there.
// (RFC 7386.)
func mergedInto(content, patch map[string]any) map[string]any {
	for name, change := range patch {
		fields, isObject := change.(map[string]any)
		was, _ := content[name].(map[string]any)
		switch {
		case change == nil:
			delete(content, name)
		case isObject && was == nil:
			content[name] = mergedInto(map[string]any{}, fields)
		case isObject:
			content[name] = mergedInto(was, fields)
		default:
			content[name] = change
		}
	}
	return content
}

// Status implements client.StatusClient.
func (a *api) Status() client.SubResourceWriter { return a.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor. There is none but the status.
func (a *api) SubResource(name string) client.SubResourceClient { return part{a, name} }

// part is a subresource.
type part struct {
	api  *api
	name string
}

func (p part) known() error {
	if p.name != "status" {
		return fmt.Errorf("a snapshot knows no subresource %q", p.name)
	}
	return nil
}

// Get implements client.SubResourceReader: a status is read with its object.
func (p part) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return fmt.Errorf("a snapshot cannot read the subresource %q alone", p.name)
}

// Create implements client.SubResourceWriter: no status is created.
func (p part) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	if p.api.readOnly {
		return ErrReadOnly
	}
	return fmt.Errorf("a snapshot cannot create the subresource %q", p.name)
}

// Update implements client.SubResourceWriter.
func (p part) Update(_ context.Context, obj client.Object, options ...client.SubResourceUpdateOption) error {
	if err := p.known(); err != nil {
		return err
	}
	o := (&client.SubResourceUpdateOptions{}).ApplyOptions(options)
	if body := o.SubResourceBody; body != nil {
		return p.api.update(body, p.name, o.DryRun)
	}
	return p.api.update(obj, p.name, o.DryRun)
}

// Patch implements client.SubResourceWriter.
func (p part) Patch(_ context.Context, obj client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if err := p.known(); err != nil {
		return err
	}
	o := (&client.SubResourcePatchOptions{}).ApplyOptions(options)
	return p.api.patch(obj, patch, p.name, o.DryRun)
}

// Apply implements client.SubResourceWriter: nobody here applies.
func (p part) Apply(ctx context.Context, _ runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	return p.api.Apply(ctx, nil)
}
