package nodehealthcheck

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

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
	}{
		"a budget that allows a disruption": {[]client.Object{budget("b", 1), pod("n", corev1.ConditionTrue)}, Etcd{
			There: true, Budgets: 1, Budget: EtcdNamespace + "/b", Allows: true,
		}},
		"a budget that allows none, and the guards that are ready or may be": {
			[]client.Object{budget("b", 0), pod("n", corev1.ConditionTrue), pod("m", corev1.ConditionUnknown), pod("lost", corev1.ConditionFalse)},
			Etcd{There: true, Budgets: 1, Budget: EtcdNamespace + "/b", Guards: map[string]string{"n": "guard-n", "m": "guard-m"}},
		},
		"no budget":   {nil, Etcd{There: true}},
		"two budgets": {[]client.Object{budget("b", 0), budget("c", 1)}, Etcd{There: true, Budgets: 2}},
	} {
		c := openshiftCluster{
			Live:      fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tc.objects...).Build(),
			Installed: func(context.Context, string) (bool, error) { return true, nil },
		}
		got, err := c.Etcd(t.Context())
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if got, err := (openshiftCluster{}).Etcd(t.Context()); err != nil || got.There {
		t.Errorf("where OpenShift is not installed: %+v, %v", got, err)
	}
}
