package command

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// replaced keeps another workload cluster for c1 than the one with UID found, which answers if that is not empty.
func replaced(kept string, found types.UID) func(*place) {
	return func(p *place) {
		p.objects[len(p.objects)-3].SetAnnotations(map[string]string{mendv1.WorkloadClusterAnnotation: kept})
		system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: found}}
		p.workload = fake.NewClientBuilder().WithScheme(snapshot.Scheme).WithObjects(system).Build()
		if found == "" {
			p.unreached = errors.New("refused")
		}
	}
}

func TestTheWorkloadClusterThatAnswersIsConfirmed(t *testing.T) {
	asks := func(b *byHand) { b.reason = "moved" }
	sees := func(b *byHand) { b.dryRun = cmdutil.DryRunClient }
	const nothing = "nothing to do for cluster/c1 in metal: "
	for name, tc := range map[string]struct {
		kept        string
		found       types.UID
		edit        func(*byHand)
		keeps, says string
		event       string
		code        int
	}{
		"another one, with a yes": {
			"c1/old", "new", asks, "c1/new", "confirm cluster/c1 in metal: the workload cluster that answers, new, is kept in place of old",
			"Cluster c1: WorkloadClusterConfirmed: the workload cluster was confirmed by alice: moved", Done,
		},
		"another one, to see":            {"c1/old", "new", sees, "c1/old", "new, is kept in place of old", "", Done},
		"the one that is kept":           {"c1/old", "old", asks, "c1/old", nothing + "the workload cluster that answers is the one", "", Done},
		"where none is kept":             {"", "new", asks, "", nothing + "no workload cluster is kept yet", "", Done},
		"where another Cluster kept one": {"other/old", "new", asks, "other/old", nothing + "no workload cluster is kept yet", "", Done},
		"where none answers": {
			"c1/old", "", asks, "c1/old", "error: cannot confirm cluster/c1 in metal: refused", "", Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, replaced(tc.kept, tc.found))
			p.typed = "y\n"
			got, code := p.does("confirm", "cluster/c1", tc.edit)
			cluster := &clusterv1.Cluster{}
			if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: "c1"}, cluster); err != nil {
				t.Fatal(err)
			}
			kept := cluster.Annotations[mendv1.WorkloadClusterAnnotation]
			if !strings.Contains(got, tc.says) || kept != tc.keeps || strings.Join(p.told(), "") != tc.event || code != tc.code {
				t.Errorf("code %d; it keeps %q, tells %q, and printed\n%s", code, kept, p.told(), got)
			}
		})
	}
}
