package capi

import (
	"bytes"
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/test/rig"
)

// kubectl runs kubectl as an administrator, in the namespace of the cluster, and returns what it prints. The plugin is found as users have it: on the PATH.
func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	run, err := rig.Kubectl(ctx, management.KubeconfigFile(), append([]string{args[0]}, append(args[1:], "--namespace", shared.namespace)...)...)
	Expect(err).NotTo(HaveOccurred())
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	Expect(run.Run()).To(Succeed(), "kubectl %v: %s%s", args, out.String(), complaint.String())
	return out.String()
}

// explained is what kubectl mend explain says of a machine.
func explained(ctx context.Context, machine string) *page.Explanation {
	GinkgoHelper()
	e := &page.Explanation{}
	Expect(json.Unmarshal([]byte(kubectl(ctx, "mend", "explain", "machine/"+machine, "-o", "json")), e)).To(Succeed())
	return e
}
