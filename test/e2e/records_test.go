package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"

	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("The record of a remediation", func() {
	var library client.Client

	BeforeEach(func(ctx SpecContext) {
		library = suite.Client(management.Config(), clusterv1.AddToScheme, mendv1.AddToScheme)
		shared.allHealthy(ctx)
	})
	// held is a finalizer with which a spec keeps a machine. It must not outlive a spec that fails: no other one would find all machines healthy again.
	const held = "test.example.com/held"
	release := func(ctx context.Context, machine string) {
		shared.changeMachine(ctx, machine, func(m *clusterv1.Machine) { controllerutil.RemoveFinalizer(m, held) })
	}
	AfterEach(func(ctx SpecContext) {
		for name, m := range shared.machines(ctx) {
			if controllerutil.ContainsFinalizer(m, held) {
				release(ctx, name)
			}
		}
		shared.leaveAsFound(ctx)
		Expect(library.DeleteAllOf(ctx, &mendv1.RemediationRecord{}, client.InNamespace(shared.namespace))).To(Succeed())
	})

	// recordsOf are the records of a machine.
	recordsOf := func(ctx context.Context, machine string) []mendv1.RemediationRecord {
		GinkgoHelper()
		list, of := &mendv1.RemediationRecordList{}, []mendv1.RemediationRecord(nil)
		Expect(library.List(ctx, list, client.InNamespace(shared.namespace))).To(Succeed())
		for i := range list.Items {
			if is := &list.Items[i]; is.Spec.Target.Machine != nil && is.Spec.Target.Machine.Name == machine {
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

	It("is one, and true, although the manager is killed at any moment", func(ctx SpecContext) {
		check := shared.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := shared.identities(ctx), shared.workerNames(ctx)[0]

		// Of a machine that goes while no manager runs, before its record says who acts on it, no manager can know who deleted it: it stays until the record says.
		shared.changeMachine(ctx, lost, func(m *clusterv1.Machine) { controllerutil.AddFinalizer(m, held) })

		By("killing it as soon as there is a record")
		shared.fallSilent(lost)
		Eventually(func() int { return len(recordsOf(ctx, lost)) }).WithPolling(10 * time.Millisecond).Should(Equal(1))
		manager.Kill()
		startManager(ctx)

		By("killing it when the remediation was begun")
		Eventually(is(ctx, lost, mendv1.RecordBegun)).WithPolling(10 * time.Millisecond).Should(BeTrue())
		manager.Kill()
		release(ctx, lost)
		shared.replaced(ctx, before, lost)
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
		Expect(shared.identities(ctx)).To(HaveKey(by))
		Expect(before).NotTo(HaveKey(by))

		By("changing what was decided, and how it has ended")
		for _, change := range []func(*mendv1.RemediationRecord){
			func(r *mendv1.RemediationRecord) { r.Spec.Cause = "Weather" },
			func(r *mendv1.RemediationRecord) { r.Status.Outcome = mendv1.RecordGivenUp },
		} {
			changed := record.DeepCopy()
			change(changed)
			err := library.Update(ctx, changed)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("never changes")))
		}
		Consistently(func() string { return recordsOf(ctx, lost)[0].ResourceVersion }).Should(Equal(record.ResourceVersion), "nothing is written after the end")
	}, SpecTimeout(specPatience))

	It("says that a machine was healthy again before its owner acted on it", func(ctx SpecContext) {
		m := shared.machines(ctx)[shared.workerNames(ctx)[1]]
		asked := metav1.Now()
		record := &mendv1.RemediationRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "healed", Labels: map[string]string{mendv1.RecordOpenLabel: "true"}},
			Spec: mendv1.RemediationRecordSpec{
				Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Decided: asked,
				Target: mendv1.RecordTarget{
					ClusterName: shared.cluster.Name,
					Machine:     &mendv1.RecordRef{Kind: "Machine", Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)},
				},
			},
			Status: mendv1.RemediationRecordStatus{
				Attempted: &asked, Begun: &asked, BegunBy: "kubemend",
				Steps: []mendv1.RecordStep{{Time: asked, Reason: "OwnerRequested", Message: "asked"}},
			},
		}
		Expect(library.Create(ctx, record)).To(Succeed())
		Eventually(is(ctx, m.Name, mendv1.RecordEnded)).Should(BeTrue())
		Expect(recordsOf(ctx, m.Name)[0].Status.Outcome).To(Equal(mendv1.RecordHealed))
	}, SpecTimeout(specPatience))

	It("is deleted once it is older than the retention, and not before", func(ctx SpecContext) {
		for name, age := range map[string]time.Duration{"old": 31 * 24 * time.Hour, "young": 29 * 24 * time.Hour} {
			at := metav1.NewTime(time.Now().Add(-age))
			Expect(library.Create(ctx, &mendv1.RemediationRecord{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: shared.namespace, Name: name, Annotations: map[string]string{mendv1.RecordEndedAnnotation: at.UTC().Format(time.RFC3339)},
					Labels: map[string]string{clusterv1.ClusterNameLabel: shared.cluster.Name},
					OwnerReferences: []metav1.OwnerReference{{
						APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: shared.cluster.Name, UID: shared.cluster.UID,
					}},
				},
				Spec: mendv1.RemediationRecordSpec{
					Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Decided: at,
					Target: mendv1.RecordTarget{
						ClusterName: shared.cluster.Name,
						Machine:     &mendv1.RecordRef{Kind: "Machine", Namespace: shared.namespace, Name: name, UID: name},
					},
				},
				Status: mendv1.RemediationRecordStatus{Ended: &at, Outcome: mendv1.RecordHealed},
			})).To(Succeed())
		}
		manager.Kill()
		startManager(ctx) // the leader looks when it begins to lead
		Eventually(func() []mendv1.RemediationRecord { return recordsOf(ctx, "old") }).Should(BeEmpty())
		Expect(recordsOf(ctx, "young")).To(HaveLen(1))
	}, SpecTimeout(specPatience))
})
