package nodehealthcheck

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// controlPlaneOfThree is a cluster that manages itself: three control-plane nodes, each with a Machine of its name in namespace capi, and a check
// whose template is the power cycle. m1 is unhealthy.
func controlPlaneOfThree(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	power := aboutMachine("HostRemediation", "capi")
	objects = append(objects, check("nhc", byOne(power)), templateFrom(power))
	names := []string{"m0", "m1", "m2"}
	for _, name := range names {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: name, UID: types.UID("ours-" + name), Labels: map[string]string{
			clusterv1.ClusterNameLabel: "home", clusterv1.MachineControlPlaneLabel: "",
		}}}
		m.Spec.ClusterName, m.Status.NodeRef.Name = "home", name
		objects = append(objects, member(name), m)
	}
	k := newFixture(t, objects...)
	for _, name := range names {
		k.annotateNode(name, map[string]string{clusterv1.MachineAnnotation: name, clusterv1.ClusterNamespaceAnnotation: "capi"})
	}
	k.bad("m1")
	return k
}

func TestWhichRequestsKeepTheControlPlaneWaiting(t *testing.T) {
	const made = "HostRemediation/m1"
	for name, row := range map[string]struct {
		there *unstructured.Unstructured
		waits bool
	}{
		"one for the Machine of m0": {foreignRequest("HostRemediation", "capi", "any", ownedByMachine("m0", "ours-m0")), true},
		"one for a Machine of its name that was there before": {
			foreignRequest("HostRemediation", "capi", "m0", ownedByMachine("m0", "former-m0")), false,
		},
		"one for a Machine of its name in the namespace of a tenant": {
			foreignRequest("HostRemediation", "tenant", "m0", ownedByMachine("m0", "tenants-m0")), false,
		},
		"one in the namespace of a tenant that gives its Machine's UID": {
			foreignRequest("HostRemediation", "tenant", "m0", ownedByMachine("m0", "ours-m0")), false,
		},
		"one in the namespace of a tenant that is named like the node": {foreignRequest("HostRemediation", "tenant", "m0"), false},
		"one in the namespace of a tenant that names the node": {
			foreignRequest("HostRemediation", "tenant", "any", annotation(nhcv1.NodeNameAnnotation, "m0")), false,
		},
		"Metal3's in the namespace of a tenant that names the node": {
			foreignRequest("Metal3Remediation", "tenant", "any", annotation(nhcv1.NodeNameAnnotation, "m0")), false,
		},
		"one where a check has its templates that names the node":                 {foreignRequest("HostRemediation", "capi", "any", annotation(nhcv1.NodeNameAnnotation, "m0")), true},
		"one where a check has its templates, with the name of any other Machine": {foreignRequest("HostRemediation", "capi", "m0"), false},
		"one of another kind in any namespace, whose remediator goes by its name": {fromTemplate("Reboot", "m0"), true},
	} {
		t.Run(name, func(t *testing.T) {
			k := controlPlaneOfThree(t, row.there)
			if err := k.r.Watches.Watch(t.Context(), row.there.GroupVersionKind()); err != nil {
				t.Fatal(err)
			}
			k.reconciles("nhc")
			requested := false
			for _, obj := range k.allObjects() {
				requested = requested || obj.GetKind()+"/"+obj.GetName() == made
			}
			if requested == row.waits {
				t.Errorf("m1 waits: %v, want %v; told: %v", !requested, row.waits, k.events())
			}
		})
	}
}

// fromTemplate is a request of one of the kinds of tests, in a namespace of its own.
func fromTemplate(kind, name string) *unstructured.Unstructured {
	u := template(kind, name, false)
	u.SetKind(kind)
	u.SetNamespace("anywhere")
	u.SetUID(types.UID("foreign-" + name))
	return u
}

// A tenant who may write an object in a namespace can give it any mark.
func TestWhatIsElsewhereIsNoneOfTheChecksOwn(t *testing.T) {
	marks := func(uid string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{nhcv1.NodeNameAnnotation: "b", mendv1.MadeByNodeCheckAnnotation: "nhc"})
			u.SetLabels(map[string]string{nhcv1.PartOfLabel: nhcv1.PartOf, mendv1.MadeByNodeCheckUIDLabel: uid})
		}
	}
	for name, uid := range map[string]string{
		"with the mark of the check":                        "check-nhc",
		"with the mark of a check of its name that is gone": "check-of-before",
	} {
		t.Run(name, func(t *testing.T) {
			forged := foreignRequest("HostRemediation", "tenant", "any", marks(uid))
			k := partnered(t, byOne(aboutMachine("HostRemediation", "capi")), capiMachine("capi"), forged)
			k.settle("nhc")
			if got := len(k.allObjects()); got != 2 {
				t.Errorf("there are %d requests, want the tenant's and the check's; told: %v", got, k.events())
			}
			k.turn("b", "True")
			k.settle("nhc")
			if all := k.allObjects(); len(all) != 1 || all[0].GetNamespace() != "tenant" {
				t.Errorf("when the node is healthy there are %v, want the tenant's alone", all)
			}
		})
	}
	t.Run("but where a template was that it named before", func(t *testing.T) {
		k := partnered(t, byOne(refTo("Reboot", "reboot")))
		k.settle("nhc")
		c := k.check("nhc")
		ref := aboutMachine("HostRemediation", "capi")
		c.Spec.RemediationTemplate = &ref
		k.update(c)
		k.create(templateFrom(ref))
		k.settle("nhc")
		k.turn("b", "True")
		k.settle("nhc")
		k.wants("its request ends with the failure")
	})
}

// A lease belongs to its node and goes with it. What comes back under the name is another node.
func TestALeaseOnTheNodeThatHadTheNameBeforeHoldsNothingUp(t *testing.T) {
	for name, row := range map[string]struct {
		owner metav1.OwnerReference
		want  []string
	}{
		"of this node":           {metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "b", UID: "node-b"}, nil},
		"of the one before":      {metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "b", UID: "node-b-of-before"}, []string{"Reboot/b"}},
		"that belongs to no one": {metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "any", UID: "any"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			at := metav1.NewMicroTime(epoch)
			taken := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: leaseName("b"), OwnerReferences: []metav1.OwnerReference{row.owner}},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: ptr.To("node-maintenance"), LeaseDurationSeconds: ptr.To(int32(time.Hour / time.Second)), AcquireTime: &at, RenewTime: &at,
				},
			}
			k := partnered(t, byOne(refTo("Reboot", "reboot")), taken)
			k.reconciles("nhc")
			k.wants(name, row.want...)
			if row.want == nil {
				if told := strings.Join(k.events(), "\n"); !strings.Contains(told, "already taken by node-maintenance") {
					t.Errorf("told:\n%s", told)
				}
				return
			}
			lease := k.heldLeases()[0]
			if owners := lease.OwnerReferences; len(owners) != 1 || owners[0].UID != "node-b" || ptr.Deref(lease.Spec.HolderIdentity, "") != "NodeHealthCheck-nhc" {
				t.Errorf("the lease: %+v", lease)
			}
		})
	}
}

// The request says by UID which Machine it is about: another one that has the name now is no reason to keep it.
func TestAMachineOfTheSameNameKeepsNoRequestOfANodeThatIsGone(t *testing.T) {
	k := partnered(t, byOne(aboutMachine("HostRemediation", "capi")), capiMachine("capi"))
	k.settle("nhc")
	k.remove(node("b", nil))
	k.settle("nhc")
	if len(k.allObjects()) != 1 {
		t.Fatal("its Machine is there, and the request is not")
	}
	m := capiMachine("capi")
	k.remove(m)
	m.UID, m.ResourceVersion = "another", ""
	k.create(m)
	k.settle("nhc")
	if left := k.allObjects(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
