// Package suite has what several Ginkgo suites share: they start a rig, build clusters on simulated hosts, make clients, and read metrics
// and logs. It asserts with Gomega, so nothing but suites may import it.
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

// InOrder yields the entries of a table by name: specs have to be declared in the same order each time.
func InOrder[V any](table map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if !yield(name, table[name]) {
				return
			}
		}
	}
}

// Must is the value of a call that must not fail.
func Must[V any](value V, err error) V {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}

// Beside runs something until the suite, or the spec that asks for it, ends.
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

// What suites on a rig wait for at most. That a machine is busy is no reason for more: what depends on time is tested in memory. Only a
// spec that fails takes this long.
const (
	// Wait bounds one thing that a spec waits for. It is shorter than the manager's --sync-period, which would make good what a watch has
	// missed.
	Wait = 3 * time.Minute
	// SpecPatience bounds a spec in which one thing happens after another.
	SpecPatience = 4 * Wait
)

// Patience has the defaults of Gomega's assertions in a suite; Gomega's own where a value is zero.
type Patience struct{ Eventually, Consistently, Polling time.Duration }

// Run runs the specs of a suite. It is for a suite's only Go test; args are Ginkgo's.
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

// logEnd is how much of a log is shown, in bytes.
const logEnd = 16 << 10

// LogOf adds the end of a manager's log to the report of a spec that has failed: whatever failed, the log says most. There need not be a
// manager yet, and what cannot be read is left out.
func LogOf(name string, manager *rig.Kubemend, report ginkgo.SpecReport) {
	if !report.Failed() || manager == nil {
		return
	}
	if content, err := os.ReadFile(manager.Log); err == nil {
		ginkgo.AddReportEntry("the log of "+name, string(content[max(0, len(content)-logEnd):]))
	}
}

// Annotate writes one annotation of an object and nothing else; nil removes it. An object that is gone is left at that.
func Annotate(ctx context.Context, c client.Writer, o client.Object, key string, value *string) {
	ginkgo.GinkgoHelper()
	patch := Must(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}}))
	gomega.Expect(client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))).To(gomega.Succeed())
}

// LookedFor are requests that are forbidden, and shall be: at its start the manager looks for requests of its own among all kinds that have
// a sibling named Template, and skips what it may not list.
var LookedFor = []string{"list controlplane.cluster.x-k8s.io/kubeadmcontrolplanes"}

// NothingForbidden expects that control planes with Audit have forbidden kubemend nothing but LookedFor: that a right is missing shall not
// depend on whether a spec notices. The API groups of remediators that bring their rights along later are left out.
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

// Writes are the requests by which kubemend has asked to change objects of these resources since a moment, in their order.
func Writes(plane *rig.ControlPlane, since time.Time, resources ...string) []auditv1.Event {
	ginkgo.GinkgoHelper()
	events := Must(plane.Audited())
	return slices.DeleteFunc(events, func(e auditv1.Event) bool {
		return e.ObjectRef == nil || !slices.Contains(resources, e.ObjectRef.Resource) || e.RequestObject == nil ||
			!e.RequestReceivedTimestamp.After(since)
	})
}

// Written are the names of the objects of a resource into which kubemend has written a text since a moment, though it may be gone from
// there.
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

// Kubectl runs kubectl as an administrator of a control plane, in a namespace, and returns what it prints. The plugin is found as users
// have it: on the PATH.
func Kubectl(ctx context.Context, plane *rig.ControlPlane, namespace string, args ...string) string {
	ginkgo.GinkgoHelper()
	run := Must(rig.Kubectl(ctx, plane.KubeconfigFile(), append(args, "--namespace", namespace)...))
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	gomega.Expect(run.Run()).To(gomega.Succeed(), "kubectl %v: %s%s", args, &out, &complaint)
	return out.String()
}
