package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// constantsOf are the values of the constants of a type, in a file below controllers/decide.
func constantsOf(t *testing.T, name, kind string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../decide/"+name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if typed, is := spec.Type.(*ast.Ident); is && typed.Name == kind {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, value)
		}
		return true
	})
	if len(all) < 10 {
		t.Fatalf("only %d constants of the type %s", len(all), kind)
	}
	return all
}

// whole is a story that has everything a sentence may need.
func whole() *capacity.Story {
	return &capacity.Story{
		Old: "w1", Machine: "w4", Owner: capacity.Object{Kind: "MachineDeployment", Name: "md-0"}, WaitsFor: capacity.Object{Kind: "Cluster", Name: "c1"},
		Args: capacity.Args{
			Reason: "Odd", Message: "as it says:\n* one\n* two.", Names: []string{"Machines"}, Finalizers: []capacity.Finalizer{{Name: "example.com/hold", By: "holder"}},
			Hooks: []capacity.Hook{{Name: "hook/a", Owner: "velero"}}, Host: &capacity.Host{Name: "h1", State: "deprovisioning", Error: "no power", ErrorType: "power management error"},
			Kubeadm: &kubeadm.Facts{}, KubeadmAnswer: kubeadm.Answer{Reason: kubeadm.OnlyMachine},
			Machines: 3, Ready: 3, Replicas: 3,
		},
	}
}

func TestEachReasonStepAndTodoOfACapacityHasItsSentence(t *testing.T) {
	for _, reason := range constantsOf(t, "capacity/story.go", "Reason") {
		if s := whole(); capacityTexts[capacity.Reason(reason)] == nil {
			t.Errorf("the reason %s has no sentence", reason)
		} else if s.Reason = capacity.Reason(reason); Capacity(s) == "" {
			t.Errorf("the sentence of %s is empty", reason)
		}
	}
	for _, todo := range constantsOf(t, "capacity/story.go", "Todo") {
		if s := whole(); todoTexts[capacity.Todo(todo)] == nil {
			t.Errorf("the thing to do %s has no sentence", todo)
		} else if s.Todo = capacity.Todo(todo); !CapacityTodo(s).Manual || CapacityTodo(s).Text == "" {
			t.Errorf("the sentence of %s is %+v", todo, CapacityTodo(s))
		}
	}
	for _, next := range constantsOf(t, "capacity/story.go", "Next") {
		s := whole()
		s.Next = capacity.Next(next)
		if step := CapacityNext(s); (step == Step{}) != (s.Next == capacity.Nothing) {
			t.Errorf("the step of %s is %+v", next, step)
		}
	}
}

func TestSentencesOfACapacity(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		edit             func(*capacity.Story)
		text, next, todo string
	}{
		"a drain that a budget blocks": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo, s.Machine = capacity.DrainBlockedByBudget, capacity.DrainGoesOn, capacity.FreeBudget, "w1"
				s.WaitsFor = capacity.Object{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "db"}
				s.Args.Pods = []capacity.Pod{{Namespace: "shop", Name: "db-0", Budget: "db"}, {Namespace: "shop", Name: "web", Deleting: noon}}
			},
			"the node of Machine w1 is being drained; pods that may not be evicted: shop/db-0 (PodDisruptionBudget db allows no disruption); pods that are being deleted: shop/web",
			"the deletion of Machine w1 goes on as soon as the pods have left its node; the drain has no timeout",
			"make PodDisruptionBudget shop/db allow a disruption (more ready replicas, or another limit), or delete the pod yourself",
		},
		"a drain of which only Cluster API knows": {
			func(s *capacity.Story) { s.Reason = capacity.Draining },
			"the node of Machine w4 is being drained: as it says: one; two", "", "",
		},
		"hosts of which none fits": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo, s.Args.Host = capacity.NoHost, capacity.HostIsTaken, capacity.AddHost, nil
				s.WaitsFor = capacity.Object{Kind: "Metal3Machine", Name: "w4"}
				s.Args.Hosts = []capacity.HostAnswer{
					{Name: "h1", Why: capacity.HostNotSelected, Detail: "rack=2"}, {Name: "h2", Why: capacity.HostUnhealthy},
					{Name: "h3", Why: capacity.HostInUse, Detail: "Metal3Machine w2"},
				}
			},
			"Machine w4 waits for a BareMetalHost, and none fits: h1 does not match the hostSelector (rack=2), " +
				"h2 has the annotation that marks it as unhealthy, h3 is in use by Metal3Machine w2",
			"the provider takes the first BareMetalHost that fits for Machine w4",
			"make a BareMetalHost available that the hostSelector of Metal3Machine w4 selects",
		},
		"a finalizer that is left": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo = capacity.ForeignFinalizer, capacity.ReplacementIsMade, capacity.RemoveFinalizer
				s.WaitsFor = capacity.Object{Kind: "Machine", Name: "w4"}
			},
			"Cluster API has deleted what belongs to Machine w4, which remains, with the finalizer example.com/hold (added by holder)",
			"MachineDeployment md-0 makes a new Machine as soon as Machine w4 is gone",
			"make the owner of the finalizer example.com/hold finish, or remove it from Machine w4",
		},
		"a deletion of a host with an error": {
			func(s *capacity.Story) { s.Reason, s.Todo = capacity.HostHindersDeletion, capacity.RepairHost },
			"the deletion of Machine w4 waits: BareMetalHost h1 has an error (power management error): no power", "", "repair BareMetalHost h1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := whole()
			tc.edit(s)
			got := []string{Capacity(s), CapacityNext(s).Text, CapacityTodo(s).Text}
			if diff := cmp.Diff([]string{tc.text, tc.next, tc.todo}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyATimeoutOfADeletionHasItsMoment(t *testing.T) {
	s := whole()
	s.Stage, s.Next, s.Deadline = capacity.Deleting, capacity.DrainGivenUp, time.Date(2026, 1, 1, 12, 6, 0, 0, time.UTC)
	if step := CapacityNext(s); !step.At.Equal(s.Deadline) {
		t.Errorf("the drain ends at %s", step.At)
	}
	if s.Overdue = true; !CapacityNext(s).At.IsZero() {
		t.Error("a moment that has passed is no next one")
	}
	if s.Stage, s.Overdue, s.Next = capacity.Booting, false, capacity.NodeRegisters; !CapacityNext(s).At.IsZero() || CapacityDeadline(s) == "" {
		t.Error("a node does not register at the timeout of a check")
	}
}

func TestAGuessIsCalledOne(t *testing.T) {
	for by, want := range map[capacity.Evidence]string{
		capacity.Recorded:   "Machine w4 replaces Machine w1",
		capacity.Remembered: "Machine w4 probably replaces Machine w1 (by the RemediationRecord of that machine)",
		capacity.SameHost:   "Machine w4 probably replaces Machine w1 (it has the same host)",
		capacity.Alone:      "Machine w4 probably replaces Machine w1 (it is the only one that its owner has made since)",
		capacity.ByOrder:    "Machine w4 probably replaces Machine w1 (by the order in which machines were lost and made)",
	} {
		if got := Replacement("w1", capacity.Replacement{Name: "w4", By: by}); got != want {
			t.Errorf("%s: %q", by, got)
		}
	}
	if Replacement("w1", capacity.Replacement{}) != "" || !slices.Contains(constantsOf(t, "capacity/story.go", "Reason"), "Replaced") {
		t.Error("without a replacement there is nothing to say")
	}
}
