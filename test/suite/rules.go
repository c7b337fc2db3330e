package suite

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/kubemend/kubemend/test/rules"
)

// inRules fails the test unless the specs of its suite are those that test/RULES.md has for the package. All specs count, whatever the
// focus is: nothing runs for it but the bodies of containers.
func inRules(t *testing.T) {
	t.Helper()
	specs := specNames() // in each of several processes, so that all of them number the specs alike
	if ginkgo.GinkgoParallelProcess() != 1 {
		return
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, folder, err := rules.Root(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := rules.Read(root)
	if err != nil {
		t.Error(err)
		return
	}
	section, found := page.Of(folder)
	if !found {
		t.Fatalf("%s has no section \"## %s\": add one, with the rules that the specs of this suite hold", rules.File, folder)
	}
	for _, difference := range section.Differences(specs) {
		t.Error(difference)
	}
}

// specNames are the texts of all specs of the suite, each with its containers.
func specNames() []string {
	specs := ginkgo.PreviewSpecs("names").SpecReports.WithLeafNodeType(types.NodeTypeIt)
	names := make([]string, 0, len(specs))
	for _, spec := range specs {
		names = append(names, strings.Join(append(slices.Clone(spec.ContainerHierarchyTexts), spec.LeafNodeText), rules.Joint))
	}
	return names
}
