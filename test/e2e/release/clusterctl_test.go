package release

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// certManagerVersion is what clusterctl calls the cert-manager that it finds. Nothing depends on it.
const certManagerVersion = "v1.21.1"

// provider is how a command of clusterctl names the release of this commit.
func provider() string { return "--addon=kubemend:" + this }

var _ = Describe("clusterctl", func() {
	It("finds in a release what the documentation says: the variables, and the image by its full name", func(ctx SpecContext) {
		described := clusterctl(ctx, settings(nil), "generate", "provider", provider(), "--describe")
		_, found, _ := strings.Cut(described, "Variables:")
		variables, images, _ := strings.Cut(found, "Images:")
		Expect(listed(variables)).To(ConsistOf(documentedVariables()))
		Expect(listed(images)).To(ConsistOf("docker.io/kubemend/kubemend:" + this))
		Expect(described).To(MatchRegexp(`TargetNamespace: +kubemend-system\n`))
	})

	It("renders the program's own defaults without variables", func(ctx SpecContext) {
		manager := managerOf(suite.Objects([]byte(clusterctl(ctx, settings(nil), "generate", "provider", provider()))))
		Expect(manager.args).To(ContainElements("--diagnostics-address=:8443", "--leader-elect=true", "--sync-period=10m",
			"--unclaimed-machine-health-checks=observe", "--webhook-cert-dir=/etc/kubemend/webhook"))
		Expect(manager.args).NotTo(ContainElement(ContainSubstring("${")))
		Expect(manager.env).To(HaveKeyWithValue("KUBEMEND_NAMESPACE", ""))
	})

	It("passes variables on to the manager", func(ctx SpecContext) {
		said := settings(map[string]string{
			"KUBEMEND_UNCLAIMED_MACHINE_HEALTH_CHECKS": "act", "KUBEMEND_NAMESPACE": "fleet", "KUBEMEND_LOG_LEVEL": "4", "KUBEMEND_WARM_STANDBY": "true",
		})
		all := suite.Objects([]byte(clusterctl(ctx, said, "generate", "provider", provider(), "--target-namespace=elsewhere")))
		manager := managerOf(all)
		Expect(manager.args).To(ContainElements("--unclaimed-machine-health-checks=act", "--v=4",
			"--feature-gates=HostRemediation=true,NodeHealthCheck=true,WarmStandby=true"))
		Expect(manager.env).To(HaveKeyWithValue("KUBEMEND_NAMESPACE", "fleet"))
		for _, o := range all {
			Expect(o.GetNamespace()).To(BeElementOf("", "elsewhere"), o.GetName())
			Expect(o.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "addon-kubemend"), o.GetName())
		}
	})

	DescribeTable("cannot use an image without a host", func(ctx SpecContext, image, full string) {
		folder := GinkgoT().TempDir()
		run(ctx, root, "make", "release-manifests", "VERSION="+this, "OUT="+folder, "IMAGE="+image)
		manager := managerOf(suite.Manifest(filepath.Join(folder, "addon-kubemend", this, "kubemend.yaml")))
		Expect(manager.image).To(Equal(full + ":" + this))
	},
		Entry("so one that is at Docker's is given it", SpecTimeout(specPatience), "somebody/kubemend", "docker.io/somebody/kubemend"),
		Entry("and one with a host is left as it is", SpecTimeout(specPatience), "registry.example.org:5000/kubemend", "registry.example.org:5000/kubemend"),
		Entry("also if that is this machine", SpecTimeout(specPatience), "localhost/kubemend", "localhost/kubemend"))
})

// clusterctl runs the real one.
func clusterctl(ctx context.Context, settings string, args ...string) string {
	GinkgoHelper()
	out, err := rig.Clusterctl(ctx, settings, args...)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// settings writes a configuration of clusterctl that knows the repository, and sets variables.
func settings(variables map[string]string) string {
	GinkgoHelper()
	all := map[string]any{
		"providers": []map[string]string{
			{"name": "kubemend", "type": "AddonProvider", "url": released(this, "addon-components.yaml")},
			{"name": "cluster-api", "type": "CoreProvider", "url": filepath.Join(repository, "cluster-api", coreVersion(), "core-components.yaml")},
		},
		"cert-manager": map[string]string{
			"url":     filepath.Join(repository, "cert-manager", certManagerVersion, "cert-manager.yaml"),
			"version": certManagerVersion,
		},
	}
	for name, value := range variables {
		all[name] = value
	}
	content, err := json.Marshal(all)
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "clusterctl.yaml")
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

// coreVersion is that of the Cluster API that this project is built with.
func coreVersion() string {
	GinkgoHelper()
	folder, err := rig.ClusterAPI()
	Expect(err).NotTo(HaveOccurred())
	_, version, found := strings.Cut(filepath.Base(folder), "@")
	Expect(found).To(BeTrue(), folder)
	return version
}

// listed are the entries of a list as clusterctl prints it.
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

// container is the manager's container, as far as these specs read it.
type container struct {
	image string
	args  []string
	env   map[string]string
}

func managerOf(all []*unstructured.Unstructured) container {
	GinkgoHelper()
	for _, o := range all {
		if o.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d)).To(Succeed())
		c := d.Spec.Template.Spec.Containers[0]
		env := map[string]string{}
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		return container{image: c.Image, args: c.Args, env: env}
	}
	Fail("there is no Deployment")
	return container{}
}
