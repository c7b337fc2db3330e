package machinehealthcheck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/workload"
)

// fleet has machines and nodes as caches keep them: each change is a new object.
type fleet struct {
	machines toolscache.Indexer
	nodes    toolscache.Store
}

// gone deletes a machine.
func (f *fleet) gone(name string) {
	_ = f.machines.Delete(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
}

func newFleet() *fleet {
	return &fleet{
		machines: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{byCluster: func(any) ([]string, error) { return []string{"ns/c1"}, nil }}),
		nodes:    toolscache.NewStore(toolscache.MetaNamespaceKeyFunc),
	}
}

// change stores another version of a machine.
func (f *fleet) change(name string, change func(*clusterv1.Machine)) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(ago(time.Hour))}}
	m.Spec.ClusterName, m.Labels, m.Status.NodeRef.Name = "c1", map[string]string{"pool": "a"}, "node-"+name
	m.Spec.ProviderID = "id://" + name
	if was, exists, _ := f.machines.GetByKey("ns/" + name); exists {
		m = was.(*clusterv1.Machine).DeepCopy()
	}
	change(m)
	_ = f.machines.Update(m)
}

// ready stores another version of the node of a machine. Its condition turns at since if its status changes.
func (f *fleet) ready(name string, status corev1.ConditionStatus, since time.Time) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, UID: types.UID(since.String())}}
	n.Spec.ProviderID = "id://" + name
	if was, exists, _ := f.nodes.GetByKey(n.Name); exists {
		n = was.(*corev1.Node).DeepCopy()
		if c := n.Status.Conditions[0]; c.Status == status {
			since = c.LastTransitionTime.Time
		}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since)}}
	_ = f.nodes.Update(n)
}

// taken gives the name of a machine's node to a node with another provider ID.
func (f *fleet) taken(name, id string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}, Spec: corev1.NodeSpec{ProviderID: id}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_ = f.nodes.Update(n)
}

// found is what a reconcile finds out about a machine.
type found struct {
	Health          *health.Target
	Node, OtherNode *corev1.Node
	OlderCheck      string
	Verdict         health.Verdict
}

// check returns the observed state at now of a check of the machines in pool a, with a timeout of five minutes for a silent node.
func (f *fleet) check(now time.Time) *observed {
	w := aCheck()
	var nodes []*corev1.Node
	for _, node := range f.nodes.List() {
		nodes = append(nodes, node.(*corev1.Node))
	}
	w.Now, w.view = now, workload.Seen(health.Up, nodes)
	w.Check.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
	w.Check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
	}
	return w
}

// seen returns what a reconcile by r finds at now.
func (f *fleet) seen(ctx context.Context, t must.T, r *Reconciler, now time.Time, changes ...func(*observed)) map[string]found {
	w := f.check(now)
	for _, change := range changes {
		change(w)
	}
	r.Clusters, r.machines = &upCluster{}, f.machines
	w.selector, _ = selectorOf(w.Check)
	r.memory.recall(w)
	must.Do(t, r.observeMachines(ctx, w))
	r.observeNodes(ctx, w)
	p := w.decide()
	r.memory.leave(w, p)
	all := map[string]found{}
	for i := range w.Targets {
		read := *w.Targets[i]
		all[read.Name] = found{read.Health, read.Node, read.OtherNode, read.OlderCheck, p.Decisions[i].Verdict}
		w.stateHealth(&read, read.Health.Node, find(read.Name, w.before.targets, w.before.skipped))
		if diff := cmp.Diff(read.Health, w.Targets[i].Health); diff != "" {
			t.Fatal("the facts about " + w.Targets[i].Machine.Name + " are not those of the machine and the node as they were read: " + diff)
		}
	}
	for _, other := range w.Overlaps {
		if want := w.shared(other); other.Shared != want {
			t.Fatal(fmt.Sprintf("of the targets %d are shared, want %d", other.Shared, want))
		}
	}
	for i := range w.Skipped {
		all["skipped "+w.Skipped[i].Name] = found{Health: w.Skipped[i].Health, OlderCheck: w.Skipped[i].OlderCheck}
	}
	return all
}

// shared returns how many targets another check selects too, counted one by one.
func (w *observed) shared(other Overlap) (shared int) {
	for _, t := range w.Targets {
		if other.selector.Matches(labels.Set(t.Machine.Labels)) {
			shared++
		}
	}
	return shared
}

func TestWhatAReconcileFindsDoesNotDependOnTheOneBefore(t *testing.T) {
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		f, r, now := newFleet(), &Reconciler{}, noon
		checked := func(*observed) {}
		nothing := func(*observed) {}
		steps := map[string]func(name string){
			"a machine appears, or is as it was": func(name string) { f.change(name, func(*clusterv1.Machine) {}) },
			"a machine is gone":                  f.gone,
			"a machine leaves the pool": func(name string) {
				f.change(name, func(m *clusterv1.Machine) { m.Labels = map[string]string{"pool": "b"} })
			},
			"a machine joins the pool": func(name string) {
				f.change(name, func(m *clusterv1.Machine) { m.Labels = map[string]string{"pool": "a"} })
			},
			"a machine is to be left alone": func(name string) {
				f.change(name, func(m *clusterv1.Machine) {
					m.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
				})
			},
			"a machine is marked": func(name string) {
				f.change(name, func(m *clusterv1.Machine) {
					m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
				})
			},
			"a machine is said to be healthy": func(name string) {
				f.change(name, func(m *clusterv1.Machine) { markedBefore(&Target{Machine: m}) })
			},
			"a machine has no node yet": func(name string) { f.change(name, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }) },
			"a node is Ready":           func(name string) { f.ready(name, corev1.ConditionTrue, now) },
			"a node falls silent":       func(name string) { f.ready(name, corev1.ConditionUnknown, now) },
			"a node is deleted": func(name string) {
				_ = f.nodes.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}})
			},
			"another machine's node has the name": func(name string) {
				f.taken(name, rapid.SampledFrom([]string{"id://x", "id://y"}).Draw(t, "id"))
			},
			"a machine is replaced by one of its name": func(name string) {
				f.gone(name)
				f.change(name, func(m *clusterv1.Machine) { m.UID = types.UID(name + " again") })
			},
			"an older check selects machines too": func(string) {
				checked = func(w *observed) {
					w.Overlaps = []Overlap{{Name: "other", Older: true, selector: labels.SelectorFromSet(labels.Set{"pool": "a"})}}
				}
			},
			"that check changes its mind": func(string) {
				checked = func(w *observed) {
					w.Overlaps = []Overlap{{Name: "other", Older: true, selector: labels.SelectorFromSet(labels.Set{"pool": "b"})}}
				}
			},
			"time passes":              func(string) { now = now.Add(time.Minute) },
			"the Cluster is paused":    func(string) { checked = func(w *observed) { w.Cluster.Spec.Paused = ptr.To(true) } },
			"the cluster is unreached": func(string) { checked = func(w *observed) { w.view = workload.View{} } },
			"the cluster is not set up": func(string) {
				checked = func(w *observed) { w.Cluster.Status.Conditions = w.Cluster.Status.Conditions[:1] }
			},
			"the timeout is another": func(string) {
				checked = func(w *observed) {
					w.Check.Generation++
					w.Check.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = ptr.To[int32](120)
				}
			},
			"the check is as it was": func(string) { checked = nothing },
		}
		names := slices.Sorted(maps.Keys(steps))
		history := []string{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			step := rapid.SampledFrom(names).Draw(t, "step")
			machine := fmt.Sprintf("m%d", rapid.IntRange(1, 3).Draw(t, "machine"))
			steps[step](machine)
			history = append(history, step+": "+machine)
			kept, fresh := f.seen(ctx, t, r, now, checked), f.seen(ctx, t, &Reconciler{}, now, checked)
			if diff := cmp.Diff(fresh, kept); diff != "" {
				t.Fatalf("after %q: -read anew +read after the one before\n%s", history, diff)
			}
		}
	})
}

// Nodes come and go, take names and provider IDs of other nodes, or have no provider ID.
func TestWhichNodeAMachineHasDoesNotDependOnTheReconcileBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, r := newFleet(), &Reconciler{}
		some := rapid.SampledFrom([]string{"m1", "m2", "m3"})
		id := rapid.SampledFrom([]string{"", "id://m1", "ID://m1", "id://m2", "id://x"})
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch name := some.Draw(t, "machine"); rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				f.change(name, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "node-" + some.Draw(t, "node") })
			case 1:
				f.change(name, func(m *clusterv1.Machine) { m.Spec.ProviderID = id.Draw(t, "id") })
			case 2:
				f.taken(name, id.Draw(t, "id"))
			case 3:
				_ = f.nodes.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}})
			default: // most of the time
				f.change(name, func(*clusterv1.Machine) {})
				f.taken(name, "id://"+name)
			}
			kept := f.seen(t.Context(), t, r, noon)
			for name, want := range f.seen(t.Context(), t, &Reconciler{}, noon) {
				if got := kept[name]; got.Node != want.Node || got.OtherNode != want.OtherNode {
					t.Fatalf("%s has %v and %v beside it, and had %v and %v", name, want.Node, want.OtherNode, got.Node, got.OtherNode)
				}
			}
		}
	})
}

func TestAnOwnerThatAnswersSpeaksForTheOthersOfItsKind(t *testing.T) {
	f, r := newFleet(), &Reconciler{}
	owned := func(machine *clusterv1.Machine) {
		machine.OwnerReferences = []metav1.OwnerReference{{Kind: "TalosControlPlane", Name: "o", Controller: ptr.To(true)}}
	}
	silent := func() bool {
		f.seen(t.Context(), t, r, noon)
		return r.memory.of(types.NamespacedName{Namespace: "ns", Name: "check"}).targets[0].OwnerKindSilent
	}
	f.change("a", owned)
	f.change("b", owned)
	must.Is(t, true, silent(), "silent before an answer:")
	f.change("b", func(machine *clusterv1.Machine) {
		machine.Status.Conditions = []metav1.Condition{condition(OwnerRemediated, "False", "Scaling", "")}
	})
	must.Is(t, false, silent(), "silent after the answer for another machine:")
}

// The first reconcile of a check writes all machines: two versions of thousands would be in memory until it ends.
func TestOfAMachineThatWasWrittenNoMoreIsKeptThanIsAsked(t *testing.T) {
	r, w := reconciling(t, func(*clusterv1.MachineHealthCheck) {}), aCheck(a("m", health.Unhealthy))
	w.Targets[0].Machine = r.get("m")
	of(w.Targets[0]).verdict = health.Verdict{State: health.Unhealthy, Findings: []health.Finding{{Reason: health.MarkedByHand}}}
	if done := r.act(t.Context(), w, decide(w)); len(done) != 1 || done[0].saved == nil || len(w.Targets[0].Machine.Labels) > 0 {
		t.Fatalf("it is not written, or all of it is kept: %+v", done)
	}
}

// A merge patch has replaced the list of conditions; a kubelet that runs writes Ready again within seconds.
func TestAReadyConditionThatVanishedIsNeitherARecoveryNorAFailure(t *testing.T) {
	const m = time.Minute
	f, r := newFleet(), &Reconciler{}
	f.change("a", func(*clusterv1.Machine) {})
	for _, look := range []struct {
		at    time.Duration
		ready corev1.ConditionStatus // empty: no condition
		want  health.State
	}{
		{0, "Unknown", health.Pending}, {4 * m, "", health.Pending}, {5 * m, "", health.Unhealthy}, {6 * m, "Unknown", health.Unhealthy},
		{7 * m, "True", health.Healthy}, {8 * m, "", health.Pending}, {13*m - 1, "", health.Pending}, {13 * m, "", health.Unhealthy},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
		if look.ready != "" {
			turned := metav1.NewTime(noon.Add(look.at))
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: look.ready, LastTransitionTime: turned}}
		}
		_ = f.nodes.Update(node)
		must.Is(t, look.want, f.seen(t.Context(), t, r, noon.Add(look.at))["a"].Verdict.State, "after %s the machine is", look.at)
	}
	if got := f.seen(t.Context(), t, &Reconciler{}, noon.Add(14*m))["a"].Verdict.State; got != health.Pending {
		t.Errorf("at the first look of a process the machine is %s", got)
	}
}

// A kubelet with a slow clock writes an old timestamp, and other reporters may write none.
func TestConditionsCountFromWhenTheyWereSeenToTurn(t *testing.T) {
	const h = time.Hour
	f, r, check := newFleet(), &Reconciler{}, types.NamespacedName{Namespace: "ns", Name: "check"}
	turns := func(status corev1.ConditionStatus, since time.Time) func() {
		return func() { f.ready("a", status, since) }
	}
	reports := func() {
		f.change("a", func(m *clusterv1.Machine) { m.Status.Conditions = []metav1.Condition{{Type: "GPU", Status: "False"}} })
	}
	wrote := func() {
		target := r.memory.of(check).targets[0]
		target.Machine = statusCopy(target.Machine)
	}
	remade := func() {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "again", CreationTimestamp: metav1.NewTime(noon.Add(17 * h / 2))}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "Unknown", LastTransitionTime: metav1.NewTime(noon.Add(8 * h))}}
		_ = f.nodes.Update(n)
	}
	ofGPU := func(w *observed) {
		w.Check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
			{Type: "GPU", Status: "False", TimeoutSeconds: ptr.To[int32](300)},
		}
	}
	unsure := func(w *observed) { w.view = workload.View{Link: workload.Unsure} }
	edited := func(w *observed) {
		w.Check.Generation++
		w.Check.Spec.Checks.UnhealthyMachineConditions[0].Type = "Disk"
	}
	diskFull := func() {
		f.change("a", func(m *clusterv1.Machine) {
			disk := metav1.Condition{Type: "Disk", Status: "False", LastTransitionTime: metav1.NewTime(noon)}
			m.Status.Conditions = append(m.Status.Conditions, disk)
		})
	}
	ofNetwork := func(w *observed) {
		w.Check.Generation += 2
		w.Check.Spec.Checks.UnhealthyNodeConditions = append(w.Check.Spec.Checks.UnhealthyNodeConditions,
			clusterv1.UnhealthyNodeCondition{Type: "NetworkUnavailable", Status: "True", TimeoutSeconds: ptr.To[int32](300)})
	}
	networkLost := func() {
		was, _, _ := f.nodes.GetByKey("node-a")
		n := was.(*corev1.Node).DeepCopy()
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: "NetworkUnavailable", Status: "True", LastTransitionTime: metav1.NewTime(noon.Add(19 * h / 2))})
		_ = f.nodes.Update(n)
	}
	f.change("a", func(*clusterv1.Machine) {})
	f.ready("a", corev1.ConditionTrue, ago(time.Hour))
	for _, is := range []struct {
		name   string
		at     time.Duration // after noon
		given  func()
		change func(*observed)
		want   string // since when the conditions count, after noon; in brackets if their timestamps cannot be true
	}{
		{"a stamp at the first look", 0, nil, nil, "Ready -1h0m0s"},
		{"a clock that is behind", h, turns(corev1.ConditionUnknown, ago(h/4)), nil, "Ready (1h0m0s)"},
		{"no stamp", 2 * h, reports, nil, "GPU (2h0m0s) Ready (1h0m0s)"},
		{"the machine was written", 3 * h, wrote, nil, "GPU (2h0m0s) Ready (1h0m0s)"},
		{"the node cannot be seen", 4 * h, nil, unsure, "GPU (2h0m0s)"},
		{"it can again", 5 * h, nil, nil, "GPU (2h0m0s) Ready (1h0m0s)"},
		{"nor can it now", 6 * h, nil, unsure, "GPU (2h0m0s)"},
		{"it recovered meanwhile", 7 * h, turns(corev1.ConditionTrue, noon.Add(11*h/2)), nil, "GPU (2h0m0s) Ready 5h30m0s"},
		{"nothing changes", 15 * h / 2, nil, nil, "GPU (2h0m0s) Ready 5h30m0s"},
		{"the machine was written, and the clock is behind", 8 * h, func() {
			wrote()
			f.ready("a", corev1.ConditionUnknown, noon.Add(29*h/4))
		}, nil, "GPU (2h0m0s) Ready (8h0m0s)"},
		{"another node of the name is older than its stamp", 9 * h, remade, nil, "GPU (2h0m0s) Ready (9h0m0s)"},
		{"a rule that was not there", 10 * h, diskFull, edited, "Disk 0s Ready (9h0m0s)"},
		{"the node cannot be seen any more", 11 * h, nil, func(w *observed) { edited(w); unsure(w) }, "Disk 0s"},
		{"another rule meanwhile", 12 * h, networkLost, func(w *observed) { ofNetwork(w); unsure(w) }, "GPU (12h0m0s)"},
		{"it counts from its stamp", 13 * h, nil, ofNetwork, "GPU (12h0m0s) Ready (9h0m0s) NetworkUnavailable 9h30m0s"},
	} {
		if is.given != nil {
			is.given()
		}
		if is.change == nil {
			is.change = func(*observed) {}
		}
		var got []string
		for _, s := range f.seen(t.Context(), t, r, noon.Add(is.at), ofGPU, is.change)["a"].Health.Signals {
			since := s.Since.Sub(noon).String()
			if s.Late != "" {
				since = "(" + since + ")"
			}
			got = append(got, s.Type+" "+since)
		}
		must.Is(t, is.want, strings.Join(got, " "), "%s:", is.name)
	}
}
