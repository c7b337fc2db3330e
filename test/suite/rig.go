package suite

import (
	"context"
	"os"
	"regexp"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/manifests"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/seeds"
	"github.com/kubemend/kubemend/test/simulator"
)

// Rig starts a rig, and stops it with all its programs when the suite, or the spec that calls Rig, ends.
func Rig(ctx context.Context) *rig.Rig {
	ginkgo.GinkgoHelper()
	r := Must(rig.Start(ctx, rig.Options{Log: ginkgo.GinkgoWriter}))
	ginkgo.DeferCleanup(func() {
		_, exposed, err := r.Listening()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(exposed).To(gomega.BeEmpty(), "other machines reach nothing")
		gomega.Expect(r.Stop()).To(gomega.Succeed(), "nothing is left of all programs and their files")
	})
	return r
}

// Unhurried removes the client-side rate limit and drops warnings of the API server. It changes and returns config.
func Unhurried(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// Client returns an Unhurried client that knows kinds in addition to those of Kubernetes.
func Client(config *rest.Config, kinds ...func(*runtime.Scheme) error) client.WithWatch {
	ginkgo.GinkgoHelper()
	scheme := runtime.NewScheme()
	gomega.Expect(clientgoscheme.AddToScheme(scheme)).To(gomega.Succeed())
	for _, add := range kinds {
		gomega.Expect(add(scheme)).To(gomega.Succeed())
	}
	return clientOf(config, scheme)
}

// LeadCore writes a leader-election Lease of Cluster API core, where clusterctl installs core, valid for a day. On the rig core elects no
// leader.
func LeadCore(ctx context.Context, c client.Client) {
	ginkgo.GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "capi-system"}}
	gomega.Expect(client.IgnoreAlreadyExists(c.Create(ctx, namespace))).To(gomega.Succeed())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "controller-leader-election-capi"}}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("core"), LeaseDurationSeconds: new(int32(24 * 60 * 60)), RenewTime: new(metav1.NowMicro()),
	}
	gomega.Expect(c.Create(ctx, lease)).To(gomega.Succeed())
}

func clientOf(config *rest.Config, scheme *runtime.Scheme) client.WithWatch {
	ginkgo.GinkgoHelper()
	c := Must(client.NewWithWatch(Unhurried(config), client.Options{Scheme: scheme}))
	return c
}

// Hardware starts a pool of simulated hosts, and the infrastructure provider that puts the Machines of a management cluster on them. Both
// run until the suite, or the spec that calls Hardware, ends.
func Hardware(management *rest.Config) (*simulator.Hosts, *simulator.Infrastructure) {
	ginkgo.GinkgoHelper()
	hosts := Must(simulator.NewHosts(management, simulator.Hurried()))
	provider := Must(simulator.NewInfrastructure(management, hosts))
	Beside(hosts.Start)
	Beside(provider.Start)
	return hosts, provider
}

// Manifest returns all objects of a file, unchanged and in the order of the file.
func Manifest(file string) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	content := Must(os.ReadFile(file))
	return Objects(content)
}

// Seed returns all objects of a manifest of package seeds, unchanged and in its order. The manifests are those of other projects'
// documents.
func Seed(file string) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	objects := Must(seeds.Objects(file))
	return objects
}

// printed matches the fenced blocks of YAML of a page.
var printed = regexp.MustCompile("(?s)```yaml\n(.*?\n)```\n")

// Printed returns all objects in the YAML blocks of a page of the documentation, unchanged and in their order.
func Printed(page string) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	content := Must(os.ReadFile(page))
	blocks := printed.FindAllSubmatch(content, -1)
	all := make([]*unstructured.Unstructured, 0, len(blocks))
	for _, block := range blocks {
		all = append(all, Objects(block[1])...)
	}
	gomega.Expect(all).NotTo(gomega.BeEmpty(), "%s shows no manifest", page)
	return all
}

// Objects returns all objects of a manifest, unchanged and in its order.
func Objects(manifest []byte) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	decoded := Must(manifests.Decode(manifest))
	all := make([]*unstructured.Unstructured, len(decoded))
	for i := range decoded {
		all[i] = &decoded[i]
	}
	return all
}
