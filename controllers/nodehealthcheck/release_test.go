package nodehealthcheck

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// ofMachine makes a Machine own each request too.
func (k *fixture) ofMachine() {
	k.t.Helper()
	for _, obj := range k.objects() {
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "m-uid",
		}))
		k.update(obj)
	}
}

// atWork gives all requests the finalizer of their remediator, and over removes it.
func (k *fixture) atWork() { k.finalize("example.org/at-work") }

func (k *fixture) over() { k.finalize() }

func (k *fixture) finalize(finalizers ...string) {
	k.t.Helper()
	for _, obj := range k.objects() {
		obj.SetFinalizers(finalizers)
		k.update(obj)
	}
}

// goes deletes a check, and acts as Kubernetes' garbage collector: it deletes requests without another owner, and removes the owner
// reference from the rest.
func (k *fixture) goes(name string) {
	k.t.Helper()
	gone := k.check(name)
	k.remove(gone)
	for _, obj := range k.objects() {
		left := slices.DeleteFunc(obj.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == gone.UID })
		switch {
		case len(left) == len(obj.GetOwnerReferences()):
		case len(left) > 0:
			obj.SetOwnerReferences(left)
			k.update(obj)
		case obj.GetDeletionTimestamp() == nil:
			k.remove(obj)
		}
	}
}

// replacing returns a check with a template of kind Replace.
func replacing(name string, uid types.UID) *nhcv1.NodeHealthCheck {
	c := check(name, func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Replace", "replace")) })
	c.UID = uid
	return c
}

// create creates an object, which keeps its UID if it has one.
func (k *fixture) create(obj client.Object) {
	k.t.Helper()
	if obj.GetUID() != "" {
		obj.SetCreationTimestamp(metav1.NewTime(k.clock.Now()))
		k.server.Put(obj)
	} else if err := k.client.Create(k.t.Context(), obj); err != nil {
		k.t.Fatal(err)
	}
}

func TestADeletedCheckTakesItsRequestsWithItThatAMachineOwnsToo(t *testing.T) {
	for name, strip := range map[string]func(*unstructured.Unstructured){
		"by their mark": func(*unstructured.Unstructured) {},
		"without its half that is a label": func(obj *unstructured.Unstructured) {
			obj.SetLabels(nil)
		},
		"without its half that is an annotation, by what the last reconcile knew": func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(nil)
		},
		"without it, by what the last reconcile knew": func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(nil)
			obj.SetLabels(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", true), check("nhc"))...)
			badB(k)
			k.ofMachine()
			for _, obj := range k.objects() {
				strip(obj)
				k.update(obj)
			}
			k.settle("nhc")
			if len(k.made) != 1 {
				t.Errorf("what is stripped is taken for somebody else's: %v", k.made)
			}
			k.goes("nhc")
			if owners := k.objects()[0].GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Machine" {
				t.Fatalf("the garbage collector has left %v", owners)
			}
			k.atWork()
			k.settle("nhc")
			if k.objects()[0].GetDeletionTimestamp() == nil || len(k.leases()) != 1 {
				t.Errorf("requests %v, leases %v: want the request to end, and the lease to stay until it has", k.objects(), k.leases())
			}
			k.over()
			k.settle("nhc")
			k.wants("nothing is left")
			if len(k.leases()) > 0 {
				t.Errorf("leases %v are left", k.leases())
			}
		})
	}
}

func TestADeletedCheckTakesNoRequestsOfOthersWithIt(t *testing.T) {
	foreign := template("Reboot", "d", false)
	foreign.SetKind("Reboot")
	one, other := ofPool("nhc", "a"), ofPool("other", "b")
	one.Spec.MaxUnhealthy, other.Spec.MaxUnhealthy = ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromInt32(1))
	k := newFixture(t, node("b", map[string]string{"pool": "a"}), node("c", map[string]string{"pool": "b"}), template("Reboot", "reboot", false), foreign, one, other)
	k.bad("b")
	k.bad("c")
	k.settle("nhc")
	k.settle("other")
	k.wants("both have begun", "Reboot/b", "Reboot/c", "Reboot/d")
	k.ofMachine()
	k.goes("nhc")
	k.settle("nhc")
	k.wants("one of another check, and one without a maker", "Reboot/c", "Reboot/d")
	must.List(t, []string{"node-c"}, k.leases(), "leases")
}

func TestACheckThatIsThereIsNotReleasedByACacheThatLagsBehind(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	behind := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, is := obj.(*nhcv1.NodeHealthCheck); is {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "nodehealthchecks"}, key.Name)
		}
		return c.Get(ctx, key, obj, opts...)
	}
	k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{Get: behind})
	k.settle("nhc")
	k.wants("it goes on", "Reboot/b")
	if len(k.leases()) != 1 {
		t.Errorf("leases %v", k.leases())
	}
}

func TestACheckThatIsMadeAnewWaitsForTheOrphansOfTheFormerOne(t *testing.T) {
	for name, turn := range map[string]corev1.ConditionStatus{
		"W32: for a node that is bad": corev1.ConditionUnknown,
		"for a healthy node":          corev1.ConditionTrue,
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false), check("nhc"), replacing("other", "other"))...)
			badB(k)
			k.ofMachine()
			k.atWork()
			k.goes("nhc")
			k.create(replacing("nhc", "another"))
			k.turn("b", turn)
			deleted := 0
			k.fails = func(verb string, _ client.Object) error {
				if verb == "delete" {
					deleted++
				}
				return nil
			}
			for range 40 {
				k.settle("nhc")
				k.wants("the former remediator is at work", "Reboot/b")
				if obj := k.objects()[0]; obj.GetDeletionTimestamp() == nil || !slices.Equal(k.leases(), []string{"node-b"}) || *k.check("nhc").Status.HealthyNodes != 2 {
					t.Fatalf("%v, leases %v, status %+v", obj.Object, k.leases(), k.check("nhc").Status)
				}
				k.settle("other")
				k.wants("and another check waits for the lease", "Reboot/b")
				k.after(time.Minute)
			}
			if deleted != 1 {
				t.Errorf("it is deleted %d times", deleted)
			}
			told := strings.Join(k.events(), "\n")
			if want := "Skipped remediation of node: b, because Reboot remediators/b, orphaned by a deleted NodeHealthCheck of the same name, is not gone yet"; turn != corev1.ConditionTrue &&
				!strings.Contains(told, want) {
				t.Errorf("told:\n%s\nwant %q", told, want)
			}
			k.over()
			k.settle("nhc")
			if turn == corev1.ConditionTrue {
				k.wants("nothing is left to do")
				if len(k.leases()) > 0 {
					t.Errorf("leases %v", k.leases())
				}
				return
			}
			k.wants("then the new one begins", "Replace/b")
			if by := k.objects()[0]; by.GetLabels()[mendv1.MadeByNodeCheckUIDLabel] != "another" {
				t.Errorf("made by %v", by.Object)
			}
		})
	}
}
