package fence

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

type words map[string]string

func with(annotations, labels words) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations, n.Labels = annotations, labels }
}

// afterwards makes a node one that has registered after the backup was made.
func afterwards(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(noon.Add(time.Minute)) }

func TestBackupOf(t *testing.T) {
	cases := map[string]struct {
		node *corev1.Node
		on   words
		want Backup
	}{
		"annotations and labels": {
			node: node(with(words{"b": "2", "a": "1"}, words{"l": "3"})), want: Backup{Annotations: `{"a":"1","b":"2"}`, Labels: `{"l":"3"}`, Spec: `{}`},
		},
		"of a bare node nothing, but that there was a backup": {node: node(), want: Backup{Annotations: `{}`, Labels: `{}`, Spec: `{}`}},
		"our mark is no part of it":                           {node: node(marked("us")), want: Backup{Annotations: `{}`, Labels: `{}`, Spec: `{}`}},
		"what an earlier one has is kept, and what the node has now is put over it": {
			node: node(with(words{"a": "new"}, nil)),
			on: words{
				infrav1.NodeAnnotationsBackupAnnotation: `{"a":"old","b":"old"}`, infrav1.NodeLabelsBackupAnnotation: `{"l":"old"}`,
			},
			want: Backup{Annotations: `{"a":"new","b":"old"}`, Labels: `{"l":"old"}`, Spec: `{}`},
		},
		"taints and a cordon, but none that says how the node is at the moment": {
			node: node(tainted("dedicated", "db", "NoSchedule"), tainted("node.kubernetes.io/unreachable", "", "NoExecute"), outage, cordoned),
			want: Backup{Annotations: `{}`, Labels: `{}`, Spec: `{"taints":[{"key":"dedicated","value":"db","effect":"NoSchedule"}],"unschedulable":true}`},
		},
		"an earlier one of CAPM3, of a node without labels": {
			node: node(with(nil, words{"l": "1"})),
			on:   words{infrav1.NodeAnnotationsBackupAnnotation: `{"a":"1"}`, infrav1.NodeLabelsBackupAnnotation: ""},
			want: Backup{Annotations: `{"a":"1"}`, Labels: `{"l":"1"}`, Spec: `{}`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.node.DeepCopy()
			got, err := BackupOf(tc.node, tc.on)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("BackupOf() (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.node); diff != "" {
				t.Errorf("the node that was seen (-before +after):\n%s", diff)
			}
		})
	}
}

func TestABackupThatIsKeptIsFound(t *testing.T) {
	on := words{infrav1.NodeAnnotationsBackupAnnotation: "A", infrav1.NodeLabelsBackupAnnotation: "L"}
	if diff := cmp.Diff(Backup{Annotations: "A", Labels: "L"}, BackupIn(on)); diff != "" {
		t.Errorf("BackupIn() (-want +got):\n%s", diff)
	}
	if !BackupIn(nil).Empty() || BackupIn(on).Empty() {
		t.Error("a backup that is kept is not told from none")
	}
}

// W32: what an API server would not take must be known before the node is deleted.
func TestABackupThatHasNoRoomIsRefused(t *testing.T) {
	large := strings.Repeat("x", 200<<10)
	cases := map[string]struct {
		node    *corev1.Node
		on      words
		refused bool
	}{
		"much, and nothing else there":            {node: node(with(words{"a": large}, nil))},
		"too much by itself":                      {node: node(with(words{"a": large, "b": large}, nil)), refused: true},
		"annotations and labels count together":   {node: node(with(words{"a": large}, words{"b": large})), refused: true},
		"what else is there counts":               {node: node(with(words{"a": large}, nil)), on: words{"else": large}, refused: true},
		"an earlier backup that is written over":  {node: node(with(words{"a": large}, nil)), on: words{infrav1.NodeAnnotationsBackupAnnotation: `{"a":"` + large + `"}`}},
		"quotes count as they are written":        {node: node(with(words{"a": strings.Repeat(`"`, 130<<10)}, nil)), refused: true},
		"an earlier backup that cannot be read":   {node: node(), on: words{infrav1.NodeLabelsBackupAnnotation: `{"a":1}`}, refused: true},
		"an earlier backup that is no JSON":       {node: node(), on: words{infrav1.NodeAnnotationsBackupAnnotation: `{`}, refused: true},
		"an earlier backup of many small entries": {node: node(), on: words{infrav1.NodeAnnotationsBackupAnnotation: `{"a":"1","b":"2"}`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := BackupOf(tc.node, tc.on)
			if (err != nil) != tc.refused {
				t.Fatalf("BackupOf() = %v, refused: want %t", err, tc.refused)
			}
			all := map[string]string{infrav1.NodeAnnotationsBackupAnnotation: got.Annotations, infrav1.NodeLabelsBackupAnnotation: got.Labels}
			if err := validation.ValidateAnnotationsSize(all); err != nil {
				t.Errorf("an API server would refuse it: %v", err)
			}
		})
	}
}

func TestANodeThatIsBackGetsWhatItLacks(t *testing.T) {
	saved := Backup{Annotations: `{"a":"old","b":"old","` + FencedByAnnotation + `":"us"}`, Labels: `{"l":"old","m":"old"}`, Deleted: noon}
	cases := map[string]struct {
		back        *corev1.Node
		meanwhile   func(*testing.T, client.Client)
		annotations words
		labels      words
	}{
		"a bare node gets all":           {back: node(afterwards), annotations: words{"a": "old", "b": "old"}, labels: words{"l": "old", "m": "old"}},
		"what it has is newer, and kept": {back: node(afterwards, with(words{"a": "new"}, words{"l": "new", "x": "new"})), annotations: words{"a": "new", "b": "old"}, labels: words{"l": "new", "m": "old", "x": "new"}},
		"an empty value is a value":      {back: node(afterwards, with(words{"a": ""}, words{"l": ""})), annotations: words{"a": "", "b": "old"}, labels: words{"l": "", "m": "old"}},
		"what came meanwhile is kept as well": {
			back: node(afterwards), meanwhile: meanwhile(with(words{"a": "new"}, words{"l": "new"})),
			annotations: words{"a": "new", "b": "old"}, labels: words{"l": "new", "m": "old"},
		},
		"a taint of ours goes at the same time": {back: node(afterwards, outage, marked("us")), annotations: words{"a": "old", "b": "old"}, labels: words{"l": "old", "m": "old"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := clusterOf(interceptor.Funcs{}, tc.back)
			seen := now(t, w.client)
			if tc.meanwhile != nil {
				tc.meanwhile(t, w.client)
			}
			for range 2 {
				if err := nodesOf(w).Unfence(t.Context(), cluster, seen, us, saved); err != nil {
					t.Fatal(err)
				}
				got := now(t, w.client)
				if diff := cmp.Diff([]words{tc.annotations, tc.labels}, []words{got.Annotations, got.Labels}); diff != "" {
					t.Fatalf("annotations and labels (-want +got):\n%s", diff)
				}
				if len(got.Spec.Taints) > 0 {
					t.Fatalf("taints are left: %v", got.Spec.Taints)
				}
			}
		})
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func TestANodeThatIsBackIsReservedAndCordonedAsItWas(t *testing.T) {
	before := node(tainted("dedicated", "db", "NoSchedule"), cordoned)
	before.Spec.Taints[0].TimeAdded = &metav1.Time{Time: noon} // of that node; the next one gets the taint now
	saved, err := BackupOf(before, nil)
	if err != nil {
		t.Fatal(err)
	}
	saved.Deleted = noon
	w := clusterOf(interceptor.Funcs{}, node(afterwards, tainted("node.kubernetes.io/not-ready", "", "NoSchedule")))
	for range 2 {
		if err := nodesOf(w).Unfence(t.Context(), cluster, now(t, w.client), us, saved); err != nil {
			t.Fatal(err)
		}
		want := []string{"node.kubernetes.io/not-ready:NoSchedule", "dedicated=db:NoSchedule"}
		if got := now(t, w.client); !got.Spec.Unschedulable || !cmp.Equal(want, lines(got)) {
			t.Fatalf("unschedulable %t, taints %v; want it cordoned, and %v", got.Spec.Unschedulable, lines(got), want)
		} else if at := got.Spec.Taints[1].TimeAdded; at != nil {
			t.Fatalf("what was given back says %v, want no time", at)
		}
	}
}

// A backup is an annotation that a tenant can write.
func TestNoNodeGetsWhatItHasNotLost(t *testing.T) {
	forged := Backup{
		Annotations: `{"projectcalico.org/IPv4Address":"10.6.6.6/24"}`, Spec: `{"taints":[{"key":"a","effect":"NoExecute"}],"unschedulable":true}`,
		Labels: `{"node-role.kubernetes.io/control-plane":"","node-restriction.kubernetes.io/tier":"payments","l":"1"}`,
	}
	deleted := forged
	deleted.Deleted = noon
	protected := Backup{Labels: forged.Labels, Deleted: noon}
	for name, row := range map[string]struct {
		node  *corev1.Node
		saved Backup
		want  *corev1.Node
	}{
		"no node was deleted":                                {node(afterwards), forged, node(afterwards)},
		"the node was there before one was deleted":          {node(), deleted, node()},
		"what says what may run on a node is not given back": {node(afterwards), protected, node(afterwards, with(nil, words{"l": "1"}))},
	} {
		t.Run(name, func(t *testing.T) {
			w := clusterOf(interceptor.Funcs{}, row.node)
			if err := nodesOf(w).Unfence(t.Context(), cluster, now(t, w.client), us, row.saved); err != nil {
				t.Fatal(err)
			}
			got := now(t, w.client)
			if diff := cmp.Diff([]any{row.want.Labels, row.want.Annotations, row.want.Spec}, []any{got.Labels, got.Annotations, got.Spec}); diff != "" {
				t.Errorf("the node (-want +got):\n%s", diff)
			}
		})
	}
}

// W12: a backup that is dropped when Unfence has returned nil must not be lost.
func TestABackupThatWasNotGivenBackIsKept(t *testing.T) {
	saved := Backup{Annotations: `{"a":"1"}`, Labels: `{}`, Deleted: noon}
	leaving := node(func(n *corev1.Node) {
		n.Finalizers, n.DeletionTimestamp = []string{"kubemend.io/test"}, &metav1.Time{Time: noon}
	})
	refuses := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return errors.New("refused")
	}}
	cases := map[string]struct {
		fakeCluster *fakeCluster
		saved       Backup
		want        string
	}{
		"the write fails":                 {clusterOf(refuses, node(afterwards)), saved, "refused"},
		"the node is gone again":          {clusterOf(interceptor.Funcs{}), saved, errGone.Error()},
		"the node is still being deleted": {clusterOf(interceptor.Funcs{}, leaving), saved, errDeleting.Error()},
		"the cluster is out of reach":     {&fakeCluster{down: true}, saved, "connection to the workload cluster is down"},
		"the backup cannot be read":       {clusterOf(interceptor.Funcs{}, node()), Backup{Labels: "{"}, infrav1.NodeLabelsBackupAnnotation},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			seen := node(afterwards)
			if tc.fakeCluster.client != nil && now(t, tc.fakeCluster.client) != nil {
				seen = now(t, tc.fakeCluster.client)
			}
			err := nodesOf(tc.fakeCluster).Unfence(t.Context(), cluster, seen, us, tc.saved)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Unfence() = %v, want that %s", err, tc.want)
			}
		})
	}
}
