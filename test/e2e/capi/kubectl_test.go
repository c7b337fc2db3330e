package capi

import (
	"bytes"
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
)

// kubectl runs kubectl as an administrator, in the namespace of the cluster, and returns what it prints. The plugin is found as users have it: on the PATH.
func (env *environment) kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	run, err := rig.Kubectl(ctx, management.KubeconfigFile(), append([]string{args[0]}, append(args[1:], "--namespace", env.namespace)...)...)
	Expect(err).NotTo(HaveOccurred())
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	Expect(run.Run()).To(Succeed(), "kubectl %v: %s%s", args, out.String(), complaint.String())
	return out.String()
}

// explained is what kubectl mend explain says of a machine.
func (env *environment) explained(ctx context.Context, machine string) *cliv1.Explanation {
	GinkgoHelper()
	e := &cliv1.Explanation{}
	Expect(json.Unmarshal([]byte(env.kubectl(ctx, "mend", "explain", "machine/"+machine, "-o", "json")), e)).To(Succeed())
	return e
}
