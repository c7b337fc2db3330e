package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/fences"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// A user runs the commands of a page, in a folder where the project's files have the names that the page uses.
type user struct {
	folder string
	path   string
	names  []name
	env    []string             // additional variables
	after  func(b fences.Block) // called after each block to check its effects; may be nil
}

// A name in a page stands for another name in this suite.
type name struct {
	inPage *regexp.Regexp
	here   string
}

// aUser returns a user of the shared management cluster. The keys of names are patterns in a page, the values what replaces them.
func aUser(ctx context.Context, names map[string]string) *user {
	GinkgoHelper()
	return aUserOf(ctx, management, names)
}

func aUserOf(ctx context.Context, plane *rig.ControlPlane, names map[string]string) *user {
	GinkgoHelper()
	u := &user{folder: GinkgoT().TempDir()}
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) } // node-w1 before w1
	for _, pattern := range slices.SortedFunc(maps.Keys(names), longestFirst) {
		u.names = append(u.names, name{regexp.MustCompile(`\b(?:` + pattern + `)\b`), names[pattern]})
	}
	top := suite.Must(filepath.Abs(project))
	for _, folder := range []string{"config", "docs", "templates"} {
		Expect(os.Symlink(filepath.Join(top, folder), filepath.Join(u.folder, folder))).To(Succeed())
	}
	u.programs(ctx)
	config := suite.Must(clientcmd.LoadFromFile(plane.KubeconfigFile()))
	config.Contexts[config.CurrentContext].Namespace = fixture.Namespace
	Expect(clientcmd.WriteToFile(*config, u.kubeconfig())).To(Succeed())
	return u
}

// kubeconfig returns a file name that no page uses.
func (u *user) kubeconfig() string { return filepath.Join(u.folder, ".kubeconfig") }

// programs puts kubectl and the plugin on the PATH. The plugin's questions are answered with yes.
func (u *user) programs(ctx context.Context) {
	GinkgoHelper()
	kubectl := suite.Must(rig.Kubectl(ctx, ""))
	mend := suite.Must(filepath.Abs(plugin))
	bin := filepath.Join(u.folder, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	Expect(os.Symlink(kubectl.Path, filepath.Join(bin, "kubectl"))).To(Succeed())
	answering := "#!/bin/sh\ncase \"$1\" in claim|release|remediate|reset) set -- \"$@\" --yes;; esac\nexec '" + mend + "' \"$@\"\n"
	Expect(os.WriteFile(filepath.Join(bin, "kubectl-mend"), []byte(answering), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(bin, "make"), []byte(makeRun), 0o700)).To(Succeed())
	u.path = bin + string(os.PathListSeparator) + os.Getenv("PATH")
	top := suite.Must(filepath.Abs(project))
	u.env = append(u.env, "PROJECT="+top, "MAKES_PATH="+os.Getenv("PATH"), "MAKES_HOME="+os.Getenv("HOME"))
}

// makeRun replaces make for `make run`. It stops the manager as soon as it is ready, and lets it listen on a free port.
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

// endless matches the flags of commands that run until the user stops them.
var endless = regexp.MustCompile(` (-w|--watch)\b`)

// follows runs the commands of a page or section (PAGE#SECTION), and returns the output. Shell functions stay defined between blocks.
func (u *user) follows(ctx context.Context, ref string) string {
	GinkgoHelper()
	page, section, part := strings.Cut(ref, "#")
	blocks := suite.Must(fences.Read(project, page))
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

// tools are programs that readers have to install themselves.
var tools = regexp.MustCompile(`\b(curl|jq|openssl|yq)\b`)

// lacking returns a tool that a text needs and that is not installed, or "".
func lacking(text string) string {
	for _, tool := range tools.FindAllString(text, -1) {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return ""
}

// types runs a text in a shell, and ends all processes that it started.
func (u *user) types(ctx context.Context, text string) string {
	GinkgoHelper()
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c",
		"! [ -e .functions ] || . ./.functions\n"+text+"\ndeclare -f > .functions")
	shell.Dir = u.folder
	shell.Env = append([]string{"PATH=" + u.path, "KUBECONFIG=" + u.kubeconfig(), "HOME=" + u.folder}, u.env...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	out, err := shell.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", text, out)
	return string(out)
}

// These run in the workload cluster, which has the CRDs of a management cluster too. They run last because these pages install and remove
// kubemend. Pods run no program: runPods reports them as ready, which is enough for `kubectl rollout status`. test/api tests the same steps
// with managers that run.
var _ = Describe("The commands that install kubemend, upgrade it and remove it", Ordered, installing, func() {
	var there client.Client

	BeforeAll(func(ctx SpecContext) {
		manager.Kill() // a page may delete the manager's rights in the workload cluster
		there = suite.Client(fixture.Plane.Config(), mendv1.AddToScheme)
		ending, end := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(end)
		go runPods(ending, there)
	}, NodeTimeout(specPatience))

	// readerOf returns a user of the workload cluster, whose folder has the files of two releases.
	readerOf := func(ctx context.Context, names map[string]string) *user {
		GinkgoHelper()
		u := aUserOf(ctx, fixture.Plane, names)
		u.releases(ctx, "v0.1.0", "v0.1.1")
		return u
	}
	gone := func(ctx context.Context, o client.Object) {
		GinkgoHelper()
		Eventually(func() bool { return apierrors.IsNotFound(there.Get(ctx, client.ObjectKeyFromObject(o), o)) }).
			Should(BeTrue(), o.GetName())
	}

	It("from a folder of files, and render a template", func(ctx SpecContext) {
		reader := readerOf(ctx, map[string]string{"clusterctl init.*": "true # test/api does it"})
		reader.types(ctx, "kubectl create namespace "+fixture.Namespace)
		Expect(reader.follows(ctx, "docs/install.md#Air-gapped")).
			To(And(ContainSubstring("deployment.apps/kubemend-controller-manager"), ContainSubstring("machinehealthcheck")))
		Expect(reader.follows(ctx, "docs/install.md#Check that it runs")).To(ContainSubstring("successfully rolled out"))
	}, SpecTimeout(specPatience))

	It("upgrade it", func(ctx SpecContext) {
		reader := readerOf(ctx, map[string]string{"clusterctl upgrade.*": "true # test/api does it"})
		reader.types(ctx,
			`echo '{"apiVersion":"clusterctl.cluster.x-k8s.io/v1alpha3","kind":"Provider","metadata":{"name":"addon-kubemend"}}' |
				kubectl create -n kubemend-system -f -`)
		Expect(reader.follows(ctx, "docs/upgrade.md#clusterctl")).To(ContainSubstring("addon-kubemend patched"))
		image := reader.types(ctx,
			"kubectl -n kubemend-system get deployments -o jsonpath='{.items[*].spec.template.spec.containers[0].image}'")
		Expect(image).To(Equal("ghcr.io/kubemend/kubemend:v0.1.1"))
		Expect(reader.follows(ctx, "docs/upgrade.md#kustomize")).To(ContainSubstring("serverside-applied"))
	}, SpecTimeout(specPatience))

	It("give Cluster API's operator what it installs", func(ctx SpecContext) {
		Expect(readerOf(ctx, nil).follows(ctx, "docs/recipes/cluster-api-operator.md")).To(ContainSubstring("configmap/v0.1.0 labeled"))
	}, SpecTimeout(specPatience))

	It("add a shard, and remove it", func(ctx SpecContext) {
		reader := readerOf(ctx, nil)
		reader.types(ctx, "kubectl create namespace fleet-east")
		Expect(reader.follows(ctx, "docs/sharding.md#Setting it up")).
			To(ContainSubstring("kubemend-controller-manager-shard-east serverside-applied"))
		Expect(reader.follows(ctx, "docs/sharding.md#Monitoring them")).To(ContainSubstring("servicemonitor"))
		Expect(reader.follows(ctx, "docs/sharding.md#Removing them")).To(ContainSubstring("successfully rolled out"))
		gone(ctx, builders.Namespace("kubemend-east"))
	}, SpecTimeout(specPatience))

	It("release everything, and delete all but the CRDs and their objects", func(ctx SpecContext) {
		kept := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.Namespace, Name: "kept"}}
		reader := readerOf(ctx, nil)
		reader.types(ctx, "kubectl apply --server-side --force-conflicts -k config/standalone") // the rig has created the CRDs
		Expect(there.Create(ctx, kept)).To(Succeed())
		Expect(reader.follows(ctx, "docs/uninstall.md#1. Release")).To(ContainSubstring("successfully rolled out"))
		reader.follows(ctx, "docs/uninstall.md#Without the objects")
		gone(ctx, builders.Namespace(rig.Namespace))
		Expect(there.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	}, SpecTimeout(specPatience))

	It("repair by hand what a deletion without a release leaves", func(ctx SpecContext) {
		reader := readerOf(ctx, map[string]string{"NS": fixture.Namespace, "HOST": "host", "UID": "uid", "NODE": "worker", "NAME": "left",
			"KIND": "hostremediations"})
		for _, o := range suite.Manifest(filepath.Join("testdata", "left.yaml")) {
			Expect(there.Create(ctx, o)).To(Succeed())
		}
		reader.follows(ctx, "docs/uninstall.md#Without the first step")
		Expect(reader.types(ctx, "kubectl get bmh,machinehealthcheck,hostremediation,node,lease -A -o yaml")).NotTo(Or(
			ContainSubstring("metal3-remediation-uid"), ContainSubstring("kubemend.io/hostremediation"),
			ContainSubstring("paused: kubemend"),
			ContainSubstring("block-move"), ContainSubstring("out-of-service"), ContainSubstring("fenced-by"),
			ContainSubstring("name: node-worker"), ContainSubstring("leader.kubemend.io")))
	}, SpecTimeout(specPatience))

	It("delete what clusterctl leaves", func(ctx SpecContext) {
		reader := readerOf(ctx, nil)
		reader.types(ctx,
			"kubectl create namespace kubemend-system --dry-run=client -o yaml | kubectl apply -f -\n"+
				"kubectl apply --server-side -f kubemend.yaml")
		reader.follows(ctx, "docs/uninstall.md#What clusterctl leaves")
		gone(ctx, builders.Namespace(rig.Namespace))
		Expect(reader.types(ctx, "kubectl get crds,clusterroles,clusterrolebindings -l cluster.x-k8s.io/provider=addon-kubemend -o name")).
			To(BeEmpty())
	}, SpecTimeout(specPatience))
})

// releases builds the manifests of releases of this commit. Their folder is a repository of clusterctl. The files of the first version are
// linked in the user's folder.
func (u *user) releases(ctx context.Context, versions ...string) {
	GinkgoHelper()
	out := filepath.Join(u.folder, "out")
	for _, version := range versions {
		release := exec.CommandContext(ctx, "make", "-C", project, "release-manifests", "VERSION="+version, "OUT="+out)
		release.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=", "MAKEOVERRIDES=", "IMAGE=ghcr.io/kubemend/kubemend")
		said, err := release.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(said))
	}
	files := suite.Must(filepath.Glob(filepath.Join(out, "addon-kubemend", versions[0], "*.yaml")))
	Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		Expect(os.Symlink(file, filepath.Join(u.folder, filepath.Base(file)))).To(Succeed())
	}
	program := suite.Must(rig.ClusterctlProgram())
	Expect(os.Symlink(program, filepath.Join(u.folder, "bin", "clusterctl"))).To(Succeed())
	settings := filepath.Join(u.folder, "cluster-api")
	Expect(os.Mkdir(settings, 0o700)).To(Succeed())
	provider := "providers:\n- name: kubemend\n  type: AddonProvider\n  url: " +
		filepath.Join(out, "addon-kubemend", versions[len(versions)-1], "addon-components.yaml") + "\n"
	Expect(os.WriteFile(filepath.Join(settings, "clusterctl.yaml"), []byte(provider), 0o600)).To(Succeed())
	u.env = append(u.env, "XDG_CONFIG_HOME="+u.folder, "XDG_CACHE_HOME="+u.folder, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off")
}

// runPods makes every pod report that it is ready, until ctx ends.
func runPods(ctx context.Context, there client.Client) {
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		_ = there.List(ctx, pods) // tried again in the next round
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase != corev1.PodRunning {
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				_ = there.Status().Update(ctx, p) // tried again in the next round
			}
		}
		return false, nil
	})
}

// elsewhere are kinds that no API server of the rig has. test/packages checks their manifests.
var elsewhere = []string{"AddonProvider", "CAPIProvider", "Kustomization"}

var _ = Describe("The manifests in the pages", func() {
	It("are accepted by the API server, and by its webhooks, with no field that it does not know", func(ctx SpecContext) {
		pages := suite.Must(fences.Pages(project))
		Expect(builders.Apply(ctx, here, builders.Namespace("default"))).To(Succeed())
		applied, wrong := 0, []string(nil)
		for _, page := range pages {
			blocks := suite.Must(fences.Read(project, page))
			for _, b := range blocks {
				if b.Language != "yaml" || b.Has(fences.Fragment) {
					continue
				}
				for _, o := range suite.Objects([]byte(b.Text)) {
					if slices.Contains(elsewhere, o.GetKind()) {
						continue
					}
					mapping, err := here.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
					if err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
						o.SetNamespace(fixture.Namespace) // the page's namespace need not exist
					}
					if err == nil {
						if here.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy()) == nil {
							o.SetName(o.GetName() + "-of-a-page") // another object has this name
						}
						err = here.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.ForceOwnership,
							client.FieldOwner("pages"))
					}
					if err != nil {
						wrong = append(wrong, fmt.Sprintf("%s: %s %s: %v", b.At(), o.GetKind(), o.GetName(), err))
					}
					applied++
				}
			}
		}
		Expect(wrong).To(BeEmpty())
		Expect(applied).To(BeNumerically(">=", 11))
	}, SpecTimeout(specPatience))
})
