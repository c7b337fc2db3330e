package nodehealthcheck

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/must"
)

// machineCheck returns a MachineHealthCheck of OpenShift with conditions of the given types.
func machineCheck(name string, conditions ...string) *unstructured.Unstructured {
	var all []any
	for _, kind := range conditions {
		all = append(all, map[string]any{"type": kind, "status": "True", "timeout": "0s"})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"unhealthyConditions": all}}}
	u.SetGroupVersionKind(MachineHealthChecks)
	u.SetNamespace("openshift-machine-api")
	u.SetName(name)
	return u
}

func TestWhatCountsAsTheMachineHealthCheckThatOpenShiftBringsAlong(t *testing.T) {
	const handler = "machine-api-termination-handler"
	elsewhere, otherStatus := machineCheck(handler, "Terminating"), machineCheck(handler, "Terminating")
	elsewhere.SetNamespace("default")
	otherStatus.Object["spec"].(map[string]any)["unhealthyConditions"].([]any)[0].(map[string]any)["status"] = "False"
	for name, tc := range map[string]struct {
		check *unstructured.Unstructured
		want  bool
	}{
		"as it is shipped":        {machineCheck(handler, "Terminating"), true},
		"under another name":      {machineCheck("mine", "Terminating"), false},
		"in another namespace":    {elsewhere, false},
		"with another type":       {machineCheck(handler, "Ready"), false},
		"with another status":     {otherStatus, false},
		"with a second condition": {machineCheck(handler, "Terminating", "Ready"), false},
		"with no condition":       {machineCheck(handler), false},
	} {
		must.Is(t, tc.want, shipped(tc.check), "%s:", name)
	}
}

func TestWhatIsReadOfEtcd(t *testing.T) {
	guard := map[string]string{"app": "guard"}
	budget := func(name string, allowed int32) client.Object {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: EtcdNamespace, Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: guard}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	pod := func(node string, ready corev1.ConditionStatus) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: EtcdNamespace, Name: "guard-" + node, Labels: guard}, Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		want    Etcd
		can     bool // etcd can do without node n
	}{
		"a budget that allows a disruption": {[]client.Object{budget("b", 1), pod("n", corev1.ConditionTrue)}, Etcd{
			There: true, Budgets: 1, Budget: EtcdNamespace + "/b", Allows: true,
		}, true},
		"a budget that allows none, and the guards that are ready or may be": {
			[]client.Object{budget("b", 0), pod("n", corev1.ConditionTrue), pod("m", corev1.ConditionUnknown), pod("lost", corev1.ConditionFalse)},
			Etcd{There: true, Budgets: 1, Budget: EtcdNamespace + "/b", Guards: map[string]string{"n": "guard-n", "m": "guard-m"}}, false,
		},
		"C66: one that allows none, and the guard on the node is the one that is lost": {
			[]client.Object{budget("b", 0), pod("n", corev1.ConditionFalse), pod("m", corev1.ConditionTrue)},
			Etcd{There: true, Budgets: 1, Budget: EtcdNamespace + "/b", Guards: map[string]string{"m": "guard-m"}}, true,
		},
		"C66: no budget": {nil, Etcd{There: true}, false},
		"two budgets":    {[]client.Object{budget("b", 0), budget("c", 1)}, Etcd{There: true, Budgets: 2}, false},
	} {
		r := &Reconciler{
			Live:      fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tc.objects...).Build(),
			Installed: func(context.Context, string) (bool, error) { return true, nil },
		}
		got, err := r.observeEtcd(t.Context())
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" || (got.against("n") == "") != tc.can {
			t.Errorf("%s: %v, against it %q (-want +got):\n%s", name, err, got.against("n"), diff)
		}
	}
	r := &Reconciler{Live: unreadable{}, Installed: func(context.Context, string) (bool, error) { return true, nil }}
	if got, err := r.observeEtcd(t.Context()); err == nil || got.against("n") != EtcdUnread {
		t.Errorf("where it could not be asked: %+v, %v", got, err)
	}
	r.Installed = func(context.Context, string) (bool, error) { return false, nil }
	if got, err := r.observeEtcd(t.Context()); err != nil || got.There {
		t.Errorf("where OpenShift is not installed: %+v, %v", got, err)
	}
}

// aboutMachine returns a reference to a template for requests about Machines.
func aboutMachine(kind, in string) corev1.ObjectReference {
	gv := map[string]string{"Metal3Remediation": "infrastructure.cluster.x-k8s.io/v1beta1", "HostRemediation": "kubemend.io/v1alpha1"}[kind]
	return corev1.ObjectReference{APIVersion: gv, Kind: kind + remediationrequest.TemplateSuffix, Namespace: in, Name: strings.ToLower(kind)}
}

func templateFrom(ref corev1.ObjectReference) *unstructured.Unstructured {
	u := template("Any", ref.Name, false)
	u.SetAPIVersion(ref.APIVersion)
	u.SetKind(ref.Kind)
	u.SetNamespace(ref.Namespace)
	return u
}

// capiMachine returns the Machine of Cluster API for node b.
func capiMachine(in string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "m-b", UID: "capi-m-b"}}
	m.Status.NodeRef.Name = "b"
	return m
}

// partnered returns a cluster with the unhealthy node b and its Machines.
func partnered(t *testing.T, spec func(*nhcv1.NodeHealthCheckSpec), objects ...client.Object) *fixture {
	t.Helper()
	c := check("nhc", spec)
	for _, named := range templatesOf(&c.Spec) {
		if named.Kind == "RebootTemplate" {
			u := template("Reboot", named.Name, false)
			u.SetNamespace(named.Namespace)
			objects = append(objects, u)
			continue
		}
		objects = append(objects, templateFrom(named.ObjectReference))
	}
	k := newFixture(t, append(append(workers("a", "b", "c"), c), objects...)...)
	for _, obj := range objects {
		if _, is := obj.(*clusterv1.Machine); is {
			k.annotateNode("b", map[string]string{clusterv1.MachineAnnotation: obj.GetName(), clusterv1.ClusterNamespaceAnnotation: obj.GetNamespace()})
		}
	}
	k.bad("b")
	return k
}

func byOne(ref corev1.ObjectReference) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = &ref }
}

func TestNothingIsMadeForANodeWhoseMachineOfOpenShiftIsNotThere(t *testing.T) {
	k := partnered(t, byOne(aboutMachine("Metal3Remediation", "openshift-machine-api")))
	k.annotateNode("b", map[string]string{nhcv1.OpenShiftMachineAnnotation: "openshift-machine-api" + "/worker-b"})
	k.reconciles("nhc")
	if told := strings.Join(k.events(), "\n"); !strings.Contains(told, "read Machine openshift-machine-api/worker-b of node b") || len(k.allObjects()) > 0 {
		t.Errorf("told:\n%s\nrequests: %v", told, k.allObjects())
	}
}

func TestAStepThatCannotBeAboutTheNodeIsPassedOver(t *testing.T) {
	k := partnered(t, ladder(aboutMachine("HostRemediation", "elsewhere"), refTo("Reboot", "reboot")))
	k.settle("nhc")
	k.wants("the first step that can help is taken", "Reboot/b")
	if told := strings.Join(k.events(), "\n"); !strings.Contains(told, "Passed over HostRemediationTemplate elsewhere/hostremediation (order 0) for node b, because") {
		t.Errorf("told:\n%s", told)
	}
}

// allObjects returns the requests of all kinds.
func (k *fixture) allObjects() []*unstructured.Unstructured {
	k.t.Helper()
	all := k.objects()
	for _, kind := range []string{"Metal3Remediation", "HostRemediation"} {
		ref := aboutMachine(kind, "")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(ref.APIVersion)
		list.SetKind(kind + "List")
		must.Do(k.t, k.client.List(k.t.Context(), list))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// foreignRequest returns a request about a Machine that no check created.
func foreignRequest(kind, in, name string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := templateFrom(aboutMachine(kind, in))
	u.SetKind(kind)
	u.SetName(name)
	u.SetUID(types.UID("foreign-" + name))
	for _, f := range change {
		f(u)
	}
	return u
}

func annotation(key, value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{key: value}) }
}

func ownedByMachine(name, uid string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(uid),
		}})
	}
}

func TestTheFlagNamesATemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		want  *corev1.ObjectReference // nil if the value is invalid
	}{
		"seed 1.2: Poison Pill's": {
			"PoisonPillRemediationTemplate.v1alpha1.poison-pill.medik8s.io/openshift-operators/poison-pill-default-template",
			&corev1.ObjectReference{
				APIVersion: "poison-pill.medik8s.io/v1alpha1", Kind: "PoisonPillRemediationTemplate", Namespace: "openshift-operators", Name: "poison-pill-default-template",
			},
		},
		"seed 1.2: one of ours": {
			"HostRemediationTemplate.v1alpha1.kubemend.io/metal/cycle",
			&corev1.ObjectReference{APIVersion: "kubemend.io/v1alpha1", Kind: "HostRemediationTemplate", Namespace: "metal", Name: "cycle"},
		},
		"one whose kind has no namespace": {
			"RebootTemplate.v1.test.io//a", &corev1.ObjectReference{APIVersion: "test.io/v1", Kind: "RebootTemplate", Name: "a"},
		},
		"a kind that is none of templates": {"Reboot.v1.test.io/default/a", nil},
		"a kind without its version":       {"RebootTemplate/default/a", nil},
		"no name":                          {"RebootTemplate.v1.test.io/default/", nil},
		"no namespace, not even an empty":  {"RebootTemplate.v1.test.io/a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTemplate(tc.value)
			if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
				t.Errorf("%v, reference (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestTheCheckByDefault(t *testing.T) {
	flag := ptr.To(refTo("Reboot", "reboot"))
	t.Run("seed 1.1: is nhc-worker-default, and has workers remediated with the template of the flag", func(t *testing.T) {
		k := newFixture(t, append(workers("a", "b", "c"), member("m"), template("Reboot", "reboot", false))...)
		for range 2 { // the manager starts twice
			must.Do(t, CreateDefault(t.Context(), k.client, k.client, flag))
		}
		c := k.check("nhc-worker-default")
		c.Spec.UnhealthyConditions = check("").Spec.UnhealthyConditions // the default by the API server
		k.update(c)
		k.turn("m", corev1.ConditionUnknown)
		k.bad("b")
		k.settle(c.Name)
		k.wants("the worker alone", "Reboot/b")
		if got := k.state(c.Name); got != "Remediating 2/3 b:1" {
			t.Errorf("the status is %q", got)
		}
	})
	t.Run("seed 1.1: is not made beside another one", func(t *testing.T) {
		k := newFixture(t, check("mine"))
		must.Do(t, CreateDefault(t.Context(), k.client, k.client, flag))
		list := &nhcv1.NodeHealthCheckList{}
		must.Do(t, k.client.List(t.Context(), list))
		if len(list.Items) != 1 || list.Items[0].Name != "mine" {
			t.Errorf("there are %d checks, want the one that was there", len(list.Items))
		}
	})
}
