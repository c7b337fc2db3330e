package nodehealthcheck

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// aboutMachine are references to templates of requests about Machines, by kind.
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

// capiMachine is the Machine of Cluster API of node b.
func capiMachine(in string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "m-b", UID: "capi-m-b"}}
	m.Status.NodeRef.Name = "b"
	return m
}

// partnered is a cluster with node b that is unhealthy, and Machines behind it.
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

// byOne has one template.
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

// allObjects are the requests of all kinds.
func (k *fixture) allObjects() []*unstructured.Unstructured {
	k.t.Helper()
	all := k.objects()
	for _, kind := range []string{"Metal3Remediation", "HostRemediation"} {
		ref := aboutMachine(kind, "")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(ref.APIVersion)
		list.SetKind(kind + "List")
		if err := k.client.List(k.t.Context(), list); err != nil {
			k.t.Fatal(err)
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// foreignRequest is a request about a Machine that no check here made.
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
