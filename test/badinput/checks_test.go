package badinput

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// saidOf is a value of a field, and the condition that a MachineHealthCheck gets for it.
type saidOf struct {
	field             string
	value             any
	condition, reason string
	says              string
	set               func(*clusterv1.MachineHealthCheck)
}

const (
	allowed  = clusterv1.MachineHealthCheckRemediationAllowedCondition
	template = mendv1.RemediationTemplateAvailable
)

var checks = append(limited(), naming()...)

func limited() []saidOf {
	var rows []saidOf
	for _, row := range [][2]string{{"some", "must be a number such as 2 or a percentage such as 40%"}, {"-1", "must not be negative"},
		{"4O%", "must be a number such as 2 or a percentage such as 40%"}} {
		value := intstr.FromString(row[0])
		rows = append(rows,
			saidOf{"spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", row[0], allowed, mendv1.InvalidLimitReason, row[1],
				func(c *clusterv1.MachineHealthCheck) {
					c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &value
				}})
	}
	for _, row := range [][2]string{{"[5-3]", "its start is greater than its end"}, {"3-5", "must be a range such as [3-5]"},
		{"[3-]", "must be a range such as [3-5]"}} {
		rows = append(rows, saidOf{"spec.remediation.triggerIf.unhealthyInRange", row[0], allowed, mendv1.InvalidLimitReason, row[1],
			func(c *clusterv1.MachineHealthCheck) { c.Spec.Remediation.TriggerIf.UnhealthyInRange = row[0] }})
	}
	return rows
}

// naming returns rows of checks that refer to an object that does not exist or to a kind that cannot be a template.
func naming() []saidOf {
	rows := []saidOf{{"spec.clusterName", "none", allowed, mendv1.ClusterNotFoundReason, "none", func(c *clusterv1.MachineHealthCheck) {
		c.Spec.ClusterName = "none"
	}}, {"spec.selector",
		map[string]any{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Is", "values": []any{"bad"}}}},
		allowed, mendv1.InvalidSelectorReason, `"Is" is not a valid label selector operator`, func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Is", Values: []string{"bad"}}}
		}}}
	for _, row := range []struct{ apiVersion, kind, reason, says string }{
		{"coordination.k8s.io/v1", "Lease", mendv1.TemplateRefusedReason, `kind "Lease" is none of templates: their names end in Template`},
		{"v1", "PodTemplate", mendv1.TemplateRefusedReason, `kind "PodTemplate" of group "" belongs to Kubernetes itself`},
		{"resource.k8s.io/v1", "ResourceClaimTemplate", mendv1.TemplateRefusedReason,
			`kind "ResourceClaimTemplate" of group "resource.k8s.io" belongs to Kubernetes itself`},
		{clusterv1.GroupVersion.String(), "Machine", mendv1.TemplateRefusedReason,
			`kind "Machine" is none of templates: their names end in Template`},
		{clusterv1.GroupVersion.String(), "ClusterTemplate", mendv1.TemplateRefusedReason,
			`belongs to Cluster API itself and is no remediation template`},
		{mendv1.GroupVersion.String(), "HostRemediation", mendv1.TemplateRefusedReason,
			`kind "HostRemediation" is none of templates: their names end in Template`},
		{"example.org/v1", "WipeTemplate", mendv1.TemplateNotFoundReason, "the kind WipeTemplate.example.org is not installed"},
		{mendv1.GroupVersion.String(), "HostRemediationTemplate", mendv1.TemplateNotFoundReason,
			"HostRemediationTemplate ns/none does not exist"},
	} {
		ref := clusterv1.MachineHealthCheckRemediationTemplateReference{APIVersion: row.apiVersion, Kind: row.kind, Name: "none"}
		rows = append(rows,
			saidOf{"spec.remediation.templateRef", map[string]any{"apiVersion": row.apiVersion, "kind": row.kind, "name": "none"},
				template, row.reason, row.says, func(c *clusterv1.MachineHealthCheck) { c.Spec.Remediation.TemplateRef = ref }})
	}
	return rows
}

func TestACheckReportsAnInvalidFieldUntilItIsCorrected(t *testing.T) {
	for _, row := range checks {
		t.Run(row.field+" "+written(row.value), func(t *testing.T) {
			f := newFixture(t)
			bad, good := f.check("bad"), f.check("good")
			row.set(bad)
			f.update(bad)
			for range 2 {
				f.reconcile("bad")
				f.reconcile("good")
			}
			field := strings.TrimSuffix(row.field, ".clusterName") // the message names the cluster
			c := conditions.Get(f.check("bad"), row.condition)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != row.reason || !strings.Contains(c.Message, row.says) ||
				row.reason == mendv1.InvalidLimitReason && !strings.Contains(c.Message, field) {
				t.Errorf("the check says %+v, want %s with %s: %s", c, row.reason, field, row.says)
			}
			if f.asked("bad") || !f.asked("good") {
				t.Errorf("remediated: the machine of the check %t, that of another one %t; want the latter alone", f.asked("bad"),
					f.asked("good"))
			}
			right := f.check("bad")
			right.Annotations, right.Spec = good.Annotations, *good.Spec.DeepCopy()
			right.Spec.Selector.MatchLabels["pool"] = "bad"
			f.update(right)
			for range 2 {
				f.reconcile("bad")
			}
			if c := conditions.Get(f.check("bad"), row.condition); !f.asked("bad") || c != nil && c.Status != metav1.ConditionTrue {
				t.Errorf("corrected, its machine is remediated: %t, and it says %+v", f.asked("bad"), c)
			}
		})
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fixture is the controller of MachineHealthChecks with two checks of one cluster. A user has marked a machine of each check.
type fixture struct {
	t     *testing.T
	api   client.Client
	clock *clocktesting.FakePassiveClock
	*machinehealthcheck.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ready := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test",
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}}
	cluster.Status.Conditions = []metav1.Condition{
		ready(clusterv1.ClusterControlPlaneInitializedCondition), ready(clusterv1.ClusterInfrastructureReadyCondition),
	}
	objects := []client.Object{cluster}
	for _, name := range []string{"bad", "good"} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c", map[string]string{"pool": name}
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("m-" + name), Labels: map[string]string{"pool": name},
			CreationTimestamp: metav1.NewTime(noon),
			Annotations:       map[string]string{clusterv1.RemediateMachineAnnotation: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "s",
				Controller: ptr.To(true)}},
		}}
		m.Spec.ClusterName = "c"
		objects = append(objects, check, m)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, mendv1.AddToScheme} {
		must.Do(t, add(scheme))
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.MachineHealthCheck{}, &clusterv1.Machine{})
	must.Do(t, machinehealthcheck.AddIndexes(t.Context(), indexer{b}))
	f := &fixture{t: t, api: b.Build(), clock: clocktesting.NewFakePassiveClock(noon)}
	f.Reconciler = &machinehealthcheck.Reconciler{
		Client: f.api, Live: f.api, Clusters: reachable{}, Kinds: own{}, Requests: &remediationrequest.Requests{Client: f.api, Live: f.api},
		Recorder: events.NewFakeRecorder(1000),
		Clock:    f.clock, Unclaimed: machinehealthcheck.Act,
	}
	return f
}

// indexer adds the indexes of the manager's cache to a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(obj, field, values)
	return nil
}

// reachable is a view of workload clusters that are up and have no nodes.
type reachable struct{}

func (reachable) Doubt(client.ObjectKey, time.Time) {}

func (reachable) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.Seen(workload.Up, nil), nil
}

func (reachable) NodesExist(context.Context, client.ObjectKey, []string) (map[string]bool, error) {
	return nil, nil
}

// own says that only the kinds of kubemend's group are installed.
type own struct{}

func (own) Ready(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
	if kind.Group != mendv1.GroupVersion.Group {
		return false, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	return true, nil
}

func (own) InUse() []schema.GroupVersionKind { return nil }
func (own) Source(handler.TypedEventHandler[*remediationrequest.Metadata, reconcile.Request]) source.Source {
	return nil
}

// reconcile advances the clock by a second and reconciles a check.
func (f *fixture) reconcile(check string) {
	f.t.Helper()
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	ctx := log.IntoContext(f.t.Context(), logr.Discard())
	if _, err := f.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: check}}); err != nil {
		f.t.Fatalf("reconcile %s: %v", check, err)
	}
}

func (f *fixture) check(name string) *clusterv1.MachineHealthCheck {
	f.t.Helper()
	check := &clusterv1.MachineHealthCheck{}
	must.Do(f.t, f.api.Get(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, check))
	return check
}

func (f *fixture) update(check *clusterv1.MachineHealthCheck) {
	f.t.Helper()
	check.Generation++
	must.Do(f.t, f.api.Update(f.t.Context(), check))
}

// asked reports whether kubemend has requested the remediation of a machine from its owner.
func (f *fixture) asked(machine string) bool {
	f.t.Helper()
	m := &clusterv1.Machine{}
	must.Do(f.t, f.api.Get(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: machine}, m))
	return machinehealthcheck.OwnerOf(m) != machinehealthcheck.NotAsked
}

// ofOneFlag are flags with values that the manager refuses, by the message. The message names the flag and the value.
var ofOneFlag = map[string][]string{
	"--%s %s: must be more than 0": {
		"sync-period=-5m0s", "sync-period=0s", "machinehealthcheck-concurrency=0", "hostremediation-concurrency=-1",
		"nodehealthcheck-concurrency=0", "clustercache-concurrency=0", "kube-api-qps=0", "kube-api-burst=-1", "clustercache-client-qps=-1",
		"clustercache-client-burst=0", "clustercache-response-limit=0", "leader-elect-retry-period=0s",
	},
	"--%s %s: must not be negative":             {"orphan-grace-period=-5m0s", "node-monitor-grace-period=-1s"},
	"--%s %s: must be a port, 1 to 65535":       {"webhook-port=99999"},
	"--%s %q: must be the name of a namespace":  {"namespace=Team_A", "leader-elect-namespace=Team_A", "node-lease-namespace="},
	"--%s %q: must be the value of a label":     {"watch-filter=a/b"},
	"--%s %q: must be an address with a port":   {"health-addr=nowhere", "profiler-address=nowhere", "diagnostics-address=nowhere"},
	`invalid argument %[2]q for "--%[1]s" flag`: {"kube-api-qps=fast", "webhook-port=https", "teardown=perhaps"},

	"--%s %s: must be longer than --leader-elect-retry-period, which is 2s":                {"leader-elect-renew-deadline=1s"},
	"--%s %s: must be longer than --leader-elect-renew-deadline, which is 10s":             {"leader-elect-lease-duration=5s"},
	"--%s %q: must be of [StorageVersionMigration CleanupManagedFields]":                   {"skip-crd-migration-phases=All"},
	`invalid argument %[2]q for "--%[1]s" flag: unrecognized feature gate: None`:           {"feature-gates=None=true"},
	`invalid argument %[2]q for "--%[1]s" flag: quantities must match`:                     {"clustercache-response-limit=some"},
	`invalid argument %[2]q for "--%[1]s" flag: must be Kind.version.group/namespace/name`: {"default-node-health-check-template=x"},
	`%[2]q for "--%[1]s" flag: must be a duration like "30s" or "5m"`:                      {"sync-period=often"},
}

// commandLines are other command lines that a program refuses, by command line, with the message.
var commandLines = map[string]string{
	"manager --fencing=delete": "nodes are fenced by the out-of-service taint alone, " +
		"which every Kubernetes that Cluster API supports has: remove the flag",
	"manager --no-such-flag":                 "unknown flag: --no-such-flag",
	"manager --tls-min-version=VersionTLS9":  `unknown tls version "VersionTLS9"`,
	"manager --tls-cipher-suites=NONE":       "Cipher suite NONE not supported",
	"manager --logging-format=poem":          `set up logging: format: Invalid value: "poem": Unsupported log format`,
	"kubectl-mend status --output=pictures":  `--output "pictures": expected go-template, go-template-file, json, jsonpath, `,
	"kubectl-mend status --from=none.json":   "read the record: open none.json: no such file or directory",
	"kubectl-mend explain m":                 `"m": expected machine/NAME, node/NAME, host/NAME, mhc/NAME, nhc/NAME`,
	"kubectl-mend explain lease/m":           `"lease/m": there is no kind "lease" here: expected machine/NAME, node/NAME`,
	"kubectl-mend history --since=yesterday": `invalid argument "yesterday" for "--since" flag: not a valid duration string: "yesterday"`,
	"kubectl-mend mend":                      `there is no command "mend"`,
}

// The packages of the flags test flags that accept only a few words.
func TestAProgramRefusesInvalidFlags(t *testing.T) {
	lines := maps.Clone(commandLines)
	for says, flags := range ofOneFlag {
		for _, flag := range flags {
			name, value, _ := strings.Cut(flag, "=")
			lines["manager --"+flag] = fmt.Sprintf(says, name, value)
		}
	}
	for line, says := range lines {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			said, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", words[0]), words[1:]...).CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				t.Fatalf("%v: run make build\n%s", err, said)
			}
			if !strings.Contains(string(said), says) || strings.Contains(string(said), "goroutine ") {
				t.Errorf("it says, with %v: %s; want %s", err, said, says)
			}
		})
	}
}
