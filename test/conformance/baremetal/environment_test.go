package baremetal

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/suite"
	"github.com/kubemend/kubemend/test/testclock"
)

// neighbour is the name of a machine's host, and of a node, that no remediation is about.
const neighbour = "neighbour"

// timeout is that of the attempts of all remediations here.
const timeout = 10 * time.Minute

// blockMove keeps clusterctl from moving what has it.
const blockMove = "clusterctl.cluster.x-k8s.io/block-move"

// environment is a Cluster in a namespace of its own, with controllers and a clock of its own, and remediations of one kind.
type environment struct {
	kind
	wanted      wanted
	namespace   string
	cluster     *clusterv1.Cluster
	clock       *testclock.Clock
	plan        *faultproxy.Plan
	controllers *controllers
	log         *record
	members     []*member
	// nodesGoByHand says that it is the spec that deletes nodes.
	nodesGoByHand bool
}

func newEnvironment(ctx context.Context, k kind) *environment {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scene-"}}
	Expect(here.Create(ctx, namespace)).To(Succeed())
	s := &environment{kind: k, namespace: namespace.Name, clock: testclock.New(), log: &record{}}
	s.begin(0, "")
	kubeconfig, err := way.Workload(s.namespace)
	Expect(err).NotTo(HaveOccurred())
	s.cluster = builders.Cluster(s.namespace, "c1")
	s.create(ctx,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.namespace, Name: secret.Name(s.cluster.Name, secret.Kubeconfig), Labels: map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			},
			Type: clusterv1.ClusterSecretType, Data: map[string][]byte{secret.KubeconfigDataName: kubeconfig},
		},
		s.cluster,
		// Paused, so that whatever happens to this host is our doing.
		builders.BareMetalHost(s.namespace, neighbour, builders.ExternallyDeployed, builders.ConsumedBy("someone"),
			builders.Annotated[*bmov1alpha1.BareMetalHost](bmov1alpha1.PausedAnnotation, "test")),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + neighbour}},
	)
	s.cluster.Status = builders.Standing()
	Expect(here.Status().Update(ctx, s.cluster)).To(Succeed())
	return s
}

// begin begins to count writes anew, and decides the fate of one of them.
func (s *environment) begin(nth int, f faultproxy.Fate) {
	s.plan = way.Expect(s.namespace, nth, f)
	s.plan.Refuse(misdirected)
}

// refuse lets requests to the workload cluster fail with the status that is returned, if one is.
func (s *environment) refuse(status func(faultproxy.Call) int) {
	s.plan.Refuse(func(c faultproxy.Call) int {
		if c.Workload {
			if code := status(c); code != 0 {
				return code
			}
		}
		return misdirected(c)
	})
}

func (s *environment) create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(here.Create(ctx, o)).To(Succeed())
	}
}

// end is to be deferred. It stops all that belongs to the environment, checks that nothing was unsafe, and reports the objects if the spec has
// failed.
func (s *environment) end() {
	failure := recover()
	if failure != nil {
		AddReportEntry(s.Kind.Kind+" in "+s.namespace, s.dump())
	}
	s.kill()
	s.clock.Stop()
	var stops sync.WaitGroup
	for _, m := range s.members {
		stops.Go(m.kubelet.Retire)
	}
	stops.Wait()
	if failure != nil {
		panic(failure)
	}
	s.wasSafe()
	s.goes()
	history.forget(s.namespace)
}

// goes removes what other environments would have to reconcile: all have one workload cluster.
func (s *environment) goes() {
	GinkgoHelper()
	for _, name := range append([]string{neighbour}, s.names()...) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name}}
		Expect(client.IgnoreNotFound(here.Delete(context.Background(), node))).To(Succeed())
	}
}

func (s *environment) names() []string {
	names := make([]string, 0, len(s.members))
	for _, m := range s.members {
		names = append(names, m.name)
	}
	return names
}

// wasSafe checks all that has happened.
func (s *environment) wasSafe() {
	GinkgoHelper()
	for _, m := range s.members {
		m.isWrittenDown(context.Background())
	}
	Expect(history.faults(s.namespace, s.nodesGoByHand)).To(BeEmpty())
}

// dump is all that may help to see why a spec has failed.
func (s *environment) dump() string {
	var text strings.Builder
	for _, m := range history.of(s.namespace) {
		switch o := m.object.(type) {
		case *bmov1alpha1.BareMetalHost:
			_, _ = fmt.Fprintf(&text, "%d host %s: %v on %t %s %s\n", m.revision, o.Name, o.Annotations, o.Status.PoweredOn, o.Status.Provisioning.State, o.Status.ErrorMessage)
		case *corev1.Node:
			_, _ = fmt.Fprintf(&text, "%d node %s gone %t: %v %v %v\n", m.revision, o.Name, m.gone, o.Annotations, o.Spec.Taints, suite.Readiness(o))
		case *clusterv1.Machine:
			_, _ = fmt.Fprintf(&text, "%d machine %s gone %t: %+v\n", m.revision, o.Name, m.gone, o.Status.Conditions)
		default:
			_, _ = fmt.Fprintf(&text, "%d %T %s gone %t: %v %v %+v\n",
				m.revision, o, o.GetName(), m.gone, o.GetFinalizers(), o.GetAnnotations(), builders.ReportOf(o))
		}
	}
	written, _ := s.plan.Written()
	_, _ = fmt.Fprintf(&text, "written: %q\n%s", written, s.log.tail())
	return text.String()
}

// bothKinds is a spec that runs for each kind of remediation, for both at the same time.
func bothKinds(text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		suite.AtOnce(crowd, len(kinds), func(i int) {
			s := newEnvironment(ctx, kinds[i])
			defer s.end()
			body(ctx, s)
		})
	})
}

// oneKind is a spec that runs for one kind alone: test/faults/hosts tries both in memory.
func oneKind(k kind, text string, body func(context.Context, *environment)) {
	GinkgoHelper()
	It(text, func(ctx SpecContext) {
		s := newEnvironment(ctx, k)
		defer s.end()
		body(ctx, s)
	})
}

// crowd is how many environments are played at the same time.
const crowd = 10
