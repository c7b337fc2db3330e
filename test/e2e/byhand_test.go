package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/kubemend/kubemend/test/suite"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/builders"
)

var _ = Describe("For a person with the roles of the examples", fencing, func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("remediate has a healthy machine replaced, and says who asked", func(ctx SpecContext) {
		checked(ctx, "workers", builders.Claimed)
		as := person(ctx, "alice")
		before := identities(ctx)
		name := fixture.WorkerNames(ctx)[0]
		resume := pauseTheOwner(ctx)

		tried := mendAs(ctx, as, "remediate", "machine", name, "--dry-run=server")
		Expect(tried.code).To(Equal(done), tried.complaint)
		Expect(tried.out).To(ContainSubstring("kubemend asks its owner, MachineSet "))
		Expect(fixture.Machine(ctx, name).Annotations).NotTo(HaveKey(clusterv1.RemediateMachineAnnotation))
		Expect(mendAs(ctx, as, "remediate", "machine/"+name).code).To(Equal(refused), "there is no terminal")

		marked := mendAs(ctx, as, "remediate", "machine/"+name, "--yes", "--reason", "NIC drops packets")
		Expect(marked.code).To(Equal(done), marked.out+marked.complaint)
		Expect(marked.complaint).NotTo(ContainSubstring("no event was created"), "the API server refuses some names")
		by, known := explain.AttributionOf(fixture.Machine(ctx, name), mendv1.RequestedAnnotation)
		Expect(known).To(BeTrue())
		Expect(by).To(MatchFields(IgnoreExtras, Fields{"By": Equal("alice"), "Reason": Equal("NIC drops packets")}))
		Eventually(func() bool { return targetOf(explained(ctx, "machine/"+name)).InFlight }).Should(BeTrue())
		Expect(explained(ctx, "machine/"+name).Facts).To(ContainElement(HaveField("Name", "remediation requested")))
		again := mendAs(ctx, as, "remediate", "machine/"+name, "--yes")
		Expect(again.code).To(Equal(done), again.complaint)
		Expect(again.out).To(ContainSubstring("is being remediated already"))

		resume(ctx)
		replaced(ctx, before, name)
		fixture.AllWell(ctx)
	}, SpecTimeout(specPatience))

	It("remediate has the host of a healthy machine power-cycled once, and keeps the machine", func(ctx SpecContext) {
		mayFence(ctx)
		checked(ctx, "workers", builders.Claimed)
		as := person(ctx, "alice")
		name := fixture.WorkerNames(ctx)[0]
		host := fixture.Host(name).Key().Name
		boot := fixture.Node(ctx, name).Status.NodeInfo.BootID

		cycled := mendAs(ctx, as, "remediate", "host/"+host, "--yes", "--reason", "new firmware")
		Expect(cycled.code).To(Equal(done), cycled.out+cycled.complaint)
		rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.Namespace, Name: name + "-by-hand"}}
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, rem))).To(Succeed()) })
		Eventually(func() bool {
			Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
			return succeeded(rem.Status.Conditions)
		}).Should(BeTrue())
		Eventually(func(g Gomega) {
			g.Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
			e := explained(ctx, "hrem/"+rem.Name)
			g.Expect(e.Remediations).To(HaveLen(1))
			g.Expect([]string{e.Remediations[0].State, e.Remediations[0].Message}).To(Equal([]string{rem.Status.Step, rem.Status.Message}))
		}).Should(Succeed())
		Eventually(func() (happened []string) {
			for _, item := range parsed[cliv1.History](mend(ctx, "history", "machine/"+name, "-o", "json")).Items {
				happened = append(happened, item.Reason)
			}
			return happened
		}).Should(inThisOrder("PowerOffRequested", "Fenced", "PowerOnRequested", "PoweredOn"))
		Expect(fixture.Node(ctx, name).Status.NodeInfo.BootID).NotTo(Equal(boot))
		Expect(fixture.Machine(ctx, name).Annotations).
			NotTo(HaveKey(clusterv1.RemediateMachineAnnotation), "a mark would make every attempt fail")
		fixture.AllWell(ctx)
		Expect(fixture.WorkerNames(ctx)).To(ContainElement(name))
	}, SpecTimeout(specPatience))

	It("reset returns an exhausted host, and refuses it to a user who may not change what kubemend remembers", func(ctx SpecContext) {
		spare := freeHost(ctx)
		before := spare.DeepCopy()
		for _, key := range []string{infrav1.UnhealthyAnnotation, infrav1.LegacyUnhealthyAnnotation} {
			metav1.SetMetaDataAnnotation(&spare.ObjectMeta, key, infrav1.UnhealthyAnnotationValue)
		}
		metav1.SetMetaDataAnnotation(&spare.ObjectMeta, mendv1.MarkedForAnnotation, "a-machine-that-is-gone")
		metav1.SetMetaDataAnnotation(&spare.ObjectMeta, infrav1.PowerOffAnnotationPrefix+"a-remediation-that-is-gone",
			infrav1.PowerOffAnnotationValue)
		Expect(here.Patch(ctx, spare, client.MergeFrom(before))).To(Succeed())

		weak := person(ctx, "bob", "hostremediations/status")
		denied := mendAs(ctx, weak, "reset", "host/"+spare.Name, "--yes")
		Expect(denied.code).To(Equal(1))
		Expect(denied.complaint).
			To(ContainSubstring("only who may patch the status of hostremediations may change what kubemend remembers"))

		as := person(ctx, "alice")
		reset := mendAs(ctx, as, "reset", "host/"+spare.Name, "--yes", "--reason", "new power supply")
		Expect(reset.code).To(Equal(done), reset.out+reset.complaint)
		Expect(reset.out).To(ContainSubstring(infrav1.PowerOffAnnotationPrefix + "a-remediation-that-is-gone"))
		Expect(here.Get(ctx, client.ObjectKeyFromObject(spare), spare)).To(Succeed())
		Expect(spare.Annotations).NotTo(Or(HaveKey(infrav1.UnhealthyAnnotation), HaveKey(infrav1.LegacyUnhealthyAnnotation),
			HaveKey(mendv1.MarkedForAnnotation),
			HaveKey(HavePrefix(infrav1.PowerOffAnnotationPrefix))))
		by, _ := explain.AttributionOf(spare, mendv1.ResetAnnotation)
		Expect(by.By).To(Equal("alice"))
	}, SpecTimeout(specPatience))
})

// freeHost is one that carries no machine.
func freeHost(ctx context.Context) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	list := &bmov1alpha1.BareMetalHostList{}
	Expect(here.List(ctx, list, client.InNamespace(fixture.Namespace))).To(Succeed())
	for i := range list.Items {
		if list.Items[i].Spec.ConsumerRef == nil {
			return &list.Items[i]
		}
	}
	Fail("every host carries a machine")
	return nil
}

// person makes a user with the roles of docs/examples, without rights to some resources, until the spec ends, and returns a kubeconfig
// file.
func person(ctx context.Context, name string, without ...string) string {
	GinkgoHelper()
	var rules []rbacv1.PolicyRule
	for _, file := range []string{"mend-reader.yaml", "mend-operator.yaml"} {
		content := suite.Must(os.ReadFile(filepath.Join(project, "docs", "examples", file)))
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
			role := &rbacv1.ClusterRole{}
			err := decoder.Decode(role)
			if errors.Is(err, io.EOF) {
				break
			}
			Expect(err).NotTo(HaveOccurred())
			rules = append(rules, role.Rules...)
		}
	}
	for i := range rules {
		for _, resource := range without {
			if len(rules[i].Resources) == 1 && rules[i].Resources[0] == resource {
				rules[i].Resources = []string{"none"}
			}
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	return kubeconfigOf(ctx, name, role, binding, func(theirs client.Client) error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: "metal3.io", Resource: "baremetalhosts",
				Namespace: fixture.Namespace},
		}}
		if err := theirs.Create(ctx, review); err != nil || review.Status.Allowed {
			return err
		}
		return errors.New("it is not allowed yet")
	})
}

// kubeconfigOf makes a file for a user whose rights are these for as long as the spec runs, once they are there.
func kubeconfigOf(ctx context.Context, name string, role, binding client.Object, there func(client.Client) error) string {
	GinkgoHelper()
	for _, object := range []client.Object{role, binding} {
		Expect(here.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
	}
	config, content, err := management.User(name)
	Expect(err).NotTo(HaveOccurred())
	theirs := clientFor(config)
	Eventually(func() error { return there(theirs) }).Should(Succeed())
	return fileWith(content)
}

var _ = Describe("The record of a remediation", func() {
	older := map[types.UID]bool{} // of other specs
	BeforeEach(func(ctx SpecContext) {
		fixture.AllWell(ctx)
		list := &mendv1.RemediationRecordList{}
		Expect(here.List(ctx, list, client.InNamespace(fixture.Namespace))).To(Succeed())
		for i := range list.Items {
			older[list.Items[i].UID] = true
		}
	})
	// held is a finalizer with which a spec keeps a machine. It must not outlive a spec that fails: no other one would find all machines
	// healthy again.
	const held = "test.example.com/held"
	release := func(ctx context.Context, machine string) {
		changeMachine(ctx, machine, func(m *clusterv1.Machine) { controllerutil.RemoveFinalizer(m, held) })
	}
	AfterEach(func(ctx SpecContext) {
		for _, name := range fixture.WorkerNames(ctx) {
			if controllerutil.ContainsFinalizer(fixture.Machine(ctx, name), held) {
				release(ctx, name)
			}
		}
	})

	// recordsOf are the records of a machine.
	recordsOf := func(ctx context.Context, machine string) []mendv1.RemediationRecord {
		GinkgoHelper()
		list, of := &mendv1.RemediationRecordList{}, []mendv1.RemediationRecord(nil)
		Expect(here.List(ctx, list, client.InNamespace(fixture.Namespace))).To(Succeed())
		for i := range list.Items {
			if is := &list.Items[i]; !older[is.UID] && is.Spec.Target.Machine != nil && is.Spec.Target.Machine.Name == machine {
				of = append(of, *is)
			}
		}
		return of
	}
	// is reports whether a machine has one record, a condition of which is true, as `kubectl wait --for=condition` does.
	is := func(ctx context.Context, machine, condition string) func() bool {
		return func() bool {
			all := recordsOf(ctx, machine)
			return len(all) == 1 && meta.IsStatusConditionTrue(all[0].Status.Conditions, condition)
		}
	}

	It("is one, and true, although the manager is killed on the way", func(ctx SpecContext) {
		applyTemplate(ctx, map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		before, lost := identities(ctx), fixture.WorkerNames(ctx)[0]

		// Of a machine that goes while no manager runs, before its record says who acts on it, no manager can know who deleted it: it stays
		// until the record says.
		changeMachine(ctx, lost, func(m *clusterv1.Machine) { controllerutil.AddFinalizer(m, held) })

		By("killing it as soon as there is a record")
		silence(lost)
		Eventually(func() int { return len(recordsOf(ctx, lost)) }).Should(Equal(1))
		manager.Kill()
		startManager(ctx)

		By("killing it when the remediation was begun")
		Eventually(is(ctx, lost, mendv1.RecordBegun)).Should(BeTrue())
		manager.Kill()
		release(ctx, lost)
		replaced(ctx, before, lost)
		startManager(ctx)

		Eventually(is(ctx, lost, mendv1.RecordCapacityBack)).Should(BeTrue())
		Eventually(is(ctx, lost, mendv1.RecordEnded)).Should(BeTrue())
		record := recordsOf(ctx, lost)[0]
		Expect(record.Status.Outcome).To(Equal(mendv1.RecordReplaced))
		Expect(record.Status.BegunBy).To(Equal("kubemend"))
		Expect(record.Labels).NotTo(HaveKey(mendv1.RecordOpenLabel))
		Expect(record.OwnerReferences).To(HaveLen(1))
		Expect(record.Status.Replacement).NotTo(BeNil())
		by := record.Status.Replacement.Machine.Name
		Expect(identities(ctx)).To(HaveKey(by))
		Expect(before).NotTo(HaveKey(by))
	}, SpecTimeout(specPatience))
})
