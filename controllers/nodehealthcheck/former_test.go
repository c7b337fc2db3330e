package nodehealthcheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// minutes lets time pass, with a reconcile of each check in every minute.
func (k *fixture) minutes(n int, checks ...string) {
	k.t.Helper()
	for range n {
		k.after(time.Minute)
		for _, check := range checks {
			k.settle(check)
		}
	}
}

func (k *fixture) remove(obj client.Object) {
	k.t.Helper()
	if err := k.client.Delete(k.t.Context(), obj); err != nil {
		k.t.Fatal(err)
	}
}

// A right to make namespaces is one to make any: that of the leases is asked for.
func TestALeaseThatCannotBeTakenIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		says    []string
	}{
		"it is forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, leaseName("b"), nil), []string{"create lease medik8s-leases/node-b"}},
		"its namespace is missing": {
			apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, nhcv1.DefaultLeaseNamespace),
			[]string{"the namespace medik8s-leases of the leases on nodes is missing", "--node-lease-namespace"},
		},
	} {
		k := single(t)
		k.fails = func(_ string, obj client.Object) error {
			switch obj.(type) {
			case *corev1.Namespace:
				t.Errorf("%s: the namespace %s is made", name, obj.GetName())
			case *coordinationv1.Lease:
				return tc.refusal
			}
			return nil
		}
		k.bad("b")
		k.reconciles("nhc")
		k.wants("nothing is done without it")
		told := strings.Join(k.events(), "\n")
		for _, want := range tc.says {
			if !strings.Contains(told, want) {
				t.Errorf("%s: told\n%s\nwant %q", name, told, want)
			}
		}
	}
}

func TestWhatCannotBeReadOfAnotherCheckIsNamed(t *testing.T) {
	workers := check("workers", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Pray", "pray")) })
	workers.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
	k := newFixture(t, five(check("nhc"), workers)...)
	k.deny("Pray")
	k.bad("m0")
	k.reconciles("nhc")
	k.wants("a member waits")
	if !slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.Contains(e, "NodeHealthCheck workers") && strings.Contains(e, "Pray")
	}) {
		t.Error("no event says for what")
	}
}

func TestWhatBlocksAllNodesIsReportedEveryHour(t *testing.T) {
	c := check("nhc")
	c.Spec.PauseRequests = []string{"later"}
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), c)...)
	badB(k)
	k.minutes(119, "nhc")
	told := 0
	for _, e := range k.events() {
		if strings.Contains(e, "Postponing potential remediations because of pause requests") {
			told++
		}
	}
	if told != 2 {
		t.Errorf("it was reported %d times in two hours", told)
	}
}

func TestAStatusStaysSmallEnoughToBeWritten(t *testing.T) {
	list := make([]nhcv1.UnhealthyNode, 0, 2*mostListed)
	for i := range 2 * mostListed {
		n := nhcv1.UnhealthyNode{Name: "n"}
		if i%3 == 0 {
			n.Remediations = []nhcv1.Remediation{{}}
		}
		list = append(list, n)
	}
	kept := bounded(list)
	remediated := 0
	for i := range kept {
		remediated += len(kept[i].Remediations)
	}
	if want := (2*mostListed + 2) / 3; len(kept) != mostListed || remediated != want {
		t.Errorf("%d nodes are listed, %d of them remediated; want %d, with all %d that are", len(kept), remediated, mostListed, want)
	}
}
