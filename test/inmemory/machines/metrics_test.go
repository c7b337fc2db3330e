package machines

import (
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// number returns a metric: the sum of all series that have these labels, written like `kind="Owner"`.
func (w *setting) number(name string, labels ...string) func() float64 {
	return func() float64 {
		sum := 0.0
		for _, m := range w.series(name, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
}

// exported is how many series of a metric have these labels.
func (w *setting) exported(name string, labels ...string) func() int {
	return func() int { return len(w.series(name, labels)) }
}

func (w *setting) series(name string, labels []string) []*dto.Metric {
	families, err := w.manager.Gather()
	w.Expect(err).NotTo(HaveOccurred())
	var found []*dto.Metric
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetName()+`="`+l.GetValue()+`"`] = true
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
				found = append(found, m)
			}
		}
	}
	return found
}

// reconciles counts how often any check was reconciled.
func (w *setting) reconciles() float64 {
	return w.number("controller_runtime_reconcile_total", `controller="machinehealthcheck"`)()
}

// labels are those by which an environment's check is known in metrics.
func (s *environment) labels(check string, more ...string) []string {
	return append([]string{
		`namespace="` + s.cluster.Namespace + `"`, `name="` + check + `"`, `cluster="` + s.cluster.Name + `"`,
	}, more...)
}

// settles returns the number of reconciles when nothing happens any more that was begun.
func (s *environment) settles() float64 {
	time.Sleep(10 * time.Second)
	return s.reconciles()
}

// versions returns the version of every Cluster, machine, check and request, and how many events were sent: equal maps mean that nothing
// was written in between.
func (s *environment) versions() map[string]string {
	all := map[string]string{"events": strconv.Itoa(len(s.sentEvents()()))}
	for _, kind := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("Machine"), clusterv1.GroupVersion.WithKind("MachineHealthCheck"),
		schema.FromAPIVersionAndKind(metal3.apiVersion, metal3.kind),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		s.Expect(s.here.List(s.ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
		for i := range list.Items {
			all[kind.Kind+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	}
	return all
}
