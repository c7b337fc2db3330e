package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// lease returns the lease of a node, renewed at that time.
func lease(node string, at time.Time) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(at)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
}

func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func tolerates(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func ownedBy(apiVersion, kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "o", UID: "o", Controller: &yes}}
	}
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func terminating(p *corev1.Pod) {
	p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"kubemend.io/test"}
}

func attachment(name, node string, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: node},
		Status:     storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

var seconds = int64(300)

func TestWhatHasToLeaveAFencedNode(t *testing.T) {
	cases := map[string]struct {
		what client.Object
		on   *corev1.Node
		want []string
	}{
		"nothing":                                         {},
		"W10: a pod that was not evicted yet":             {what: pod("p"), want: []string{"Pod ns/p"}},
		"a pod that is terminating":                       {what: pod("p", terminating), want: []string{"Pod ns/p"}},
		"a pod that has not started":                      {what: pod("p", inPhase(corev1.PodPending)), want: []string{"Pod ns/p"}},
		"a pod of which nothing is known":                 {what: pod("p", inPhase(corev1.PodUnknown)), want: []string{"Pod ns/p"}},
		"not a pod that succeeded":                        {what: pod("p", inPhase(corev1.PodSucceeded))},
		"not a pod that failed":                           {what: pod("p", inPhase(corev1.PodFailed))},
		"not one that podgc failed and a finalizer keeps": {what: pod("p", inPhase(corev1.PodFailed), terminating)},
		"not a pod elsewhere":                             {what: pod("p", func(p *corev1.Pod) { p.Spec.NodeName = "m" })},
		"not a pod that tolerates the taint":              {what: pod("p", tolerates(corev1.Toleration{Key: oosKey, Operator: corev1.TolerationOpExists}))},
		"not a pod that tolerates it by value":            {what: pod("p", tolerates(corev1.Toleration{Key: oosKey, Value: "nodeshutdown", Effect: "NoExecute"}))},
		"not a pod that tolerates everything":             {what: pod("p", tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists}))},
		"a pod that tolerates it for some time":           {what: pod("p", tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds})), want: []string{"Pod ns/p"}},
		"a pod that tolerates another value":              {what: pod("p", tolerates(corev1.Toleration{Key: oosKey, Value: "maintenance"})), want: []string{"Pod ns/p"}},
		"a pod that tolerates another effect":             {what: pod("p", tolerates(corev1.Toleration{Key: oosKey, Operator: corev1.TolerationOpExists, Effect: "NoSchedule"})), want: []string{"Pod ns/p"}},
		"a pod that tolerates another taint":              {what: pod("p", tolerates(corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists})), want: []string{"Pod ns/p"}},
		"not one that tolerates somebody's value, if that is the taint": {
			on:   node(tainted(oosKey, "maintenance", "NoExecute")),
			what: pod("p", tolerates(corev1.Toleration{Key: oosKey, Value: "maintenance"})),
		},
		"not a pod of a DaemonSet":                             {what: pod("p", ownedBy("apps/v1", "DaemonSet"))},
		"a pod of a ReplicaSet":                                {what: pod("p", ownedBy("apps/v1", "ReplicaSet")), want: []string{"Pod ns/p"}},
		"a pod of what is called a DaemonSet by somebody else": {what: pod("p", ownedBy("example.org/v1", "DaemonSet")), want: []string{"Pod ns/p"}},
		"not a static pod":                                     {what: pod("p", func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} })},
		"a volume that is attached":                            {what: attachment("v", "n", true), want: []string{"VolumeAttachment v"}},
		"a volume that is about to be attached":                {what: attachment("v", "n", false), want: []string{"VolumeAttachment v"}},
		"not a volume elsewhere":                               {what: attachment("v", "m", true)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.on == nil {
				tc.on = node(outage)
			}
			objs := []client.Object{tc.on}
			if tc.what != nil {
				objs = append(objs, tc.what)
			}
			seen := clusterOf(interceptor.Funcs{}, objs...).look(t, us)
			if diff := cmp.Diff(tc.want, seen.Left); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if seen.Drained != (len(tc.want) == 0) || seen.Count != len(tc.want) {
				t.Errorf("drained: %t, %d left; want %d", seen.Drained, seen.Count, len(tc.want))
			}
		})
	}
}

func TestOnlyAFewNamesAreReported(t *testing.T) {
	objs := []client.Object{node(outage)}
	for i := range 7 {
		objs = append(objs, pod(fmt.Sprintf("p%d", 6-i)))
	}
	seen := clusterOf(interceptor.Funcs{}, objs...).look(t, us)
	if diff := cmp.Diff([]string{"Pod ns/p0", "Pod ns/p1", "Pod ns/p2", "Pod ns/p3", "Pod ns/p4"}, seen.Left); diff != "" || seen.Count != 7 {
		t.Errorf("%d left (-want +got):\n%s", seen.Count, diff)
	}
}

// W18: pods are listed in pages, and only those of the node.
func TestPodsComePageByPage(t *testing.T) {
	pages := map[string]*corev1.PodList{
		"":       {ListMeta: metav1.ListMeta{Continue: "second"}, Items: []corev1.Pod{*pod("p", inPhase(corev1.PodSucceeded))}},
		"second": {ListMeta: metav1.ListMeta{Continue: "third"}},
		"third":  {Items: []corev1.Pod{*pod("q")}},
	}
	list := func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
		pods, ok := into.(*corev1.PodList)
		if !ok {
			return c.List(ctx, into, opts...)
		}
		o := (&client.ListOptions{}).ApplyOptions(opts)
		if o.Limit == 0 || o.FieldSelector.String() != "spec.nodeName=n" {
			return fmt.Errorf("limit %d, selector %s", o.Limit, o.FieldSelector)
		}
		*pods = *pages[o.Continue]
		return nil
	}
	seen := clusterOf(interceptor.Funcs{List: list}, node(outage)).look(t, us)
	if diff := cmp.Diff([]string{"Pod ns/q"}, seen.Left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestLook(t *testing.T) {
	since := metav1.NewTime(noon.Add(-time.Hour).Local())
	ready := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: status, LastTransitionTime: since}}
		}
	}
	leaving := func(n *corev1.Node) {
		n.Finalizers, n.DeletionTimestamp = []string{"kubemend.io/test"}, &metav1.Time{Time: noon}
	}
	cases := map[string]struct {
		fakeCluster *fakeCluster
		name        string
		want        Seen
	}{
		"a machine that never had a node": {fakeCluster: &fakeCluster{down: true}, want: Seen{Presence: powercycle.NodeAbsent, Drained: true}},
		"a node that is gone": {
			fakeCluster: clusterOf(interceptor.Funcs{}), name: "n", want: Seen{Presence: powercycle.NodeAbsent, Drained: true},
		},
		"a node that is gone before its pods and volumes": {
			fakeCluster: clusterOf(interceptor.Funcs{}, pod("p"), attachment("v", "n", true), pod("q", ownedBy("apps/v1", "DaemonSet"))), name: "n",
			want: Seen{Presence: powercycle.NodeAbsent, Left: []string{"Pod ns/p"}, Count: 1},
		},
		"a node that is gone before its volumes": {
			fakeCluster: clusterOf(interceptor.Funcs{}, attachment("v", "n", true)), name: "n",
			want: Seen{Presence: powercycle.NodeAbsent, Left: []string{"VolumeAttachment v"}, Count: 1},
		},
		"a node that is healthy": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(ready(corev1.ConditionTrue))), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Sign: since.Time},
		},
		"a node whose kubelet has renewed its lease": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(ready(corev1.ConditionUnknown)), lease("n", since.Add(time.Minute))), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Sign: since.Add(time.Minute)},
		},
		"a node whose lease must not be read": {
			fakeCluster: clusterOf(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				if _, lease := into.(*coordinationv1.Lease); lease {
					return apierrors.NewForbidden(coordinationv1.Resource("leases"), key.Name, nil)
				}
				return c.Get(ctx, key, into, opts...)
			}}, node(ready(corev1.ConditionUnknown))), name: "n",
			want: Seen{Presence: powercycle.NodePresent},
		},
		"a node that is silent": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(ready(corev1.ConditionUnknown))), name: "n",
			want: Seen{Presence: powercycle.NodePresent},
		},
		"a node that has just registered": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node()), name: "n", want: Seen{Presence: powercycle.NodePresent},
		},
		"a node that is not fenced is not drained either, and what is there is not asked for": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(), pod("p")), name: "n", want: Seen{Presence: powercycle.NodePresent},
		},
		"a node that we fenced": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(outage, marked("us"))), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Fenced: true, Ours: true, Mark: "us", Drained: true},
		},
		"N10: a node that we fenced before a move": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(outage, marked("us-before-the-move"))), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Fenced: true, Ours: true, Inherited: true, Mark: "us-before-the-move", Drained: true},
		},
		"W14: a node that somebody else fenced": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(outage)), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Fenced: true, Drained: true},
		},
		"a node that another remediation fenced": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(outage, marked("them"))), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Fenced: true, Mark: "them", Drained: true},
		},
		"a taint that evicts no pod is no fence": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(tainted(oosKey, "nodeshutdown", "NoSchedule"))), name: "n",
			want: Seen{Presence: powercycle.NodePresent},
		},
		"our mark without a taint is ours, and no fence": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(marked("us"))), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Ours: true, Mark: "us"},
		},
		"a node that somebody else deletes, and that a finalizer keeps, is not fenced": {
			fakeCluster: clusterOf(interceptor.Funcs{}, node(leaving), pod("p")), name: "n",
			want: Seen{Presence: powercycle.NodePresent, Deleting: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			seen, err := nodesOf(tc.fakeCluster).Look(t.Context(), cluster, tc.name, us)
			if err != nil {
				t.Fatal(err)
			}
			if (seen.Node != nil) != (seen.Presence == powercycle.NodePresent) {
				t.Errorf("presence %d, node %v", seen.Presence, seen.Node)
			}
			seen.Node = nil
			if diff := cmp.Diff(tc.want, seen, cmpopts.IgnoreUnexported(Seen{})); diff != "" {
				t.Errorf("Look() (-want +got):\n%s", diff)
			}
		})
	}
}

// W8, W10: if the cluster does not answer, the node counts neither as drained nor as gone.
func TestALookThatFailsConcludesNothing(t *testing.T) {
	nodes := corev1.Resource("nodes")
	for name, failure := range map[string]error{
		"the network fails": errors.New("dial tcp: connection refused"),
		"C8: we may not":    apierrors.NewForbidden(nodes, "n", errors.New("no")),
	} {
		for what, broken := range map[string]interceptor.Funcs{
			"node": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return failure
			}},
			"pods":        {List: failing[*corev1.PodList](failure)},
			"attachments": {List: failing[*storagev1.VolumeAttachmentList](failure)},
		} {
			t.Run(name+", asked for the "+what, func(t *testing.T) {
				seen, err := nodesOf(clusterOf(broken, node(outage, marked("us")))).Look(t.Context(), cluster, "n", us)
				if !errors.Is(err, failure) {
					t.Errorf("failed with %v", err)
				}
				if diff := cmp.Diff(Seen{Presence: powercycle.NodeUnseen}, seen, cmpopts.IgnoreUnexported(Seen{})); diff != "" {
					t.Errorf("Look() (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestALookThatIsCalledOffIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := interceptor.Funcs{Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		return ctx.Err()
	}}
	if _, err := nodesOf(clusterOf(broken)).Look(ctx, cluster, "n", us); !errors.Is(err, context.Canceled) {
		t.Errorf("Look() = %v", err)
	}
}

// failing makes lists of one kind fail.
func failing[L client.ObjectList](err error) func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
	return func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, is := list.(L); is {
			return err
		}
		return c.List(ctx, list, opts...)
	}
}

// endless returns the same pods on each of endlessly many pages.
func endless(asked *int, pods ...corev1.Pod) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		into, is := list.(*corev1.PodList)
		if !is {
			return c.List(ctx, list, opts...)
		}
		*asked++
		if *asked > 10*mostPages {
			return context.Canceled // it would go on for ever
		}
		into.Continue, into.Items = "more", pods
		return nil
	}}
}

func TestAListWithoutEndIsNotFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		left bool
	}{
		"of pods that have to move: they are left": {[]corev1.Pod{*pod("p")}, true},
		"of pods that need not: others may follow": {[]corev1.Pod{*pod("p", inPhase(corev1.PodSucceeded))}, false},
		"of nothing": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			seen, err := nodesOf(clusterOf(endless(&asked, tc.pods...), node(outage))).Look(t.Context(), cluster, "n", us)
			if asked != mostPages || seen.Drained || (seen.Count > 0) != tc.left || len(seen.Left) > few {
				t.Errorf("asked for %d pages, drained: %t, %d left: %v", asked, seen.Drained, seen.Count, seen.Left)
			}
			if unseen := seen.Presence == powercycle.NodeUnseen && err != nil; unseen == tc.left {
				t.Errorf("it is %d, because of %v; want that it could not be seen", seen.Presence, err)
			}
		})
	}
}

// Each look costs requests to a cluster that may have hundreds of power cycles at once.
func TestNothingIsReadThatNoStepDependsOn(t *testing.T) {
	var read []string
	count := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			read = append(read, fmt.Sprintf("%T", into))
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			read = append(read, fmt.Sprintf("%T", list))
			return c.List(ctx, list, opts...)
		},
	}
	fenced := node(outage, marked("us"), func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" })
	for name, tc := range map[string]struct {
		by   Owner
		want []string
	}{
		"under the boot of before": {Owner{UID: "us", BootID: "b2"}, []string{"*v1.Node", "*v1.PodList", "*v1.Lease"}},
		"of a host that is on":     {Owner{UID: "us", BootID: "b2", On: true}, []string{"*v1.Node", "*v1.Lease"}},
		"under another boot":       {Owner{UID: "us", BootID: "b1"}, []string{"*v1.Node"}},
	} {
		nodes := nodesOf(clusterOf(count, fenced, pod("p")))
		read = nil
		seen, err := nodes.Look(t.Context(), cluster, "n", tc.by)
		if err != nil || !seen.Ours || !slices.Equal(read, tc.want) {
			t.Errorf("%s: %v, read are %v", name, err, read)
		}
		read = nil
		must.Do(t, nodes.Unfence(t.Context(), cluster, seen.Node, tc.by))
		if len(read) > 0 {
			t.Errorf("%s: to be unfenced, a node that was looked at is read again: %v", name, read)
		}
	}
}
