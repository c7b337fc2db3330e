package e2e

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubemend/kubemend/test/fences"
	"github.com/kubemend/kubemend/test/rig"
)

// A user types what a page shows, in a folder from which the files of the project have the names that the page gives them.
type user struct {
	folder string
	path   string
	names  []name
	env    []string             // more variables
	after  func(b fences.Block) // what has to be seen after a block; may be nil
}

// A name stands in a page for what is here.
type name struct {
	inPage *regexp.Regexp
	here   string
}

// aUser of the shared management cluster knows what is meant by the names in a page: patterns, and what they stand for here.
func aUser(ctx context.Context, names map[string]string) *user {
	GinkgoHelper()
	return aUserOf(ctx, management, names)
}

// aUserOf is a user of a control plane, in the namespace of the fixture.
func aUserOf(ctx context.Context, plane *rig.ControlPlane, names map[string]string) *user {
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
	config, err := clientcmd.LoadFromFile(plane.KubeconfigFile())
	Expect(err).NotTo(HaveOccurred())
	config.Contexts[config.CurrentContext].Namespace = fixture.Namespace
	Expect(clientcmd.WriteToFile(*config, u.kubeconfig())).To(Succeed())
	return u
}

// kubeconfig has a name that no page gives to a file.
func (u *user) kubeconfig() string { return filepath.Join(u.folder, ".kubeconfig") }

// programs are on the PATH: kubectl, and the plugin as a user has it who answers its questions with yes.
func (u *user) programs(ctx context.Context) {
	GinkgoHelper()
	kubectl, err := rig.Kubectl(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	mend, err := filepath.Abs(plugin)
	Expect(err).NotTo(HaveOccurred())
	bin := filepath.Join(u.folder, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	Expect(os.Symlink(kubectl.Path, filepath.Join(bin, "kubectl"))).To(Succeed())
	answering := "#!/bin/sh\ncase \"$1\" in claim|release|remediate|reset) set -- \"$@\" --yes;; esac\nexec '" + mend + "' \"$@\"\n"
	Expect(os.WriteFile(filepath.Join(bin, "kubectl-mend"), []byte(answering), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(bin, "make"), []byte(makeRun), 0o700)).To(Succeed())
	u.path = bin + string(os.PathListSeparator) + os.Getenv("PATH")
	top, err := filepath.Abs(project)
	Expect(err).NotTo(HaveOccurred())
	u.env = append(u.env, "PROJECT="+top, "MAKES_PATH="+os.Getenv("PATH"), "MAKES_HOME="+os.Getenv("HOME"))
}

// makeRun is make for `make run`, which stays in the foreground: it ends the manager as soon as that is ready, and lets it listen on a port
// that is free.
const makeRun = `#!/bin/bash
set -euo pipefail
[ "$1" = run ]
port=$((20000 + RANDOM % 10000))
until ! (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
PATH=$MAKES_PATH HOME=$MAKES_HOME CGO_ENABLED=0 timeout -k 5 180 make -C "$PROJECT" "$@" \
  LOCAL="--health-addr=127.0.0.1:$port --diagnostics-address=127.0.0.1:0 --webhook-host=127.0.0.1" &
ready() { exec 3<>/dev/tcp/127.0.0.1/$port && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3 | grep -q ' 200 '; }
until (ready) 2>/dev/null; do kill -0 $!; sleep 0.1; done
kill $!
wait $! || true
`

// endless are the flags of a command that a user would end.
var endless = regexp.MustCompile(` (-w|--watch)\b`)

// follows runs what a page shows, or what a section of it shows (PAGE#SECTION), block by block, and returns what was printed. Functions of
// the shell that one block defines are there in the next one.
func (u *user) follows(ctx context.Context, ref string) string {
	GinkgoHelper()
	page, section, part := strings.Cut(ref, "#")
	blocks, err := fences.Read(project, page)
	Expect(err).NotTo(HaveOccurred())
	var all bytes.Buffer
	ran := 0
	for _, b := range blocks {
		if b.Language != "sh" || b.Has(fences.NotRun) || part && b.Section != section {
			continue
		}
		text := endless.ReplaceAllString(b.Text, "")
		for _, n := range u.names {
			text = n.inPage.ReplaceAllString(text, n.here)
		}
		By(b.At())
		if tool := lacking(text); tool != "" {
			Skip(b.At() + " needs " + tool + ", which is not installed: CONTRIBUTING.md")
		}
		all.WriteString(u.types(ctx, text))
		if u.after != nil {
			u.after(b)
		}
		ran++
	}
	Expect(ran).To(BeNumerically(">", 0), "%s has nothing to run", ref)
	return all.String()
}

// tools are what readers install themselves, if at all.
var tools = regexp.MustCompile(`\b(curl|jq|openssl|yq)\b`)

// lacking is a tool that a text needs and that is not installed; empty if there is none.
func lacking(text string) string {
	for _, tool := range tools.FindAllString(text, -1) {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return ""
}

// types runs a text in a shell, and all that it started ends with it.
func (u *user) types(ctx context.Context, text string) string {
	GinkgoHelper()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "! [ -e .functions ] || . ./.functions\n"+text+"\ndeclare -f > .functions")
	shell.Dir = u.folder
	shell.Env = append([]string{"PATH=" + u.path, "KUBECONFIG=" + u.kubeconfig(), "HOME=" + u.folder}, u.env...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	out, err := shell.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", text, out)
	return string(out)
}
