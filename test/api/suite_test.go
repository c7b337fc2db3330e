// Package api tests what only an API server knows: schemas, rules in CEL, webhooks, conversion, rights, policies, and what a
// release ships in the hands of the tools that it is for, from its installation over upgrades to its removal.
//
// Three control planes, one after the other: one in which a manager that is installed as it ships needs every right that it
// has, one beside Cluster API that `kubectl apply` installs, upgrades and removes releases on, and a bare one for clusterctl.
// cert-manager is replaced by the rig's certificate, and no pod of the Deployment runs: where a manager has to answer, it is
// the built one, as the ServiceAccount that ships.
//
// What time, order and counts decide is not asked here: the scenes in memory are exact about these.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	root         = "../.."
	specPatience = suite.SpecPatience

	// first is the oldest release that can be upgraded from. Its manifests are kept as they were: see testdata.
	first = "v0.1.0"
)

// What all specs share.
var (
	// repository is a folder of releases as clusterctl reads them: ours below addon-kubemend, and what clusterctl init asks for besides.
	repository string
	// this is what the release of this commit is called.
	this string
)

func TestAPI(t *testing.T) {
	suite.Run(t, "API", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join(root, "bin", "manager")).To(BeAnExistingFile(), "run make build")
	repository = GinkgoT().TempDir()
	this = nextVersion()
	run(ctx, root, "make", "release-manifests", "VERSION="+this, "OUT="+repository)
	Expect(os.CopyFS(filepath.Join(repository, "addon-kubemend", first), os.DirFS(filepath.Join("testdata", first)))).To(Succeed())
}, NodeTimeout(specPatience))

// nextVersion is the one that clusterctl's settings have for what is not yet released.
func nextVersion() string {
	GinkgoHelper()
	content := suite.Must(os.ReadFile(filepath.Join(root, "clusterctl-settings.json")))
	var settings struct {
		Config struct {
			NextVersion string `json:"nextVersion"`
		} `json:"config"`
	}
	Expect(json.Unmarshal(content, &settings)).To(Succeed())
	Expect(settings.Config.NextVersion).NotTo(BeEmpty())
	return settings.Config.NextVersion
}

func released(version, file string) string {
	return filepath.Join(repository, "addon-kubemend", version, file)
}

// run runs a program and returns what it writes. It gets no settings of a `make` that may have started these tests.
func run(ctx context.Context, folder, program string, args ...string) []byte {
	GinkgoHelper()
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = folder
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MAKE") && !strings.HasPrefix(variable, "MFLAGS") && !strings.HasPrefix(variable, "IMAGE=") {
			command.Env = append(command.Env, variable)
		}
	}
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred(), said.String())
	return out
}

func kustomized(ctx context.Context, folder string) []byte {
	GinkgoHelper()
	return run(ctx, root, filepath.Join(".tools", "bin", "kustomize"), "build", folder)
}

func read(file string) []byte {
	GinkgoHelper()
	content := suite.Must(os.ReadFile(file))
	return content
}

// installer is who applies manifests, author who writes objects.
const (
	installer = client.FieldOwner("installer")
	author    = client.FieldOwner("author")
)

// cluster is a management cluster that ends with the spec, or the container of specs, that has started it.
type cluster struct {
	client.Client
	plane *rig.ControlPlane
}

// newCluster starts one with the kinds of cert-manager, in addition to what the options say.
func newCluster(ctx context.Context, o rig.ManagementOptions) *cluster {
	GinkgoHelper()
	certManager := suite.Must(rig.CertManager())
	o.CRDs = append(o.CRDs, certManager...)
	plane := suite.Must(suite.Rig(ctx).Management(ctx, o))
	return reach(plane)
}

func reach(plane *rig.ControlPlane) *cluster {
	GinkgoHelper()
	return &cluster{Client: suite.Client(plane.Config(), apiextensionsv1.AddToScheme), plane: plane}
}

// install applies a manifest as `kubectl apply --server-side` does: a field that the API server does not know is refused.
// What webhooks there are lead to the manager that is started with start, as if by cert-manager and by a Service.
func (c *cluster) install(ctx context.Context, manifest []byte) []*unstructured.Unstructured {
	GinkgoHelper()
	all := suite.Objects(manifest)
	for _, o := range all {
		Expect(c.plane.Trust(o)).To(Succeed())
		c.apply(ctx, o, installer, client.ForceOwnership)
	}
	c.serves(ctx, all)
	return all
}

// apply applies one object, tried without consequences first. It leaves the object as it was given, but for what the API server adds.
func (c *cluster) apply(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) {
	GinkgoHelper()
	Expect(c.try(ctx, o, opts...)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
	Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), opts...)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
}

// try has the API server check an object as it would if it were applied.
func (c *cluster) try(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(again(o)), append(opts, client.DryRunAll)...)
}

// remove deletes what was installed, in the order of kubectl delete: that of the manifest, the namespace first and the
// webhooks last. It returns when all of it is gone, and with the kinds their objects.
func (c *cluster) remove(ctx context.Context, all []*unstructured.Unstructured) {
	GinkgoHelper()
	c.delete(ctx, all)
	for _, o := range all {
		c.gone(ctx, o)
	}
}

func (c *cluster) delete(ctx context.Context, all []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range all {
		Expect(client.IgnoreNotFound(c.Delete(ctx, o.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground)))).
			To(Succeed())
	}
}

// isWebhook reports whether an object makes the API server ask the manager.
func isWebhook(o *unstructured.Unstructured) bool {
	return o.GetKind() == "MutatingWebhookConfiguration" || o.GetKind() == "ValidatingWebhookConfiguration"
}

// again is an object that can be applied once more, without what the API server has added.
func again(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetUID("")
	unstructured.RemoveNestedField(o.Object, "status")
	return o
}

// serves waits until the kinds among objects are served.
func (c *cluster) serves(ctx context.Context, all []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range all {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd)).To(Succeed())
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(crd.Spec.Group + "/" + storage(crd))
		list.SetKind(crd.Spec.Names.ListKind)
		Eventually(func() error { return c.List(ctx, list) }).Should(Succeed(), crd.Name)
	}
}

// start starts the manager with the rights of the ServiceAccount that ships, and nothing but them. It ends with the cluster, at the latest.
func (c *cluster) start(ctx context.Context, name string, more ...string) *rig.Kubemend {
	GinkgoHelper()
	manager := suite.Must(c.plane.Kubemend(ctx, name, c.account(), append(c.plane.WebhookFlags(), more...)...))
	reportLog(manager)
	return manager
}

// account is the kubeconfig of the ServiceAccount that ships.
func (c *cluster) account() []byte {
	GinkgoHelper()
	_, kubeconfig, err := c.plane.User(rig.Account, "system:serviceaccounts", "system:serviceaccounts:"+rig.Namespace)
	Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}

// reportLog shows the end of a manager's log if the spec fails.
func reportLog(manager *rig.Kubemend) {
	DeferCleanup(func() { suite.LogOf("the manager", manager, CurrentSpecReport()) })
}

func (c *cluster) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

// storedVersions are those in which there may be objects of a kind.
func (c *cluster) storedVersions(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		crd, err := c.crd(ctx, name)
		if err != nil {
			return nil, err
		}
		return crd.Status.StoredVersions, nil
	}
}

// storage is the version that objects are written in.
func storage(crd *apiextensionsv1.CustomResourceDefinition) string {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			return crd.Spec.Versions[i].Name
		}
	}
	return ""
}

// current is an object as it is, in the version that it was written in.
func (c *cluster) current(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), found); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return found, nil
}

// certManagerVersion is what clusterctl calls the cert-manager that it finds. Nothing depends on it.
const certManagerVersion = "v1.21.1"

// providerOfThis is how a command of clusterctl names the release of this commit.
func providerOfThis() string { return "--addon=kubemend:" + this }

var _ = Describe("clusterctl", func() {
	It("finds in a release what the documentation says: the variables, and the image by its full name", func(ctx SpecContext) {
		described := clusterctl(ctx, settings(nil), "generate", "provider", providerOfThis(), "--describe")
		_, found, _ := strings.Cut(described, "Variables:")
		variables, images, _ := strings.Cut(found, "Images:")
		Expect(listed(variables)).To(ConsistOf(documentedVariables()))
		Expect(listed(images)).To(ConsistOf("ghcr.io/kubemend/kubemend:" + this))
		Expect(described).To(MatchRegexp(`TargetNamespace: +kubemend-system\n`))
	}, SpecTimeout(specPatience))

	// What variables do is in test/packages.
	It("renders a release for another namespace", func(ctx SpecContext) {
		rendered := clusterctl(ctx, settings(nil), "generate", "provider", providerOfThis(), "--target-namespace=elsewhere")
		Expect(rendered).NotTo(ContainSubstring("${"))
		for _, o := range suite.Objects([]byte(rendered)) {
			Expect(o.GetNamespace()).To(BeElementOf("", "elsewhere"), o.GetName())
			Expect(o.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "addon-kubemend"), o.GetName())
		}
	}, SpecTimeout(specPatience))

	It("cannot use an image without a host, so one that is at Docker's is given it", func(ctx SpecContext) {
		for image, full := range suite.InOrder(map[string]string{
			"somebody/kubemend": "docker.io/somebody/kubemend", "registry.example.org:5000/kubemend": "registry.example.org:5000/kubemend",
			"localhost/kubemend": "localhost/kubemend",
		}) {
			folder := GinkgoT().TempDir()
			run(ctx, root, "make", "release-manifests", "VERSION="+this, "OUT="+folder, "IMAGE="+image)
			manifest := read(filepath.Join(folder, "addon-kubemend", this, "kubemend.yaml"))
			Expect(string(manifest)).To(ContainSubstring("image: "+full+":"+this+"\n"), image)
		}
	}, SpecTimeout(specPatience))
})

func clusterctl(ctx context.Context, settings string, args ...string) string {
	GinkgoHelper()
	out := suite.Must(rig.Clusterctl(ctx, settings, args...))
	return string(out)
}

// settings writes a configuration of clusterctl that knows the repository, and sets variables.
func settings(variables map[string]string) string {
	GinkgoHelper()
	all := map[string]any{
		"providers": []map[string]string{
			{"name": "kubemend", "type": "AddonProvider", "url": released(this, "addon-components.yaml")},
			{"name": "cluster-api", "type": "CoreProvider",
				"url": filepath.Join(repository, "cluster-api", coreVersion(), "core-components.yaml")},
		},
		"cert-manager": map[string]string{
			"url":     filepath.Join(repository, "cert-manager", certManagerVersion, "cert-manager.yaml"),
			"version": certManagerVersion,
		},
	}
	for name, value := range variables {
		all[name] = value
	}
	content := suite.Must(json.Marshal(all))
	file := filepath.Join(GinkgoT().TempDir(), "clusterctl.yaml")
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

// coreVersion is that of the Cluster API that this project is built with.
func coreVersion() string {
	GinkgoHelper()
	folder := suite.Must(rig.ClusterAPI())
	_, version, found := strings.Cut(filepath.Base(folder), "@")
	Expect(found).To(BeTrue(), folder)
	return version
}

func listed(list string) []string {
	var all []string
	for line := range strings.Lines(list) {
		if entry, is := strings.CutPrefix(strings.TrimSpace(line), "- "); is {
			all = append(all, entry)
		}
	}
	return all
}

var variableRow = regexp.MustCompile("(?m)^\\| `(KUBEMEND_[A-Z0-9_]+)` \\|")

func documentedVariables() []string {
	GinkgoHelper()
	var all []string
	for _, row := range variableRow.FindAllSubmatch(read(filepath.Join(root, "docs", "install.md")), -1) {
		all = append(all, string(row[1]))
	}
	Expect(all).NotTo(BeEmpty())
	return all
}
