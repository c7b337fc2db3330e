package baremetal

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// These are the checks and templates of Metal3's documentation, in v1beta1, as printed there.
var _ = Describe("The manifests of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("have a worker power-cycled, with the retries and the timeout that they ask for", func(ctx SpecContext) {
		applied(ctx, "003/workers.yaml")
		name := fixture.WorkerNames(ctx)[0]
		identity, host, began := fixture.Machine(ctx, name).UID, fixture.Host(name), time.Now()
		host.Take(simulator.Times{PowerOff: 2 * time.Second}) // so that the spec can observe the request
		DeferCleanup(func() { host.Take(simulator.Times{}) })

		fixture.silence(ctx, name)

		asked := &infrav1beta1.Metal3Remediation{}
		Eventually(func() error { return here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: name}, asked) }).
			Should(Succeed())
		Expect(asked.Spec.Strategy).NotTo(BeNil())
		Expect(asked.Spec.Strategy.RetryLimit).To(Equal(2))
		Expect(asked.Spec.Strategy.Timeout).NotTo(BeNil())
		Expect(asked.Spec.Strategy.Timeout.Duration).To(Equal(5 * time.Minute))
		fixture.cycled(ctx, name, identity, began)
		Eventually(fixture.recordedEvents(ctx, theirs.name, name, began)).Should(And(HaveKey("Fenced"), freed))
	}, SpecTimeout(specPatience))
})

// cycled waits until a machine was power-cycled once and is healthy, and expects that no trace of the remediation is left.
func (env *environment) cycled(ctx context.Context, name string, identity types.UID, began time.Time) {
	GinkgoHelper()
	host := env.Host(name)
	Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
	Eventually(func() corev1.ConditionStatus { return env.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
	Eventually(func() bool { return env.gone(ctx, theirs, name) }).Should(BeTrue())
	env.nothingIsLeft(ctx, host, name)
	Expect(env.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
}

// applied creates the objects of a printed manifest unchanged, then claims the check for kubemend. They exist until the spec ends.
func applied(ctx context.Context, file string) {
	GinkgoHelper()
	for _, object := range suite.Seed(file) {
		Expect(here.Create(ctx, object, client.FieldValidation("Strict"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
		if object.GetKind() != "MachineHealthCheck" {
			continue
		}
		check := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(object), check)).To(Succeed())
		before := check.DeepCopy()
		builders.Claimed(check)
		Expect(here.Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
	}
}

// This follows docs/recipes/power-cycle-only.md, with other names and a timeout of two seconds.
var _ = Describe("A check that stays with Cluster API core and names a HostRemediationTemplate", func() {
	It("has a host power-cycled by kubemend, which writes nothing to the check", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		name := fixture.WorkerNames(ctx)[0]
		identity, host, began := fixture.Machine(ctx, name).UID, fixture.Host(name), time.Now()
		host.Take(simulator.Times{Boot: 5 * time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		check := fixture.follows(ctx, "power-cycle-only")

		host.Kubelet().Stop()

		Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
		Eventually(func() corev1.ConditionStatus { return fixture.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
		Eventually(func() bool { return fixture.gone(ctx, ours, name) }).
			Should(BeTrue(), "core deletes its request when the machine is healthy")
		fixture.nothingIsLeft(ctx, host, name)
		Expect(fixture.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
		Eventually(fixture.recordedEvents(ctx, ours.name, name, began)).Should(And(freed, HaveKey("Fenced")))

		now := &clusterv1.MachineHealthCheck{}
		Expect(here.Get(ctx, client.ObjectKeyFromObject(check), now)).To(Succeed())
		Expect(now.Annotations).NotTo(HaveKey(clusterv1.PausedAnnotation))
		Expect(suite.Written(management, "machinehealthchecks", began, "")).NotTo(ContainElement(check.GetName()), "the check is core's")
	}, SpecTimeout(specPatience))
})

// follows applies the manifests of a recipe to the workers of the environment for as long as the spec runs, and returns the check.
func (env *environment) follows(ctx context.Context, recipe string) *unstructured.Unstructured {
	GinkgoHelper()
	var check *unstructured.Unstructured
	for _, o := range suite.Printed(filepath.Join("..", "..", "..", "docs", "recipes", recipe+".md")) {
		o.SetNamespace(env.Namespace)
		if o.GetKind() == "MachineHealthCheck" {
			check = o
			Expect(unstructured.SetNestedField(o.Object, env.Name, "spec", "clusterName")).To(Succeed())
			pool := map[string]string{clusterv1.MachineDeploymentNameLabel: env.Pool()}
			Expect(unstructured.SetNestedStringMap(o.Object, pool, "spec", "selector", "matchLabels")).To(Succeed())
			rules, _, err := unstructured.NestedSlice(o.Object, "spec", "checks", "unhealthyNodeConditions")
			Expect(err).NotTo(HaveOccurred())
			for _, rule := range rules {
				rule.(map[string]any)["timeoutSeconds"] = int64(2)
			}
			Expect(unstructured.SetNestedSlice(o.Object, rules, "spec", "checks", "unhealthyNodeConditions")).To(Succeed())
		}
		Expect(here.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(here.Delete(ctx, o,
				&client.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))).To(Succeed())
		})
	}
	Expect(check).NotTo(BeNil())
	return check
}

// The manager parses Cluster API's message about the drain. controllers/capacity tests all other waits in memory.
var _ = Describe("The capacity of a worker whose drain a PodDisruptionBudget blocks", func() {
	It("is reported as missing until the budget is deleted, and as back with the replacement", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		name, host := fixture.aWorker(ctx)
		budget := fixture.guarded(ctx, name)
		check := builders.MachineHealthCheck(fixture.Cluster, "capacity", builders.Claimed, builders.Patience(2*time.Second))
		Expect(builders.Apply(ctx, here, check)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
		lost := fixture.storyOf(ctx, name)
		Eventually(func(g Gomega) []mendv1.RemediationRecord {
			open := &mendv1.RemediationRecordList{}
			ofIt := client.MatchingLabels{mendv1.RecordTargetLabel: string(lost.uid), mendv1.RecordOpenLabel: "true"}
			g.Expect(here.List(ctx, open, ofIt)).To(Succeed())
			return open.Items
		}).Should(BeEmpty(), "a remediation would join an open record, such as that of a power cycle in another spec")

		host.Kubelet().Report(corev1.NodeReady, corev1.ConditionFalse, "KubeletSays")

		By("waiting for the budget")
		Eventually(func() []mendv1.RecordStep { return fixture.recordOf(ctx, lost).Status.Steps }).Should(
			ContainElement(HaveField("Reason", "DrainBlockedByBudget")))
		Eventually(capacityOf(ctx, check)).Should(Equal("False DrainBlockedByBudget"))
		Expect(fixture.There.Delete(ctx, budget)).To(Succeed())

		By("waiting for the replacement")
		Eventually(func() *metav1.Time { return fixture.recordOf(ctx, lost).Status.Ended }).ShouldNot(BeNil())
		fixture.AllWell(ctx)
		record := fixture.recordOf(ctx, lost)
		Expect(record.Status.Outcome).To(Equal(mendv1.RecordReplaced))
		Expect(fixture.WorkerNames(ctx)).To(ContainElement(record.Status.Replacement.Machine.Name))
		Expect(record.Spec.Target.Host).To(HaveValue(HaveField("Name", host.Key().Name)))
		Expect(record.OwnerReferences).To(ConsistOf(HaveField("UID", fixture.Cluster.UID)))
		Eventually(capacityOf(ctx, check)).Should(HavePrefix("True "))
		Eventually(fixture.recordedEvents(ctx, "MachineHealthCheck", check.Name, lost.began)).Should(HaveKey("CapacityBack"))

		By("reading the record and the history with kubectl")
		kubectl := func(args ...string) string { return suite.Kubectl(ctx, management, fixture.Namespace, args...) }
		shown := strings.Fields(kubectl("get", "rrec", record.Name, "-o", "wide", "--no-headers"))
		Expect(shown[1:8]).To(Equal([]string{fixture.Name, name, name, host.Key().Name, check.Name, "Ready=False", "Replaced"}))
		Expect(shown).To(HaveLen(11), "it says how capacity came back, when it began and when capacity was back")
		Expect(kubectl("mend", "history", "machine/"+name)).To(And(
			ContainSubstring("RemediationDecided"), ContainSubstring("DrainBlockedByBudget"), ContainSubstring("Replaced")))
		for _, object := range []string{"machine/" + name, "machinedeployment/" + fixture.Pool(), "cluster/" + fixture.Name} {
			Expect(kubectl("mend", "wait", object, "--for=capacity-back", "--timeout=5m")).To(ContainSubstring("condition met"))
		}
	}, SpecTimeout(specPatience))
})

// guarded puts a pod on the node of a worker, with a PodDisruptionBudget that allows no disruption, for as long as the spec runs.
func (env *environment) guarded(ctx context.Context, worker string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	labels := map[string]string{"app": "guarded"}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "guarded"}}
	budget.Spec.MinAvailable, budget.Spec.Selector = ptr.To(intstr.FromInt32(1)), &metav1.LabelSelector{MatchLabels: labels}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "guarded", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: worker, Containers: []corev1.Container{{Name: "app", Image: "simulated/app"}}},
	}
	for _, o := range []client.Object{budget, pod} {
		Expect(env.There.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.There.Delete(ctx, o))).To(Succeed()) })
	}
	Eventually(func(g Gomega) {
		g.Expect(env.There.Get(ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		g.Expect(budget.Status.CurrentHealthy).To(BeEquivalentTo(1))
	}).Should(Succeed())
	return budget
}

// recordOf returns the record of an owner remediation of the machine, or an empty record if there is none.
func (env *environment) recordOf(ctx context.Context, lost story) *mendv1.RemediationRecord {
	GinkgoHelper()
	list := &mendv1.RemediationRecordList{}
	ofIt := client.MatchingLabels{mendv1.RecordTargetLabel: string(lost.uid)}
	Expect(here.List(ctx, list, client.InNamespace(env.Namespace), ofIt)).To(Succeed())
	for i := range list.Items {
		if r := &list.Items[i]; r.Spec.Remediator == mendv1.RemediatedByOwner {
			return r
		}
	}
	return &mendv1.RemediationRecord{}
}

// capacityOf returns status and reason of a check's condition CapacityBack.
func capacityOf(ctx context.Context, check *clusterv1.MachineHealthCheck) func(Gomega) string {
	return func(g Gomega) string {
		now := &clusterv1.MachineHealthCheck{}
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(check), now)).To(Succeed())
		c := conditions.Get(now, mendv1.CapacityBack)
		g.Expect(c).NotTo(BeNil())
		return string(c.Status) + " " + c.Reason
	}
}

// story is the state of a machine before something happens to it.
type story struct {
	name  string
	uid   types.UID
	host  *simulator.Host
	began time.Time
}

func (env *environment) storyOf(ctx context.Context, machine string) story {
	GinkgoHelper()
	return story{name: machine, uid: env.Machine(ctx, machine).UID, host: env.Host(machine), began: time.Now()}
}

var _ = Describe("A power cycle", func() {
	It("moves the workload, and continues under the other replica when the one that acts is killed", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		const app = "stateful"
		workload := append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))
		Expect(builders.Apply(ctx, fixture.There, workload...)).To(Succeed())
		manager.Kill()
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) })
		replica := func(name string) *rig.Kubemend {
			r := suite.Must(management.Kubemend(ctx, name, account, "--leader-elect", "--leader-elect-namespace="+rig.Namespace))
			DeferCleanup(func() {
				r.Kill()
				suite.LogOf("the "+name+" replica", r, CurrentSpecReport())
			})
			return r
		}
		leads := func(r *rig.Kubemend) func() (bool, error) {
			return func() (bool, error) {
				page, err := r.Scrape(ctx)
				return strings.Contains(page, `leader_election_master_status{name="leader.kubemend.io"} 1`), err
			}
		}
		first := replica("first")
		Eventually(leads(first)).Should(BeTrue())
		other := replica("other")
		name := fixture.nodeOf(ctx, app)
		host, began := fixture.Host(name), time.Now()
		attacher.Stick(true) // the host stays off while a volume is attached: until the other replica leads
		DeferCleanup(func() { attacher.Stick(false) })
		rem := fixture.byHand(ctx, name)
		Eventually(powered(host)).Should(BeFalse())
		Expect(leads(other)()).To(BeFalse())

		first.Kill()
		Eventually(leads(other)).Should(BeTrue())
		attacher.Stick(false)

		Eventually(func(g Gomega) {
			g.Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
			g.Expect(rem.Status.Step).To(Equal("Succeeded"))
		}).Should(Succeed())
		Expect(rem.Status.Attempt).To(BeEquivalentTo(1))
		Expect(fixture.nodeOf(ctx, app)).NotTo(Equal(name))
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})
