package nodehealthcheck

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/policy"
)

// bound adds a policy that lets one remediation begin in each zone; edits change it.
func (k *fixture) bound(edits ...func(*mendv1.RemediationPolicySpec)) *fixture {
	object := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: "p"}}
	object.Spec.Limits = []mendv1.PolicyLimit{{
		Name: "zone", GroupBy: []mendv1.PolicyGroupKey{{Key: mendv1.GroupByFailureDomain}}, MaxInFlight: ptr.To(intstr.FromInt32(1)),
	}}
	for _, edit := range edits {
		edit(&object.Spec)
	}
	k.r.Ledger, k.r.Cached = &policy.Ledger{Clock: k.clock}, k.client
	k.r.Ledger.SetUp(policy.NodeHealthCheck, func() []reconcile.Request { return k.r.everyCheck(k.t.Context(), nil) },
		func(reconcile.Request, time.Duration) {})
	k.r.Ledger.Set([]*policy.Policy{policy.Read(object, "kubemend-system")})
	return k
}

// zoned puts the nodes of objects into zones: nodes with the same letter are in the same zone.
func zoned(zones string, objects []client.Object) []client.Object {
	for _, obj := range objects {
		if node, is := obj.(*corev1.Node); is && zones != "" {
			metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelTopologyZone, zones[:1])
			zones = zones[1:]
		}
	}
	return objects
}

// lose makes nodes unhealthy for long enough, the first node for the longest.
func (k *fixture) lose(names ...string) {
	for _, name := range names {
		k.turn(name, corev1.ConditionUnknown)
		for _, check := range k.r.everyCheck(k.t.Context(), nil) {
			k.settle(check.Name)
		}
		k.after(time.Second)
	}
	k.after(300 * time.Second)
}

func one(name, node string) *nhcv1.NodeHealthCheck {
	return check(name, func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchLabels = map[string]string{corev1.LabelHostname: node}
		s.MinHealthy = ptr.To(intstr.FromInt32(0))
	})
}

func TestALimitHoldsOverChecksAndARestartAndUntilTheNodeIsHealthy(t *testing.T) {
	k := newFixture(t, zoned("xxy", append(workers("a", "b", "c"), template("Reboot", "reboot", false), one("one", "a"), one("two", "b"), one("three", "c")))...)
	k.lose("a", "b", "c")
	k.bound()
	all := func() []string {
		for _, check := range []string{"one", "two", "three", "one", "two"} {
			k.reconciles(check)
		}
		return k.requests()
	}
	refuses := true
	k.fails = func(verb string, obj client.Object) error {
		if _, is := obj.(*unstructured.Unstructured); is && verb == "create" && obj.GetName() == "a" && refuses {
			return apierrors.NewForbidden(schema.GroupResource{}, obj.GetName(), errors.New("by a webhook"))
		}
		return nil
	}
	k.reconcile("one") // the other checks have not reported yet
	must.Equal(t, []string(nil), k.requests())
	must.Equal(t, true, slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.HasPrefix(e, "Warning RemediationSkipped Remediation skipped on node a: The manager has not yet read all RemediationPolicies and what they count")
	}))
	must.Equal(t, []string{"Reboot/b", "Reboot/c"}, all()) // the request for a is refused, so its place is released
	refuses = false
	k.after(time.Minute)
	all()
	must.Equal(t, true, slices.Contains(k.events(), "Warning RemediationSkipped Remediation skipped on node a: "+
		"The limit zone of RemediationPolicy kubemend-system/p in x is reached: 1 of at most 1 are under way (maxInFlight 1)"))
	k.bound()
	must.Equal(t, []string{"Reboot/b", "Reboot/c"}, all())
	k.turn("b", corev1.ConditionTrue)
	k.settle("two")
	must.Equal(t, []string{"Reboot/a", "Reboot/c"}, all())
}

func TestANodeWhoseRequestIsRefusedLetsAnotherOneGoFirst(t *testing.T) {
	none := func(s *nhcv1.NodeHealthCheckSpec) { s.MinHealthy = ptr.To(intstr.FromInt32(0)) }
	k := newFixture(t, zoned("xx", append(workers("a", "b"), template("Reboot", "reboot", false), check("nhc", none)))...)
	k.lose("a", "b")
	k.bound()
	k.refuses("create", "a", apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("by a webhook")))
	for range 5 {
		k.reconciles("nhc")
		k.after(30 * time.Second)
	}
	must.Equal(t, []string{"Reboot/b"}, k.requests())
}

func TestAMemberWithoutAPlaceLetsAnotherOneGoFirst(t *testing.T) {
	k := newFixture(t, zoned("xyyyyx", append(five(check("nhc")), node("w", nil)))...).bound()
	k.lose("w", "m0", "m1") // w and m0 are in one zone
	k.settle("nhc")
	must.Equal(t, []string{"Reboot/m1", "Reboot/w"}, k.requests())
	must.Equal(t, true, slices.ContainsFunc(k.events(), func(e string) bool {
		return strings.HasPrefix(e, "Warning RemediationSkipped Remediation skipped on node m0: The limit zone of RemediationPolicy kubemend-system/p in x")
	}))
}

// The condition of KEP-5683 and the taint of the autoscaler block without a policy too.
func TestANodeThatOthersTakeCareOfIsLeftToThem(t *testing.T) {
	nodes := workers("a", "b", "c")
	nodes[0].(*corev1.Node).Spec.Taints = []corev1.Taint{{
		Key: "ToBeDeletedByClusterAutoscaler", Value: strconv.FormatInt(epoch.Unix(), 10),
	}}
	k := newFixture(t, append(nodes, template("Reboot", "reboot", false), one("one", "a"))...)
	k.lose("a")
	k.settle("one")
	must.Equal(t, 0, len(k.requests()))
	k.clock.SetTime(epoch.Add(30 * time.Minute))
	k.settle("one")
	must.Equal(t, []string{"Reboot/a"}, k.requests())
}

func TestTheNextStepWaitsForAWindow(t *testing.T) {
	nhc := check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")))
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false), nhc)...)
	k.bound(func(s *mendv1.RemediationPolicySpec) { // begins ten minutes after the start
		s.Limits, s.Windows = nil, []mendv1.PolicyWindow{{Action: mendv1.WindowDeny, Schedule: "10 * * * *", DurationSeconds: 1800}}
	})
	k.lose("a")
	k.settle("nhc")
	must.Equal(t, []string{"Reboot/a"}, k.requests())
	k.after(5 * time.Minute)
	k.settle("nhc")
	must.Equal(t, []string{"Reboot/a"}, k.requests())
	opens := epoch.Add(40 * time.Minute)
	if again := k.reconcile("nhc").RequeueAfter; again > opens.Sub(k.clock.Now())+time.Second {
		t.Errorf("it is looked at again in %s", again)
	}
	k.clock.SetTime(opens)
	k.settle("nhc")
	must.Equal(t, []string{"Reboot/a", "Replace/a"}, k.requests())
}

// For policies, a node with a Machine has the Machine's labels and Cluster. A node without a Machine has its own labels and no Cluster.
func TestPoliciesSelectNodesByTheirMachines(t *testing.T) {
	in := func(key string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}}
	}
	for name, tc := range map[string]struct {
		selects mendv1.PolicySelector
		want    []string // nodes for which no remediation begins
	}{
		"all":                        {mendv1.PolicySelector{}, []string{"a", "b"}},
		"a kind":                     {mendv1.PolicySelector{Kinds: []string{"MachineHealthCheck"}}, nil},
		"all Clusters":               {mendv1.PolicySelector{Clusters: &metav1.LabelSelector{}}, []string{"b"}},
		"labels of the Cluster":      {mendv1.PolicySelector{Clusters: in("tier")}, []string{"b"}},
		"labels of the Machine":      {mendv1.PolicySelector{Targets: in("pool")}, []string{"b"}},
		"labels of the node":         {mendv1.PolicySelector{Targets: in(corev1.LabelHostname)}, []string{"a"}},
		"those that the check lacks": {mendv1.PolicySelector{Checks: in("no")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := capiMachine("capi")
			m.Labels, m.Spec.ClusterName = map[string]string{"pool": "x"}, "home"
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "home", Labels: map[string]string{"tier": "prod"}}}
			nhc := check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.MinHealthy = ptr.To(intstr.FromInt32(0)) })
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), nhc, m, cluster)...)
			k.annotateNode("b", map[string]string{clusterv1.MachineAnnotation: "m-b", clusterv1.ClusterNamespaceAnnotation: "capi"})
			k.bound(func(s *mendv1.RemediationPolicySpec) {
				s.Selector, s.Limits = tc.selects, []mendv1.PolicyLimit{{Name: "none", MaxInFlight: ptr.To(intstr.FromInt32(0))}}
			})
			k.lose("a", "b")
			k.settle("nhc")
			var blocked []string
			for _, name := range []string{"a", "b"} {
				if !slices.Contains(k.requests(), "Reboot/"+name) {
					blocked = append(blocked, name)
				}
			}
			must.Equal(t, tc.want, blocked)
		})
	}
}
