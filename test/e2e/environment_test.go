package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// checked creates a check of the workers with a limit of 40%, until the spec ends. If the check is claimed, it waits until kubemend has
// counted the workers. It does not wait for Cluster API core, which reconciles a check only every 15 s (machinehealthcheck_controller.go,
// rateLimit).
func checked(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := builders.MachineHealthCheck(fixture.Cluster, name, func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromString("40%"))
		for _, edit := range edits {
			edit(c)
		}
	})
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
	if _, claimed := check.Annotations[clusterv1.PausedAnnotation]; claimed {
		Eventually(counts(ctx, name)).Should(Equal("5 of 5"))
	}
	return check
}

// applyTemplate creates the check of templates/ for workers until the spec ends, and waits until kubemend has counted the workers.
func applyTemplate(ctx context.Context, variables map[string]string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	variables["CLUSTER_NAME"], variables["NAMESPACE"] = fixture.Name, fixture.Namespace
	check := suite.Must(builders.Template("machine-health-check-workers.yaml", variables))
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, check)).To(Succeed()) })
	Eventually(counts(ctx, check.GetName())).Should(Equal("5 of 5"))
	return named(ctx, check.GetName())
}

func named(ctx context.Context, name string) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.Namespace, Name: name}}
	return stored(ctx, Default, check)
}

func stored(ctx context.Context, g Gomega, check *clusterv1.MachineHealthCheck) *clusterv1.MachineHealthCheck {
	now := &clusterv1.MachineHealthCheck{}
	g.Expect(here.Get(ctx, client.ObjectKeyFromObject(check), now)).To(Succeed())
	return now
}

// counts returns how many of a check's expected machines are healthy, as "5 of 5".
func counts(ctx context.Context, name string) func() string {
	return func() string {
		status := named(ctx, name).Status
		return fmt.Sprintf("%d of %d", ptr.Deref(status.CurrentHealthy, -1), ptr.Deref(status.ExpectedMachines, -1))
	}
}

// reasons returns the reasons of the events about an object that a check has sent.
func reasons(ctx context.Context, check *clusterv1.MachineHealthCheck, object string) func() []string {
	return func() (all []string) {
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list, client.InNamespace(fixture.Namespace))).To(Succeed())
		for i := range list.Items {
			e := &list.Items[i]
			if mine := e.Regarding.UID == check.UID ||
				(e.Related != nil && e.Related.UID == check.UID); mine && e.Regarding.Name == object {
				all = append(all, e.Reason)
			}
		}
		return all
	}
}

// identities returns the UIDs of the workers by name. A replaced worker has another UID.
func identities(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	uids := map[string]types.UID{}
	for _, name := range fixture.WorkerNames(ctx) {
		m := &clusterv1.Machine{}
		if err := here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: name}, m); client.IgnoreNotFound(err) != nil ||
			err == nil {
			Expect(err).NotTo(HaveOccurred())
			uids[name] = m.UID
		}
	}
	return uids
}

// replaced waits until the lost worker is replaced, and the others are not.
func replaced(ctx context.Context, before map[string]types.UID, lost string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := identities(ctx)
		g.Expect(now).To(HaveLen(len(before)))
		g.Expect(now).NotTo(HaveKey(lost))
		for name, uid := range before {
			if name != lost {
				g.Expect(now).To(HaveKeyWithValue(name, uid))
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// silence stops the kubelets of machines until the spec ends.
func silence(machines ...string) {
	GinkgoHelper()
	for _, name := range machines {
		kubelet := fixture.Host(name).Kubelet()
		kubelet.Stop()
		DeferCleanup(kubelet.Start) // does nothing if the machine has been replaced
	}
}

// pauseTheOwner pauses the workers' MachineSet until the returned function is called or the spec ends.
func pauseTheOwner(ctx context.Context) (resume func(context.Context)) {
	GinkgoHelper()
	list := &clusterv1.MachineSetList{}
	Expect(here.List(ctx, list, client.InNamespace(fixture.Namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	set := &list.Items[0]
	resume = func(ctx context.Context) { suite.Annotate(ctx, here, set, clusterv1.PausedAnnotation, nil) }
	suite.Annotate(ctx, here, set, clusterv1.PausedAnnotation, ptr.To("e2e"))
	DeferCleanup(func(ctx SpecContext) { resume(ctx) })
	Eventually(func(g Gomega) {
		g.Expect(here.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
		g.Expect(conditions.IsTrue(set, clusterv1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
	return resume
}

// writers returns the managed fields of an object as JSON, by field manager.
func writers(object client.Object) map[string]string {
	fields := map[string]string{}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 != nil {
			// The first writer of a field in a structure owns the structure as well.
			fields[entry.Manager] += strings.ReplaceAll(entry.FieldsV1.GetRawString(), `".":{},`, "")
		}
	}
	return fields
}

// nodesChecked creates a NodeHealthCheck that selects no node, until the spec ends, and returns its name.
func nodesChecked(ctx context.Context) string {
	GinkgoHelper()
	check := suite.Objects([]byte(`
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: nodes
spec:
  selector:
    matchLabels: {pages: none}
  minHealthy: 1
  remediationTemplate: {apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate, name: none, namespace: default}
`))[0]
	Expect(here.Create(ctx, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, check)).To(Succeed()) })
	return check.GetName()
}

func patch(content map[string]any) client.Patch {
	GinkgoHelper()
	text := suite.Must(json.Marshal(content))
	return client.RawPatch(types.MergePatchType, text)
}

func succeeded(of []metav1.Condition) bool { return meta.IsStatusConditionTrue(of, "Succeeded") }

// plugin is the path of the built kubectl-mend.
var plugin = filepath.Join(project, "bin", "kubectl-mend")

// done is the exit code of success in docs/cli/README.md.
const done = 0

// ran is the result of a run of the plugin.
type ran struct {
	out, complaint string
	code           int
}

// mend runs the plugin as an administrator in the fixture's namespace.
func mend(ctx context.Context, args ...string) ran {
	GinkgoHelper()
	return mendAs(ctx, management.KubeconfigFile(), args...)
}

// mendAs runs the plugin with a kubeconfig. The plugin's cache is deleted with the spec.
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

func parsed[T any](r ran) *T {
	GinkgoHelper()
	Expect(r.code).To(Equal(done), r.complaint)
	into := new(T)
	Expect(json.Unmarshal([]byte(r.out), into)).To(Succeed(), r.out)
	return into
}

// explained returns the output of explain for an object such as machine/NAME.
func explained(ctx context.Context, what string) *cliv1.Explanation {
	GinkgoHelper()
	return parsed[cliv1.Explanation](mend(ctx, "explain", what, "-o", "json"))
}

// message returns the first line of explain for an object.
func message(ctx context.Context, what string) func() string {
	return func() string { return explained(ctx, what).Message }
}

// targetOf returns the judgement of the only check that selects the object.
func targetOf(e *cliv1.Explanation) cliv1.Target {
	GinkgoHelper()
	Expect(e.Checks).To(HaveLen(1))
	Expect(e.Checks[0].Targets).To(HaveLen(1))
	return e.Checks[0].Targets[0]
}
