package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
)

// plugin is the built program.
var plugin = filepath.Join(project, "bin", "kubectl-mend")

// The exit codes, as docs/cli/README.md has them.
const (
	done    = 0
	refused = 4
)

// ran is one run of the plugin.
type ran struct {
	out, complaint string
	code           int
}

// mend runs the plugin as an administrator, in the namespace of the fixture.
func mend(ctx context.Context, args ...string) ran {
	GinkgoHelper()
	return mendAs(ctx, management.KubeconfigFile(), args...)
}

// mendAs runs the plugin as the user of a kubeconfig. What it may remember between runs goes with the spec.
func mendAs(ctx context.Context, kubeconfig string, args ...string) ran {
	GinkgoHelper()
	run := exec.CommandContext(ctx, plugin, append([]string{"--kubeconfig", kubeconfig, "-n", fixture.Namespace}, args...)...)
	run.Env = append(os.Environ(), "HOME="+GinkgoT().TempDir(), "KUBECONFIG=")
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	err := run.Run()
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	return ran{out: out.String(), complaint: complaint.String(), code: run.ProcessState.ExitCode()}
}

// fileWith is a file of the spec with that content.
func fileWith(content []byte) string {
	GinkgoHelper()
	name := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(name, content, 0o600)).To(Succeed())
	return name
}

// parsed is what a run has printed as JSON.
func parsed[T any](r ran) *T {
	GinkgoHelper()
	Expect(r.code).To(Equal(done), r.complaint)
	into := new(T)
	Expect(json.Unmarshal([]byte(r.out), into)).To(Succeed(), r.out)
	return into
}

// explained is what explain says of something, such as machine/NAME.
func explained(ctx context.Context, what string) *cliv1.Explanation {
	GinkgoHelper()
	return parsed[cliv1.Explanation](mend(ctx, "explain", what, "-o", "json"))
}

// message is what explain says of something in its first line.
func message(ctx context.Context, what string) func() string {
	return func() string { return explained(ctx, what).Message }
}

// targetOf is what the one check that selects the subject thinks of it.
func targetOf(e *cliv1.Explanation) cliv1.Target {
	GinkgoHelper()
	Expect(e.Checks).To(HaveLen(1))
	Expect(e.Checks[0].Targets).To(HaveLen(1))
	return e.Checks[0].Targets[0]
}
