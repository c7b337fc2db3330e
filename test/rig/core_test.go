package rig

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// One management control plane serves what only reads or keeps apart by names.
func TestManagement(t *testing.T) {
	r := started(t)
	c, err := r.Management(t.Context(), ManagementOptions{Core: true, ControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("core converts v1beta1", func(t *testing.T) { convertsOldVersions(t, clientOf(t, c)) })
	t.Run("core converts references to providers", func(t *testing.T) { convertsReferences(t, clientOf(t, c)) })
	t.Run("core's webhooks refuse what is wrong", func(t *testing.T) { refusesBadChecks(t, clientOf(t, c)) })
	t.Run("core's webhooks set defaults", func(t *testing.T) { setsDefaults(t, clientOf(t, c)) })
	t.Run("everything listens on loopback alone", func(t *testing.T) { listensOnLoopback(t, r) })
	t.Run("what has lost its owner goes", func(t *testing.T) { collectsGarbage(t, clientOf(t, c)) })
	t.Run("a user may do what RBAC says", func(t *testing.T) { obeysRBAC(t, c) })
	t.Run("core ends with the process that started it", func(t *testing.T) { endsWhenLeft(t, r, c) })
	t.Run("the kubeconfig works from a file and from a Secret", func(t *testing.T) { kubeconfigs(t, c) })
}

func oldCheck(name string) *clusterv1beta1.MachineHealthCheck {
	return &clusterv1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: clusterv1beta1.MachineHealthCheckSpec{
			ClusterName:  "some",
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
			MaxUnhealthy: ptr.To(intstr.FromString("40%")),
			UnhealthyConditions: []clusterv1beta1.UnhealthyCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: 90e9}},
			},
		},
	}
}

func newCheck(name string) *clusterv1.MachineHealthCheck {
	return &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: "some",
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
		},
	}
}

func convertsOldVersions(t *testing.T, c client.Client) {
	g := expecting(t)
	old := oldCheck("old")
	g.Expect(c.Create(t.Context(), old)).To(Succeed())
	converted := &clusterv1.MachineHealthCheck{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(old), converted)).To(Succeed())
	g.Expect(converted.Spec.Checks.UnhealthyNodeConditions).To(HaveLen(1))
	g.Expect(converted.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(90)))
	g.Expect(converted.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo.String()).To(Equal("40%"))

	back := &clusterv1beta1.MachineHealthCheck{}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(old), back)).To(Succeed())
	g.Expect(back.Spec.UnhealthyConditions).To(Equal(old.Spec.UnhealthyConditions))
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
	soon := newCheck("soon")
	soon.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](29)
	g.Expect(c.Create(t.Context(), soon)).To(MatchError(ContainSubstring("must be at least 30s")))
	all := oldCheck("all")
	all.Spec.Selector = metav1.LabelSelector{}
	g.Expect(c.Create(t.Context(), all)).To(MatchError(ContainSubstring("selector must not be empty")))
}

func setsDefaults(t *testing.T, c client.Client) {
	g := expecting(t)
	check := newCheck("defaults")
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
	for _, address := range otherAddresses(g) {
		for _, p := range r.planes["management"].ports {
			g.Expect(dial(net.JoinHostPort(address, p.String()))).NotTo(Succeed())
		}
	}
}

// otherAddresses are those of this machine by which others could reach it.
func otherAddresses(g *WithT) []string {
	all, err := net.InterfaceAddrs()
	g.Expect(err).NotTo(HaveOccurred())
	var other []string
	for _, address := range all {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			other = append(other, network.IP.String())
		}
	}
	return other
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

func obeysRBAC(t *testing.T, c *ControlPlane) {
	g := expecting(t)
	config, _, err := c.User("reader", "readers")
	g.Expect(err).NotTo(HaveOccurred())
	reader, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	list := func(ctx context.Context) error { return reader.List(ctx, &clusterv1.MachineList{}) }
	g.Expect(apierrors.IsForbidden(list(t.Context()))).To(BeTrue())

	admin := clientOf(t, c)
	g.Expect(admin.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"machines"}, Verbs: []string{"list"}}},
	})).To(Succeed())
	g.Expect(admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	})).To(Succeed())
	g.Eventually(list).WithContext(t.Context()).Should(Succeed())
}

// endsWhenLeft runs core without a reaper.
func endsWhenLeft(t *testing.T, r *Rig, c *ControlPlane) {
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"its input closes": func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
		"SIGTERM":          func(core *exec.Cmd, _ io.Closer) error { return core.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			g := expecting(t)
			hooks, err := c.reservePort()
			g.Expect(err).NotTo(HaveOccurred())
			health, err := c.reservePort()
			g.Expect(err).NotTo(HaveOccurred())
			program := exec.Command(filepath.Join(string(r.binaries), string(core)), "--kubeconfig="+c.KubeconfigFile(), "--webhook-cert-dir="+c.folder,
				"--webhook-port="+hooks.String(), "--health-port="+health.String(), "--leave-out=MachineHealthCheck,Cluster")
			stdin, err := program.StdinPipe()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(program.Start()).To(Succeed())
			ended := make(chan error, 1)
			go func() { ended <- program.Wait() }()
			g.Eventually(answersOK(http.DefaultClient, "http://"+health.address()+"/readyz")).WithContext(t.Context()).Should(Succeed())
			g.Expect(end(program, stdin)).To(Succeed())
			g.Eventually(ended).Should(Receive(BeNil()))
		})
	}
	t.Run("it has no such controller", func(t *testing.T) {
		program := exec.Command(filepath.Join(string(r.binaries), string(core)), "--kubeconfig="+c.KubeconfigFile(), "--leave-out=Nonsense")
		said, err := program.CombinedOutput()
		g := expecting(t)
		g.Expect(err).To(HaveOccurred())
		g.Expect(string(said)).To(ContainSubstring("Nonsense"))
	})
}
