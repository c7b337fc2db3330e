package api

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// A right is a verb on a resource of a group, in a namespace or, with none, in all.
type right struct{ verb, group, resource, namespace string }

func hasTheRightsOfItsPart(ctx SpecContext) {
	const east, canary = "shard", "shard-by-label"
	accounts := map[string]string{east: shard(ctx, east, "fleet-east"), canary: shard(ctx, canary, "")}
	own := map[string]string{east: "kubemend-east", canary: "kubemend-canary"}
	for folder, account := range accounts {
		everywhere := folder == canary
		for is, expected := range map[right]bool{
			{"list", "", "secrets", "fleet-east"}:                                                true,
			{"patch", "metal3.io", "baremetalhosts", "fleet-east"}:                               true,
			{"patch", "cluster.x-k8s.io", "machines", "fleet-east"}:                              false,
			{"create", "self-node-remediation.medik8s.io", "selfnoderemediations", "fleet-east"}: true,
			{"list", "", "secrets", metav1.NamespaceDefault}:                                     everywhere,
			{"list", "", "secrets", ""}:                                                          everywhere,
			{"patch", "metal3.io", "baremetalhosts", metav1.NamespaceDefault}:                    everywhere,
			{"create", "self-node-remediation.medik8s.io", "selfnoderemediations", "default"}:    everywhere,
			{"watch", "apiextensions.k8s.io", "customresourcedefinitions", ""}:                   true,
			{"create", "authentication.k8s.io", "tokenreviews", ""}:                              true,
			{"update", "coordination.k8s.io", "leases", own[folder]}:                             true,
			{"update", "coordination.k8s.io", "leases", "fleet-east"}:                            false,
			{"update", "coordination.k8s.io", "leases", nhcv1.DefaultLeaseNamespace}:             false,
			{"update", "coordination.k8s.io", "leases", "kube-node-lease"}:                       false,
			{"patch", "", "nodes", ""}:                                                           false,
			{"patch", "remediation.medik8s.io", "nodehealthchecks", ""}:                          false,
			{"create", "", "namespaces", ""}:                                                     false,
			{"create", "rbac.authorization.k8s.io", "clusterrolebindings", ""}:                   false,
			{"list", "", "secrets", own[folder]}:                                                 everywhere,
		} {
			Eventually(may(ctx, account, is)).Should(Equal(expected), "%s: %+v", folder, is)
		}
	}
}

// hasNoLeasesOfOthers asks for leases by no name. Leases say which nodes are alive, and who leads of every controller in the
// cluster; a right to make a namespace is one to make any.
func hasNoLeasesOfOthers(ctx SpecContext) {
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, where := range []string{"", "kube-node-lease", "kube-system", namespace} {
			Expect(may(ctx, rig.Account, right{verb, "coordination.k8s.io", "leases", where})()).To(BeFalse(), "%s leases in %q", verb, where)
		}
		Expect(may(ctx, rig.Account, right{verb, "", "namespaces", ""})()).To(BeFalse(), verb)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		for _, where := range []string{"", "kube-node-lease", namespace} {
			Expect(may(ctx, rig.Account, right{verb, "coordination.k8s.io", "leases", where})()).To(BeFalse(), "%s leases in %q", verb, where)
		}
	}
}

// shard installs the rights of the example of a shard for a part, and returns who its manager is to the API server.
func shard(ctx context.Context, example, part string) string {
	GinkgoHelper()
	folder := filepath.Join("..", "docs", "examples", example)
	shipped, err := control.Shipped(ctx, folder)
	Expect(err).NotTo(HaveOccurred())
	account := ""
	for i := range shipped {
		switch o := &shipped[i]; o.GetKind() {
		case "Namespace":
			Expect(builders.Apply(ctx, here, builders.Namespace(o.GetName()))).To(Succeed())
		case "Deployment":
			name, _, err := unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
			Expect(err).NotTo(HaveOccurred())
			account = "system:serviceaccount:" + o.GetNamespace() + ":" + name
		}
	}
	if part != "" {
		Expect(builders.Apply(ctx, here, builders.Namespace(part))).To(Succeed())
	}
	grant(ctx, folder)
	return account
}

// may asks the API server whether a user has a right.
func may(ctx context.Context, user string, r right) func() (bool, error) {
	return func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace,
			},
		}}
		err := here.Create(ctx, review)
		return review.Status.Allowed, err
	}
}

// called is what a machine's condition says of the last check; empty if none has spoken.
func called(ctx context.Context, machine string) func() metav1.ConditionStatus {
	return func() metav1.ConditionStatus {
		m := &clusterv1.Machine{}
		Expect(here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine}, m)).To(Succeed())
		if c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition); c != nil {
			return c.Status
		}
		return ""
	}
}

func withKind(o client.Object) client.Object {
	GinkgoHelper()
	kind, err := here.GroupVersionKindFor(o)
	Expect(err).NotTo(HaveOccurred())
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}

// leases are those on nodes.
func leases(ctx context.Context) func() ([]coordinationv1.Lease, error) {
	return func() ([]coordinationv1.Lease, error) {
		list := &coordinationv1.LeaseList{}
		err := here.List(ctx, list, client.InNamespace(nhcv1.DefaultLeaseNamespace))
		return list.Items, err
	}
}

// told counts the events of a reason about a check, repetitions included.
func told(ctx context.Context, check *nhcv1.NodeHealthCheck, reason string) func() int {
	return func() int {
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list)).To(Succeed())
		number := 0
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.UID == check.UID && e.Reason == reason {
				number += int(ptr.Deref(e.Series, eventsv1.EventSeries{Count: 1}).Count)
			}
		}
		return number
	}
}
