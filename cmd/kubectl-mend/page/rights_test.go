package page

import (
	"context"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// A user who may read no more than machines and their checks gets the conditions that are stored, with their author.
func TestWithoutTheRightToReadClustersChecksAreExplainedAllTheSame(t *testing.T) {
	s := aScene()
	said := metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse, Reason: "TooManyUnhealthy", Message: "3 of 5 are not healthy",
		LastTransitionTime: at(time.Minute),
	}
	s.check.Status.Conditions = append(s.check.Status.Conditions, said)
	w := snapshot.New()
	objs := []client.Object{s.check, s.manager}
	for _, m := range s.machines {
		objs = append(objs, m)
	}
	if err := w.Add(objs...); err != nil {
		t.Fatal(err)
	}
	for _, gvk := range []schema.GroupVersionKind{
		clusterv1.GroupVersion.WithKind("Cluster"), mendv1.GroupVersion.WithKind("HostRemediation"), bmov1alpha1.GroupVersion.WithKind("BareMetalHost"),
	} {
		plural := strings.ToLower(gvk.Kind) + "s"
		w.Forbid(gvk, plural, true, "", apierrors.NewForbidden(schema.GroupResource{Group: gvk.Group, Resource: plural}, "", nil))
	}
	a, err := inspect.New(context.Background(), w, noon)
	if err != nil {
		t.Fatal(err)
	}

	status, err := Of(context.Background(), a, "default", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(status.Checks) != 1 || status.Checks[0].Reason != said.Reason {
		t.Errorf("the status has %+v, want the check, and what it says of itself", status.Checks)
	}
	e, err := Machine(context.Background(), a, client.ObjectKey{Namespace: "default", Name: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	if e.Verdict != "UNKNOWN: MissingPermission (nodes of cluster c1)" {
		t.Errorf("the verdict is %q", e.Verdict)
	}
	if e.Checks[0].Mode == explain.Paused || len(e.Checks[0].Targets) != 1 {
		t.Errorf("the check is %+v, want one that is not paused, with the machine", e.Checks[0])
	}
}

// barredFromRequests bars the user from the kinds that a remediation of a machine, or of a node, is made of.
func barredFromRequests(s *scene) {
	s.barred = append(s.barred, []schema.GroupVersionKind{
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3Remediation"},
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3RemediationTemplate"},
		{Group: "remediation.example.com", Version: "v1", Kind: "Reboot"},
		{Group: "remediation.example.com", Version: "v1", Kind: "RebootTemplate"},
	}...)
}

// saysForbidden has the check say that its manager may not read the template.
func saysForbidden(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Status.Conditions = append(check.Status.Conditions, metav1.Condition{
		Type: nhcv1.DisabledCondition, Status: metav1.ConditionTrue, Reason: nhcv1.TemplateForbiddenReason, LastTransitionTime: at(time.Hour),
		Message: "RebootTemplate may not be read",
	})
}

// replacedBefore has the check list a remediation of a kind that it does not name any more.
func replacedBefore(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{{Name: "n1", Remediations: []nhcv1.Remediation{{
		Resource: corev1.ObjectReference{APIVersion: "remediation.example.com/v1", Kind: "Replace", Namespace: "templates", Name: "n1", UID: "replace"},
		Started:  at(time.Minute),
	}}}}
}

func TestWhatAUserMayNotReadIsNotSaidOfTheManager(t *testing.T) {
	const due, soon = 6 * time.Minute, 2 * time.Minute
	golden.StoriesIn(t, "testdata/rights", map[string]story{
		"a machine that is due":                                 {aScene(silent(due, "w1"), byTemplate, barredFromRequests), machine("w1")},
		"a machine within its timeout":                          {aScene(silent(soon, "w1"), byTemplate, barredFromRequests), machine("w1")},
		"a check of machines":                                   {aScene(silent(due, "w1"), byTemplate, barredFromRequests), check("workers")},
		"a node that is due":                                    {aScene(ownNodes(due), barredFromRequests), node("n1")},
		"a check of nodes that says itself that it is disabled": {aScene(ownNodes(due, saysForbidden), barredFromRequests), nodeCheck("own-nodes")},
		"a machine that says itself that it is being remediated": {aScene(silent(due, "w1"), byTemplate, barredFromRequests, func(s *scene) {
			s.said("w1", clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineExternallyRemediatedWaitingForRemediationReason, "", time.Minute)
		}), machine("w1")},
		"a node within its time": {aScene(ownNodes(soon), barredFromRequests), node("n1")},
		"a node that was remediated otherwise before": {aScene(ownNodes(due, replacedBefore), func(s *scene) {
			s.barred = append(s.barred, schema.GroupVersionKind{Group: "remediation.example.com", Version: "v1", Kind: "Replace"})
		}), node("n1")},
		"a check of nodes": {aScene(ownNodes(due), barredFromRequests), nodeCheck("own-nodes")},
	}, func(t *testing.T, s story) string {
		e, err := s.ask(t.Context(), s.scene.asker(t))
		return page80and200(t, e, err)
	})
}
