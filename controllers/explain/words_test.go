package explain

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/workload"
)

// A message names who acts: kubemend, another client, a user, the owner.
func TestMessagesNameWhoActs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, is := n.(*ast.BasicLit)
			if is && (strings.Contains(strings.ToLower(text.Value), "somebody") || strings.Contains(strings.ToLower(text.Value), "someone")) {
				t.Errorf("%s: %s", fset.Position(text.Pos()), text.Value)
			}
			return true
		})
	}
}

func TestASentenceGoesOnInAnotherOne(t *testing.T) {
	for sentence, want := range map[string]string{
		"":                            "",
		"The check is being deleted":  "the check is being deleted",
		"No request can be made":      "no request can be made",
		"Cluster c1 is being deleted": "Cluster c1 is being deleted",
		"Metal3Remediation w1 exists": "Metal3Remediation w1 exists",
		"the workload did not move":   "the workload did not move",
	} {
		if got := Clause(sentence); got != want {
			t.Errorf("%q goes on as %q, want %q", sentence, got, want)
		}
	}
}

func TestTheSameErrorHasTheSameText(t *testing.T) {
	refused := func(port int) error {
		op := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		return fmt.Errorf("look at node: %w", &url.Error{Op: "Get", URL: "https://127.0.0.1:6443/x", Err: op})
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a connection that was reset, without its ports": {refused(40001), "read: read: connection reset by peer"},
		"the same one from another port":                 {refused(40002), "read: read: connection reset by peer"},
		"an answer of the API server, as it is":          {fmt.Errorf("x: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no"))), `nodes "n" is forbidden: no`},
		"an answer that did not come":                    {fmt.Errorf("x: %w", context.DeadlineExceeded), "no answer in time"},
		"a kubeconfig that is refused": {
			fmt.Errorf("x: %w: %w", clustercache.ErrClusterNotConnected, &workload.RefusedError{Entry: "users[u].user.exec", Why: "names a program"}),
			"the kubeconfig is refused: users[u].user.exec names a program",
		},
		"what is neither": {errors.New("odd"), "odd"},
		"nothing":         {nil, ""},
	} {
		if got := Plain(tc.err); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestARecordSaysWhatAPowerCycleWaitsFor(t *testing.T) {
	request := mendv1.RecordRef{Kind: "HostRemediation", Name: "m"}
	for _, state := range []powercycle.State{
		powercycle.Pending, powercycle.Preparing, powercycle.PoweringOff, powercycle.MovingWorkload, powercycle.PoweringOn, powercycle.Rebooting,
		powercycle.Servicing, powercycle.Booting, powercycle.RequestingOwner,
	} {
		if !state.Known() || state.Final() {
			t.Errorf("%s is no state in which anything is waited for", state)
		}
		got := RecordStep(string(state), "Machine m", request)
		if !strings.HasPrefix(got, "HostRemediation m ") || len(strings.Fields(got)) < 6 || strings.Contains(got, string(state)) {
			t.Errorf("%s: it says %q", state, got)
		}
	}
	if got := RecordStep(string(powercycle.Booting), "Machine m", mendv1.RecordRef{}); got != "Booting" {
		t.Errorf("without a request it says %q", got)
	}
}

func TestUnmatched(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	of := func(all ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: all}
	}
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		labels   map[string]string
		want     string
	}{
		"an empty selector matches all":               {},
		"what matches is not explained":               {metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, map[string]string{"a": "b"}, ""},
		"a label that is missing":                     {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}, nil, "has no label pool, which has to be x"},
		"a label that is another":                     {metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}, map[string]string{"pool": "y"}, "label pool is y, and has to be x"},
		"a label of a role that has a value":          {metav1.LabelSelector{MatchLabels: map[string]string{"role": ""}}, map[string]string{"role": "y"}, "label role is y, and has to be empty"},
		"none of several values":                      {of(expression("pool", "In", "z", "x")), map[string]string{"pool": "y"}, "label pool is y, and has to be one of x, z"},
		"none of several values, since it is missing": {of(expression("pool", "In", "z", "x")), nil, "has no label pool, which has to be one of x, z"},
		"one of the values that it must not have":     {of(expression("pool", "NotIn", "y", "x")), map[string]string{"pool": "y"}, "label pool is y, and must not be one of x, y"},
		"a label that has to be there":                {of(expression("pool", "Exists")), nil, "has no label pool"},
		"a label that must not be there":              {of(expression("pool", "DoesNotExist")), map[string]string{"pool": ""}, "has label pool, which it must not have"},
		"all that fails, in the order of the selector": {
			metav1.LabelSelector{MatchLabels: map[string]string{"b": "1", "a": "1"}, MatchExpressions: of(expression("z", "Exists"), expression("c", "Exists")).MatchExpressions}, nil,
			"has no label a, which has to be 1; has no label b, which has to be 1; has no label z; has no label c",
		},
		"a selector that cannot be read": {of(expression("pool", "Like")), nil, `the selector is invalid: "Like" is not a valid label selector operator`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Unmatched(tc.selector, tc.labels); got != tc.want {
				t.Errorf("Unmatched() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnmatchedIsEmptyWhereverKubernetesSelects(t *testing.T) {
	key, val := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "y"})
	expressions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: key.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Like",
		}).Draw(t, "operator")}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(val, 0, 3).Draw(t, "values")
		}
		return r
	}), 0, 3)
	some := rapid.MapOfN(key, val, 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		selector := metav1.LabelSelector{MatchLabels: some.Draw(t, "matchLabels"), MatchExpressions: expressions.Draw(t, "matchExpressions")}
		is := some.Draw(t, "labels")
		parsed, err := metav1.LabelSelectorAsSelector(&selector)
		selects := err == nil && parsed.Matches(labels.Set(is))
		if why := Unmatched(selector, is); (why == "") != selects {
			t.Fatalf("Unmatched() = %q, and Kubernetes selects: %v", why, selects)
		}
	})
}
