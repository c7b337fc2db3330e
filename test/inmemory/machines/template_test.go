package machines

import (
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

// provider is a kind of remediation requests. Its templates are of the kind with the suffix Template.
type provider struct{ apiVersion, kind string }

var (
	// metal3 is one whose requests no controller acts on here.
	metal3 = provider{"infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Remediation"}
	// another is one that no program knows by name.
	another = provider{"test.kubemend.io/v1alpha1", "TestRemediation"}
)

func (p provider) served(suffix string) apiserver.Kind {
	return apiserver.Kind{GroupVersionKind: schema.FromAPIVersionAndKind(p.apiVersion, p.kind+suffix)}
}

func (p provider) object(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(p.apiVersion, kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// template makes a Metal3RemediationTemplate in the environment's namespace.
func (s *environment) template(name string) { s.templateOf(metal3, name) }

func (s *environment) templateOf(p provider, name string) {
	embedded := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"from": "template"}, "annotations": map[string]any{"note": "kept"}},
		"spec":     map[string]any{"strategy": map[string]any{"type": "Reboot", "retryLimit": int64(1), "timeout": "300s"}},
	}
	t := p.object(p.kind+"Template", s.cluster.Namespace, name)
	t.Object["spec"] = map[string]any{"template": embedded}
	err := s.here.Create(s.ctx, t)
	if apierrors.IsAlreadyExists(err) {
		was := p.object(p.kind+"Template", s.cluster.Namespace, name)
		s.Expect(s.here.Get(s.ctx, client.ObjectKeyFromObject(was), was)).To(Succeed())
		t.SetResourceVersion(was.GetResourceVersion())
		err = s.here.Update(s.ctx, t)
	}
	s.Expect(err).NotTo(HaveOccurred())
}

// by makes a check remediate with the Metal3RemediationTemplate of that name.
func by(name string) func(*clusterv1.MachineHealthCheck) { return byOne(metal3, name) }

func byOne(p provider, name string) func(*clusterv1.MachineHealthCheck) {
	return builders.RemediatedBy(p.apiVersion, p.kind+"Template", name)
}

func byOwner(c *clusterv1.MachineHealthCheck) {
	c.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{}
}

// request returns the remediation request for a machine, or nil.
func (s *environment) request(machine string) *unstructured.Unstructured {
	r := metal3.object(metal3.kind, s.cluster.Namespace, machine)
	err := s.here.Get(s.ctx, client.ObjectKeyFromObject(r), r)
	s.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil {
		return nil
	}
	return r
}

// uid identifies the request for a machine; it is empty if there is none.
func (s *environment) uid(machine string) func() string {
	return func() string {
		r := s.request(machine)
		if r == nil {
			return ""
		}
		return string(r.GetUID())
	}
}

// made waits until there is a request for a machine, which says so before, and returns its UID.
func (s *environment) made(machine string) string {
	var uid string
	s.Eventually(func() string { uid = s.uid(machine)(); return uid }).ShouldNot(BeEmpty())
	return uid
}

// isRequested waits until a Metal3Remediation of a machine is announced in its condition, and is there. It is announced first: what is
// announced and lost is asked for again.
func (s *environment) isRequested(machine string) {
	s.Eventually(s.external(machine)).Should(Equal(asked))
	s.made(machine)
}

// requested returns the names of the machines for which there is a Metal3Remediation that is not being deleted.
func (s *environment) requested() func() []string {
	return s.requestedOf(metal3)
}

func (s *environment) requestedOf(p provider) func() []string {
	return func() []string {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(p.apiVersion, p.kind+"List"))
		s.Expect(s.here.List(s.ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
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
func (s *environment) byHand(machine string, annotations map[string]string) *unstructured.Unstructured {
	r := metal3.object(metal3.kind, s.cluster.Namespace, machine)
	r.SetAnnotations(annotations)
	r.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine, UID: s.get(machine).UID,
	}})
	r.Object["spec"] = map[string]any{}
	s.Expect(s.here.Create(s.ctx, r)).To(Succeed())
	return r
}

// keep gives the request for a machine a finalizer, as a provider does that has to clean up; empty removes it.
func (s *environment) keep(machine string, finalizers ...string) {
	s.made(machine)
	r := s.request(machine)
	before := r.DeepCopy()
	r.SetFinalizers(finalizers)
	s.Expect(s.here.Patch(s.ctx, r, client.MergeFrom(before))).To(Succeed())
}
