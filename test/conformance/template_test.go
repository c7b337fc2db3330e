package conformance

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
)

// provider is a kind of remediation requests. Its templates are of the kind with the suffix Template.
type provider struct{ apiVersion, kind string }

var (
	// metal3 is served by the rig. No controller acts on its requests.
	metal3 = provider{"infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Remediation"}
)

func (p provider) object(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(p.apiVersion, kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// template makes a Metal3RemediationTemplate in the environment's namespace.
func (s *environment) template(ctx context.Context, name string, edits ...func(embedded map[string]any)) {
	GinkgoHelper()
	s.templateOf(ctx, metal3, name, edits...)
}

func (s *environment) templateOf(ctx context.Context, p provider, name string, edits ...func(embedded map[string]any)) {
	GinkgoHelper()
	embedded := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"from": "template"}, "annotations": map[string]any{"note": "kept"}},
		"spec":     map[string]any{"strategy": map[string]any{"type": "Reboot", "retryLimit": int64(1), "timeout": "300s"}},
	}
	for _, edit := range edits {
		edit(embedded)
	}
	t := p.object(p.kind+"Template", s.cluster.Namespace, name)
	t.Object["spec"] = map[string]any{"template": embedded}
	// For two seconds after a kind was installed the API server refuses to create one, but not to apply one.
	Expect(builders.Apply(ctx, here, t)).To(Succeed())
}

// by makes a check remediate with the Metal3RemediationTemplate of that name.
func by(name string) func(*clusterv1.MachineHealthCheck) { return byOne(metal3, name) }

func byOne(p provider, name string) func(*clusterv1.MachineHealthCheck) {
	return builders.RemediatedBy(p.apiVersion, p.kind+"Template", name)
}

// request returns the remediation request for a machine, or nil.
func (s *environment) request(ctx context.Context, machine string) *unstructured.Unstructured {
	GinkgoHelper()
	r := metal3.object(metal3.kind, s.cluster.Namespace, machine)
	err := here.Get(ctx, client.ObjectKeyFromObject(r), r)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return r
}

// uid identifies the request for a machine; it is empty if there is none.
func (s *environment) uid(ctx context.Context, machine string) func() string {
	return func() string {
		r := s.request(ctx, machine)
		if r == nil {
			return ""
		}
		return string(r.GetUID())
	}
}

// made waits until there is a request for a machine, which says so before, and returns its UID.
func (s *environment) made(ctx context.Context, machine string) string {
	GinkgoHelper()
	var uid string
	Eventually(func() string { uid = s.uid(ctx, machine)(); return uid }).ShouldNot(BeEmpty())
	return uid
}

// isRequested waits until a Metal3Remediation of a machine is announced in its condition, and is there. It is announced first: what is announced and
// lost is asked for again.
func (s *environment) isRequested(ctx context.Context, machine string) {
	GinkgoHelper()
	Eventually(s.external(ctx, machine)).Should(Equal(asked))
	s.made(ctx, machine)
}

// requested returns the names of the machines for which there is a Metal3Remediation that is not being deleted.
func (s *environment) requested(ctx context.Context) func() []string {
	return s.requestedOf(ctx, metal3)
}

func (s *environment) requestedOf(ctx context.Context, p provider) func() []string {
	return func() []string {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(p.apiVersion, p.kind+"List"))
		Expect(here.List(ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
		names := []string{}
		for i := range list.Items {
			if list.Items[i].GetDeletionTimestamp() == nil {
				names = append(names, list.Items[i].GetName())
			}
		}
		return names
	}
}

// byHand makes a Metal3Remediation for a machine that no check made.
func (s *environment) byHand(ctx context.Context, machine string, annotations map[string]string) *unstructured.Unstructured {
	GinkgoHelper()
	r := metal3.object(metal3.kind, s.cluster.Namespace, machine)
	r.SetAnnotations(annotations)
	r.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine, UID: s.get(ctx, machine).UID,
	}})
	r.Object["spec"] = map[string]any{}
	Expect(here.Create(ctx, r)).To(Succeed())
	return r
}

// clonedFrom are the annotations that Cluster API core gives to a request made from a Metal3RemediationTemplate.
func clonedFrom(template string) map[string]string {
	return map[string]string{
		"cluster.x-k8s.io/cloned-from-name":      template,
		"cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
	}
}
