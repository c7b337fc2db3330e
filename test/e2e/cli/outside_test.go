package cli

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// bare is a management cluster in which kubemend is not installed: there are the kinds, and one check.
type bare struct {
	plane *rig.ControlPlane
	there client.Client
	check *clusterv1.MachineHealthCheck
}

var _ = Describe("A manager outside of a cluster in which kubemend is not installed", func() {
	It("takes the usual namespace, and status, claim and release work as with one that is installed", func(ctx SpecContext) {
		b := startBare(ctx, "outside")
		claim := []string{"claim", "cluster/prod", "-n", "fleet", "--yes"}

		By("asking while nothing shows that a manager runs")
		Expect(b.mend(ctx, "status", "-A").out).To(ContainSubstring("No manager of kubemend has announced itself"))
		unsure := b.mend(ctx, claim...)
		Expect(unsure.code).To(Equal(refused))
		Expect(plain(unsure.out)).To(ContainSubstring("it cannot be seen whether a manager of kubemend is there to take it: no manager has announced itself; --force goes on all the same"))

		By("running it with the rights of an administrator, as make run does")
		outside, err := b.plane.Kubemend(ctx, "outside", nil)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			s := b.status(ctx)
			g.Expect(s.ManagersUnknown).To(BeEmpty())
			g.Expect(s.Managers).To(HaveLen(1))
			g.Expect(s.Managers[0].Alive).To(BeTrue())
			g.Expect(s.Managers[0].Namespace).To(Equal(rig.Namespace))
			g.Expect(s.Managers[0].Outside).To(BeTrue())
		}).Should(Succeed())
		Expect(plain(b.mend(ctx, "status", "-A").out)).To(ContainSubstring(": running outside of the cluster"))
		claimed := b.mend(ctx, claim...)
		Expect(claimed.code).To(Equal(done), claimed.out+claimed.complaint)
		Eventually(b.pausedBy(ctx)).Should(Equal(mendv1.Claim))
		Expect(b.status(ctx).Items[0].Mode).To(Equal(cliv1.ModeActing))
		released := b.mend(ctx, "release", "cluster/prod", "-n", "fleet", "--yes", "--force") // there is no core here
		Expect(released.code).To(Equal(done), released.out+released.complaint)
		Eventually(b.pausedBy(ctx)).Should(BeEmpty())

		By("letting others write in its namespace")
		Expect(b.there.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "joe"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "joe"}},
		})).To(Succeed())
		Expect(b.status(ctx).ManagersUnknown).To(ContainSubstring("others may write there by RoleBinding joe"))
		unsure = b.mend(ctx, claim...)
		Expect(unsure.code).To(Equal(refused))
		Expect(plain(unsure.out)).To(ContainSubstring("it cannot be seen whether a manager of kubemend would take it: "))
		outside.Kill()
	}, SpecTimeout(specPatience))

	It("says in one line what does not work if it may not make the namespace, and status says that it is not known whether one runs", func(ctx SpecContext) {
		b := startBare(ctx, "narrow")
		manager, err := b.plane.Kubemend(ctx, "narrow", b.reads(ctx))
		Expect(err).NotTo(HaveOccurred())
		log, err := os.ReadFile(manager.Log)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(log)).To(ContainSubstring("Not keeping a manager lease: kubectl mend does not see that this manager runs"))
		Expect(string(log)).To(MatchRegexp(`there is no namespace kubemend-system.*cannot create resource \W*namespaces`))
		b.check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
		Expect(b.there.Update(ctx, b.check)).To(Succeed())
		s := b.status(ctx)
		Expect(s.Managers).To(BeEmpty())
		Expect(s.Items[0].Mode).To(Equal(cliv1.ModeUnknown))
		Expect(s.Items[0].ModeMessage).To(Equal("No manager of kubemend has announced itself; one that keeps no manager lease is not seen"))
		manager.Kill()
	}, SpecTimeout(specPatience))
})

// startBare starts a management cluster with a Cluster and its check.
func startBare(ctx context.Context, name string) *bare {
	GinkgoHelper()
	plane, err := control.Management(ctx, rig.ManagementOptions{Name: name, Own: true})
	Expect(err).NotTo(HaveOccurred())
	cluster := builders.Cluster("fleet", "prod")
	b := &bare{plane: plane, there: clientFor(plane.Config()), check: builders.MachineHealthCheck(cluster, "workers")}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}, cluster, b.check} {
		Expect(b.there.Create(ctx, object)).To(Succeed())
	}
	return b
}

// mend runs the plugin as an administrator there.
func (b *bare) mend(ctx context.Context, args ...string) ran {
	GinkgoHelper()
	return start(ctx, append([]string{"--kubeconfig", b.plane.KubeconfigFile()}, args...)...)
}

func (b *bare) status(ctx context.Context) *cliv1.Status {
	GinkgoHelper()
	return parsed[cliv1.Status](b.mend(ctx, "status", "-A", "-o", "json"))
}

// pausedBy is the paused annotation of the check.
func (b *bare) pausedBy(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		err := b.there.Get(ctx, client.ObjectKeyFromObject(b.check), b.check)
		return b.check.Annotations[clusterv1.PausedAnnotation], err
	}
}

// reads makes a user who may read everything and write nothing, and returns a kubeconfig.
func (b *bare) reads(ctx context.Context) []byte {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reads"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reads"}},
	}
	Expect(b.there.Create(ctx, role)).To(Succeed())
	Expect(b.there.Create(ctx, binding)).To(Succeed())
	config, kubeconfig, err := b.plane.User("reads")
	Expect(err).NotTo(HaveOccurred())
	theirs := clientFor(config)
	Eventually(func() error { return theirs.List(ctx, &clusterv1.MachineList{}) }).Should(Succeed())
	return kubeconfig
}
