package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
)

func told(name, namespace string, about corev1.ObjectReference, reason string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, EventTime: metav1.NewMicroTime(noon), Regarding: about,
		Reason: reason, Note: "it is so", ReportingController: "kubemend",
	}
}

func TestHistoryIsReadFromAllThatRemembers(t *testing.T) {
	objs := clientWith(t, told("a", "metal", corev1.ObjectReference{Kind: "Machine", Namespace: "metal", Name: "m-1"}, "Marked"),
		told("b", "default", corev1.ObjectReference{Kind: "NodeHealthCheck", Name: "all"}, "Skipped"),
		told("c", "default", corev1.ObjectReference{Kind: "Machine", Namespace: "default", Name: "m-2"}, "Elsewhere"))
	c := interceptor.NewClient(objs, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, machines := list.(*clusterv1.MachineList); machines {
			return apierrors.NewForbidden(clusterv1.GroupVersion.WithResource("machines").GroupResource(), "", errors.New("not you"))
		}
		return c.List(ctx, list, opts...)
	}})
	objects, trouble, err := observeHistory(t.Context(), c, "metal")
	if err != nil || len(trouble) != 1 || !strings.HasPrefix(trouble[0], "Machines: ") {
		t.Errorf("the trouble is %q, want that of the one kind that may not be read", trouble)
	}
	var got []string
	for _, e := range history.Of(objects, history.Scope{Namespace: "metal"}).Items {
		got = append(got, e.Object.Kind+" "+e.Object.Name+" "+e.Reason)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"Machine m-1 Marked", "NodeHealthCheck all Skipped"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhereNothingCanBeReadIsNoPlaceWithoutAPast(t *testing.T) {
	without := interceptor.NewClient(clientWith(t), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, machines := list.(*clusterv1.MachineList); machines { // without Cluster API
			return &meta.NoKindMatchError{}
		}
		return c.List(ctx, list, opts...)
	}})
	if _, trouble, err := observeHistory(t.Context(), without, "metal"); err != nil || len(trouble) > 0 {
		t.Errorf("where there is nothing: %q, %v", trouble, err)
	}
	down := interceptor.NewClient(clientWith(t), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the line is down")
	}})
	if _, _, err := observeHistory(t.Context(), down, "metal"); err == nil || err.Error() != "nothing could be read: Machines: the line is down" {
		t.Errorf("where nothing answers: %v", err)
	}
}
