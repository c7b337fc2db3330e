package nodehealthcheck

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
)

// What the documentations of the three generations of NodeHealthChecks (seeds 000 to 002) say of one check, its nodes and its requests. What
// only an API server or other controllers can show of it is shown below test/e2e.

func TestADefaultConditionHasToLastForFiveMinutes(t *testing.T) {
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		t.Run(fmt.Sprintf("seed 0.1, seed 0.2, seed 1.9: Ready=%s", status), func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
			k.turn("b", status)
			k.after(300*time.Second - 1)
			k.settle("nhc")
			k.wants("a moment before it is not unhealthy")
			k.after(1)
			k.settle("nhc")
			k.wants("now it is, and no other node is", "Reboot/b")
		})
	}
}

func TestConditionsOfANode(t *testing.T) {
	spec := &nhcv1.NodeHealthCheckSpec{UnhealthyConditions: []nhcv1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Duration: metav1.Duration{Duration: 5 * time.Minute}},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 2 * time.Minute}},
		{Type: "DiskBroken", Status: corev1.ConditionTrue, Duration: metav1.Duration{Duration: time.Minute}},
	}}
	ready := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-ago))}
	}
	disk := func(status corev1.ConditionStatus, ago time.Duration) corev1.NodeCondition {
		return corev1.NodeCondition{Type: "DiskBroken", Status: status, LastTransitionTime: metav1.NewTime(epoch.Add(-ago))}
	}
	const bad, unknown, good = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		want       health.State
		again      time.Duration
	}{
		"C82: none is met":                                        {[]corev1.NodeCondition{ready(good, time.Hour), disk(bad, time.Hour)}, health.Healthy, 0},
		"C82: one is met, and has not lasted":                     {[]corev1.NodeCondition{ready(bad, time.Minute), disk(bad, time.Hour)}, health.Pending, 4 * time.Minute},
		"C82: one has lasted":                                     {[]corev1.NodeCondition{ready(bad, 5*time.Minute), disk(bad, time.Hour)}, health.Unhealthy, 0},
		"C82: the first one has not lasted, the second one has":   {[]corev1.NodeCondition{ready(bad, time.Minute), disk(good, time.Minute)}, health.Unhealthy, 0},
		"C82: of two that have not lasted the nearer one counts":  {[]corev1.NodeCondition{ready(bad, time.Minute), disk(good, time.Second)}, health.Pending, 59 * time.Second},
		"seed 0.15: the other one alone is enough":                {[]corev1.NodeCondition{ready(good, time.Hour), disk(good, time.Hour)}, health.Unhealthy, 0},
		"seed 0.15: and where the first one alone is met":         {[]corev1.NodeCondition{ready(bad, time.Hour)}, health.Unhealthy, 0},
		"seed 1.9: three minutes are too few for one status":      {[]corev1.NodeCondition{ready(bad, 3*time.Minute)}, health.Pending, 2 * time.Minute},
		"seed 1.9: and enough for another one of the same type":   {[]corev1.NodeCondition{ready(unknown, 3*time.Minute)}, health.Unhealthy, 0},
		"a status that no condition of the check names is a good": {[]corev1.NodeCondition{ready(good, time.Hour), disk(unknown, time.Hour)}, health.Healthy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("n", nil)
			n.Status.Conditions = tc.conditions
			facts := factsOf(&nhcv1.NodeHealthCheck{Spec: *spec}, epoch)
			is := nodes.Node{Name: n.Name}
			describe(&is, n, facts.Policy)
			facts.Nodes = []nodes.Node{is}
			v := nodes.Decide(facts).Decisions[0].Verdict
			if v.State != tc.want {
				t.Errorf("%v, want %v", v.State, tc.want)
			}
			if tc.again > 0 && !v.Recheck.Equal(epoch.Add(tc.again)) {
				t.Errorf("looked at again at %v, want in %v", v.Recheck, tc.again)
			}
		})
	}
}

// Of five nodes one after the other turns bad, until one more is bad than may be.
func TestHowManyNodesAreRemediatedAtOnce(t *testing.T) {
	number := func(n int32) *intstr.IntOrString { return ptr.To(intstr.FromInt32(n)) }
	percentage := func(p string) *intstr.IntOrString { return ptr.To(intstr.FromString(p)) }
	for name, tc := range map[string]struct {
		min, max *intstr.IntOrString
		atOnce   int
	}{
		"seed 0.6, seed 0.13: as many as maxUnhealthy says":                {nil, number(1), 1},
		"seed 0.6, seed 0.12: a percentage, rounded down":                  {nil, percentage("39%"), 1},
		"seed 0.6: a larger percentage":                                    {nil, percentage("60%"), 3},
		"seed 1.4: as many as minHealthy leaves":                           {number(4), nil, 1},
		"seed 1.4, seed 1.10: a percentage that has to be healthy":         {percentage("61%"), nil, 1},
		"seed 0.11, seed 1.4: 51% have to be healthy if neither says more": {nil, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			names := []string{"a", "b", "c", "d", "e"}
			k := newFixture(t, append(workers(names...), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
				s.MinHealthy, s.MaxUnhealthy = tc.min, tc.max
			}))...)
			var want []string
			for _, name := range names[:tc.atOnce+1] {
				want = append(want, "Reboot/"+name)
				k.bad(name)
				k.settle("nhc")
			}
			k.wants("the last one is one too many, and the others go on", want[:tc.atOnce]...)
			if got := k.check("nhc").Status; *got.HealthyNodes != 4-tc.atOnce || len(got.UnhealthyNodes) != tc.atOnce+1 {
				t.Errorf("status %+v", got)
			}
			k.turn("a", corev1.ConditionTrue)
			k.settle("nhc")
			k.wants("then its turn has come", want[1:]...)
		})
	}
}

func TestWhichNodesACheckSelects(t *testing.T) {
	linux := map[string]string{"kubernetes.io/os": "linux", "zone": "a"}
	objects := []client.Object{
		template("Reboot", "reboot", false), node("linux-a", linux), node("linux-b", map[string]string{"kubernetes.io/os": "linux", "zone": "b"}),
		node("windows-a", map[string]string{"kubernetes.io/os": "windows", "zone": "a"}), node("bare", nil), member("m"),
	}
	inZoneA := []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}}
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		want     []string
	}{
		"seed 0.9: those with all of its labels":            {metav1.LabelSelector{MatchLabels: linux}, []string{"linux-a"}},
		"seed 0.9: those that match its expressions":        {metav1.LabelSelector{MatchExpressions: inZoneA}, []string{"linux-a", "windows-a"}},
		"seed 0.9: those that match both":                   {metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/os": "windows"}, MatchExpressions: inZoneA}, []string{"windows-a"}},
		"seed 0.10, seed 1.8: without a selector all nodes": {metav1.LabelSelector{}, []string{"bare", "linux-a", "linux-b", "m", "windows-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
				s.Selector, s.MinHealthy = tc.selector, ptr.To(intstr.FromString("100%"))
			})
			k := newFixture(t, append([]client.Object{c}, objects...)...)
			for _, obj := range objects[1:] {
				k.turn(obj.GetName(), corev1.ConditionUnknown)
			}
			k.after(300 * time.Second)
			k.settle("nhc")
			var listed []string
			for _, n := range k.check("nhc").Status.UnhealthyNodes {
				listed = append(listed, n.Name)
			}
			if diff := cmp.Diff(tc.want, listed); diff != "" {
				t.Errorf("unhealthy nodes (-want +got):\n%s", diff)
			}
			if got := *k.check("nhc").Status.ObservedNodes; got != len(tc.want) {
				t.Errorf("%d nodes are observed", got)
			}
		})
	}
}

// As seed 000 prints it: of the template group-x, for worker-0-21.
func TestARequestIsAsTheDocumentationPrintsIt(t *testing.T) {
	printed := template("Reboot", "group-x", false)
	printed.Object["spec"] = map[string]any{"template": map[string]any{"size": int64(42)}}
	c := check("nodehealthcheck-sample", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Reboot", "group-x")) })
	k := newFixture(t, append(workers("worker-0-21", "b", "c"), printed, c)...)
	k.bad("worker-0-21")
	k.settle(c.Name)
	if len(k.objects()) != 1 {
		t.Fatalf("requests %v, want one", k.requests())
	}
	obj := k.objects()[0]
	owners := obj.GetOwnerReferences()
	if len(owners) != 1 {
		t.Fatalf("owners %v, want one", owners)
	}
	for row, is := range map[string]struct{ got, want any }{
		"seed 0.16: the check owns it":                               {[]string{owners[0].Kind, owners[0].Name, string(owners[0].UID)}, []string{"NodeHealthCheck", c.Name, string(c.UID)}},
		"seed 0.19: its spec is what the template holds":             {obj.Object["spec"], map[string]any{"size": int64(42)}},
		"seed 0.21: its kind is the template's without it":           {obj.GetAPIVersion() + " " + obj.GetKind(), remediatorGroup + "/v1 Reboot"},
		"seed 0.22: it is called as the node, where the template is": {obj.GetNamespace() + "/" + obj.GetName(), namespace + "/worker-0-21"},
		"seed 0.23: its owner is of the group that checks are of":    {owners[0].APIVersion, "remediation.medik8s.io/v1alpha1"},
	} {
		t.Run(row, func(t *testing.T) {
			if diff := cmp.Diff(is.want, is.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheAdminHasToMake(t *testing.T) {
	for name, tc := range map[string]struct {
		made []client.Object
		want []string
	}{
		"seed 0.20: a template that is not there is not made up":                {nil, nil},
		"seed 0.3, seed 0.20: as soon as it is there a request is made from it": {[]client.Object{template("Reboot", "reboot", false)}, []string{"Reboot/b"}},
		"seed 0.20: another one, which the check does not name, is none":        {[]client.Object{template("Reboot", "other", false)}, nil},
		"seed 1.7: one of that name and of another kind is none":                {[]client.Object{template("Replace", "reboot", false)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), check("nhc"))...)
			k.bad("b")
			k.settle("nhc")
			k.wants("there is nothing to make it from")
			if c := meta.FindStatusCondition(k.check("nhc").Status.Conditions, nhcv1.DisabledCondition); c.Reason != nhcv1.TemplateNotFoundReason {
				t.Errorf("Disabled says %+v", c)
			}
			for _, obj := range tc.made {
				if err := k.client.Create(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			k.settle("nhc")
			k.wants("after the admin has made what they make", tc.want...)
			if got := k.templates(); got != len(tc.made) {
				t.Errorf("there are %d templates, the admin made %d", got, len(tc.made))
			}
		})
	}
}

// templates is how many there are.
func (k *fixture) templates() int {
	k.t.Helper()
	n := 0
	for _, kind := range kindsOfRequests {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(remediatorGroup + "/v1")
		list.SetKind(kind + "TemplateList")
		if err := k.client.List(k.t.Context(), list); err != nil {
			k.t.Fatal(err)
		}
		n += len(list.Items)
	}
	return n
}

// state is what a check says of its nodes: its phase, how many it observes, how many are healthy, and those that it lists, with the number
// of their requests.
func (k *fixture) state(check string) string {
	k.t.Helper()
	st := k.check(check).Status
	says := []string{string(st.Phase), fmt.Sprintf("%d/%d", *st.HealthyNodes, *st.ObservedNodes)}
	for _, n := range st.UnhealthyNodes {
		says = append(says, fmt.Sprintf("%s:%d", n.Name, len(n.Remediations)))
	}
	return strings.Join(says, " ")
}

// The story of a node: it may be unhealthy soon, is remediated, is healthy again while its remediator still keeps its request, and is released.
func TestACheckFollowsANodeInBothDirections(t *testing.T) {
	story := []func(k *fixture){
		func(k *fixture) { k.turn("b", corev1.ConditionUnknown) },
		func(k *fixture) { k.after(300 * time.Second) },
		func(k *fixture) {
			obj := k.objects()[0]
			obj.SetFinalizers([]string{"example.org/at-work"})
			k.update(obj)
			k.turn("b", corev1.ConditionTrue)
		},
		func(k *fixture) {
			obj := k.objects()[0]
			obj.SetFinalizers(nil)
			k.update(obj)
		},
	}
	soon, asked := []string{nhcv1.EventEnabled}, []string{nhcv1.EventEnabled, nhcv1.EventDetectedUnhealthy, nhcv1.EventRemediationCreated}
	over := append(slices.Clone(asked), nhcv1.EventRemediationRemoved)
	for name, tc := range map[string]struct {
		played   int
		status   string
		requests []string
		told     []string
	}{
		"seed 0.17: one that may be unhealthy soon is not healthy":                    {1, "Enabled 2/3", nil, soon},
		"seed 0.17, seed 2.3: one that is remediated is listed with its request":      {2, "Remediating 2/3 b:1", []string{"Reboot/b"}, asked},
		"seed 0.5: its request is there until its remediator releases it":             {3, "Remediating 2/3 b:1", []string{"Reboot/b"}, over},
		"seed 0.4, seed 0.18, seed 2.9: the request of a healthy node is deleted":     {4, "Enabled 3/3", nil, over},
		"seed 1.12: its template is not listed, whatever the documentation says":      {4, "Enabled 3/3", nil, over},
		"seed 0.17, seed 1.11: the node is healthy again, and is not listed any more": {4, "Enabled 3/3", nil, over},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
			k.settle("nhc")
			for _, happens := range story[:tc.played] {
				happens(k)
				k.settle("nhc")
			}
			if got := k.state("nhc"); got != tc.status {
				t.Errorf("the status is %q, want %q", got, tc.status)
			}
			k.wants("what is there of requests", tc.requests...)
			var told []string
			for _, e := range k.events() {
				told = append(told, strings.Fields(e)[1])
			}
			if diff := cmp.Diff(tc.told, told); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if got := k.templates(); got != 1 {
				t.Errorf("there are %d templates, the admin made one", got)
			}
		})
	}
}

// A node reboots: Ready turns from Unknown to False, and has not lasted.
func TestANodeOnItsWayBack(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(k *fixture)
		want []string
	}{
		"seed 2.17: keeps its request and its step":                  {func(k *fixture) { k.after(299 * time.Second) }, []string{"Reboot/b"}},
		"seed 2.18: is unhealthy again when that has lasted as well": {func(k *fixture) { k.after(300 * time.Second) }, []string{"Reboot/b", "Replace/b"}},
		"seed 2.18: is healthy when its condition is met no more":    {func(k *fixture) { k.turn("b", corev1.ConditionTrue) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
				check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
			k.bad("b")
			k.settle("nhc")
			k.after(time.Minute)
			k.turn("b", corev1.ConditionFalse)
			k.settle("nhc")
			tc.then(k)
			k.settle("nhc")
			k.wants("the step's five minutes are over in any case", tc.want...)
		})
	}
}

func TestWhatHoldsUpNewRemediationsAndEndsOldOnes(t *testing.T) {
	for name, tc := range map[string]struct {
		begins, ends func(k *fixture)
		reason       string
	}{
		"seed 1.5, seed 2.8: pause requests": {
			func(k *fixture) { k.pauses("first", "second") }, func(k *fixture) { k.pauses() }, nhcv1.PausedReason,
		},
		"seed 1.6, seed 2.7: OpenShift is upgraded": {func(k *fixture) {
			k.installs("clusterversions.config.openshift.io")
			k.versionIs("True")
		}, func(k *fixture) { k.versionIs("False") }, nhcv1.UpgradeReason},
		"seed 1.6, seed 2.7: the configuration of a node is changed": {
			func(k *fixture) {
				k.annotateNode("c", map[string]string{openshift.DesiredConfig: "new", openshift.CurrentConfig: "old"})
			},
			func(k *fixture) { k.annotateNode("c", map[string]string{openshift.CurrentConfig: "new"}) }, nhcv1.UpgradeReason,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), check("nhc"))...)
			k.bad("b")
			k.settle("nhc")
			tc.begins(k)
			k.bad("c")
			k.settle("nhc")
			k.wants("what has begun persists, and nothing else begins", "Reboot/b")
			if c := meta.FindStatusCondition(k.check("nhc").Status.Conditions, nhcv1.RemediationAllowedCondition); c.Reason != tc.reason {
				t.Errorf("RemediationAllowed says %+v", c)
			}
			k.turn("b", corev1.ConditionTrue)
			k.settle("nhc")
			k.wants("the request of a node that recovers is removed (seed 0.4, W12)")
			if got := *k.check("nhc").Status.HealthyNodes; got != 4 {
				t.Errorf("%d nodes are healthy, want 4 (W12)", got)
			}
			tc.ends(k)
			k.settle("nhc")
			k.wants("then it begins", "Reboot/c")
		})
	}
}
