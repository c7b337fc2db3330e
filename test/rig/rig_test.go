package rig

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// One management control plane serves everything that is asked of a rig, and then its end.
func TestManagement(t *testing.T) {
	logs := t.TempDir()
	r, err := Start(t.Context(), Options{Log: testLog{t}, Logs: logs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() }) // where a step below has failed
	c, err := r.Management(t.Context(), ManagementOptions{Core: true, ControllerManager: true, Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("core converts v1beta1 and references to providers", func(t *testing.T) { convertsReferences(t, clientOf(t, c)) })
	t.Run("core's webhooks refuse what is wrong and set defaults", func(t *testing.T) { refusesBadChecks(t, clientOf(t, c)) })
	t.Run("everything listens on loopback alone", func(t *testing.T) { listensOnLoopback(t, r) })
	t.Run("what has lost its owner goes", func(t *testing.T) { collectsGarbage(t, clientOf(t, c)) })
	t.Run("the kubeconfig works from a file and from a Secret", func(t *testing.T) { kubeconfigs(t, c) })
	t.Run("the shipped rights apply and are audited, also over a restart of the API server", func(t *testing.T) { obeysRights(t, c) })
	t.Run("a stopped rig leaves nothing but logs, and reports what ended before", func(t *testing.T) { stopped(t, r, c, logs) })
}

// A v1beta1 reference has a version, and core has to find it on the provider's CRD.
func convertsReferences(t *testing.T, c client.Client) {
	g := expecting(t)
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "referring"},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Cluster", Name: "referring",
		}},
	}
	g.Expect(c.Create(t.Context(), cluster)).To(Succeed())
	old := &clusterv1beta1.Cluster{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(cluster), old)).To(Succeed())
	g.Expect(old.Spec.InfrastructureRef.APIVersion).To(Equal("infrastructure.cluster.x-k8s.io/v1beta2"))
}

func refusesBadChecks(t *testing.T, c client.Client) {
	g := expecting(t)
	check := &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "some"},
		Spec:       clusterv1.MachineHealthCheckSpec{ClusterName: "some", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}},
	}
	soon := check.DeepCopy()
	soon.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](29)
	g.Expect(c.Create(t.Context(), soon)).To(MatchError(ContainSubstring("must be at least 30s")))
	g.Expect(c.Create(t.Context(), check)).To(Succeed())
	g.Expect(check.Spec.Checks.NodeStartupTimeoutSeconds).To(HaveValue(BeEquivalentTo(600)))
	g.Expect(check.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "some"))
}

// listensOnLoopback looks up the sockets of every process of the rig, etcd's ports for peers and core's webhooks among
// them.
func listensOnLoopback(t *testing.T, r *Rig) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports which process listens where")
	}
	g := expecting(t)
	ours := map[string]bool{}
	for _, process := range processesOf(r.folder) {
		handles, err := filepath.Glob("/proc/" + process + "/fd/*")
		g.Expect(err).NotTo(HaveOccurred())
		for _, handle := range handles {
			to, _ := os.Readlink(handle) // a connection may be closed meanwhile
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				ours[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	listeners := 0
	for table, loopback := range map[string]string{"/proc/net/tcp": "0100007F", "/proc/net/tcp6": strings.Repeat("0", 24) + "01000000"} {
		content, err := os.ReadFile(table)
		g.Expect(err).NotTo(HaveOccurred())
		for _, line := range bytes.Split(content, []byte("\n")) {
			const address, state, inode, listening = 1, 3, 9, "0A"
			words := strings.Fields(string(line))
			if len(words) <= inode || words[state] != listening || !ours[words[inode]] {
				continue
			}
			listeners++
			g.Expect(words[address]).To(HavePrefix(loopback+":"), table)
		}
	}
	g.Expect(listeners).To(BeNumerically(">=", 6), "etcd twice, kube-apiserver, kube-controller-manager, core twice")
}

func collectsGarbage(t *testing.T, c client.Client) {
	g := expecting(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "owner"}}
	g.Expect(c.Create(t.Context(), owner)).To(Succeed())
	owned := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: Metal3Remediation
metadata: {namespace: default, name: owned}
spec: {strategy: {type: Reboot}}
`), &owned.Object)).To(Succeed())
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
	g.Expect(c.Create(t.Context(), owned)).To(Succeed())
	g.Expect(c.Delete(t.Context(), owner)).To(Succeed())
	g.Eventually(func(ctx context.Context) bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(owned), owned))
	}).WithContext(t.Context()).Should(BeTrue())
}

func kubeconfigs(t *testing.T, c *ControlPlane) {
	g := expecting(t)
	fromFile, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigFile())
	g.Expect(err).NotTo(HaveOccurred())
	secret := KubeconfigSecret(client.ObjectKey{Namespace: "default", Name: "some"}, c)
	g.Expect(secret.Name).To(Equal("some-kubeconfig"))
	g.Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "some"))
	g.Expect(secret.Type).To(Equal(clusterv1.ClusterSecretType))
	admin, err := client.New(fromFile, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Create(t.Context(), secret)).To(Succeed())
	g.Expect(as(t, secret.Data["value"]).Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})).To(Succeed())
}

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

func obeysRights(t *testing.T, c *ControlPlane) {
	g, ctx := expecting(t), t.Context()
	installed, err := c.Install(ctx, "default")
	g.Expect(err).NotTo(HaveOccurred())
	there, err := c.GrantWorkloadUser(ctx, "kubemend-workload-reader")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(as(t, installed).List(ctx, &corev1.SecretList{})).To(Succeed())
	g.Expect(apierrors.IsForbidden(as(t, installed).List(ctx, &corev1.ConfigMapList{}))).To(BeTrue())
	g.Expect(as(t, there).List(ctx, &corev1.NodeList{})).To(Succeed())
	g.Expect(apierrors.IsForbidden(as(t, there).List(ctx, &corev1.PodList{}))).To(BeTrue(), "that is in the other role")

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
	address := c.apiPort.address()
	g.Expect(c.StopAPIServer(ctx)).To(Succeed())
	g.Expect(dial(address)).NotTo(Succeed())
	g.Expect(c.StopAPIServer(ctx)).NotTo(Succeed(), "it does not run")
	if runtime.GOOS == "linux" {
		passerby := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.apiPort.number}}
		_, err := passerby.Dial("tcp", c.etcdPort.address())
		g.Expect(err).To(MatchError(syscall.EADDRINUSE), "the port is kept from passers-by")
	}
	g.Expect(c.StartAPIServer(ctx)).To(Succeed())
	g.Expect(c.StartAPIServer(ctx)).NotTo(Succeed(), "it runs already")
	g.Expect(c.apiPort.address()).To(Equal(address))
	g.Expect(noted()).To(Equal(want), "what was noted is kept")
	kept := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "some"}
	g.Expect(clientOf(t, c).Get(ctx, kept, &clusterv1.MachineHealthCheck{})).To(Succeed(), "and so are objects")
}

func stopped(t *testing.T, r *Rig, c *ControlPlane, logs string) {
	g := expecting(t)
	p := c.running[etcd]
	g.Expect(p.reaper.Close()).To(Succeed())
	g.Eventually(p.ended).Should(BeClosed())
	g.Expect(r.Stop()).To(MatchError(ContainSubstring("management-etcd ended by itself")))
	g.Expect(r.folder).NotTo(BeADirectory(), "Stop returns when all is gone")
	nothingLeft(g, r.folder, c.apiPort.address(), c.etcdPort.address())
	content, err := os.ReadFile(filepath.Join(logs, "management-kube-apiserver.log"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).NotTo(BeEmpty())
	_, err = r.Workload(t.Context(), "late", WorkloadOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("the rig is stopped")))
}

func nothingLeft(g *WithT, folder string, addresses ...string) {
	g.Eventually(folder).ShouldNot(BeADirectory())
	g.Eventually(func() []string { return processesOf(folder) }).Should(BeEmpty())
	for _, address := range addresses {
		g.Expect(dial(address)).NotTo(Succeed(), address)
	}
}

func dial(address string) error {
	connection, err := net.Dial("tcp", address)
	if err == nil {
		_ = connection.Close()
	}
	return err
}

func TestARigWhoseOwnerIsKilledOrphansNothing(t *testing.T) {
	g := expecting(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), partEnv+"=owner")
	out, err := owner.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(owner.Start()).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	words := strings.Fields(line)
	g.Expect(words).To(HaveLen(3))
	g.Expect(dial(words[1])).To(Succeed())

	g.Expect(owner.Process.Kill()).To(Succeed())
	g.Expect(owner.Wait()).NotTo(Succeed())
	nothingLeft(g, words[0], words[1:]...)
}
