package simulator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
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
)

// RemediatorOptions describe one remediator.
type RemediatorOptions struct {
	// Kind is that of the requests that it serves. That of their templates has the suffix Template.
	Kind schema.GroupVersionKind
	// Takes is how long it works on a request.
	Takes time.Duration
	// Remedy is what it does about a node when that time is over. It reports whether it believes that it helped; without it nothing helps.
	Remedy func(node string) bool
	// Logger receives the log; nothing is logged if it is not set.
	Logger logr.Logger
}

// Remediator plays a remediator of nodes that knows nothing of kubemend but the contract of medik8s: it finds a request, says that it
// processes it, does its work, and says whether that succeeded. It stops when the request says that its time is over. Whoever made the
// request deletes it.
type Remediator struct {
	manager ctrl.Manager
	client  client.Client
	options RemediatorOptions
}

// NewRemediator makes a remediator for a cluster in which its kinds are installed; Start starts it.
func NewRemediator(cluster *rest.Config, o RemediatorOptions) (*Remediator, error) {
	manager, err := newManager(cluster, o.Logger, "")
	if err != nil {
		return nil, err
	}
	r := &Remediator{manager: manager, client: manager.GetClient(), options: o}
	if err := ctrl.NewControllerManagedBy(manager).Named(strings.ToLower(o.Kind.Kind)).For(empty(o.Kind)).Complete(r); err != nil {
		return nil, fmt.Errorf("set up the simulated remediator of %s: %w", o.Kind.Kind, err)
	}
	return r, nil
}

// Start runs the remediator until the context ends.
func (r *Remediator) Start(ctx context.Context) error {
	if err := r.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the simulated remediator of %s: %w", r.options.Kind.Kind, err)
	}
	return nil
}

// Reconcile brings one request one step on. How far it has come is in the request alone.
func (r *Remediator) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	request := empty(r.options.Kind)
	if err := r.client.Get(ctx, key.NamespacedName, request); err != nil || !request.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := time.Now()
	processing, since := contractCondition(request, nhcv1.ProcessingCondition)
	_, told := request.GetAnnotations()[nhcv1.TimedOutAnnotation]
	switch done := since.Add(r.options.Takes); {
	case processing == metav1.ConditionFalse:
		return ctrl.Result{}, nil
	case told:
		return ctrl.Result{}, r.say(ctx, request, stoppedByCheck, now)
	case processing != metav1.ConditionTrue:
		return ctrl.Result{RequeueAfter: max(r.options.Takes, time.Millisecond)},
			r.say(ctx, request, atWork, now)
	case now.Before(done):
		return ctrl.Result{RequeueAfter: done.Sub(now)}, nil
	}
	if r.options.Remedy != nil && r.options.Remedy(request.GetAnnotations()[nhcv1.NodeNameAnnotation]) {
		return ctrl.Result{}, r.say(ctx, request, helped, now)
	}
	return ctrl.Result{}, r.say(ctx, request, inVain, now)
}

// contractCondition is the status of one of the contract's conditions of a request, and since when it has it; empty if there is none.
func contractCondition(request *unstructured.Unstructured, kind string) (metav1.ConditionStatus, time.Time) {
	conditions, _, _ := unstructured.NestedSlice(request.Object, "status", "conditions") // what is not a list is replaced
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == kind {
			status, _ := fields["status"].(string)
			text, _ := fields["lastTransitionTime"].(string)
			since, _ := time.Parse(time.RFC3339, text) // what is none has been so for ever
			return metav1.ConditionStatus(status), since
		}
	}
	return "", time.Time{}
}

// contract is what a remediator says of a request, by the two conditions that all of them have.
type contract struct {
	processing, succeeded metav1.ConditionStatus
	reason                string
}

var (
	atWork         = contract{metav1.ConditionTrue, metav1.ConditionUnknown, "RemediationStarted"}
	helped         = contract{metav1.ConditionFalse, metav1.ConditionTrue, "RemediationFinished"}
	inVain         = contract{metav1.ConditionFalse, metav1.ConditionFalse, "RemediationFailed"}
	stoppedByCheck = contract{metav1.ConditionFalse, metav1.ConditionFalse, "RemediationStopped"}
)

// say writes both conditions of a request.
func (r *Remediator) say(ctx context.Context, request *unstructured.Unstructured, is contract, now time.Time) error {
	before := request.DeepCopy()
	condition := func(kind string, status metav1.ConditionStatus) any {
		return map[string]any{
			"type": kind, "status": string(status), "reason": is.reason, "message": "", "lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
	}
	conditions := []any{condition(nhcv1.ProcessingCondition, is.processing), condition(nhcv1.SucceededCondition, is.succeeded)}
	if err := set(request, "status", map[string]any{"conditions": conditions}); err != nil {
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

// anything is the definition of a namespaced kind without a schema.
func anything(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind.Kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: kind.Kind + "List", Plural: singular + "s", Singular: singular},
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
