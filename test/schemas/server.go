package schemas

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	templates "github.com/kubemend/kubemend/controllers/hostremediation/admission"
	"github.com/kubemend/kubemend/test/crd"
)

// Serve serves the generated definitions in that folder, with the manager's conversion.
func Serve(folder string) (*crd.Server, error) {
	scheme, err := schemeOfAll()
	if err != nil {
		return nil, err
	}
	server, err := crd.FromFolder(folder)
	if err != nil {
		return nil, fmt.Errorf("serve the definitions: %w", err)
	}
	server.Convert = crd.ConvertBy(conversion.NewWebhookHandler(scheme, conversion.NewRegistry()))
	return server, nil
}

// ServeCompleted serves them with the manager's webhooks that complete templates.
func ServeCompleted(folder string) (*crd.Server, error) {
	scheme, err := schemeOfAll()
	if err != nil {
		return nil, err
	}
	server, err := Serve(folder)
	if err != nil {
		return nil, err
	}
	server.Mutating = []crd.Webhook{{
		Name:    "default.metal3remediationtemplate.infrastructure.cluster.x-k8s.io",
		Kind:    v1beta2.GroupVersion.WithKind("Metal3RemediationTemplate"),
		Handler: admission.WithDefaulter(scheme, templates.Metal3Template{}),
	}, {
		Name:    "default.hostremediationtemplate.kubemend.io",
		Kind:    mendv1.GroupVersion.WithKind("HostRemediationTemplate"),
		Handler: admission.WithDefaulter(scheme, templates.HostTemplate{}),
	}}
	return server, nil
}

func schemeOfAll() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1beta2.AddToScheme, mendv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the kinds: %w", err)
		}
	}
	return scheme, nil
}
