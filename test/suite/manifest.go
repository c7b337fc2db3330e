package suite

import (
	"os"
	"regexp"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/test/manifests"
	"github.com/kubemend/kubemend/test/seeds"
)

// Manifest are all objects of a file, in its order and as they are.
func Manifest(file string) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	content, err := os.ReadFile(file)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return Objects(content)
}

// Seed are all objects of a manifest that a document prints, in its order and as they are. The files are those of package seeds.
func Seed(file string) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	objects, err := seeds.Objects(file)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return objects
}

// printed are the manifests in a page: its fenced blocks of YAML.
var printed = regexp.MustCompile("(?s)```yaml\n(.*?\n)```\n")

// Printed are all objects that a page of the documentation shows, in its order and as they are.
func Printed(page string) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	content, err := os.ReadFile(page)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	blocks := printed.FindAllSubmatch(content, -1)
	all := make([]*unstructured.Unstructured, 0, len(blocks))
	for _, block := range blocks {
		all = append(all, Objects(block[1])...)
	}
	gomega.Expect(all).NotTo(gomega.BeEmpty(), "%s shows no manifest", page)
	return all
}

// Objects are all objects of a manifest, in its order and as they are.
func Objects(manifest []byte) []*unstructured.Unstructured {
	ginkgo.GinkgoHelper()
	decoded, err := manifests.Decode(manifest)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	all := make([]*unstructured.Unstructured, len(decoded))
	for i := range decoded {
		all[i] = &decoded[i]
	}
	return all
}
