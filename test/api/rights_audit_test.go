package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/rights"
	"github.com/kubemend/kubemend/test/suite"
)

// audited are the requests of kubemend so far.
func audited() []auditv1.Event {
	GinkgoHelper()
	events, err := plane.Audited()
	Expect(err).NotTo(HaveOccurred())
	return events
}

func granted(roles []unstructured.Unstructured) []rights.Grant {
	GinkgoHelper()
	grants, err := rights.Granted(roles)
	Expect(err).NotTo(HaveOccurred())
	return grants
}

func texts[T fmt.Stringer](all []T) []string {
	found := make([]string, 0, len(all))
	for _, one := range all {
		found = append(found, one.String())
	}
	return found
}

// asked is the answer of the manager to who wants to read its metrics: a ServiceAccount, or nobody.
func asked(ctx context.Context, reader *corev1.ServiceAccount) func() (int, error) {
	GinkgoHelper()
	token := &authenticationv1.TokenRequest{}
	if reader != nil {
		Expect(here.SubResource("token").Create(ctx, reader, token)).To(Succeed())
	}
	// Its certificate is one that it has made itself.
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

// mayRead gives a ServiceAccount the right that ships for Prometheus.
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

// mayListSecrets asks the API server whether the manager may, in a namespace.
func mayListSecrets(ctx context.Context, where string) func() (bool, error) {
	return may(ctx, rig.Account, right{verb: "list", resource: "secrets", namespace: where})
}
