package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Webhook is asked about objects of a kind, and about those of its other versions, which are converted for it (matchPolicy Equivalent).
type Webhook struct {
	Name    string
	Kind    schema.GroupVersionKind
	Handler admission.Handler
}

// mutate changes o as the mutating webhooks say.
func (s *Server) mutate(ctx context.Context, v *version, o *unstructured.Unstructured) error {
	for _, hook := range s.Mutating {
		if hook.Kind.GroupKind() != v.kind.GroupKind() {
			continue
		}
		asked, err := s.convert(o, hook.Kind.GroupVersion().String())
		if err != nil {
			return err
		}
		if err := hook.mutate(ctx, asked); err != nil {
			return err
		}
		s.kinds[asked.GroupVersionKind()].complete(asked)
		changed, err := s.convert(asked, v.kind.GroupVersion().String())
		if err != nil {
			return err
		}
		o.Object = changed.Object
	}
	return nil
}

func (h Webhook) mutate(ctx context.Context, o *unstructured.Unstructured) error {
	content, err := json.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("encode an object for webhook %s: %w", h.Name, err)
	}
	answer := h.Handler.Handle(ctx, admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create,
		Kind:      metav1.GroupVersionKind(h.Kind),
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
		Object:    runtime.RawExtension{Raw: content},
	}})
	if !answer.Allowed {
		return fmt.Errorf("admission webhook %q denied the request: %s", h.Name, answer.Result.Message)
	}
	changes, err := json.Marshal(answer.Patches)
	if err != nil {
		return fmt.Errorf("encode the patch of webhook %s: %w", h.Name, err)
	}
	patch, err := jsonpatch.DecodePatch(changes)
	if err != nil {
		return fmt.Errorf("read the patch of webhook %s: %w", h.Name, err)
	}
	if content, err = patch.Apply(content); err != nil {
		return fmt.Errorf("apply the patch of webhook %s: %w", h.Name, err)
	}
	o.Object = nil
	return utiljson.Unmarshal(content, &o.Object)
}

// ConvertBy makes of a conversion webhook what a Server can call.
func ConvertBy(webhook http.Handler) func(*unstructured.Unstructured, string) (*unstructured.Unstructured, error) {
	return func(o *unstructured.Unstructured, apiVersion string) (*unstructured.Unstructured, error) {
		review := &apiextensionsv1.ConversionReview{Request: &apiextensionsv1.ConversionRequest{
			UID: "1", DesiredAPIVersion: apiVersion, Objects: []runtime.RawExtension{{Object: o}},
		}}
		content, err := json.Marshal(review)
		if err != nil {
			return nil, fmt.Errorf("encode a request for conversion: %w", err)
		}
		answer := httptest.NewRecorder()
		webhook.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/convert", bytes.NewReader(content)))
		if err := json.Unmarshal(answer.Body.Bytes(), review); err != nil {
			return nil, fmt.Errorf("decode the answer %d of a conversion: %w", answer.Code, err)
		}
		if review.Response.Result.Status != metav1.StatusSuccess || len(review.Response.ConvertedObjects) != 1 {
			return nil, fmt.Errorf("the webhook answers %s: %s", review.Response.Result.Status, review.Response.Result.Message)
		}
		converted := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(review.Response.ConvertedObjects[0].Raw, &converted.Object); err != nil {
			return nil, fmt.Errorf("decode a converted object: %w", err)
		}
		return converted, nil
	}
}
