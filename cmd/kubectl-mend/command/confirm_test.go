package command

import (
	"bytes"
	"context"
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

// answering is a workload cluster with a UID.
func answering(uid types.UID) client.Reader {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
	return fake.NewClientBuilder().WithScheme(snapshot.New().Scheme()).WithObjects(system).Build()
}

// confirms runs confirm where the workload cluster with UID found answers, and returns what was printed, and what is kept then.
func (p *place) confirms(found types.UID, edit func(*byHand)) (got, kept string, err error) {
	p.t.Helper()
	var out bytes.Buffer
	b := &byHand{IOStreams: p.options(&out).IOStreams, verb: "confirm", client: p.client, now: noon, asks: true}
	b.workload = func(context.Context, client.ObjectKey) (client.Reader, error) {
		if found == "" {
			return nil, errors.New("refused")
		}
		return answering(found), nil
	}
	edit(b)
	err = b.confirmNamed(p.t.Context(), subject{clusterKind, "metal", "c1"})
	cluster := &clusterv1.Cluster{}
	if err := p.client.Get(p.t.Context(), client.ObjectKey{Namespace: "metal", Name: "c1"}, cluster); err != nil {
		p.t.Fatal(err)
	}
	return unwrapped(out.String()), cluster.Annotations[mendv1.WorkloadClusterAnnotation], err
}

func TestTheWorkloadClusterThatAnswersIsConfirmed(t *testing.T) {
	asks := func(b *byHand) { b.reason = "moved" }
	sees := func(b *byHand) { b.dryRun = cmdutil.DryRunClient }
	const nothing = "nothing to do for cluster/c1 in metal: "
	for name, tc := range map[string]struct {
		kept         string
		found        types.UID
		edit         func(*byHand)
		keeps, says  string
		event, fails string
	}{
		"another one, with a yes": {
			"c1/old", "new", asks, "c1/new", "confirm cluster/c1 in metal: the workload cluster that answers, new, is kept in place of old",
			"Cluster c1: WorkloadClusterConfirmed: the workload cluster was confirmed by alice: moved", "",
		},
		"another one, to see":            {"c1/old", "new", sees, "c1/old", "new, is kept in place of old", "", ""},
		"the one that is kept":           {"c1/old", "old", asks, "c1/old", nothing + "the workload cluster that answers is the one", "", ""},
		"where none is kept":             {"", "new", asks, "", nothing + "no workload cluster is kept yet", "", ""},
		"where another Cluster kept one": {"other/old", "new", asks, "other/old", nothing + "no workload cluster is kept yet", "", ""},
		"where none answers": {
			"c1/old", "", asks, "c1/old", "", "", "cannot confirm cluster/c1 in metal: refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, func(p *place) {
				p.objects[len(p.objects)-3].SetAnnotations(map[string]string{mendv1.WorkloadClusterAnnotation: tc.kept})
			})
			p.typed = "y\n"
			got, kept, err := p.confirms(tc.found, tc.edit)
			if !strings.Contains(got, tc.says) || kept != tc.keeps || strings.Join(p.told(), "") != tc.event {
				t.Errorf("it keeps %q, tells %q, and printed\n%s", kept, p.told(), got)
			}
			if failed := err != nil; failed != (tc.fails != "") || failed && err.Error() != tc.fails {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
