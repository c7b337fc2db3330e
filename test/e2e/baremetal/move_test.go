package baremetal

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A power cycle of a host whose cluster is moved", func() {
	It("keeps clusterctl waiting until its host is released, and continues where it was", clusterIsMoved, SpecTimeout(specPatience))
})

// clusterIsMoved lets clusterctl move two clusters in the middle of a power cycle, one for each kind of remediation.
func clusterIsMoved(ctx SpecContext) {
	By("starting the target management cluster")
	target := &pivot{}
	target.start(ctx)

	By("losing a node with a volume that is not detached")
	travels := []*journey{target.journey(ctx, ours), target.journey(ctx, theirs)} // both at once, since each takes minutes
	for _, j := range travels {
		j.loseNode(ctx)
	}
	for _, j := range travels {
		Eventually(func() bool { return outOfService(j.Node(ctx, j.lost)) }).Should(BeTrue())
		Expect(j.remembers(ctx, here)).To(Equal(memory{State: "MovingWorkload", Attempt: 1}))
	}

	By("moving the cluster, which has to wait")
	for _, j := range travels {
		j.move(ctx)
		Eventually(func() *bool { return j.now(ctx, here).Spec.Paused }).Should(HaveValue(BeTrue()))
	}
	for _, j := range travels {
		Expect(j.now(ctx, target.client)).To(BeNil(), "nothing is moved while a host is kept powered off")
		Expect(j.Host(j.lost).Powered()).To(BeFalse())
	}

	By("detaching the volume")
	for _, j := range travels {
		Expect(j.There.Delete(ctx, j.volume)).To(Succeed())
	}
	for _, j := range travels {
		Eventually(j.ended).Should(Receive(BeNil()))
		Eventually(func() *clusterv1.Cluster { return j.now(ctx, here) }).Should(BeNil())
		Expect(j.now(ctx, target.client)).NotTo(BeNil())
		Expect(j.remembers(ctx, target.client)).To(HaveField("Attempt", 1), "the attempt continues")
	}

	By("waiting until the machine is healthy, in its new management cluster")
	for _, j := range travels {
		Eventually(powered(j.carrier)).Should(BeTrue())
		j.carrier.Mute(0)
		j.carrier.Kubelet().Start()
		Eventually(func() string { return j.says(ctx, target.client) }).Should(BeEmpty(), "a healthy machine is not remediated")
		Expect(j.Ready(ctx, j.lost)).To(Equal(corev1.ConditionTrue))
		Expect(changes(j.carrier.History().Since(j.began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}),
			"once, by both together: %v", j.carrier.History().Since(j.began))
		j.nothingIsLeft(ctx)
	}
}

// pivot is a second management cluster.
type pivot struct {
	plane    *rig.ControlPlane
	client   client.WithWatch
	provider *simulator.Infrastructure
}

// journey is a cluster that is moved to another management cluster.
type journey struct {
	*environment
	kind    kind
	target  *pivot
	lost    string // the power-cycled machine; its node has the same name
	carrier *simulator.Host
	volume  *storagev1.VolumeAttachment
	began   time.Time
	ended   chan error // receives the error of clusterctl move
}

// journey creates a cluster with a check and a template, all of which are moved.
func (p *pivot) journey(ctx context.Context, k kind) *journey {
	GinkgoHelper()
	name := strings.ToLower(k.name)
	env := &environment{suite.Site{Namespace: "moves-" + name, Name: "moves-" + name, ControlPlanes: 1, Workers: 2, Plane: fixture.Plane}}
	env.Build(ctx, here, provider, inPool)
	DeferCleanup(env.nodesAreDeleted) // their kubelets stop with the target management cluster
	Expect(p.provider.Serve(client.ObjectKeyFromObject(env.Cluster), env.Plane.Config())).To(Succeed())
	env.AllWell(ctx)
	check := builders.MachineHealthCheck(env.Cluster, name,
		builders.Claimed, builders.Patience(2*time.Second), builders.RemediatedBy(k.apiVersion, k.name+"Template", name))
	patient := infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 300}
	Expect(builders.Apply(ctx, here, k.template(env.Namespace, name, patient), check)).To(Succeed())
	return &journey{environment: env, kind: k, target: p, ended: make(chan error, 1)}
}

// nodesAreDeleted deletes the nodes of a cluster from the workload cluster, which it shares with other clusters.
func (env *environment) nodesAreDeleted(ctx SpecContext) {
	list := &corev1.NodeList{}
	Expect(env.There.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		if node := &list.Items[i]; strings.HasPrefix(node.Name, env.Name+"-") {
			Expect(client.IgnoreNotFound(env.There.Delete(ctx, node))).To(Succeed())
		}
	}
}

// loseNode stops the kubelet of a worker with a volume that is never detached.
func (j *journey) loseNode(ctx context.Context) {
	GinkgoHelper()
	j.lost, j.carrier = j.aWorker(ctx)
	// the remediation is deleted as soon as the machine is healthy; the spec has to see it in the new management cluster first
	j.carrier.Mute(-1)
	j.volume = &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "stays-on-" + j.lost},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "absent", NodeName: j.lost, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("volume")},
		},
	}
	Expect(j.There.Create(ctx, j.volume)).To(Succeed())
	j.began = time.Now()
	j.carrier.Kubelet().Stop()
}

func (j *journey) move(ctx context.Context) {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "clusterctl.yaml")
	Expect(os.WriteFile(config, nil, 0o600)).To(Succeed())
	go func() {
		_, err := rig.Clusterctl(ctx, config, "move", "--namespace", j.Namespace,
			"--kubeconfig", management.KubeconfigFile(), "--to-kubeconfig", j.target.plane.KubeconfigFile())
		j.ended <- err
	}()
}

// now returns the Cluster in a management cluster, or nil if it is not there.
func (j *journey) now(ctx context.Context, in client.Client) *clusterv1.Cluster {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	err := in.Get(ctx, client.ObjectKeyFromObject(j.Cluster), cluster)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return cluster
}

func (j *journey) requested() client.ObjectKey {
	return client.ObjectKey{Namespace: j.Namespace, Name: j.lost}
}

// memory is the part of a remediation's stored progress that must survive the move.
type memory struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
}

func (j *journey) remembers(ctx context.Context, in client.Client) (m memory) {
	GinkgoHelper()
	request := j.kind.empty()
	Expect(in.Get(ctx, j.requested(), request)).To(Succeed())
	Expect(json.Unmarshal([]byte(request.GetAnnotations()[mendv1.PowerCycleAnnotation]), &m)).To(Succeed())
	return m
}

// says returns the status message of the remediation, or "" if there is no remediation.
func (j *journey) says(ctx context.Context, in client.Client) string {
	request := &unstructured.Unstructured{}
	request.SetAPIVersion(j.kind.apiVersion)
	request.SetKind(j.kind.name)
	switch err := in.Get(ctx, j.requested(), request); {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return err.Error()
	}
	message, _, _ := unstructured.NestedString(request.Object, "status", "message")
	return cmp.Or(message, "nothing yet")
}

// nothingIsLeft expects no trace of the remediation on host and node, and no host in the old management cluster.
func (j *journey) nothingIsLeft(ctx context.Context) {
	GinkgoHelper()
	source := here
	here = j.target.client
	defer func() { here = source }()
	j.environment.nothingIsLeft(ctx, j.carrier, j.lost)
	left := &bmov1alpha1.BareMetalHostList{}
	Expect(source.List(ctx, left, client.InNamespace(j.Namespace))).To(Succeed())
	Expect(left.Items).To(BeEmpty())
}

func (p *pivot) start(ctx context.Context) {
	GinkgoHelper()
	p.plane = suite.Must(control.Management(ctx, rig.ManagementOptions{
		Name: "target", Core: true, Controllers: rig.OwnerControllers(), Own: true, Webhooks: true,
	}))
	p.client = clientFor(p.plane.Config())
	seen := suite.Must(hosts.SeenFrom(p.plane.Config()))
	p.provider = suite.Must(simulator.NewInfrastructure(p.plane.Config(), seen))
	suite.Beside(seen.Start)
	suite.Beside(p.provider.Start)
	account := suite.Must(p.plane.Install(ctx, "standalone"))
	suite.Must(p.plane.Kubemend(ctx, "target", account, p.plane.WebhookFlags()...))
	for _, c := range []client.Client{here, p.client} {
		labelOthers(ctx, c)
	}
}

// labelOthers adds the labels by which clusterctl move selects kinds to the CRDs of other projects. clusterctl init labels the CRDs of
// Cluster API and CAPM3. An administrator has to label BareMetalHosts, which are not part of CAPM3's release and which no Cluster owns
// (Metal3 book, CAPM3 pivoting, prerequisites). kubemend's CRDs stay as they ship.
func labelOthers(ctx context.Context, c client.Client) {
	GinkgoHelper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	Expect(c.List(ctx, list)).To(Succeed())
	for _, crd := range list.Items {
		if crd.Spec.Group == mendv1.GroupVersion.Group || strings.HasPrefix(crd.Name, "metal3remediation") {
			continue
		}
		before := crd.DeepCopy()
		metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlv1.ClusterctlLabel, "")
		if crd.Name == "baremetalhosts.metal3.io" {
			metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlv1.ClusterctlMoveLabel, "")
		}
		Expect(c.Patch(ctx, &crd, client.MergeFrom(before))).To(Succeed())
	}
}
