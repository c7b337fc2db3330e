package rig

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func kubeconfigs(t *testing.T, c *ControlPlane) {
	g := expecting(t)
	fromFile, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigFile())
	g.Expect(err).NotTo(HaveOccurred())
	secret := KubeconfigSecret(client.ObjectKey{Namespace: "default", Name: "some"}, c)
	g.Expect(secret.Name).To(Equal("some-kubeconfig"))
	g.Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "some"))
	g.Expect(secret.Type).To(Equal(clusterv1.ClusterSecretType))
	fromSecret, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	g.Expect(err).NotTo(HaveOccurred())

	admin, err := client.New(fromFile, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Create(t.Context(), secret)).To(Succeed())
	admin, err = client.New(fromSecret, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})).To(Succeed())
}
