// Package gitops tests that claims survive the tools that apply MachineHealthChecks: Flux, Argo CD, Helm, kubectl and Cluster API's
// topology controller. It uses their code or sends their requests to a real API server, together with the built plugin.
//
// It is a separate module, so that the manager's module does not depend on these tools.
package gitops

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

const namespace = "default"

// plugin is the path of the built kubectl-mend.
var plugin = filepath.Join("..", "..", "bin", "kubectl-mend")

// All specs share a management cluster that has only the CRDs, and a manager, without which kubectl mend refuses to claim.
var (
	management *rig.ControlPlane
	here       client.Client
)

func TestGitOps(t *testing.T) {
	suite.Run(t, "GitOps", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(plugin).To(BeAnExistingFile(), "run make build")
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(fatal(message)) })
	var err error
	management, err = suite.Rig(ctx).Management(ctx, rig.ManagementOptions{Own: true, Controllers: rig.RoleControllers()})
	Expect(err).NotTo(HaveOccurred())
	here = suite.Client(management.Config(), clusterv1.AddToScheme, mendv1.AddToScheme)
	suite.LeadCore(ctx, here)
	account, err := management.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	_, err = management.Kubemend(ctx, "gitops", account)
	Expect(err).NotTo(HaveOccurred())
})

// mend runs the plugin until it succeeds: it fails if the manager has changed the object since the plugin read it.
func mend(ctx context.Context, args ...string) string {
	GinkgoHelper()
	var out []byte
	home := GinkgoT().TempDir()
	Eventually(func() (err error) {
		run := exec.CommandContext(ctx, plugin, append([]string{"--kubeconfig", management.KubeconfigFile(), "-n", namespace}, args...)...)
		run.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG=")
		if out, err = run.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}).Should(Succeed())
	return string(out)
}

// manifest is a check as it is stored in Git. Each manifest has its own name.
type manifest struct {
	name string
	// patience is spec.checks.nodeStartupTimeoutSeconds, a field that specs change in Git.
	patience int
	// paused is the value of the annotation, or "" for no annotation.
	paused string
}

// checks counts the checks of all specs.
var checks int

func newManifest() manifest {
	checks++
	return manifest{name: "check-" + strconv.Itoa(checks), patience: 300}
}

func (m manifest) yaml() []byte {
	annotations := ""
	if m.paused != "" {
		annotations = "\n  annotations:\n    " + clusterv1.PausedAnnotation + ": " + strconv.Quote(m.paused)
	}
	return []byte(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: ` + m.name + `
  namespace: ` + namespace + annotations + `
  labels:
    gitops: ` + m.name + `
spec:
  clusterName: prod
  selector:
    matchLabels:
      pool: workers
  checks:
    nodeStartupTimeoutSeconds: ` + strconv.Itoa(m.patience) + `
    unhealthyNodeConditions:
    - type: Ready
      status: "False"
      timeoutSeconds: 300
`)
}

func (m manifest) stored(ctx context.Context) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: m.name}, check)).To(Succeed())
	return check
}

// applied expects that the tool has written the manifest.
func (m manifest) applied(ctx context.Context) {
	GinkgoHelper()
	Expect(*m.stored(ctx).Spec.Checks.NodeStartupTimeoutSeconds).To(BeEquivalentTo(m.patience))
}
