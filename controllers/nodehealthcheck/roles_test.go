package nodehealthcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// granted is a client with the rights of a role for the kind Reboot and its templates, and all rights for other kinds. Reads from a cache
// need the rights to list and watch.
type granted struct {
	client.Client
	rights map[string][]string // verbs, by kind
	cached bool
}

func (g granted) may(verb string, kind schema.GroupVersionKind) error {
	name := strings.TrimSuffix(kind.Kind, "List")
	verbs, ruled := g.rights[name]
	asked := []string{verb}
	if g.cached && (verb == "get" || verb == "list") {
		asked = []string{"list", "watch"}
	}
	for _, verb := range asked {
		if ruled && !slices.Contains(verbs, verb) {
			return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: name}, verb, nil)
		}
	}
	return nil
}

func (g granted) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := g.may("get", obj.GetObjectKind().GroupVersionKind()); err != nil {
		return err
	}
	return g.Client.Get(ctx, key, obj, opts...)
}

func (g granted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := g.may("list", list.GetObjectKind().GroupVersionKind()); err != nil {
		return err
	}
	return g.Client.List(ctx, list, opts...)
}

func (g granted) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := g.may("create", obj.GetObjectKind().GroupVersionKind()); err != nil {
		return err
	}
	return g.Client.Create(ctx, obj, opts...)
}

func (g granted) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := g.may("patch", obj.GetObjectKind().GroupVersionKind()); err != nil {
		return err
	}
	return g.Client.Patch(ctx, obj, patch, opts...)
}

func (g granted) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := g.may("delete", obj.GetObjectKind().GroupVersionKind()); err != nil {
		return err
	}
	return g.Client.Delete(ctx, obj, opts...)
}

// shippedRole returns a role as a remediator ships it.
func shippedRole(t *testing.T, file string) *rbacv1.ClusterRole {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "roles", file+".yaml"))
	must.Do(t, err)
	r := &rbacv1.ClusterRole{}
	must.Do(t, yaml.UnmarshalStrict(content, r))
	return r
}

// grants gives the manager the rights of a remediator's role, but for Reboots and their templates, until revoke is called.
func (k *fixture) grants(r *rbacv1.ClusterRole) (revoke func()) {
	rights := map[string][]string{}
	for _, rule := range r.Rules {
		kind := "Reboot"
		if strings.HasSuffix(rule.Resources[0], "templates") {
			kind += remediationrequest.TemplateSuffix
		}
		rights[kind] = rule.Verbs
	}
	cached, live := granted{k.client, rights, true}, granted{k.client, rights, false}
	kinds := remediationrequest.NewKinds(k.informers, live, "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
	kinds.AskFirst(func(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
		return live.may("watch", kind) == nil, nil
	})
	k.r.Client, k.r.Live, k.r.Kinds, k.r.Watches = cached, live, kinds, kinds
	k.r.Requests = &remediationrequest.Requests{Client: cached, Live: live}
	return func() {
		for kind := range rights {
			rights[kind] = nil
		}
	}
}

// looks reconciles, and returns the errors, and after how long the last reconcile wants the next one.
func (k *fixture) looks() (failed []string, again time.Duration) {
	k.t.Helper()
	ctx := log.IntoContext(k.t.Context(), funcr.New(func(_, line string) {
		if strings.Contains(line, `"error"`) {
			failed = append(failed, line)
		}
	}, funcr.Options{}))
	for range 5 {
		result, err := k.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
		must.Do(k.t, err)
		again = result.RequeueAfter
	}
	return failed, again
}

// Releases of a remediator grant different rights. They were enough for medik8s' operator of the same time.
func TestWhatRemediatorsGrantIsEnough(t *testing.T) {
	for role, polled := range map[string]bool{
		"poison-pill-0.1": true, "self-node-remediation-0.4": true, "self-node-remediation-0.8": false,
		"fence-agents-remediation-0.2": true, "fence-agents-remediation-0.3": false,
	} {
		t.Run(role, func(t *testing.T) {
			delay := metav1.Duration{Duration: time.Minute}
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false),
				check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &delay }))...)
			k.grants(shippedRole(t, role))
			quiet := func(what string, want ...string) time.Duration {
				t.Helper()
				failed, again := k.looks()
				if len(failed) > 0 {
					t.Errorf("%s: %s", what, failed[0])
				}
				k.wants(what, want...)
				return again
			}
			again := quiet("no node is bad")
			if got := k.state("nhc"); !strings.Contains(got, "Enabled") {
				t.Fatalf("the check is %s", got)
			}
			if soon := again > 0 && again <= 15*time.Second; soon != polled {
				t.Errorf("the next reconcile is in %s; polled every 15 s: want %v", again, polled)
			}
			k.bad("b")
			quiet("a node is bad", "Reboot/b")
			k.after(49 * time.Hour)
			quiet("the request is old", "Reboot/b")
			k.turn("b", "True")
			quiet("its node is healthy, for less than the healthy delay", "Reboot/b")
			k.after(time.Minute)
			quiet("it was healthy for as long")
		})
	}
}

func TestATemplateThatMayBeReadOnlyByItsNameIsLookedAtAgain(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), check("nhc"))...)
	k.grants(shippedRole(t, "poison-pill-0.1"))
	if _, again := k.looks(); !strings.Contains(k.state("nhc"), "Disabled") || again > 15*time.Second {
		t.Errorf("%s, looked at again in %s", k.state("nhc"), again)
	}
	k.makes(template("Reboot", "reboot", false))
	k.looks()
	if got := k.state("nhc"); !strings.Contains(got, "Enabled") {
		t.Errorf("the template is there, and the check is %s", got)
	}
}

// If requests may not be watched, the controller still sees what their remediators write.
func TestARequestThatMayNotBeWatchedIsPolled(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.grants(shippedRole(t, "poison-pill-0.1"))
	k.bad("b")
	k.looks()
	k.says("Processing", "True", "Rebooting", "")
	k.deleteAll()
	k.after(2 * time.Minute)
	k.looks()
	if len(k.made) != 2 {
		t.Errorf("made %v, want the request again that somebody has deleted", k.made)
	}
}

// Uninstalling a remediator removes its role and often keeps its CRDs. This must not block checks that do not use these kinds.
func TestARemediatorWhoseRoleIsGoneHoldsUpItsOwnChecksAlone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Replace", "replace")) }), check("rebooting"))...)
	revoke := k.grants(shippedRole(t, "poison-pill-0.1"))
	k.settle("rebooting")
	revoke()
	k.bad("b")
	if failed, _ := k.looks(); len(failed) > 0 {
		t.Error(failed[0])
	}
	k.wants("the other check", "Replace/b")
	k.settle("rebooting")
	if got := conditionOf(k.check("rebooting"), nhcv1.DisabledCondition); got == nil || got.Reason != nhcv1.TemplateForbiddenReason {
		t.Errorf("the check whose remediator is gone says %v", got)
	}
}

// The controller keeps the status entries of requests that it may not read any more, and does not create them again.
func TestARequestThatMayNotBeReadAnyMoreIsNotMadeAgain(t *testing.T) {
	for name, restarts := range map[string]bool{"by the process that made it": false, "by the next process, which has read nothing": true} {
		for _, role := range []string{"poison-pill-0.1", "fence-agents-remediation-0.2"} {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
			revoke := k.grants(shippedRole(t, role))
			k.bad("b")
			k.looks()
			if restarts {
				revoke = k.grants(shippedRole(t, role))
			} else if role != "poison-pill-0.1" {
				continue // a watched kind stays in the cache
			}
			revoke()
			k.after(2 * time.Minute)
			k.looks()
			if listed := k.check("nhc").Status.UnhealthyNodes; len(listed) != 1 || len(listed[0].Remediations) != 1 || len(k.made) != 1 {
				t.Errorf("%s, %s: the status lists %+v; made %v", role, name, listed, k.made)
			}
		}
	}
}

// Before a remediation of a control-plane node, the requests of all checks are read, also of kinds that came into use during the reconcile.
func TestAPolledKindThatOnlyAnotherCheckNamesIsNotWatched(t *testing.T) {
	k := newFixture(t, append(workers("a"), member("m1"), member("m2"), member("m3"), template("Reboot", "reboot", false),
		template("Replace", "replace", false), check("rebooting"),
		check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Replace", "replace")) }))...)
	k.grants(shippedRole(t, "poison-pill-0.1"))
	k.bad("m2")
	k.looks()
	k.wants("the other check has no request", "Replace/m2")
	for kind := range k.informers.InformersByGVK {
		if kind.Kind == "Reboot" {
			t.Error("a kind is watched that may not be")
		}
	}
}

// In an escalation, a remediator has to be notified to stop before the next step starts.
func TestALadderThatMayNotTellARemediatorToStopSaysSo(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.grants(shippedRole(t, "poison-pill-0.1"))
	k.bad("b")
	k.looks()
	k.after(6 * time.Minute)
	k.looks()
	k.wants("the first one was not told", "Reboot/b")
	told := 0
	for _, e := range k.events() {
		if strings.Contains(e, "RemediationFailed") && strings.Contains(e, "cannot be notified to stop") && strings.Contains(e, "forbidden") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it was reported %d times", told)
	}
}

// state returns the phase of a check, the numbers of observed and healthy nodes, and the listed nodes with the numbers of their requests.
func (k *fixture) state(check string) string {
	k.t.Helper()
	st := k.check(check).Status
	says := []string{string(st.Phase), fmt.Sprintf("%d/%d", *st.HealthyNodes, *st.ObservedNodes)}
	for _, n := range st.UnhealthyNodes {
		says = append(says, fmt.Sprintf("%s:%d", n.Name, len(n.Remediations)))
	}
	return strings.Join(says, " ")
}

func role(t *testing.T, file string) *rbacv1.ClusterRole {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", file))
	must.Do(t, err)
	r := &rbacv1.ClusterRole{}
	must.Do(t, yaml.UnmarshalStrict(content, r))
	return r
}

func TestTheRightsThatAreShipped(t *testing.T) {
	rules := role(t, filepath.Join("nodes", "role.yaml")).Rules
	t.Run("W4: nodes may be patched, to take a confirmation off, and no more", func(t *testing.T) {
		for _, rule := range rules {
			if slices.Contains(rule.Resources, "nodes") && !slices.Equal(rule.Verbs, []string{"get", "list", "patch", "watch"}) {
				t.Errorf("verbs %v", rule.Verbs)
			}
		}
	})
	t.Run("W30: nothing may be done to rights, and nothing be deleted but leases and requests", func(t *testing.T) {
		harmless := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
		for _, rule := range rules {
			if slices.Contains(rule.APIGroups, rbacv1.GroupName) || slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) ||
				slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(harmless, verb) }) {
				t.Errorf("it may change what it may do: %v", rule)
			}
			requests := strings.HasPrefix(rule.APIGroups[0], "infrastructure.cluster.x-k8s.io") || rule.APIGroups[0] == "kubemend.io"
			if slices.Contains(rule.Verbs, "delete") && !requests && !slices.Equal(rule.Resources, []string{"leases"}) {
				t.Errorf("it may delete %v of %v", rule.Resources, rule.APIGroups)
			}
		}
	})
}

// Kubernetes aggregates the ClusterRoles with the label, which remediators bring. (medik8s creates the same ClusterRole at start.)
func TestTheRoleThatRemediatorsAddTo(t *testing.T) {
	t.Run("seed 0.25, seed 2.1, C84: has the rules of all roles with the label of remediators, and none of its own", func(t *testing.T) {
		r, labels := role(t, "ext-remediation.yaml"), map[string]string{"rbac.ext-remediation/aggregate-to-ext-remediation": "true"}
		diff := cmp.Diff([]metav1.LabelSelector{{MatchLabels: labels}}, r.AggregationRule.ClusterRoleSelectors)
		if diff != "" || len(r.Rules) > 0 {
			t.Errorf("rules %v, aggregation (-want +got):\n%s", r.Rules, diff)
		}
	})
}
