package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

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
