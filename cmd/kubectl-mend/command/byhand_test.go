package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	hosts "github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

func TestAMachineIsMarkedForItsCheckByWhoAsks(t *testing.T) {
	p := aPlace(t)
	p.typed = "y\n"
	got, code := p.does("remediate", "machine/w1", func(b *byHand) { b.reason = "NIC drops packets" })
	for _, want := range []string{
		"remediate machine/w1 in metal: the annotation cluster.x-k8s.io/remediate-machine marks Machine w1 unhealthy for MachineHealthCheck metal/workers",
		"kubemend asks its owner, MachineSet md-0, to remediate it", "Proceed? [y/N] machine/w1 in metal marked",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	m := p.machine("w1")
	by, known := explain.AttributionOf(m, mendv1.RequestedAnnotation)
	if _, marked := m.Annotations[clusterv1.RemediateMachineAnnotation]; code != Done || !marked || !known ||
		by != (explain.Attribution{By: "alice", At: noon, Reason: "NIC drops packets"}) {
		t.Errorf("code %d, annotations %v, printed\n%s", code, m.Annotations, got)
	}
	if told := strings.Join(p.told(), "\n"); told != "Machine w1: RemediationRequested: remediation requested by alice: NIC drops packets" {
		t.Errorf("the events are %s", told)
	}
	got, code = p.does("remediate", "machine/w1", confirmed)
	if code != Done || !strings.HasPrefix(got, "nothing to do for machine/w1 in metal: Machine w1 has the annotation ") {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
	got, code = p.does("reset", "machine/w1", confirmed)
	if m = p.machine("w1"); code != Done || len(m.Annotations) != 1 || m.Annotations[mendv1.ResetAnnotation] == "" {
		t.Errorf("after its reset: code %d, annotations %v, printed\n%s", code, m.Annotations, got)
	}
}

func TestAHostIsPowerCycledByARequestOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		what  string
		edits []func(*place)
	}{
		"a host of a check that asks owners":         {"host/host-w1", nil},
		"a machine of a check that asks for cycles":  {"machine/w1", []func(*place){cycling}},
		"a node of a check that asks for cycles":     {"node/node-w1", []func(*place){cycling}},
		"a host of no check":                         {"host/host-w1", []func(*place){func(p *place) { p.machines["w1"].Labels["pool"] = "other" }}},
		"a host of a check that Cluster API acts on": {"host/host-w1", []func(*place){func(p *place) { p.check.Annotations = nil }}},
		"a host whose nodes alice may not read":      {"host/host-w1", []func(*place){written(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			got, code := p.does("remediate", tc.what, confirmed)
			all := p.requests()
			if code != Done || len(all) != 1 || all[0].Name != "w1-by-hand" || all[0].OwnerReferences[0].UID != "w1" || *all[0].Spec.Strategy.RetryLimit != 1 {
				t.Fatalf("code %d, requests %v, printed\n%s", code, all, got)
			}
			if by, _ := explain.AttributionOf(&all[0], mendv1.RequestedAnnotation); by.By != "alice" || len(p.machine("w1").Annotations) > 0 {
				t.Errorf("it is asked for by %q, and the machine has %v", by.By, p.machine("w1").Annotations)
			}
			if !strings.Contains(got, "HostRemediation w1-by-hand power-cycles its host, in 2 attempts at most") ||
				!strings.Contains(got, "The power-off is hard: no pod is drained before it") {
				t.Errorf("printed\n%s", got)
			}
			if got, code = p.does("remediate", tc.what, confirmed); code != Done || len(p.requests()) != 1 || !strings.HasPrefix(got, "nothing to do for") {
				t.Errorf("again: code %d, printed\n%s", code, got)
			}
		})
	}
}

// byHandOf returns the first HostRemediation that a user requests for a machine.
func byHandOf(t *testing.T, machine *clusterv1.Machine) *mendv1.HostRemediation {
	t.Helper()
	request, err := requestByHand(t.Context(), clientWith(t), machine)
	must.Do(t, err)
	return request
}

func TestARequestThatEndedBlocksNoOther(t *testing.T) {
	p := aPlace(t, func(p *place) {
		ended := byHandOf(p.t, p.machines["w1"])
		ended.UID, ended.Annotations = "ended", map[string]string{mendv1.PowerCycleAnnotation: `{"state":"Succeeded"}`}
		p.objects = append(p.objects, ended)
	})
	got, code := p.does("remediate", "host/host-w1", confirmed)
	if all := p.requests(); code != Done || len(all) != 2 || all[1].Name != "w1-by-hand-2" {
		t.Errorf("code %d, requests %v, printed\n%s", code, all, got)
	}
}

func TestNothingIsRequestedThatHarmsOrThatNoControllerActsOn(t *testing.T) {
	paused := func(p *place) { p.check.Annotations[clusterv1.PausedAnnotation] = "true" }
	for name, tc := range map[string]struct {
		what  string
		says  string
		edits []func(*place)
	}{
		"a machine that no check selects": {"machine/w1", "create a check that selects it", []func(*place){func(p *place) { p.machines["w1"].Labels["pool"] = "x" }}},
		"a machine that is left alone": {"machine/w1", "The machine has the annotation cluster.x-k8s.io/skip-remediation", []func(*place){func(p *place) {
			p.machines["w1"].Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}}},
		"a host whose machine is left alone": {"host/host-w1", "The machine has the annotation cluster.x-k8s.io/skip-remediation", []func(*place){func(p *place) {
			p.machines["w1"].Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}}},
		"a host of a check that is paused":           {"host/host-w1", "The check has the annotation cluster.x-k8s.io/paused", []func(*place){paused}},
		"a machine without an owner":                 {"machine/w1", "has no owner that could replace it", []func(*place){func(p *place) { p.machines["w1"].OwnerReferences = nil }}},
		"a host whose check is at its limit":         {"host/host-w2", "no limit would block a power cycle by hand", []func(*place){silentNodes("w1")}},
		"one whose nodes alice may not read":         {"host/host-w1", "no limit would block a power cycle by hand", []func(*place){written(0)}},
		"a machine whose check is, as it is written": {"machine/w1", "too many machines would be", []func(*place){written(0)}},
		"a host of which nothing is written":         {"host/host-w1", "You may not read the nodes", []func(*place){func(p *place) { p.blind = true }}},
		"a host of no check, of a Cluster that is paused": {"host/host-w1", "Cluster c1 is paused", []func(*place){func(p *place) {
			p.machines["w1"].Labels["pool"] = "other"
			p.objects[len(p.objects)-3].(*clusterv1.Cluster).Spec.Paused = ptr.To(true)
		}}},
		"a host where the kind is not installed": {"host/host-w1", "HostRemediations are not installed", []func(*place){func(p *place) { p.bare = true }}},
		"a host that claims a machine which is on another one": {"host/host-w2", "Machine w1 does not name this host as its own", []func(*place){func(p *place) {
			p.hosts["w2"].Spec.ConsumerRef.Name = "w1"
		}}},
		"a host without a machine": {"host/host-w1", "belongs to no Machine", []func(*place){func(p *place) {
			p.hosts["w1"].Spec.ConsumerRef = nil
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			p.refuses = errors.New("something was written")
			got, code := p.does("remediate", tc.what, confirmed)
			if code != Refused || !strings.HasPrefix(got, "cannot remediate "+tc.what) || !strings.Contains(got, tc.says) {
				t.Errorf("code %d, printed\n%s", code, got)
			}
		})
	}
}

func TestNothingIsChangedByHandUnlessTheUserMayAndSaysSo(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}, "w1", errors.New("a policy says no"))
	for name, tc := range map[string]struct {
		what  string
		edit  func(*place)
		flags func(*byHand)
		code  int
		says  string
	}{
		"no":                             {"machine/w1", func(p *place) { p.typed = "n\n" }, func(*byHand) {}, Refused, "error: nothing was changed"},
		"no terminal":                    {"machine/w1", func(p *place) { p.asks = false }, func(*byHand) {}, Refused, "there is no terminal to ask for confirmation, so add --yes"},
		"a dry run":                      {"machine/w1", func(p *place) { p.refuses = forbidden }, func(b *byHand) { b.dryRun = cmdutil.DryRunClient }, Done, "machine/w1 in metal marked (dry run)"},
		"a dry run of the server":        {"host/host-w1", func(*place) {}, func(b *byHand) { b.dryRun = cmdutil.DryRunServer }, Done, "w1-by-hand (server dry run)"},
		"a right is missing":             {"machine/w1", func(p *place) { p.mayNot = "machines" }, confirmed, Failed, `User "alice" cannot patch cluster.x-k8s.io/machines`},
		"a right is missing for a cycle": {"host/host-w1", func(p *place) { p.mayNot = "hostremediations" }, confirmed, Failed, `User "alice" cannot create kubemend.io/hostremediations`},
		"a policy refuses":               {"machine/w1", func(p *place) { p.refuses = forbidden }, func(b *byHand) { b.dryRun = cmdutil.DryRunServer }, Failed, "a policy says no"},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edit)
			got, code := p.does("remediate", tc.what, tc.flags)
			if code != tc.code || !strings.Contains(got, tc.says) || len(p.machine("w1").Annotations) > 0 || len(p.requests())+len(p.told()) > 0 {
				t.Errorf("code %d, want %d; annotations %v; events %v; printed\n%s", code, tc.code, p.machine("w1").Annotations, p.told(), got)
			}
		})
	}
}

// An event with a longer note would be refused after the change was made.
func TestAReasonIsOneLineThatFitsIntoAnEvent(t *testing.T) {
	for _, reason := range []string{strings.Repeat("x", 257), "two\nlines"} {
		b := &byHand{reason: reason}
		err := b.begin(&cobra.Command{}, &Options{})
		if exit := (Exit{}); !errors.As(err, &exit) || exit.Code != Misused || !strings.Contains(err.Error(), "--reason: expected one line of 256 bytes") {
			t.Errorf("%.10q: %v", reason, err)
		}
	}
}

// Controllers update the conditions of an unhealthy machine all the time.
func TestAStatusThatChangesKeepsNobodyFromMarkingAMachine(t *testing.T) {
	for times, want := range map[int]int{1: Done, retry.DefaultRetry.Steps: Failed} {
		p, patches := aPlace(t), 0
		patch := func(ctx context.Context, c client.WithWatch, o client.Object, by client.Patch, opts ...client.PatchOption) error {
			if patches++; patches <= times {
				machine := &clusterv1.Machine{}
				err := c.Get(ctx, client.ObjectKeyFromObject(o), machine)
				machine.Status.Phase += "x"
				if err := errors.Join(err, c.Update(ctx, machine)); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, by, opts...)
		}
		p.client = interceptor.NewClient(p.client.(client.WithWatch), interceptor.Funcs{Patch: patch})
		if got, code := p.does("remediate", "machine/w1", confirmed); code != want {
			t.Errorf("after %d changes: code %d, printed\n%s", times, code, got)
		}
	}
}

func TestAChangeWithoutItsEventIsMadeAllTheSame(t *testing.T) {
	p := aPlace(t, func(p *place) { p.mayNot = "events" })
	got, code := p.does("remediate", "machine/w1", confirmed)
	if code != Done || !strings.Contains(got, "warning: no event was created, so the annotation alone records who asked: ") || len(p.told()) > 0 {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}

func podNamed(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func TestWhichPodsAPowerCycleEndsIsSaidBefore(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "ds", Controller: ptr.To(true)}}
	}
	many := make([]*corev1.Pod, 0, 12)
	for i := range 12 {
		many = append(many, podNamed(fmt.Sprintf("p%02d", i)))
	}
	for want, edit := range map[string]func(*place){
		"Node node-w1 has no pods but those of DaemonSets": func(p *place) {
			p.workload = running(podNamed("agent", daemon), podNamed("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "node-w2" }),
				podNamed("static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
				podNamed("job", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
		},
		"Pods on node node-w1: shop/db (PodDisruptionBudget db allows 0), shop/web": func(p *place) { p.workload = running(podNamed("web"), podNamed("db")) },
		"Pods on node node-w1: shop/db; their PodDisruptionBudgets may not be listed": func(p *place) {
			p.workload = interceptor.NewClient(running(podNamed("db")), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if _, budgets := list.(*policyv1.PodDisruptionBudgetList); budgets {
						return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudgets"), "", errors.New("not you"))
					}
					return c.List(ctx, list, options...)
				},
			})
		},
		"shop/p09, and 2 more": func(p *place) { p.workload = running(many...) },
		"Which pods are on node node-w1 is not known: out of reach": func(p *place) { p.unreached = errors.New("out of reach") },
	} {
		t.Run(want, func(t *testing.T) {
			p := aPlace(t, edit)
			p.typed = "n\n"
			if got, code := p.does("remediate", "host/host-w1"); code != Refused || !strings.Contains(got, want) {
				t.Errorf("code %d, printed\n%s", code, got)
			}
		})
	}
}

// judged returns the explanation of a target in the given state, with a check of the given kind.
func judged(kind string, state cliv1.State, edits ...func(*explain.Check)) *page.Explanation {
	c := explain.Check{}
	c.Kind, c.Name, c.Mode, c.Limits.Remaining = kind, "workers", cliv1.ModeActing, 1
	c.Targets = []explain.Target{{Target: cliv1.Target{State: state}}}
	for _, edit := range edits {
		edit(&c)
	}
	return &page.Explanation{Explanation: cliv1.Explanation{Message: "its verdict"}, Checks: []explain.Check{c}}
}

// owned returns a machine with an owner.
func owned() *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "w1", OwnerReferences: []metav1.OwnerReference{{Controller: ptr.To(true)}}}}
}

func TestWhichWayIsThatOfTheCheckInCharge(t *testing.T) {
	const mhc, nhc = "MachineHealthCheck", "NodeHealthCheck"
	unreadChecks := &page.Explanation{Explanation: cliv1.Explanation{Unread: []string{mhc}}}
	blockedBy := func(reasons ...string) func(*explain.Check) {
		return func(c *explain.Check) {
			for _, reason := range reasons {
				c.Targets[0].Blockers = append(c.Targets[0].Blockers, explain.Blocker{Reason: reason, Text: "x"})
			}
		}
	}
	mode := func(is cliv1.Mode) func(*explain.Check) { return func(c *explain.Check) { c.Mode = is } }
	observed := mode(cliv1.ModeObserving)
	request, host := byHandOf(t, owned()), subject{kind: hostKind, name: "h1"}
	its := hosts.Found{Host: &hosts.Host{ObjectMeta: metav1.ObjectMeta{Name: "h1"}}}
	ofNodes := judged(nhc, cliv1.StateHealthy)
	unhealthy := func(edits ...func(*explain.Check)) *page.Explanation {
		return judged(mhc, cliv1.StateUnhealthy, edits...)
	}
	ofMachine := func(marked *page.Explanation) remediationFacts {
		return remediationFacts{machine: owned(), marked: marked}
	}
	ofHost := func(marked *page.Explanation, edits ...func(*explain.Remediation)) remediationFacts {
		rem := explain.Remediation{}
		for _, edit := range edits {
			edit(&rem)
		}
		facts := ofMachine(marked)
		facts.named, facts.request, facts.cycle = host, request, &rem
		return facts
	}
	otherTemplate := ofMachine(unhealthy())
	asked := &otherTemplate.marked.Checks[0].Targets[0]
	asked.Remediator, asked.Action = "TheirRemediation", &cliv1.Action{Kind: cliv1.CreateRemediationRequest}
	noLimit := refuse("no limit would block a power cycle by hand", "")
	tooMany := func(c *explain.Check) { c.Reason = clusterv1.MachineHealthCheckTooManyUnhealthyReason }
	condemned := ofMachine(unhealthy(tooMany))
	condemned.machine.SetConditions([]metav1.Condition{{
		Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse,
	}})
	noneRemain := func(c *explain.Check) { c.Limits.Remaining = 0 }
	for name, tc := range map[string]struct {
		facts remediationFacts
		want  plan // its text is a part of the expected text
	}{
		"a node of no machine":                          {remediationFacts{named: subject{kind: nodeKind}}, refuse(byNodeCheck, "")},
		"a machine that a NodeHealthCheck judges alone": {ofMachine(ofNodes), refuse(byNodeCheck, "")},
		"one whose check Cluster API core acts on":      {ofMachine(unhealthy(observed, blockedBy(explain.NotActing))), plan{text: "the annotation"}},
		"one that waits for others": {ofMachine(unhealthy(blockedBy("GroupInFlight"))),
			plan{text: "the remediation waits until nothing blocks it"}},
		"one whose check has no controller":        {ofMachine(unhealthy(mode(cliv1.ModeNone))), refuse("", "")},
		"one whose checks may not be read":         {ofMachine(unreadChecks), refuse("", "")},
		"a host whose checks may not be read":      {ofHost(unreadChecks), refuse("", "")},
		"a host of a machine that would wait":      {ofHost(unhealthy(blockedBy("GroupInFlight"))), noLimit},
		"a host of an observed check at its limit": {ofHost(unhealthy(observed, blockedBy(explain.NotActing, "TooManyUnhealthy"))), noLimit},
		"a host whose NodeHealthCheck allows none": {ofHost(judged(nhc, cliv1.StateHealthy, noneRemain)), noLimit},
		"a host whose NodeHealthCheck allows one":  {ofHost(ofNodes), plan{text: "power-cycles its host"}},
		"a host of which no manager power-cycles": {ofHost(&page.Explanation{},
			func(r *explain.Remediation) { r.Reason = explain.NotServed }), refuse("", "")},
		"one that would be one too many":                 {ofMachine(unhealthy(tooMany)), refuse("too many machines would be", "")},
		"one that its check has found unhealthy already": {condemned, plan{text: "the annotation"}},
		"a host whose power cycle would wait": {ofHost(&page.Explanation{}, func(r *explain.Remediation) {
			r.Blockers = []explain.Blocker{{Text: "Host h2 is off"}}
		}), plan{text: "It does not begin yet: Host h2 is off"}},
		"a machine of a check with another template": {otherTemplate, plan{text: "the annotation"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.host = its
			got := planRemediation(&tc.facts)
			if got.outcome != tc.want.outcome || !strings.Contains(got.text, tc.want.text) || got.outcome == changes && tc.facts.cycles() != strings.HasPrefix(got.text, "HostRemediation ") {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// docs/cli/remediate.md shows the output at 100 columns.
func TestTheVerbsOfAPersonAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/remediate.md"
	doc := contentOf(t, path)
	for _, example := range []struct {
		what  string
		edits []func(*place)
	}{
		{"remediate machine/w1", nil},
		{"remediate machine/w2", []func(*place){silentNodes("w1")}},
		{"remediate host/host-w1", []func(*place){func(p *place) { p.workload = running(podNamed("db"), podNamed("web")) }}},
		{"reset host/host-w1", []func(*place){exhausted("gone")}},
		{"reset host/host-w2", []func(*place){exhausted("w2"), func(p *place) { p.hosts["w2"].Annotations = p.hosts["w1"].Annotations }}},
	} {
		doc = withExample(t, doc, example.what, printedBy(t, example.what, example.edits...))
	}
	golden.Compare(t, path, doc)
}

// printedBy returns the output of a command to which alice answers yes.
func printedBy(t *testing.T, what string, edits ...func(*place)) string {
	t.Helper()
	p := aPlace(t, edits...)
	t.Setenv("COLUMNS", "100")
	p.typed = "y\n"
	verb, object, _ := strings.Cut(what, " ")
	out, _ := p.prints(verb, object)
	return strings.Replace(out, "[y/N] ", "[y/N] y\n", 1) // as a terminal shows the typed answer
}

// withExample returns a page of the docs in which the output of a command replaces that of its example.
func withExample(t *testing.T, doc, what, printed string) string {
	t.Helper()
	const begins, ends = "```text\n$ kubectl mend ", "```\n"
	before, rest, found := strings.Cut(doc, begins+what)
	flags, rest, _ := strings.Cut(rest, "\n")
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		t.Fatalf("the page has no example of %s", what)
	}
	return before + begins + what + flags + "\n" + printed + ends + after
}

// docs/cli/remediate.md tells administrators to apply the example. It has the rights that the commands use, and the right that the policy
// kubemend-memory requires from a user who removes kubemend's mark from a host.
func TestTheRightsToActByHandAreThoseOfTheExample(t *testing.T) {
	needed := map[right]bool{{"patch", "kubemend.io", "hostremediations/status"}: true}
	for _, what := range []string{
		"remediate machine/w1", "remediate host/host-w1", "reset machine/w1", "reset host/host-w1", "hold cluster/c1",
	} {
		p := aPlace(t, exhausted("gone"), func(p *place) {
			if strings.HasPrefix(what, "reset") {
				p.machines["w1"].Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
			}
		})
		verb, object, _ := strings.Cut(what, " ")
		if got, code := p.does(verb, object, func(b *byHand) { b.yes, b.reason = true, "why" }); code != Done || len(p.wrote) == 0 {
			t.Errorf("%s: code %d, printed\n%s", what, code, got)
		}
		maps.Copy(needed, p.wrote)
	}
	rights := grantedBy(t, "../../../docs/examples/mend-operator.yaml")
	for is := range rights {
		if !needed[is] {
			t.Errorf("the example grants %s, which no command needs", is)
		}
	}
	for is := range needed {
		if _, granted := rights[is]; !granted {
			t.Errorf("the example does not grant %s", is)
		}
	}
	for is, role := range granted(t) {
		if needed[is] {
			t.Errorf("%s may %s as well", role, is)
		}
	}
}

// place is a management cluster with a cluster c1 of five workers on hosts, their check, and the manager that acts on it, used by alice.
type place struct {
	t        *testing.T
	objects  []client.Object
	nodes    map[string]corev1.ConditionStatus
	check    *clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	hosts    map[string]*bmov1alpha1.BareMetalHost

	wrote   map[right]bool // the writes, without SelfSubjectReviews
	mayNot  string         // the resource that alice may not write
	refuses error          // the error of every write
	bare    bool           // HostRemediations are not installed
	unread  error          // the error of listing HostRemediations
	typed   string
	asks    bool

	client client.Client
	// workload reads workload cluster c1. unreached is the error if that cannot be reached.
	workload  client.Reader
	blind     bool // alice may not read the nodes
	unreached error
}

func aPlace(t *testing.T, edits ...func(*place)) *place {
	t.Helper()
	t.Setenv("COLUMNS", "")
	p := &place{
		t: t, asks: true, wrote: map[right]bool{}, nodes: map[string]corev1.ConditionStatus{}, machines: map[string]*clusterv1.Machine{}, hosts: map[string]*bmov1alpha1.BareMetalHost{},
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c1", UID: "c1"}}
	for _, is := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{Type: is, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))})
	}
	p.check = &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "workers", UID: "check", Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
	}}
	p.check.Spec.ClusterName, p.check.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "workers"}
	p.check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
	}
	p.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
	for i := 1; i <= 5; i++ {
		p.worker(fmt.Sprintf("w%d", i))
	}
	announced := lease("kubemend-system", "manager.kubemend.io", map[string]string{mendv1.ManagerAnnotation: `{"version":"v1","unclaimed":"observe"}`})
	p.objects = append(p.objects, cluster, p.check, announced)
	p.workload = running()
	for _, edit := range edits {
		edit(p)
	}
	for _, m := range p.machines {
		p.objects = append(p.objects, m)
	}
	for _, h := range p.hosts {
		p.objects = append(p.objects, h)
	}
	p.client = p.server()
	return p
}

// worker adds a healthy machine on a host of its own.
func (p *place) worker(name string) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: name, UID: types.UID(name), Labels: map[string]string{"pool": "workers", clusterv1.ClusterNameLabel: "c1"},
		CreationTimestamp: metav1.NewTime(noon.Add(-10 * time.Hour)),
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0", UID: "md-0", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "node-"+name
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: name}
	between := &unstructured.Unstructured{}
	between.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
	between.SetNamespace("metal")
	between.SetName(name)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: "metal/host-" + name})
	between.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(name)}})
	p.objects = append(p.objects, between)
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "host-" + name, UID: types.UID("host-" + name)}}
	h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	h.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "metal", Name: name}
	p.machines[name], p.hosts[name], p.nodes["node-"+name] = m, h, corev1.ConditionTrue
}

// server returns the API server that the commands write to.
func (p *place) server() client.Client {
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	var typed []client.Object
	for _, o := range p.objects {
		typed = append(typed, o.DeepCopyObject().(client.Object))
	}
	inner := fake.NewClientBuilder().WithScheme(snapshot.Scheme).WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
		WithRESTMapper(p.mapper()).WithObjects(typed...).Build()
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch review := o.(type) {
			case *authenticationv1.SelfSubjectReview:
				review.Status.UserInfo.Username = "alice"
				return nil
			case *eventsv1.Event:
				if errs := validation.NameIsDNSSubdomain(o.GetName(), false); len(errs) > 0 || o.GetGenerateName() != "" {
					return fmt.Errorf("an event named %q: %v", o.GetName(), errs)
				}
				if err := p.write(right{"create", eventsv1.GroupName, "events"}); err != nil {
					return err
				}
			case *mendv1.RemediationOverride:
				p.wrote[right{"create", mendv1.GroupVersion.Group, "remediationoverrides"}] = true
			default:
				if err := cmp.Or(p.refuses, p.write(right{"create", mendv1.GroupVersion.Group, "hostremediations"})); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*mendv1.HostRemediationList); is && p.unread != nil {
				return p.unread
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			gvk := o.GetObjectKind().GroupVersionKind()
			if err := cmp.Or(p.refuses, p.write(right{"patch", gvk.Group, strings.ToLower(gvk.Kind) + "s"})); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
}

// write notes a write, or refuses it if alice lacks the right.
func (p *place) write(is right) error {
	if is.resource == p.mayNot {
		return apierrors.NewForbidden(schema.GroupResource{Group: is.group, Resource: is.resource}, "", fmt.Errorf("User \"alice\" cannot %s", is))
	}
	p.wrote[is] = true
	return nil
}

// mapper returns a mapper of the installed kinds.
func (p *place) mapper() meta.RESTMapper {
	w := snapshot.New()
	if !p.bare {
		w.Install(mendv1.GroupVersion.WithKind("HostRemediation"))
	}
	w.Install(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"))
	w.Install(infrav1.GroupVersion.WithKind("Metal3Machine"))
	w.Install(mendv1.GroupVersion.WithKind("HostRemediationTemplate"))
	return w.RESTMapper()
}

// options returns Options whose commands read the place.
func (p *place) options(out *bytes.Buffer) *Options {
	p.t.Helper()
	o, _, _ := recorder(p.t, &snapshot.Scope{})
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(p.typed), Out: out, ErrOut: out}
	o.Config.Namespace, o.version = ptr.To("metal"), "v1"
	o.read = func(ctx context.Context, _ snapshot.Scope) (*snapshot.Snapshot, error) {
		w := snapshot.New()
		if !p.bare {
			w.Install(mendv1.GroupVersion.WithKind("HostRemediation"))
		}
		w.Taken, w.Clock = noon, testclock.NewFakePassiveClock(noon)
		var nodes []corev1.Node
		for name, ready := range p.nodes {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
			nodes = append(nodes, n)
		}
		w.SetNodes(client.ObjectKey{Namespace: "metal", Name: "c1"}, nodes)
		if p.blind {
			w.SetUnseen(client.ObjectKey{Namespace: "metal", Name: "c1"}, "forbidden", time.Time{})
		}
		for _, o := range p.objects {
			now := o.DeepCopyObject().(client.Object)
			if err := p.client.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
				return nil, err
			}
			if err := w.Add(now); err != nil {
				return nil, err
			}
		}
		requests := &mendv1.HostRemediationList{}
		if err := p.client.List(ctx, requests); err != nil {
			return nil, err
		}
		for i := range requests.Items {
			if err := w.Add(&requests.Items[i]); err != nil {
				return nil, err
			}
		}
		return w, nil
	}
	return o
}

// does runs a command, and returns its output without line breaks, and its exit code.
func (p *place) does(verb, what string, edits ...func(*byHand)) (string, int) {
	p.t.Helper()
	out, code := p.prints(verb, what, edits...)
	return strings.ReplaceAll(out, "\n    ", " "), code
}

// prints runs a command, and returns its output and its exit code.
func (p *place) prints(verb, what string, edits ...func(*byHand)) (string, int) {
	p.t.Helper()
	var out bytes.Buffer
	o := p.options(&out)
	b := &byHand{IOStreams: o.IOStreams, verb: verb, client: p.client, now: noon, asks: p.asks}
	b.workload = func(context.Context, client.ObjectKey) (client.Reader, error) { return p.workload, p.unreached }
	for _, edit := range edits {
		edit(b)
	}
	named, err := parseOne([]string{what}, append(remediable, clusterKind, machineCheckKind, domainKind)...)
	named.namespace = "metal"
	switch {
	case err != nil:
	case verb == "hold":
		err = (&override{byHand: b, lasts: 2 * time.Hour}).create(p.t.Context(), named)
	case verb == "allow":
		err = (&override{b, time.Hour, "60%", "2"}).create(p.t.Context(), named)
	case named.kind == machineCheckKind:
		err = b.claimNamed(p.t.Context(), named)
	case verb == "reset":
		err = b.resetNamed(p.t.Context(), named)
	default:
		err = o.remediateNamed(p.t.Context(), b, named, "")
	}
	code, exit := Done, Exit{}
	if err != nil {
		_, _ = fmt.Fprintln(&out, "error:", err)
		code = Failed
	}
	if errors.As(err, &exit) {
		code = exit.Code
	}
	return out.String(), code
}

func confirmed(b *byHand) { b.yes = true }

// machine reads a machine.
func (p *place) machine(name string) *clusterv1.Machine {
	p.t.Helper()
	m := &clusterv1.Machine{}
	must.Do(p.t, p.client.Get(p.t.Context(), client.ObjectKey{Namespace: "metal", Name: name}, m))
	return m
}

// requests lists the HostRemediations.
func (p *place) requests() []mendv1.HostRemediation {
	p.t.Helper()
	list := &mendv1.HostRemediationList{}
	must.Do(p.t, p.client.List(p.t.Context(), list))
	return list.Items
}

// told returns the objects, reasons and notes of the events.
func (p *place) told() []string {
	p.t.Helper()
	list := &eventsv1.EventList{}
	must.Do(p.t, p.client.List(p.t.Context(), list))
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Regarding.Kind+" "+e.Regarding.Name+": "+e.Reason+": "+e.Note)
	}
	return all
}

// running is a workload cluster with these pods, on node-w1 by default, and a PodDisruptionBudget for pods with the label app: db.
func running(pods ...*corev1.Pod) client.WithWatch {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	b := fake.NewClientBuilder().WithScheme(snapshot.Scheme).WithObjects(budget).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	for _, pod := range pods {
		pod.Namespace, pod.Spec.NodeName = "shop", cmp.Or(pod.Spec.NodeName, "node-w1")
		b.WithObjects(pod)
	}
	return b.Build()
}

// cycling gives the check a template for power cycles.
func cycling(p *place) {
	p.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
	}
	p.objects = append(p.objects, &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "reboot"}})
}

// written hides the nodes from alice, and adds the status of a manager by which all machines are healthy and `remaining` more may be
// unhealthy.
func written(remaining int32) func(*place) {
	return func(p *place) {
		p.blind, p.check.Status.RemediationsAllowed = true, &remaining
		p.check.Status.ExpectedMachines, p.check.Status.CurrentHealthy = ptr.To[int32](5), ptr.To[int32](5)
		for _, machine := range p.machines {
			machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{
				Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionTrue, Reason: "HealthCheckSucceeded",
			})
		}
	}
}

// silentNodes makes the nodes of workers Ready=Unknown.
func silentNodes(workers ...string) func(*place) {
	return func(p *place) {
		for _, name := range workers {
			p.nodes["node-"+name] = corev1.ConditionUnknown
		}
	}
}
