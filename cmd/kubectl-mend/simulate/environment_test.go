package simulate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// manager adds one that runs in a namespace, is bound, and says that of itself.
func (s *fixture) manager(namespace, says string) *fixture {
	renewed := metav1.NewMicroTime(noon)
	s.objs = append(s.objs, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerlease.LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: says}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("one"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: &renewed},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemend-manager-" + namespace, Labels: managerlease.OfKubemend.Labelled},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.OfKubemend.Roles[0]},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.OfKubemend.Account}},
	})
	return s
}

// happens reports whether the timeline has something at that time after the beginning.
func (a *Answer) happens(after time.Duration, reason, object string) bool {
	return slices.ContainsFunc(a.Timeline, func(e Entry) bool {
		return e.After == after.String() && e.Reason == reason && e.Object.Name == object
	})
}

func TestANodeThatIsGoneDoesNotKeepTheOthersFromComingBack(t *testing.T) {
	oneByOne := strings.Replace(powerCycle, "kubemend}", `kubemend, kubemend.io/max-in-flight: "1"}`, 1)
	a := newFixture(t).workers(3).onMetal().manager("kubemend-system", `{"fencing":"delete"}`).run(oneByOne, question(func(q *Question) {
		q.Fail, q.Hard, q.For = "machine/w1,machine/w2", true, 8*time.Minute
	}))
	if !a.happens(5*time.Minute+30*time.Second, "Fenced", "w1") || a.happens(8*time.Minute, "NodeRecovers", "node-w1") {
		t.Errorf("the node of w1 is not the one that was deleted: %+v", a.Timeline)
	}
	if !a.happens(8*time.Minute, "NodeRecovers", "node-w2") {
		t.Errorf("the node of w2 does not come back: %+v", a.Timeline)
	}
}

func TestHostsOfOtherKindsAreRebooted(t *testing.T) {
	for name, tc := range map[string]struct {
		edit        func(*bmov1alpha1.BareMetalHost)
		off, happen string
	}{
		"one that is provisioned externally": {func(h *bmov1alpha1.BareMetalHost) {
			h.Status.Provisioning.State = bmov1alpha1.StateExternallyProvisioned // which alone a record has
		}, "PoweredOff", "PoweredOn"},
		"one whose power cannot be switched off": {func(h *bmov1alpha1.BareMetalHost) { h.Spec.DisablePowerOff = true }, "", "Rebooted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).workers(3).onMetal()
			for _, obj := range s.objs {
				if h, is := obj.(*bmov1alpha1.BareMetalHost); is {
					tc.edit(h)
				}
			}
			a := s.run(powerCycle, question(fails("machine/w2")))
			reasons := map[string]bool{"": true}
			for _, e := range a.Timeline {
				reasons[e.Reason] = true
			}
			if !reasons[tc.off] || !reasons[tc.happen] || !reasons["NodeRecovers"] || len(a.Summary.Unhealthy) > 0 {
				t.Errorf("what happens is %+v", a.Timeline)
			}
		})
	}
}

func TestWhereNamesCannotBeLookedUpNoneIsLookedForWithoutEnd(t *testing.T) {
	s := newFixture(t).workers(1)
	w := s.snapshot()
	w.Forbid(clusterv1.GroupVersion.WithKind("Machine"), "machines", true, "default", errors.New("no answer came in time"))
	play, err := newEngine(t.Context(), w, question(nil))
	if err != nil {
		t.Fatal(err)
	}
	if name := (&environment{engine: play}).successor(s.objs[1].(*clusterv1.Machine)); name != "w1-r1" {
		t.Errorf("the name is %q", name)
	}
}
