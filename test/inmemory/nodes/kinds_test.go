package nodes

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("Remediators", func() {
	for text, named := range suite.InOrder(map[string]bool{"is not named": false, "is named all the same": true}) {
		inEveryMode("whose kinds have no namespace serve a node once, if one "+text, func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			template := s.template(ctx, global, "soft")
			if named {
				template.Namespace = s.name
			}
			s.check(ctx, "check", s.by(template))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			Expect(req.GetNamespace()).To(BeEmpty())
			Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: GlobalRemediation/" + template.Name}))
			s.settle("check")
			before := s.get(ctx, "check").ResourceVersion
			if s.escalating {
				s.clock.Step(step)
				Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
			} else {
				s.settle("check")
				Expect(s.get(ctx, "check").ResourceVersion).To(Equal(before))
			}
			s.recovers(ctx, "w1")
			Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		})
	}

	in(ladders, "of one kind in two namespaces are distinguished", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		near := s.template(ctx, reboot, "soft")
		far := near
		far.Namespace = s.elsewhere
		t := reboot.object(s.elsewhere, "soft")
		t.SetGroupVersionKind(reboot.templates())
		t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
		Expect(s.here.Create(ctx, t)).To(Succeed())
		s.check(ctx, "check", ladder(step, near, far))
		s.fails(ctx, "w1")
		s.request(ctx, "w1")
		s.clock.Step(step)
		Expect(s.latest(ctx, "w1", 2).GetNamespace()).To(Equal(s.elsewhere))
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft*, RebootRemediation/soft"}))
		s.clock.Step(step)
		Eventually(s.events(ctx, "check", "NoTemplateLeft")).Should(HaveLen(1))
		Expect(s.about(ctx, "w1")).To(HaveLen(2))
	})

	once("keep the spec of their request when the template changes, and get the new spec in the next request", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.template(ctx, reboot, "soft", func(t *unstructured.Unstructured) {
			t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(43)}}}
		})
		s.settle("check")
		Expect(s.again(ctx, req).Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
		s.fails(ctx, "w2")
		s.settle("check")
		s.recovers(ctx, "w1")
		Expect(s.request(ctx, "w2").Object["spec"]).To(Equal(map[string]any{"size": int64(43)}))
	})

	once("end what they were asked before the check named others, also after a restart and if they took the marks off it",
		func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			unlabelled := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))
			Expect(s.here.Patch(ctx, s.again(ctx, req), unlabelled)).To(Succeed())
			s.change(ctx, "check", s.by(s.template(ctx, replace, "hard")))
			s.kill()
			s.recovers(ctx, "w1")
			s.start()
			Eventually(s.isGone(ctx, req)).Should(BeTrue())
		})

	once("get a new request for a new node of the same name", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.loses(ctx, "w1")
		s.node(ctx, "w1")
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
		s.clock.Step(patience)
		Expect(s.request(ctx, "w1").GetUID()).NotTo(Equal(req.GetUID()))
		Expect(s.lease(ctx, "w1").OwnerReferences[0].UID).To(Equal(s.getNode(ctx, "w1").UID))
	})
})

// remediator is a kind of requests with its kind of templates. The specs play its controller.
type remediator struct {
	kind   schema.GroupVersionKind // of the requests
	global bool                    // both kinds are cluster-scoped
}

func named(group, kind string) remediator {
	return remediator{kind: schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}}
}

// The remediators that are installed: two that know only the contract, one of objects without namespace, those of medik8s, and that of
// the first documentation.
var (
	reboot    = named("test.kubemend.io", "RebootRemediation")
	replace   = named("test.kubemend.io", "ReplaceRemediation")
	global    = remediator{kind: schema.GroupVersionKind{Group: "test.kubemend.io", Version: "v1alpha1", Kind: "GlobalRemediation"}, global: true}
	selfNode  = named("self-node-remediation.medik8s.io", "SelfNodeRemediation")
	pill      = named("poison-pill.medik8s.io", "PoisonPillRemediation")
	deletion  = named("machine-deletion-remediation.medik8s.io", "MachineDeletionRemediation")
	provider  = named("medik8s.io", "ProviderXRemediation")
	misspelt  = named("medik8s.io", "ProviderXRemdiation") // as the first documentation has it where it prints a template
	metal3    = remediator{kind: schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "Metal3Remediation"}}
	hosts     = named("kubemend.io", "HostRemediation")
	late      = named("late.example.org", "LateRemediation")          // whose kinds are installed by a spec
	uninvited = named("absent.example.org", "UninstalledRemediation") // whose kinds are not installed

	remediators = []remediator{reboot, replace, global, selfNode, pill, deletion, provider, misspelt, late}
)

// templates is the kind of the remediator's templates.
func (r remediator) templates() schema.GroupVersionKind {
	return r.kind.GroupVersion().WithKind(r.kind.Kind + "Template")
}

// puts makes an object, or replaces it.
func (s *environment) puts(ctx context.Context, u *unstructured.Unstructured) {
	GinkgoHelper()
	err := s.here.Create(ctx, u)
	if apierrors.IsAlreadyExists(err) {
		err = s.here.Update(ctx, u)
	}
	Expect(err).NotTo(HaveOccurred())
}

// template makes a template whose requests have a size of 42.
func (s *environment) template(ctx context.Context, r remediator, name string, edits ...func(*unstructured.Unstructured)) corev1.ObjectReference {
	GinkgoHelper()
	t := r.object(s.name, name)
	t.SetGroupVersionKind(r.templates())
	t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(42)}}}
	if s.several { // there may be several requests for one node
		t.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
	}
	for _, edit := range edits {
		edit(t)
	}
	s.puts(ctx, t)
	s.kinds[r] = true
	return corev1.ObjectReference{APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName()}
}

// object is a request of that name.
func (r remediator) object(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(r.kind)
	u.SetName(name)
	if r.global {
		u.SetName(namespace + "-" + name)
	} else {
		u.SetNamespace(namespace)
	}
	return u
}

// allRequests returns all requests of the environment, those of the first kind first, each kind by age.
func (s *environment) allRequests(ctx context.Context) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for r := range s.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(r.kind)
		if err := s.here.List(ctx, list); err != nil {
			continue // the kind was not installed, or is no more
		}
		for i := range list.Items {
			if u := &list.Items[i]; strings.HasPrefix(u.GetNamespace()+u.GetName(), s.name) {
				all = append(all, u)
			}
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		if order := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); order != 0 {
			return order
		}
		return strings.Compare(a.GetKind()+a.GetName(), b.GetKind()+b.GetName())
	})
	return all
}

// about returns the requests for a node, oldest first.
func (s *environment) about(ctx context.Context, node string) []*unstructured.Unstructured {
	all := s.allRequests(ctx)
	return slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool {
		is, named := u.GetAnnotations()[nhcv1.NodeNameAnnotation]
		return is != s.called(node) && (named || u.GetName() != s.called(node))
	})
}

// requested are the kinds of the requests for a node with their templates, oldest first: "RebootRemediation/soft".
func (s *environment) requested(ctx context.Context, node string) func() []string {
	return func() []string {
		found := []string{}
		for _, u := range s.about(ctx, node) {
			found = append(found, u.GetKind()+"/"+u.GetAnnotations()[nhcv1.TemplateNameAnnotation])
		}
		return found
	}
}

// nodesRequested are the nodes for which there are requests, once for each request.
func (s *environment) nodesRequested(ctx context.Context) func() []string {
	return func() []string {
		found := []string{}
		for _, u := range s.allRequests(ctx) {
			found = append(found, s.short(u.GetAnnotations()[nhcv1.NodeNameAnnotation]))
		}
		return found
	}
}

// request is the only request for a node, for which it waits.
func (s *environment) request(ctx context.Context, node string) *unstructured.Unstructured {
	GinkgoHelper()
	var found []*unstructured.Unstructured
	Eventually(func() []*unstructured.Unstructured {
		found = s.about(ctx, node)
		return found
	}).Should(HaveLen(1))
	return found[0]
}

// latest waits until there are n requests for a node, and returns the latest.
func (s *environment) latest(ctx context.Context, node string, n int) *unstructured.Unstructured {
	GinkgoHelper()
	var found []*unstructured.Unstructured
	Eventually(func() []*unstructured.Unstructured {
		found = s.about(ctx, node)
		return found
	}).Should(HaveLen(n))
	return found[n-1]
}

// again reads a request again. It returns nil if it is gone.
func (s *environment) again(ctx context.Context, req *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(req.GroupVersionKind())
	err := s.here.Get(ctx, client.ObjectKeyFromObject(req), u)
	if client.IgnoreNotFound(err) == nil && err != nil || err == nil && u.GetUID() != req.GetUID() {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return u
}

// annotation returns what an annotation of a request says; "" if it has none, or is gone.
func (s *environment) annotation(ctx context.Context, req *unstructured.Unstructured, key string) func() string {
	return func() string {
		u := s.again(ctx, req)
		if u == nil {
			return ""
		}
		return u.GetAnnotations()[key]
	}
}

// timedOut is the annotation that stops the remediator of a request.
func (s *environment) timedOut(ctx context.Context, req *unstructured.Unstructured) func() string {
	return s.annotation(ctx, req, nhcv1.TimedOutAnnotation)
}

// isGone reports whether a request is gone; isLeaving whether it is being deleted.
func (s *environment) isGone(ctx context.Context, req *unstructured.Unstructured) func() bool {
	return func() bool { return s.again(ctx, req) == nil }
}

func (s *environment) isLeaving(ctx context.Context, req *unstructured.Unstructured) func() bool {
	return func() bool {
		u := s.again(ctx, req)
		return u != nil && u.GetDeletionTimestamp() != nil
	}
}

// rewrite patches the metadata of a request, as a remediator may.
func (s *environment) rewrite(ctx context.Context, req *unstructured.Unstructured, change func(*unstructured.Unstructured)) {
	GinkgoHelper()
	u := s.again(ctx, req)
	Expect(u).NotTo(BeNil())
	before := u.DeepCopy()
	change(u)
	Expect(s.here.Patch(ctx, u, client.MergeFrom(before))).To(Succeed())
}

const keep = "test.kubemend.io/keep"

// keeps makes a remediator keep its request by a finalizer.
func (s *environment) keeps(ctx context.Context, req *unstructured.Unstructured) {
	GinkgoHelper()
	s.rewrite(ctx, req, func(u *unstructured.Unstructured) { u.SetFinalizers([]string{keep}) })
}

// removesFinalizers makes a remediator finish with its request.
func (s *environment) removesFinalizers(ctx context.Context, req *unstructured.Unstructured) {
	GinkgoHelper()
	s.rewrite(ctx, req, func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
}

// says lets a remediator set a condition of its request.
func (s *environment) says(ctx context.Context, req *unstructured.Unstructured, kind string, status metav1.ConditionStatus) {
	GinkgoHelper()
	u := s.again(ctx, req)
	Expect(u).NotTo(BeNil())
	before := u.DeepCopy()
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	Expect(err).NotTo(HaveOccurred())
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == kind })
	conditions = append(conditions, map[string]any{
		"type": kind, "status": string(status), "reason": "Test", "message": "", "lastTransitionTime": s.clock.Now().UTC().Format("2006-01-02T15:04:05Z"),
	})
	Expect(unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions")).To(Succeed())
	Expect(s.here.Status().Patch(ctx, u, client.MergeFrom(before))).To(Succeed())
}

// isDeleted makes a user delete a request.
func (s *environment) isDeleted(ctx context.Context, req *unstructured.Unstructured) {
	GinkgoHelper()
	Expect(s.here.Delete(ctx, req.DeepCopy())).To(Succeed())
}
