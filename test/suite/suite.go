// Package suite has what several Ginkgo suites need: it starts a rig, builds clusters on simulated hosts, makes clients, and reads metrics
// and logs. It uses Gomega's assertions, so only suites may import it.
package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/rights"
)

// InOrder yields the entries of a table sorted by name: Ginkgo requires that specs are declared in the same order each time.
func InOrder[V any](table map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if !yield(name, table[name]) {
				return
			}
		}
	}
}

// Must returns the value of a call, and fails the spec if the call returned an error.
func Must[V any](value V, err error) V {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}

// Beside runs start until the suite, or the spec that calls Beside, ends.
func Beside(start func(context.Context) error) {
	ginkgo.GinkgoHelper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	ginkgo.DeferCleanup(func() {
		stop()
		gomega.Expect(<-ended).To(gomega.Succeed())
	})
}

// Timeouts of suites on a rig. Only a failing spec takes this long, so a busy machine is no reason for more. Tests that depend on time run
// in memory.
const (
	// Wait is the timeout of one expectation. It is shorter than the manager's --sync-period, so a resync cannot hide that a watch missed
	// an event.
	Wait = 3 * time.Minute
	// SpecPatience is the timeout of a spec in which several things happen one after the other.
	SpecPatience = 4 * Wait
)

// Patience has the defaults of Gomega's assertions in a suite. A zero value leaves Gomega's own default.
type Patience struct{ Eventually, Consistently, Polling time.Duration }

// Run runs the specs of a suite. A suite has only one Go test, which calls Run; args are Ginkgo's.
func Run(t *testing.T, name string, p Patience, args ...any) {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // the logs of libraries are no result
	gomega.RegisterFailHandler(ginkgo.Fail)
	if p.Eventually > 0 {
		gomega.SetDefaultEventuallyTimeout(p.Eventually)
	}
	if p.Consistently > 0 {
		gomega.SetDefaultConsistentlyDuration(p.Consistently)
	}
	if p.Polling > 0 {
		gomega.SetDefaultEventuallyPollingInterval(p.Polling)
		gomega.SetDefaultConsistentlyPollingInterval(p.Polling)
	}
	ginkgo.RunSpecs(t, name, args...)
}

// logEnd is how many bytes of the end of a log are shown.
const logEnd = 16 << 10

// LogOf adds the end of a manager's log to the report of a failed spec. It does nothing if there is no manager yet or the log cannot be
// read.
func LogOf(name string, manager *rig.Kubemend, report ginkgo.SpecReport) {
	if !report.Failed() || manager == nil {
		return
	}
	if content, err := os.ReadFile(manager.Log); err == nil {
		ginkgo.AddReportEntry("the log of "+name, string(content[max(0, len(content)-logEnd):]))
	}
}

// Annotate writes one annotation of an object; nil removes it. An object that no longer exists is no error.
func Annotate(ctx context.Context, c client.Writer, o client.Object, key string, value *string) {
	ginkgo.GinkgoHelper()
	patch := Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}}))
	gomega.Expect(client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))).To(gomega.Succeed())
}

// LookedFor are requests that the API server must refuse: at its start the manager looks for its own requests in all kinds that have a
// sibling kind named Template, and skips those that it may not list.
var LookedFor = []string{"list controlplane.cluster.x-k8s.io/kubeadmcontrolplanes"}

// NothingForbidden expects that control planes with Audit have refused no request of kubemend except LookedFor. So a missing right fails
// the suite even if no spec notices it. It ignores the API groups latecomers, whose remediators bring their rights later.
func NothingForbidden(planes []*rig.ControlPlane, latecomers ...string) {
	ginkgo.GinkgoHelper()
	var found []string
	for _, plane := range planes {
		events := Must(plane.Audited())
		for _, user := range []string{rig.Account, rig.WorkloadUser} {
			for _, r := range rights.Refused(events, user) {
				if !slices.Contains(LookedFor, r.String()) && !slices.Contains(latecomers, r.Group) {
					found = append(found, fmt.Sprintf("%s: %s", user, r))
				}
			}
		}
	}
	gomega.Expect(found).To(gomega.BeEmpty(), "what kubemend was not allowed")
}

// Writes returns kubemend's requests to change objects of these resources after a point in time, in their order.
func Writes(plane *rig.ControlPlane, since time.Time, resources ...string) []auditv1.Event {
	ginkgo.GinkgoHelper()
	events := Must(plane.Audited())
	return slices.DeleteFunc(events, func(e auditv1.Event) bool {
		return e.ObjectRef == nil || !slices.Contains(resources, e.ObjectRef.Resource) || e.RequestObject == nil ||
			!e.RequestReceivedTimestamp.After(since)
	})
}

// Written returns the names of the objects of a resource into which kubemend has written a text after a point in time, even if the text is
// gone.
func Written(plane *rig.ControlPlane, resource string, since time.Time, text string) []string {
	ginkgo.GinkgoHelper()
	var names []string
	for _, write := range Writes(plane, since, resource) {
		if bytes.Contains(write.RequestObject.Raw, []byte(text)) {
			names = append(names, write.ObjectRef.Name)
		}
	}
	return names
}

// Kubectl runs kubectl as an administrator of a control plane, in a namespace, and returns its output. kubectl finds the plugin on the
// PATH, as for users.
func Kubectl(ctx context.Context, plane *rig.ControlPlane, namespace string, args ...string) string {
	ginkgo.GinkgoHelper()
	run := Must(rig.Kubectl(ctx, plane.KubeconfigFile(), append(args, "--namespace", namespace)...))
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	gomega.Expect(run.Run()).To(gomega.Succeed(), "kubectl %v: %s%s", args, &out, &complaint)
	return out.String()
}
