package nodehealthcheck

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/openshift"
	"github.com/kubemend/kubemend/test/golden"
)

// looked is what the explanation of the check nhc comes to.
type looked struct {
	// check changes the check; five says that it is one of a control plane of five, whose nodes are m0 to m4, and not one of the workers a to e.
	check func(*nhcv1.NodeHealthCheckSpec)
	five  bool
	// more is there besides.
	more []client.Object
	// happens before the look.
	happens func(*fixture)
}

var twoSteps = ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))

func delay(d time.Duration) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: d} }
}

// badB makes b unhealthy, and makes passes until they come to rest.
func badB(k *fixture) {
	k.bad("b")
	k.settle("nhc")
}

// says makes the remediator of every request say something, with words.
func (k *fixture) says(condition, status, reason, message string) {
	k.t.Helper()
	for _, obj := range k.objects() {
		said := []any{map[string]any{
			"type": condition, "status": status, "reason": reason, "message": message, "lastTransitionTime": k.clock.Now().UTC().Format(time.RFC3339),
		}}
		if err := unstructured.SetNestedSlice(obj.Object, said, "status", "conditions"); err != nil {
			k.t.Fatal(err)
		}
		k.update(obj)
	}
}

// badMembers makes nodes of the control plane unhealthy, one second after the other.
func badMembers(names ...string) func(*fixture) {
	return func(k *fixture) {
		for _, name := range names {
			k.turn(name, corev1.ConditionUnknown)
			k.after(time.Second)
		}
		k.after(300 * time.Second)
	}
}

// behindB is the Machine of node b, of a Cluster, with a MachineHealthCheck that watches it.
func behindB(change ...func(*clusterv1.Machine, *clusterv1.Cluster)) []client.Object {
	labels := map[string]string{"machine": "b"}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "m-b", Labels: labels}}
	machine.Spec.ClusterName, machine.Status.NodeRef.Name = "home", "b"
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "home"}}
	watching := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "mhc"}}
	watching.Spec.ClusterName, watching.Spec.Selector.MatchLabels = "home", labels
	for _, f := range change {
		f(machine, cluster)
	}
	return []client.Object{machine, cluster, watching}
}

func ofMachineB(k *fixture) {
	k.annotateNode("b", map[string]string{clusterv1.MachineAnnotation: "m-b", clusterv1.ClusterNamespaceAnnotation: "capi"})
}

var looks = map[string]looked{
	"all nodes are healthy": {},
	"a node that is not due yet and that its user has excluded": {happens: func(k *fixture) {
		k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
		k.turn("b", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"a node that is not due yet and that nothing will hold up": {more: behindB()[:2], happens: func(k *fixture) {
		ofMachineB(k)
		k.turn("b", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"nodes that are not due yet in a storm": {
		check: func(s *nhcv1.NodeHealthCheckSpec) {
			s.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
		},
		happens: func(k *fixture) {
			k.bad("b")
			for _, name := range []string{"a", "c"} {
				k.turn(name, corev1.ConditionUnknown)
			}
			k.settle("nhc")
			k.after(time.Minute)
		},
	},
	"a node that is not due yet and that several things will hold up": {
		check: func(s *nhcv1.NodeHealthCheckSpec) { s.PauseRequests = []string{"me"} },
		more: append(behindB(func(m *clusterv1.Machine, c *clusterv1.Cluster) {
			m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: metav1.ConditionTrue, Reason: "RollingOut"}}
		}), named(leaseOf("NMO", 20*time.Minute, 0, 0), "node-b")),
		happens: func(k *fixture) {
			ofMachineB(k)
			k.turn("b", corev1.ConditionUnknown)
			k.after(time.Minute)
		},
	},
	"a node that is not due yet, whose lease runs out before": {
		more: []client.Object{named(leaseOf("NMO", 2*time.Minute, 0, 0), "node-b")},
		happens: func(k *fixture) {
			k.turn("b", corev1.ConditionUnknown)
			k.after(time.Minute)
		},
	},
	"nodes of the control plane that are not due yet, of which one goes first": {five: true, happens: func(k *fixture) {
		k.turn("m1", corev1.ConditionUnknown)
		k.after(time.Second)
		k.turn("m0", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"one of the control plane that is not due yet, while another one is remediated": {five: true, happens: func(k *fixture) {
		badMembers("m0")(k)
		k.settle("nhc")
		k.turn("m1", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"a node whose remediation begins": {happens: func(k *fixture) { k.bad("b") }},
	"a node that several things hold back": {
		more: []client.Object{named(leaseOf("NMO", 20*time.Minute, 0, 0), "node-b"), func() client.Object {
			overlapping := template("Reboot", "b", false)
			overlapping.SetKind("Reboot")
			return overlapping
		}()},
		happens: func(k *fixture) {
			k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
			k.bad("b")
		},
	},
	"a node whose Machine is left alone in every way": {
		more: behindB(func(m *clusterv1.Machine, c *clusterv1.Cluster) {
			m.Annotations = map[string]string{clusterv1.PausedAnnotation: "", clusterv1.MachineSkipRemediationAnnotation: ""}
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionTrue, Reason: "Updating"}}
			c.Spec.Paused = ptr.To(true)
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: metav1.ConditionTrue, Reason: "RollingOut"}}
		}),
		happens: func(k *fixture) {
			ofMachineB(k)
			k.bad("b")
		},
	},
	"a check that is held up in every way": {
		check: func(s *nhcv1.NodeHealthCheckSpec) {
			s.PauseRequests = []string{"me", "upgrade"}
			s.MinHealthy = ptr.To(intstr.FromString("100%"))
			s.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
		},
		happens: func(k *fixture) {
			k.annotateNode("b", map[string]string{openshift.DesiredConfig: "new", openshift.CurrentConfig: "old"})
			k.bad("b")
		},
	},
	"a storm that cools down": {
		check: func(s *nhcv1.NodeHealthCheckSpec) {
			s.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
		},
		happens: func(k *fixture) {
			for _, name := range []string{"a", "c"} {
				k.turn(name, corev1.ConditionUnknown)
			}
			k.settle("nhc")
			k.turn("b", corev1.ConditionUnknown)
			k.after(300 * time.Second)
			k.settle("nhc")
			k.turn("a", corev1.ConditionTrue)
			k.turn("c", corev1.ConditionTrue)
			k.settle("nhc")
			k.after(time.Minute)
		},
	},
	"a template that is not there": {
		check:   func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Reboot", "missing")) },
		happens: func(k *fixture) { k.bad("b") },
	},
	"a check that names no template": {
		check:   func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = nil },
		happens: func(k *fixture) { k.bad("b") },
	},
	"a selector that cannot be read": {check: func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}
	}},
	"a kind that is not read yet": {happens: func(k *fixture) {
		k.informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
			{Group: remediatorGroup, Version: "v1", Kind: "RebootTemplate"}: controllertest.NewFakeInformer(),
		}
		k.restart()
		k.bad("b")
	}},
	"a step of a ladder that is waited for": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.ProcessingCondition, "True", "Fencing", "The host is being turned off")
		k.after(time.Minute)
	}},
	"a step that has failed and the next one begins": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "False", "NoAnswer", "The host does not answer")
	}},
	"a step that has failed while the check is paused and the node excluded": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "False", "NoAnswer", "The host does not answer")
		k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
		k.pauses("me")
	}},
	"the last step of a ladder is waited for": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.after(5 * time.Minute)
		k.settle("nhc")
		k.after(time.Minute)
	}},
	"a ladder that came to nothing": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.after(5 * time.Minute)
		k.settle("nhc")
		k.after(5 * time.Minute)
		k.settle("nhc")
	}},
	"a step whose name the request of the former one has": {
		check: ladder(refTo("Reboot", "reboot"), refTo("Reboot", "other")), more: []client.Object{template("Reboot", "other", false)},
		happens: func(k *fixture) {
			badB(k)
			k.after(5 * time.Minute)
			k.settle("nhc")
		},
	},
	"two steps with the same template": {
		check: ladder(refTo("Reboot", "reboot"), refTo("Reboot", "reboot")),
		happens: func(k *fixture) {
			badB(k)
			k.after(5 * time.Minute)
			k.settle("nhc")
		},
	},
	"the only template is at work": {happens: badB},
	"the only template has failed": {happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "False", "NoAnswer", "The host does not answer")
	}},
	"a node that is bad once more after its remediation has succeeded": {check: delay(time.Hour), happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "True", "Rebooted", "")
		k.after(time.Second)
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
		k.after(time.Second)
		k.turn("b", corev1.ConditionUnknown)
		k.settle("nhc")
		k.after(300 * time.Second)
	}},
	"a node on its way back": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionFalse)
		k.after(time.Minute)
	}},
	"a node that is healthy again": {happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionTrue)
	}},
	"a node that is healthy again and waits for the healthy delay": {check: delay(time.Hour), happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
		k.after(time.Minute)
	}},
	"a node that is healthy again and waits for a person": {check: delay(-1), happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
	}},
	"a node that is gone": {happens: func(k *fixture) {
		badB(k)
		k.remove(k.node("b"))
	}},
	"a node that is gone while its remediator means to delete it": {happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.NodeDeletionExpectedCondition, "True", "Replacing", "")
		k.remove(k.node("b"))
	}},
	"a request that somebody has just deleted": {happens: func(k *fixture) {
		badB(k)
		k.deleteAll()
		k.after(time.Second)
	}},
	"a request of the last time that is not released": {happens: func(k *fixture) {
		badB(k)
		k.atWork()
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
		k.bad("b")
	}},
	"the orphaned request of a deleted check of the same name": {happens: func(k *fixture) {
		badB(k)
		k.ofMachine()
		k.atWork()
		k.goes("nhc")
		anew := check("nhc")
		anew.UID = "anew"
		k.create(anew)
		k.after(time.Second)
	}},
	"requests that cannot be read": {happens: func(k *fixture) {
		badB(k)
		k.deny("Reboot")
		k.restart()
	}},
	"a node that has left the selection": {check: func(s *nhcv1.NodeHealthCheckSpec) { s.Selector.MatchLabels = map[string]string{"pool": "x"} },
		happens: func(k *fixture) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				k.label(name, map[string]string{"pool": "x"})
			}
			badB(k)
			k.deleteAll()
			k.label("b", map[string]string{"pool": "y"})
		}},
	"a node that is terminating": {happens: func(k *fixture) {
		k.installs("machinehealthchecks.machine.openshift.io")
		k.makes(shippedCheck())
		k.bad("b")
		n := k.node("b")
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: corev1.ConditionTrue})
		if err := k.client.Status().Update(k.t.Context(), n); err != nil {
			k.t.Fatal(err)
		}
	}},
	"nodes of the control plane take turns": {five: true, happens: badMembers("m1", "m0")},
	"one of the control plane while another one is remediated and too few are left": {five: true, happens: func(k *fixture) {
		badMembers("m0")(k)
		k.settle("nhc")
		badMembers("m1", "m2")(k)
	}},
	"one of the control plane without which etcd cannot do": {five: true, happens: func(k *fixture) {
		k.installs("clusterversions." + openshift.ConfigGroup)
		badMembers("m0")(k)
	}},
	"one of the control plane before orphans were searched for": {five: true, happens: func(k *fixture) {
		k.r.search.done.Store(false)
		k.r.search.tried.Store(false)
		badMembers("m0")(k)
	}},
}

// node is the one called name.
func (k *fixture) node(name string) *corev1.Node {
	k.t.Helper()
	n := &corev1.Node{}
	if err := k.client.Get(k.t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		k.t.Fatal(err)
	}
	return n
}

func TestLook(t *testing.T) {
	golden.Stories(t, looks, func(t *testing.T, l looked) string {
		c := check("nhc")
		if l.check != nil {
			l.check(&c.Spec)
		}
		objects := append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false), c)
		if l.five {
			objects = five(c)
		}
		k := newFixture(t, append(objects, l.more...)...)
		k.settle("nhc")
		if l.happens != nil {
			l.happens(k)
		}
		k.events()
		is := k.look("nhc")
		if told := k.events(); len(told) > 0 {
			t.Errorf("events were told: %v", told)
		}
		return printed(t, is)
	})
}

// look looks at a check, twice: nothing has been written, and nothing is different the second time.
func (k *fixture) look(check string) *explain.Check {
	k.t.Helper()
	writes := k.writes
	k.read(check)
	is, err := k.r.Explain(k.t.Context(), check, k.clock.Now())
	if err != nil {
		k.t.Fatal(err)
	}
	again, err := k.r.Explain(k.t.Context(), check, k.clock.Now())
	if err != nil {
		k.t.Fatal(err)
	}
	if diff := cmp.Diff(is, again); diff != "" {
		k.t.Fatalf("the second look comes to something else (-first +second):\n%s", diff)
	}
	if k.writes != writes {
		k.t.Fatal("an explanation has written something")
	}
	return is
}

// printed is an explanation without the targets and the conditions of which there is nothing to say, with all moments as they are in UTC.
func printed(t *testing.T, is *explain.Check) string {
	t.Helper()
	var all map[string]any
	raw, err := json.Marshal(is)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	targets, _ := all["targets"].([]any)
	var kept []any
	for _, target := range targets {
		if fields := target.(map[string]any); fields["verdict"] != "healthy" || fields["requests"] != nil || fields["skipped"] != nil {
			kept = append(kept, target)
		}
	}
	all["targets"] = kept
	var conditions []any
	for _, c := range is.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	all["conditions"] = conditions
	text, err := yaml.Marshal(inUTC(all))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func inUTC(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = inUTC(v[key])
		}
	case []any:
		for i := range v {
			v[i] = inUTC(v[i])
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return at.UTC().Format(time.RFC3339)
		}
	}
	return v
}

func TestThereIsNothingToLookAt(t *testing.T) {
	k := newFixture(t)
	if is, err := k.r.Explain(t.Context(), "none", epoch); is != nil || err != nil {
		t.Errorf("Look() = %v, %v, want nothing", is, err)
	}
}

// Without a manager there is no search, nothing is watched, and nothing of OpenShift's is there.
func TestAReconcilerWithoutAManagerExplainsAndReconciles(t *testing.T) {
	k := newFixture(t, five(check("nhc"))...)
	k.read("nhc")
	k.r.Watches, k.r.Discovery, k.r.Installed = nil, nil, nil
	k.r.search.tried.Store(false)
	k.r.search.done.Store(false)
	badMembers("m0")(k)
	if is := k.look("nhc"); !is.Targets[0].StartsNow {
		t.Errorf("m0 does not begin: %+v", is.Targets[0].Blockers)
	}
	k.settle("nhc")
	k.wants("a reconcile begins it", "Reboot/m0")
}

func TestWhoDoesNotServeTheKindSaysSo(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.Serve(false)
	if is := k.look("nhc"); is.Mode != explain.None || is.ModeText == "" {
		t.Errorf("mode %s, because %q", is.Mode, is.ModeText)
	}
}

// What reconciles remember is taken into account, and what an explanation sees is not remembered.
func TestAnExplanationKnowsTheStreaksOfFormerReconcilesAndBeginsNone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.read("nhc")
	due := func(r *Reconciler) time.Time {
		is, err := r.Explain(t.Context(), "nhc", k.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		return is.Targets[1].Next.At
	}
	fresh := &Reconciler{Client: k.client, Management: k.client, Live: k.client, Mapper: k.r.Mapper, Kinds: k.r.Kinds, LeaseNamespace: k.r.LeaseNamespace}
	k.turn("b", corev1.ConditionUnknown)
	due(k.r)
	k.after(200 * time.Second)
	k.turn("b", corev1.ConditionFalse)
	if got := due(k.r); !got.Equal(epoch.Add(500 * time.Second)) {
		t.Errorf("without a reconcile it is due at %v, as if the explanation had been one", got)
	}
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	k.after(100 * time.Second)
	k.turn("b", corev1.ConditionFalse)
	k.settle("nhc")
	if got := due(k.r); !got.Equal(epoch.Add(500 * time.Second)) {
		t.Errorf("after reconciles it is due at %v, want 300 s after it turned bad before their eyes", got)
	}
	if got := due(fresh); !got.Equal(epoch.Add(600 * time.Second)) {
		t.Errorf("one that made no reconcile says %v, want 300 s after the last transition", got)
	}
}

func TestWhyANodeIsNotSelected(t *testing.T) {
	n := node("n", map[string]string{"pool": "x"})
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		want     string
	}{
		"an empty selector selects all": {},
		"a label that is another one":   {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "y"}}, "label pool is x, and has to be y"},
		"a selector that cannot be read is reported as the check reports it": {
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}},
			`spec.selector is invalid: "Like" is not a valid label selector operator`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.Selector = tc.selector })
			if got := WhyNotSelected(c, n); got != tc.want || (got == "") != selectsNode(c, n.Labels) {
				t.Errorf("WhyNotSelected() = %q, want %q; it is selected: %v", got, tc.want, selectsNode(c, n.Labels))
			}
		})
	}
}
