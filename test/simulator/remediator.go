package simulator

import (
	"context"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/partners/remediator"
)

// RemediatorOptions describe one remediator.
type RemediatorOptions struct {
	// Kind is that of the requests that it serves. That of their templates has the suffix Template.
	Kind schema.GroupVersionKind
	// Takes is how long it works on a request.
	Takes time.Duration
	// Remediate is what it does about a node when that time is over. It reports whether it succeeded; without it every request fails.
	Remediate func(node string) bool
}

// Remediator plays a remediator of nodes towards an API server. What it does about a request is decided by the model of package remediator.
type Remediator struct {
	player
	options RemediatorOptions
}

// NewRemediator makes a remediator for a cluster in which its kinds are installed; Start starts it.
func NewRemediator(cluster *rest.Config, o RemediatorOptions) (*Remediator, error) {
	player, err := newPlayer(cluster, "remediator of "+o.Kind.Kind)
	if err != nil {
		return nil, err
	}
	r := &Remediator{player: player, options: o}
	if err := ctrl.NewControllerManagedBy(r.manager).Named(strings.ToLower(o.Kind.Kind)).For(empty(o.Kind)).Complete(r); err != nil {
		return nil, fmt.Errorf("set up the simulated remediator of %s: %w", o.Kind.Kind, err)
	}
	return r, nil
}

// Reconcile brings one request one step on. How far it has come is in the request alone.
func (r *Remediator) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	request := empty(r.options.Kind)
	if err := r.client.Get(ctx, key.NamespacedName, request); err != nil || !request.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := time.Now()
	step := remediator.Next(request, r.options.Takes, now)
	report := step.Report
	if step.Acts {
		report = &remediator.Failed
		if r.options.Remediate != nil && r.options.Remediate(request.GetAnnotations()[nhcv1.NodeNameAnnotation]) {
			report = &remediator.Finished
		}
	}
	if report == nil {
		return ctrl.Result{RequeueAfter: step.After}, nil
	}
	return ctrl.Result{RequeueAfter: step.After}, r.report(ctx, request, *report, now)
}

func (r *Remediator) report(ctx context.Context, request *unstructured.Unstructured, is remediator.Report, now time.Time) error {
	before := request.DeepCopy()
	if err := is.Set(request, now); err != nil {
		return err
	}
	err := difference(request, before, func(patch client.Patch) error { return r.client.Status().Patch(ctx, request, patch) })
	return client.IgnoreNotFound(err)
}

// InstallRemediator installs the kinds of a remediator, its requests and their templates, and returns when they are served. They may hold
// whatever they like.
func InstallRemediator(cluster *rest.Config, requests schema.GroupVersionKind) error {
	templates := requests.GroupVersion().WithKind(requests.Kind + "Template")
	_, err := envtest.InstallCRDs(cluster, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{anything(requests), anything(templates)},
	})
	if err != nil {
		return fmt.Errorf("install the kinds of remediator %s: %w", requests.Kind, err)
	}
	return nil
}

func anything(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind.Kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: kind.Kind + "List", Plural: singular + "s",
				Singular: singular},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}
