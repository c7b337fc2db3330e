package machines

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
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

// template makes the Metal3RemediationTemplate of byRequests in the environment's namespace.
func (s *environment) template() { s.templateOf(metal3, "reboot") }

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

func byRequests(c *clusterv1.MachineHealthCheck) { byOne(metal3, "reboot")(c) }

func byOne(p provider, name string) func(*clusterv1.MachineHealthCheck) {
	return builders.RemediatedBy(p.apiVersion, p.kind+"Template", name)
}

func byOwner(c *clusterv1.MachineHealthCheck) {
	c.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{}
}

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

// printed makes a check judge and remediate as the one does that a recipe shows.
func (s *environment) printed(recipe string) *clusterv1.MachineHealthCheck {
	page, err := os.ReadFile("../../../docs/recipes/" + recipe + ".md")
	s.Expect(err).NotTo(HaveOccurred())
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		manifests, _, _ := strings.Cut(block, "```")
		for manifest := range strings.SplitSeq(manifests, "---\n") {
			check := &clusterv1.MachineHealthCheck{}
			s.Expect(yaml.Unmarshal([]byte(manifest), &check.TypeMeta)).To(Succeed())
			if check.Kind == "MachineHealthCheck" {
				s.Expect(yaml.Unmarshal([]byte(manifest), check)).To(Succeed())
				return s.check("check", func(c *clusterv1.MachineHealthCheck) {
					c.Annotations, c.Spec.Checks, c.Spec.Remediation = check.Annotations, check.Spec.Checks, check.Spec.Remediation
				})
			}
		}
	}
	s.t.Fatal(recipe + " shows no check")
	return nil
}

// The Node Maintenance Operator puts its taint on a node before it drains it, and takes it away when the maintenance is over.
func TestTheCheckOfARecipeBesideRebootsWaitsAsLongAsAHostBootsAndWhileItsNodeIsInMaintenance(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("boots", "hangs", "a", "b", "c", "d")
		s.nodeReports("hangs", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(long - long/3)
		s.nodeReports("boots", corev1.NodeReady, corev1.ConditionUnknown, 0)
		time.Sleep(long / 3)
		for _, name := range []string{"boots", "hangs"} {
			node := &corev1.Node{}
			s.Expect(s.there.Get(s.ctx, client.ObjectKey{Name: s.node(name)}, node)).To(Succeed())
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule})
			metav1.SetMetaDataLabel(&node.ObjectMeta, nhcv1.ExcludeLabel, "true")
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, "weave.works/kured-reboot-in-progress", time.Now().Format(time.RFC3339))
			s.Expect(s.there.Update(s.ctx, node)).To(Succeed())
		}
		check := s.printed("maintenance")
		s.Expect(*check.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds).
			To(BeNumerically(">=", 900), "a server takes ten minutes to boot")
		s.Eventually(s.remediation("hangs")).Should(Equal("False/NodeInMaintenance"))
		s.Consistently(s.owner("hangs")).Should(Equal(nothing))
		node := &corev1.Node{}
		s.Expect(s.there.Get(s.ctx, client.ObjectKey{Name: s.node("hangs")}, node)).To(Succeed())
		node.Spec.Taints = nil
		s.Expect(s.there.Update(s.ctx, node)).To(Succeed())
		s.Eventually(s.owner("hangs")).Should(Equal(ownerRequested))
		s.Consistently(s.health("boots")).Should(Equal(nothing))
	})
}

const asked = "False/WaitingForRemediation"

// everFailed gives a machine a failed health check of long ago.
func everFailed(m *clusterv1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions,
		condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, long),
		condition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, long))
	v1beta1conditions.MarkFalse(m, clusterv1.MachineHealthCheckSucceededV1Beta1Condition, "Test", clusterv1.ConditionSeverityWarning, "")
}

func TestW4W5RequestsAMissingTemplateIsReportedOnEveryMachineAndOnTheCheckAsLongAsItIsMissing(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "good")
		s.check("check", byRequests)
		s.fallsSilent("a", "b")

		for _, m := range []string{"a", "b"} {
			s.Eventually(s.external(m)).Should(Equal("False/RemediationTemplateNotFound"))
			s.Expect(conditions.GetMessage(s.get(m), "ExternallyRemediated")).To(Equal(
				"Error retrieving remediation template Metal3RemediationTemplate " + s.cluster.Namespace + "/reboot"))
			s.Expect(s.health(m)()).To(Equal(silent))
		}
		s.Eventually(s.health("good")).Should(Equal(well))
		s.Eventually(s.both("ExternalRemediationTemplateAvailable")).Should(Equal("- False/ExternalRemediationTemplateNotFound"))
		s.Expect(s.both("RemediationTemplateAvailable")()).To(Equal("False/RemediationTemplateNotFound -"))
		s.Expect(s.message("check", "RemediationTemplateAvailable")()).
			To(ContainSubstring("Metal3RemediationTemplate " + s.cluster.Namespace + "/reboot"))

		s.template()

		s.Eventually(s.requested()).Should(ConsistOf("a", "b"))
		s.isRequested("a")
		s.isRequested("b")
		s.Eventually(s.both("ExternalRemediationTemplateAvailable")).Should(Equal(nothing))
		s.Expect(s.both("RemediationTemplateAvailable")()).To(Equal("True/TemplateFound -"))
		s.Expect(s.here.Delete(s.ctx, metal3.object("Metal3RemediationTemplate", s.cluster.Namespace, "reboot"))).To(Succeed())
		s.Eventually(s.both("RemediationTemplateAvailable")).Should(Equal("False/RemediationTemplateNotFound -"))
		s.Expect(s.external("a")()).To(Equal(asked), "what has started needs its template no more")
		s.Expect(s.requested()()).To(ConsistOf("a", "b"))
	})
}

func TestW8RequestsTheNextRequestIsMadeAsSoonAsATerminatingOneIsGone(t *testing.T) {
	run(t, func(s *environment) {
		s.template()
		s.worker("a")
		s.check("check", byRequests)
		s.fallsSilent("a")
		s.isRequested("a")
		uid := s.made("a")
		s.keep("a", "test.kubemend.io/keep")

		s.Expect(s.here.Delete(s.ctx, s.request("a"))).To(Succeed())
		s.Consistently(s.uid("a")).Should(Equal(uid))
		s.Expect(s.external("a")()).To(Equal(asked), "it was not tried")

		s.keep("a")
		s.Eventually(s.uid("a")).Should(And(Not(BeEmpty()), Not(Equal(uid))))
	})
}
