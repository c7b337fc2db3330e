package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/rights"
	"github.com/kubemend/kubemend/test/suite"
)

// A right is a verb on a resource. Without a namespace it holds in all namespaces.
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

// hasNoLeasesOfOthers asks for rights without naming an object. Leases show which nodes are alive and which controllers lead, and a right
// to create a Namespace is a right to create any.
func hasNoLeasesOfOthers(ctx SpecContext) {
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, where := range []string{"", "kube-node-lease", "kube-system", namespace} {
			Expect(may(ctx, rig.Account, right{verb, "coordination.k8s.io", "leases", where})()).
				To(BeFalse(), "%s leases in %q", verb, where)
		}
		Expect(may(ctx, rig.Account, right{verb, "", "namespaces", ""})()).To(BeFalse(), verb)
	}
	for _, verb := range []string{"get", "list", "watch"} {
		for _, where := range []string{"", "kube-node-lease", namespace} {
			Expect(may(ctx, rig.Account, right{verb, "coordination.k8s.io", "leases", where})()).
				To(BeFalse(), "%s leases in %q", verb, where)
		}
	}
}

// shard installs the rights of an example shard for a part of the fleet, and returns the user name of its ServiceAccount.
func shard(ctx context.Context, example, part string) string {
	GinkgoHelper()
	folder := filepath.Join("..", "docs", "examples", example)
	shipped := suite.Must(control.Shipped(ctx, folder))
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

// healthCheckStatus returns the status of the condition that the last MachineHealthCheck wrote on a machine, or "".
func healthCheckStatus(ctx context.Context, machine string) func() metav1.ConditionStatus {
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
	kind := suite.Must(here.GroupVersionKindFor(o))
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}

// leases returns the leases on nodes.
func leases(ctx context.Context) func() ([]coordinationv1.Lease, error) {
	return func() ([]coordinationv1.Lease, error) {
		list := &coordinationv1.LeaseList{}
		err := here.List(ctx, list, client.InNamespace(nhcv1.DefaultLeaseNamespace))
		return list.Items, err
	}
}

// countEvents counts the events with a reason about a check, repetitions included.
func countEvents(ctx context.Context, check *nhcv1.NodeHealthCheck, reason string) func() int {
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

func audited() []auditv1.Event {
	GinkgoHelper()
	events := suite.Must(plane.Audited())
	return events
}

func granted(roles []unstructured.Unstructured) []rights.Grant {
	GinkgoHelper()
	grants := suite.Must(rights.Granted(roles))
	return grants
}

func texts[T fmt.Stringer](all []T) []string {
	found := make([]string, 0, len(all))
	for _, one := range all {
		found = append(found, one.String())
	}
	return found
}

// metricsStatus requests the manager's metrics with the token of a ServiceAccount, or without one, and returns the HTTP status.
func metricsStatus(ctx context.Context, reader *corev1.ServiceAccount) func() (int, error) {
	GinkgoHelper()
	token := &authenticationv1.TokenRequest{}
	if reader != nil {
		Expect(here.SubResource("token").Create(ctx, reader, token)).To(Succeed())
	}
	// The manager serves with a self-signed certificate.
	anybody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	DeferCleanup(anybody.CloseIdleConnections)
	return func() (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(manager.Metrics, "http:", "https:", 1), http.NoBody)
		if err != nil {
			return 0, err
		}
		if reader != nil {
			request.Header.Set("Authorization", "Bearer "+token.Status.Token)
		}
		response, err := anybody.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
}

// mayRead gives a ServiceAccount the ClusterRole that ships for Prometheus.
func mayRead(ctx context.Context, reader *corev1.ServiceAccount) {
	GinkgoHelper()
	objects := suite.Manifest(filepath.Join(root, "config", "observability", "prometheus-rbac.yaml"))
	role := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ClusterRole" })]
	Expect(here.Create(ctx, role)).To(Succeed())
	Expect(here.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.GetName()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.GetName()},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: reader.Namespace, Name: reader.Name}},
	})).To(Succeed())
}

// mayListSecrets asks the API server whether the manager may list Secrets in a namespace.
func mayListSecrets(ctx context.Context, where string) func() (bool, error) {
	return may(ctx, rig.Account, right{verb: "list", resource: "secrets", namespace: where})
}

// kindsOfOurs returns the shipped CRDs that the manager migrates. Records have one version, and ended records are deleted after a while.
func kindsOfOurs(ctx context.Context) []apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	Expect(here.List(ctx, list)).To(Succeed())
	return slices.DeleteFunc(list.Items, func(crd apiextensionsv1.CustomResourceDefinition) bool {
		_, err := os.Stat(filepath.Join(ownKinds, crd.Spec.Group+"_"+crd.Spec.Names.Plural+".yaml"))
		return err != nil || crd.Name == records.CRD || strings.HasPrefix(crd.Name, "remediationpolic") ||
			strings.HasPrefix(crd.Name, "remediationoverride") // these have one version
	})
}

// ofFormerRelease adds a second version to a CRD that has only one. The label marks CRDs that were installed with kubemend.
func ofFormerRelease(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	before := crd.DeepCopy()
	metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterv1.ProviderNameLabel, "addon-kubemend")
	if len(crd.Spec.Versions) == 1 {
		former := *crd.Spec.Versions[0].DeepCopy()
		former.Name, former.Storage = "v1alpha0", false
		crd.Spec.Versions = append(crd.Spec.Versions, former)
	}
	Expect(here.Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
}

func touched(ctx context.Context, version string, object client.Object) {
	GinkgoHelper()
	kind := suite.Must(here.GroupVersionKindFor(object))
	at := &unstructured.Unstructured{}
	at.SetGroupVersionKind(kind.GroupKind().WithVersion(version))
	at.SetNamespace(object.GetNamespace())
	at.SetName(object.GetName())
	Eventually(func() error {
		return here.Patch(ctx, at, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"written-at":"`+version+`"}}}`)))
	}).Should(Succeed())
}

// ofThisRelease makes a CRD serve only its storage version, and lists all its versions as stored.
func ofThisRelease(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	Expect(here.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage
	}
	Expect(here.Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
	before = crd.DeepCopy()
	crd.Status.StoredVersions = nil
	for _, version := range crd.Spec.Versions {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, version.Name)
	}
	Expect(here.Status().Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
}
