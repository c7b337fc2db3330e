package rig

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// as is a client with a kubeconfig.
func as(t *testing.T, kubeconfig []byte) client.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTheShippedRightsApplyAndAreAudited(t *testing.T) {
	g := expecting(t)
	c, err := started(t).Workload(t.Context(), "workload", WorkloadOptions{Bare: true, Audit: true})
	g.Expect(err).NotTo(HaveOccurred())
	installed, err := c.Install(t.Context(), "default")
	g.Expect(err).NotTo(HaveOccurred())
	there, err := c.GrantWorkloadUser(t.Context(), "kubemend-workload-reader")
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(as(t, installed).List(t.Context(), &corev1.SecretList{})).To(Succeed())
	g.Expect(apierrors.IsForbidden(as(t, installed).List(t.Context(), &corev1.ConfigMapList{}))).To(BeTrue())
	g.Expect(as(t, there).List(t.Context(), &corev1.NodeList{})).To(Succeed())
	g.Expect(apierrors.IsForbidden(as(t, there).List(t.Context(), &corev1.PodList{}))).To(BeTrue(), "that is in the other role")
	g.Expect(clientOf(t, c).List(t.Context(), &corev1.ServiceList{})).To(Succeed(), "by an administrator")

	noted := func() map[string]int {
		events, err := c.Audited()
		g.Expect(err).NotTo(HaveOccurred())
		codes := map[string]int{}
		for i := range events {
			if e := &events[i]; e.ObjectRef != nil && e.ResponseStatus != nil {
				codes[e.User.Username+" "+e.Verb+" "+e.ObjectRef.Resource] = int(e.ResponseStatus.Code)
			}
		}
		return codes
	}
	want := map[string]int{
		Account + " list secrets": 200, Account + " list configmaps": 403, WorkloadUser + " list nodes": 200, WorkloadUser + " list pods": 403,
	}
	g.Eventually(noted).Should(Equal(want))
	g.Expect(c.StopAPIServer(t.Context())).To(Succeed())
	g.Expect(c.StartAPIServer(t.Context())).To(Succeed())
	g.Expect(noted()).To(Equal(want), "what was noted is kept")
}
