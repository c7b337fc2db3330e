package conformance

import (
	"context"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
)

// ownManager starts a manager for one spec. It sees what is labelled with its name, and no other manager sees that.
func ownManager(ctx context.Context, name string, args ...string) *rig.Kubemend {
	GinkgoHelper()
	return startManager(ctx, name, nil, append([]string{"--watch-filter=" + name, "--unclaimed-machine-health-checks=act"}, args...)...)
}

// startManager starts a manager that ends with the spec. Flags that are given twice count as given last.
func startManager(ctx context.Context, name string, kubeconfig []byte, args ...string) *rig.Kubemend {
	GinkgoHelper()
	m, err := management.Kubemend(ctx, name, kubeconfig, append([]string{"-v=2"}, args...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			AddReportEntry("the log of manager "+name, m.Log)
		}
		m.Kill()
	})
	return m
}

// seenBy labels a Cluster, and the checks that are made for it, for the manager of that name.
func seenBy(name string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) { c.Labels[clusterv1.WatchLabel] = name }
}

// number returns a metric of a manager: the sum of all series that have these labels, written like `kind="Owner"`.
func number(ctx context.Context, m *rig.Kubemend, name string, labels ...string) func() float64 {
	return func() float64 {
		n, _ := scraped(ctx, m, name, labels...)
		return n
	}
}

func scraped(ctx context.Context, m *rig.Kubemend, name string, labels ...string) (sum float64, series int) {
	GinkgoHelper()
	text, err := m.Scrape(ctx)
	Expect(err).NotTo(HaveOccurred())
next:
	for line := range strings.Lines(text) {
		of, rest, found := strings.Cut(strings.TrimSpace(line), "{")
		if !found || of != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains("{"+rest, "{"+label) && !strings.Contains(rest, ","+label) {
				continue next
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndex(rest, " ")+1:], 64)
		Expect(err).NotTo(HaveOccurred())
		sum, series = sum+value, series+1
	}
	return sum, series
}

// reconciles counts how often a manager has reconciled any check.
func reconciles(ctx context.Context, m *rig.Kubemend) func() float64 {
	return number(ctx, m, "controller_runtime_reconcile_total", `controller="machinehealthcheck"`)
}

// writes counts what a manager asked any API server to change.
func writes(ctx context.Context, m *rig.Kubemend) func() float64 {
	return func() float64 {
		all := 0.0
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			all += number(ctx, m, "rest_client_requests_total", `method="`+method+`"`)()
		}
		return all
	}
}

// hostOf is the address of an API server, as metrics name it.
func hostOf(c *rig.ControlPlane) string { return strings.TrimPrefix(c.Config().Host, "https://") }

// labels are those by which an environment's check is known in metrics.
func (s *environment) labels(check string, more ...string) []string {
	return append([]string{
		`namespace="` + s.cluster.Namespace + `"`, `name="` + check + `"`, `cluster="` + s.cluster.Name + `"`,
	}, more...)
}

// versions returns the resource version of every machine, check, request and event of the environment's namespace: equal maps mean that nothing
// was written in between.
func (s *environment) versions(ctx context.Context) func() map[string]string {
	return func() map[string]string {
		all := map[string]string{}
		for _, kind := range []schema.GroupVersionKind{
			clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("Machine"), clusterv1.GroupVersion.WithKind("MachineHealthCheck"),
			schema.FromAPIVersionAndKind(metal3.apiVersion, metal3.kind),
			schema.FromAPIVersionAndKind("events.k8s.io/v1", "Event"),
		} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			Expect(here.List(ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
			Expect(meta.EachListItem(list, func(o runtime.Object) error {
				item := o.(*unstructured.Unstructured)
				all[kind.Kind+"/"+item.GetName()] = item.GetResourceVersion()
				return nil
			})).To(Succeed())
		}
		return all
	}
}
