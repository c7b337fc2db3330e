package docs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/fences"
	"github.com/kubemend/kubemend/test/rig"
)

// plugin is the built program.
var plugin = filepath.Join(project, "bin", "kubectl-mend")

// A user types what a page shows, in a folder from which the files of the project have the names that the page gives them.
type user struct {
	folder string
	path   string
	names  []name
}

// A name stands in a page for what is here.
type name struct {
	inPage *regexp.Regexp
	here   string
}

// aUser knows what is meant by the names in a page: patterns, and what they stand for here.
func aUser(ctx context.Context, names map[string]string) *user {
	GinkgoHelper()
	u := &user{folder: GinkgoT().TempDir()}
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) } // node-w1 before w1
	for _, pattern := range slices.SortedFunc(maps.Keys(names), longestFirst) {
		u.names = append(u.names, name{regexp.MustCompile(`\b(?:` + pattern + `)\b`), names[pattern]})
	}
	top, err := filepath.Abs(project)
	Expect(err).NotTo(HaveOccurred())
	for _, folder := range []string{"config", "docs", "templates"} {
		Expect(os.Symlink(filepath.Join(top, folder), filepath.Join(u.folder, folder))).To(Succeed())
	}
	u.programs(ctx)
	config, err := clientcmd.LoadFromFile(management.KubeconfigFile())
	Expect(err).NotTo(HaveOccurred())
	config.Contexts[config.CurrentContext].Namespace = fixture.Namespace
	Expect(clientcmd.WriteToFile(*config, u.kubeconfig())).To(Succeed())
	return u
}

// kubeconfig has a name that no page gives to a file.
func (u *user) kubeconfig() string { return filepath.Join(u.folder, ".kubeconfig") }

// programs are on the PATH: kubectl, and the plugin as somebody has it who answers its questions with yes. Core elects no leader in the rig, so a
// release needs --force here.
func (u *user) programs(ctx context.Context) {
	GinkgoHelper()
	kubectl, err := rig.Kubectl(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	mend, err := filepath.Abs(plugin)
	Expect(err).NotTo(HaveOccurred())
	bin := filepath.Join(u.folder, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	Expect(os.Symlink(kubectl.Path, filepath.Join(bin, "kubectl"))).To(Succeed())
	answering := "#!/bin/sh\ncase \"$1\" in claim|remediate|reset) set -- \"$@\" --yes;; release) set -- \"$@\" --yes --force;; esac\nexec '" + mend + "' \"$@\"\n"
	Expect(os.WriteFile(filepath.Join(bin, "kubectl-mend"), []byte(answering), 0o700)).To(Succeed())
	u.path = bin + string(os.PathListSeparator) + os.Getenv("PATH")
}

// endless are the flags of a command that a user would end.
var endless = regexp.MustCompile(` (-w|--watch)\b`)

// follows runs what a page shows, block by block, and returns what was printed.
func (u *user) follows(ctx context.Context, page string) string {
	GinkgoHelper()
	blocks, err := fences.Read(project, page)
	Expect(err).NotTo(HaveOccurred())
	var all bytes.Buffer
	ran := 0
	for _, b := range blocks {
		if b.Language != "sh" || b.Has(fences.NotRun) {
			continue
		}
		text := endless.ReplaceAllString(b.Text, "")
		for _, n := range u.names {
			text = n.inPage.ReplaceAllString(text, n.here)
		}
		By(b.At())
		shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
		shell.Dir = u.folder
		shell.Env = []string{"PATH=" + u.path, "KUBECONFIG=" + u.kubeconfig(), "HOME=" + u.folder}
		out, err := shell.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s:\n%s\n%s", b.At(), text, out)
		all.Write(out)
		ran++
	}
	Expect(ran).To(BeNumerically(">", 0), "%s has nothing to run", page)
	return all.String()
}

// patch is a merge patch.
func patch(content map[string]any) client.Patch {
	GinkgoHelper()
	text, err := json.Marshal(content)
	Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, text)
}
