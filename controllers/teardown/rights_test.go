package teardown

import (
	"context"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// withoutHosts is an API server as a manager sees it that has no right to hosts.
type withoutHosts struct {
	client.Reader
	kind bool // whether there are HostRemediations
}

func (r withoutHosts) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*bmov1alpha1.BareMetalHostList); is {
		return apierrors.NewForbidden(schema.GroupResource{Group: "metal3.io", Resource: "baremetalhosts"}, "", nil)
	}
	if l, is := list.(*metav1.PartialObjectMetadataList); is && !r.kind && l.GroupVersionKind().Group == mendv1.GroupVersion.Group {
		return &meta.NoKindMatchError{GroupKind: l.GroupVersionKind().GroupKind()}
	}
	return r.Reader.List(ctx, list, opts...)
}

// A host that is off must not stay off because the rights were taken away before the manager left.
func TestHostsThatMayNotBeLookedAt(t *testing.T) {
	for name, row := range map[string]struct {
		kind bool
		says string
	}{
		"where there is the kind that holds them, they may be off": {true, "list BareMetalHosts"},
		"where there never was, none is":                           {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u, _, _ := uninstallerOf(t, nil)
			u.Live = withoutHosts{u.Live, row.kind}
			_, err := u.observe(t.Context(), false)
			if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v, want %q", err, row.says)
			}
		})
	}
}
