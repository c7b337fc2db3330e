package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/rights"
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

// asked is the answer of the manager to an authenticated client without the right to read its metrics.
func asked(ctx context.Context) func() (int, error) {
	GinkgoHelper()
	powerless := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "powerless"}}
	Expect(here.Create(ctx, powerless)).To(Succeed())
	token := &authenticationv1.TokenRequest{}
	Expect(here.SubResource("token").Create(ctx, powerless, token)).To(Succeed())
	// Its certificate is one that it has made itself.
	anybody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	DeferCleanup(anybody.CloseIdleConnections)
	return func() (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(manager.Metrics, "http:", "https:", 1), http.NoBody)
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+token.Status.Token)
		response, err := anybody.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
}

// mayListSecrets asks the API server whether the manager may, in a namespace.
func mayListSecrets(ctx context.Context, where string) func() (bool, error) {
	return may(ctx, rig.Account, right{verb: "list", resource: "secrets", namespace: where})
}
