package api

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

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
