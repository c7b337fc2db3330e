package rig

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// A busy API server may answer that it took too long, and have created the CRD, or not.
func TestACRDIsCreatedDespiteATimeout(t *testing.T) {
	for name, created := range map[string]bool{"that has created it": true, "that has not": false} {
		t.Run(name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "machines.example.com"}}
			// NewClientset has no schema of CRDs.
			server, late := fake.NewSimpleClientset(), true
			server.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !late {
					return false, nil, nil
				}
				late = false
				if created {
					if err := server.Tracker().Add(crd); err != nil {
						t.Error(err)
					}
				}
				return true, nil, apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
			})
			crds := server.ApiextensionsV1().CustomResourceDefinitions()
			if err := installOne(t.Context(), crds, crd); err != nil {
				t.Errorf("it is not installed: %v", err)
			}
			if _, err := crds.Get(t.Context(), crd.Name, metav1.GetOptions{}); err != nil {
				t.Errorf("it is not there: %v", err)
			}
			if err := installOne(t.Context(), crds, crd); err == nil {
				t.Error("another one of its name is installed")
			}
		})
	}
}
