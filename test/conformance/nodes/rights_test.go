package nodes

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// manager is who the controller is in specs about its rights, with the role that is shipped. What Kubernetes adds to the other role from
// the roles of remediators, the specs add.
const manager = "kubemend"

// grants gives the manager its own rights: those of every manager, and those of NodeHealthChecks, of which the leases are where the environment has them.
func (s *environment) grants(ctx context.Context) {
	GinkgoHelper()
	for _, file := range []string{"role.yaml", filepath.Join("nodes", "role.yaml")} {
		for _, role := range suite.Manifest(filepath.Join("..", "..", "..", "config", "rbac", file)) {
			switch {
			case role.GetKind() == "ClusterRole":
				Expect(builders.Apply(ctx, here, role)).To(Succeed())
				binds(ctx, role.GetName())
			case role.GetNamespace() != rig.Namespace:
				if role.GetNamespace() == nhcv1.DefaultLeaseNamespace {
					role.SetNamespace(s.leases)
				}
				Expect(builders.Apply(ctx, here, role, &rbacv1.RoleBinding{
					TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
					ObjectMeta: metav1.ObjectMeta{Namespace: role.GetNamespace(), Name: role.GetName()},
					RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: role.GetName()},
					Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: manager}},
				})).To(Succeed())
			}
		}
	}
}

// shipped gives the manager the rights that a release of a remediator brings with it.
func shipped(ctx context.Context, release string) {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "controllers", "nodehealthcheck", "testdata", "roles", release+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.ClusterRole{}
	Expect(yaml.UnmarshalStrict(content, role)).To(Succeed())
	Expect(builders.Apply(ctx, here, role)).To(Succeed())
	binds(ctx, role.Name)
}

func binds(ctx context.Context, role string) {
	GinkgoHelper()
	Expect(builders.Apply(ctx, here, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: manager}},
	})).To(Succeed())
}

// aggregates lets the manager do to a kind of requests what is named, and read its templates.
func aggregates(ctx context.Context, name string, r remediator, verbs ...string) {
	GinkgoHelper()
	Expect(builders.Apply(ctx, here, &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{r.kind.Group}, Resources: []string{r.crds()[0].Spec.Names.Plural}, Verbs: verbs},
			{APIGroups: []string{r.kind.Group}, Resources: []string{r.crds()[1].Spec.Names.Plural}, Verbs: []string{"get", "list", "watch"}},
		},
	})).To(Succeed())
	binds(ctx, name)
}

// withRights is a spec in which the controller may do only what its roles allow.
func withRights(text string, m mode, body func(context.Context, *environment)) {
	GinkgoHelper()
	It(text, needsServer, func(ctx SpecContext) {
		s := newEnvironment(ctx, m)
		defer s.end()
		s.grants(ctx)
		s.wanted.user = manager
		s.start()
		body(ctx, s)
	})
}

var _ = Describe("With the rights that are shipped", func() {
	withRights("W4, gap, seed 0.25: and those of the remediators, a node is remediated, confirmed to be healthy and released", ladders, func(ctx context.Context, s *environment) {
		for name, r := range map[string]remediator{"reboot": reboot, "replace": replace} {
			aggregates(ctx, "all-of-"+name, r, "create", "delete", "get", "list", "patch", "update", "watch")
		}
		s.members(ctx, 5)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")), ofMembers, delay(-time.Second))
		s.fails(ctx, "c1")
		req := s.request(ctx, "c1")
		s.clock.Step(step)
		s.latest(ctx, "c1", 2)
		Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.recovers(ctx, "c1")
		Eventually(s.isDelayed).WithArguments(ctx, "check", "c1").Should(BeTrue())
		s.clock.Step(48*time.Hour + time.Minute)
		Eventually(s.annotation(ctx, req, nhcv1.OldRequestAnnotation)).Should(Equal("flagon"))
		s.changeNode(ctx, "c1", annotated(map[string]string{nhcv1.ConfirmedHealthyAnnotation: "yes"}))
		Eventually(s.requested(ctx, "c1")).Should(BeEmpty())
		Eventually(func() map[string]string { return s.getNode(ctx, "c1").Annotations }).Should(BeEmpty())
		Eventually(s.lease).WithArguments(ctx, "c1").Should(BeNil())
		Eventually(s.events(ctx, "check", "RemediationCreated")).Should(HaveLen(2))
	})

	withRights("seed 0.25, seed 1.3: and those that Self Node Remediation 0.4 has, as Poison Pill had, templates are read by name and requests polled",
		mode{}, func(ctx context.Context, s *environment) {
			shipped(ctx, "self-node-remediation-0.4")
			s.workers(ctx, 3)
			s.check(ctx, "check", s.by(s.template(ctx, selfNode, "old")))
			passing := func(reconcile func() []string) func() []string {
				return func() []string {
					s.clock.Step(15 * time.Second)
					return reconcile()
				}
			}
			Eventually(passing(func() []string { return []string{s.phase(ctx, "check")()} })).Should(Equal([]string{enabled}))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			Expect(here.Delete(ctx, req)).To(Succeed())
			Eventually(passing(s.nodesRequested(ctx))).Should(Equal([]string{"w1"}), "no watch event has reported the deletion")
			s.clock.Step(48*time.Hour + time.Minute)
			s.recovers(ctx, "w1")
			Eventually(passing(s.nodesRequested(ctx))).Should(BeEmpty())
			Eventually(passing(s.listed(ctx, "check"))).Should(BeEmpty())
		})

	withRights("bad input: and none of the remediator's, the check is disabled until they are granted", mode{}, func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, fence, "far")))
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateForbidden"))
		Expect(s.message(ctx, "check", nhcv1.DisabledCondition)()).To(ContainSubstring(`rbac.ext-remediation/aggregate-to-ext-remediation: "true"`))
		s.fails(ctx, "w1")
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		aggregates(ctx, "all-of-fence", fence, "create", "delete", "get", "list", "patch", "update", "watch")
		Eventually(func() []string {
			s.clock.Step(15 * time.Second) // the API server takes its time to notice
			return s.nodesRequested(ctx)()
		}).Should(Equal([]string{"w1"}))
	})

	withRights("bad input: and the right to read a remediator's requests but not to make any, the status reports it and other nodes are handled", mode{}, func(ctx context.Context, s *environment) {
		aggregates(ctx, "some-of-pill", pill, "get", "list", "watch")
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, pill, "pill")))
		Eventually(func() string {
			s.clock.Step(15 * time.Second)
			return s.phase(ctx, "check")()
		}).Should(Equal(enabled))
		s.fails(ctx, "w1")
		Eventually(s.events(ctx, "check", "RemediationFailed")).Should(ContainElement(And(
			HavePrefix("Warning [remediation] No remediation object could be created for node w1"), ContainSubstring("forbidden"))))
		Expect(s.phase(ctx, "check")()).To(Equal(enabled))
		aggregates(ctx, "some-of-pill", pill, "create", "delete", "get", "list", "patch", "update", "watch")
		Eventually(func() []string {
			s.clock.Step(time.Minute)
			return s.nodesRequested(ctx)()
		}).Should(Equal([]string{"w1"}))
	})
})
