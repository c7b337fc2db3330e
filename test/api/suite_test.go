// Package api tests what depends on a real API server: schemas, CEL rules, webhooks, conversion, rights and policies. It also installs,
// upgrades and removes releases with kubectl and clusterctl.
//
// It uses three control planes, one after the other: one where a manager with the shipped rights needs each of them, one with Cluster API
// where kubectl apply installs, upgrades and removes releases, and an empty one for clusterctl. The rig's certificate replaces
// cert-manager. No pod of the Deployment runs: if a manager has to answer, the built binary runs as the shipped ServiceAccount.
//
// The scenes in test/inmemory test what depends on time, order and counts.
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

	// first is the oldest release that can be upgraded. Its manifests are in testdata, unchanged.
	first = "v0.1.0"
)

// All specs share these.
var (
	// repository is a local repository of clusterctl: kubemend's releases in addon-kubemend, and the other providers of clusterctl init.
	repository string
	// this is the version of the release that is built from this commit.
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

// nextVersion returns the nextVersion in clusterctl-settings.json, the version of the next release.
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

// run runs a program and returns its output. It removes the variables that a surrounding `make` has set.
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

// installer is the field owner of manifests, author that of the objects of a user.
const (
	installer = client.FieldOwner("installer")
	author    = client.FieldOwner("author")
)

// cluster is a management cluster that ends with the spec or container that started it.
type cluster struct {
	client.Client
	plane *rig.ControlPlane
}

// newCluster starts a cluster with the CRDs of cert-manager besides those in the options.
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

// install applies a manifest like `kubectl apply --server-side`, which refuses unknown fields. Its webhooks call the manager that start
// starts, as if cert-manager and the Service existed.
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

// apply applies one object after a dry run. The object keeps what it had and gets what the API server adds.
func (c *cluster) apply(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) {
	GinkgoHelper()
	Expect(c.try(ctx, o, opts...)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
	Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), opts...)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
}

// try applies an object as a dry run.
func (c *cluster) try(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(again(o)), append(opts, client.DryRunAll)...)
}

// remove deletes installed objects in the order of the manifest, like kubectl delete: the namespace first, the webhooks last. It returns
// when all of them, and the objects of deleted kinds, are gone.
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

// isWebhook reports whether an object registers webhooks.
func isWebhook(o *unstructured.Unstructured) bool {
	return o.GetKind() == "MutatingWebhookConfiguration" || o.GetKind() == "ValidatingWebhookConfiguration"
}

// again returns a copy of an object without the fields that the API server has set, so that it can be applied again.
func again(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetUID("")
	unstructured.RemoveNestedField(o.Object, "status")
	return o
}

// serves waits until the API server serves the kinds whose CRDs are among the objects.
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

// start starts the manager with nothing but the rights of the shipped ServiceAccount. The manager ends with the cluster at the latest.
func (c *cluster) start(ctx context.Context, name string, more ...string) *rig.Kubemend {
	GinkgoHelper()
	manager := suite.Must(c.plane.Kubemend(ctx, name, c.account(), append(c.plane.WebhookFlags(), more...)...))
	reportLog(manager)
	return manager
}

// account returns a kubeconfig of the shipped ServiceAccount.
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

// storedVersions returns the versions in which etcd may have objects of a kind.
func (c *cluster) storedVersions(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		crd, err := c.crd(ctx, name)
		if err != nil {
			return nil, err
		}
		return crd.Status.StoredVersions, nil
	}
}

// storage returns the storage version of a CRD.
func storage(crd *apiextensionsv1.CustomResourceDefinition) string {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			return crd.Spec.Versions[i].Name
		}
	}
	return ""
}

// current reads an object in the version in which it was written.
func (c *cluster) current(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), found); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return found, nil
}

// certManagerVersion is the version of the cert-manager in the repository. Nothing depends on it.
const certManagerVersion = "v1.21.1"

// providerOfThis returns clusterctl's argument for the release of this commit.
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

	// test/packages tests the effects of the variables.
	It("renders a release for another namespace", func(ctx SpecContext) {
		rendered := clusterctl(ctx, settings(nil), "generate", "provider", providerOfThis(), "--target-namespace=elsewhere")
		Expect(rendered).NotTo(ContainSubstring("${"))
		for _, o := range suite.Objects([]byte(rendered)) {
			Expect(o.GetNamespace()).To(BeElementOf("", "elsewhere"), o.GetName())
			Expect(o.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "addon-kubemend"), o.GetName())
		}
	}, SpecTimeout(specPatience))

	It("cannot use an image without a registry, so an image on Docker Hub is given its registry", func(ctx SpecContext) {
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

// settings writes a configuration file for clusterctl with the repository and these variables, and returns its name.
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

// coreVersion returns the version of the Cluster API module that this project requires.
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
