package suite

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Two writes between two looks are two states, and neither is the one that is read in the end.
func TestAHistoryHasEveryStateOfTheMachines(t *testing.T) {
	RegisterTestingT(t)
	scheme := runtime.NewScheme()
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	named := func(name string) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(named("a")).Build()
	history := HistoryOf(t.Context(), c, client.InNamespace("ns"))
	defer history.Stop()
	Expect(history.Since()).To(BeEmpty(), "before the first write")

	Expect(c.Create(t.Context(), named("b"))).To(Succeed())
	a := named("a")
	Expect(c.Get(t.Context(), client.ObjectKeyFromObject(a), a)).To(Succeed())
	a.Spec.ProviderID = "metal://1"
	Expect(c.Update(t.Context(), a)).To(Succeed())
	Expect(c.Delete(t.Context(), a)).To(Succeed())

	var got []map[string]string
	Eventually(func() []map[string]string {
		for _, machines := range history.Since() {
			are := map[string]string{}
			for name, m := range machines {
				are[name] = m.Spec.ProviderID
			}
			got = append(got, are)
		}
		return got
	}).Should(Equal([]map[string]string{{"a": "", "b": ""}, {"a": "metal://1", "b": ""}, {"b": ""}}))
	Expect(history.Since()).To(BeEmpty(), "after the last one")
}
