// Package hosts tries the remediation of hosts with every fault and in every order of events, for both kinds of remediations, in memory.
//
// The controllers of package hostremediation are real, with the state machine of a power cycle and the adapters for hosts and nodes.
// Simulated are the API servers, the host with its kubelet, BMO (by the model of package bmo), and the controllers of the workload cluster.
// All have one clock, which moves only when none of them has anything left to do. Informers, schemas and connections are not simulated.
package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/faults"
	"github.com/kubemend/kubemend/test/inmemory"
	"github.com/kubemend/kubemend/test/must"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

var (
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

	nodeKind     = corev1.SchemeGroupVersion.WithKind("Node")
	betweenKind  = infrav1.GroupVersion.WithKind("Metal3Machine")
	clusterKey   = client.ObjectKey{Namespace: "ns", Name: "c1"}
	scheme       = newScheme()
	theHost      = client.ObjectKey{Namespace: "ns", Name: "w"} // also the name of its Machine, Metal3Machine and remediation
	theNode      = client.ObjectKey{Name: "node-w"}
	theNeighbour = "neighbour" // the name of a host and a node without a remediation
)

// timeout is the timeout of every attempt.
const timeout = 10 * time.Minute

// reporter has what an environment needs of a test of the standard library or of rapid.
type reporter interface {
	Helper()
	Context() context.Context
	Errorf(format string, of ...any)
	Fatal(of ...any)
	Fatalf(format string, of ...any)
}

// environment is a machine on a host in a workload cluster, with the controller of one kind of remediations.
type environment struct {
	t reporter
	kind
	// as has the settings of this environment.
	as settings

	// at is the name of its host, Machine, Metal3Machine and remediation; nodeName is the name of its node.
	at       client.ObjectKey
	nodeName string

	clock            *clocktesting.FakePassiveClock
	management, work *server
	writes           *faults.Writes
	box              *box
	pods             *pods
	controller       *hostremediation.Reconciler
	// due is when a requeue of the controller is due; zero if there is none.
	due time.Time
	// seen is how many changes the controller has seen; tries is how often it has failed in a row.
	seen, tries int
	// down is the time until which the controllers do not run after a crash.
	down     time.Time
	restarts int
	uids     int
	// alarm is when something happens from outside; zero if nothing does.
	alarm time.Time
	// label names the run of a campaign; last is the last error of the controller.
	label string
	last  error
	// script has the cues that are still to come.
	script []cue
	// first is the number of writes before the first cue, whose time would change if one of them failed; it is negative before the cue.
	first int
	// plane is the control plane of the host; nil if none is simulated.
	plane *plane
	// unsafe has the violations of safety rules.
	unsafe []string
	safety safety
}

// settings are the options of an environment.
type settings struct {
	// machine, host and box edit the initial objects.
	machine func(*clusterv1.Machine)
	host    func(*bmov1alpha1.BareMetalHost)
	box     func(*box)
	// noNode means that the machine never had a node, empty that nothing runs on the node, healthy that the node is Ready at first.
	noNode, empty, healthy bool
	// nodeCheck makes the remediation look as if a NodeHealthCheck had created it.
	nodeCheck bool
	// downtime is how long the controllers do not run after a crash.
	downtime time.Duration
	// controlPlane means that the machine is part of a control plane.
	controlPlane bool
	// apiServer means that the API server of the workload cluster runs on the host.
	apiServer bool
	// remembers means that the controllers do not crash, so they must forget nothing.
	remembers bool
	// mayRecycle means that there may be more power cycles than attempts.
	mayRecycle bool
}

// newEnvironment returns an environment in which the node has failed and its remediation exists.
func newEnvironment(t reporter, k kind, as settings) *environment {
	t.Helper()
	e := newBare(t, k, as)
	cluster := builders.Cluster(clusterKey.Namespace, clusterKey.Name)
	of := builders.BareMetalHost(e.at.Namespace, theNeighbour, builders.ExternallyDeployed, builders.ConsumedBy("someone"))
	beside := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: theNeighbour}}
	e.management = newServer(e.clock, kindsOfManagement, append(e.objects(cluster), e.named(cluster), e.named(of))...)
	e.work = newServer(e.clock, kindsOfWorkload, e.named(beside))
	e.furnish()
	e.management.after, e.work.after = e.check, e.check
	e.start()
	e.begin()
	return e
}

// newBare returns an environment without objects.
func newBare(t reporter, k kind, as settings) *environment {
	return &environment{
		t: t, kind: k, as: as, at: theHost, nodeName: theNode.Name, first: -1,
		clock: clocktesting.NewFakePassiveClock(noon), writes: &faults.Writes{},
	}
}

// objects returns the Machine, its host, and its Metal3Machine.
func (e *environment) objects(cluster *clusterv1.Cluster) []client.Object {
	m := builders.Worker(cluster, e.at.Name)
	if e.as.controlPlane {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	if e.as.machine != nil {
		e.as.machine(m)
	}
	h := builders.BareMetalHost(e.at.Namespace, e.at.Name, builders.Deployed, builders.ConsumedBy(e.at.Name))
	h.Status.PoweredOn, h.Status.OperationalStatus = true, bmov1alpha1.OperationalStatusOK
	h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
	if e.as.host != nil {
		e.as.host(h)
	}
	between := builders.Metal3Machine(m)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: e.at.String()})
	if !e.as.noNode {
		m.Status.NodeRef.Name = e.nodeName
	}
	return []client.Object{e.named(m), e.named(between), e.named(h)}
}

// furnish creates the host and what runs on it.
func (e *environment) furnish() {
	e.box = &box{e: e, model: bmo.Host{Waits: bmo.Real(), Times: bmo.Times{PowerOff: takesPower, PowerOn: takesPower}}}
	e.box.model.Install(true, noon)
	e.pods = &pods{e: e}
	if !e.as.noNode {
		e.box.start()
		e.populate()
	}
	if e.as.box != nil {
		e.as.box(e.box)
	}
}

// named gives an object a unique UID.
func (e *environment) named(o client.Object) client.Object {
	e.uids++
	o.SetUID(types.UID(fmt.Sprintf("put-%d", e.uids)))
	return o
}

// populate puts pods and a volume on the node.
func (e *environment) populate() {
	e.t.Helper()
	if e.as.empty {
		return
	}
	e.box.writes = true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "web"}, Spec: corev1.PodSpec{NodeName: e.nodeName}}
	volume := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "volume"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "absent", NodeName: e.nodeName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("volume")},
	}}
	for _, o := range []client.Object{pod, volume} {
		e.do(e.work.Create(e.t.Context(), e.named(o)))
	}
}

// begin makes the kubelet silent and creates the remediation, as a health check does.
func (e *environment) begin() {
	e.t.Helper()
	if !e.as.noNode && !e.as.healthy {
		e.box.hang()
		e.pods.step(e.clock.Now())
	}
	e.request()
}

func (e *environment) request() {
	e.t.Helper()
	for _, former := range e.records() { // its controller ends the record of a request that is gone
		former = former.DeepCopy()
		former.Status.Ended = new(metav1.NewTime(e.clock.Now()))
		e.do(e.management.Update(e.t.Context(), former))
	}
	m := e.machine()
	rem := metav1.ObjectMeta{
		Namespace: e.at.Namespace, Name: e.at.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterKey.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}},
	}
	if e.as.nodeCheck {
		check := metav1.OwnerReference{APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "workers", UID: "check-uid"}
		rem.OwnerReferences = append([]metav1.OwnerReference{check}, rem.OwnerReferences...)
		rem.Labels = map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"}
	}
	seconds := int32(timeout / time.Second)
	e.do(e.management.Create(e.t.Context(), e.named(e.make(rem, infrav1.RemediationStrategy{
		Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: seconds,
	}))))
}

// start starts the controllers without any memory.
func (e *environment) start() {
	e.lag(false)
	live := e.writes.Client(e.management)
	behind := client.WithFieldOwner(inmemory.Cached(live, e.management.cache, e.writes), mendv1.FieldOwner)
	view := site{e: e, live: e.writes.Client(e.work)}
	nodes := fence.Nodes{Clusters: view}
	written := &records.Records{
		Client: behind, Live: live, Clock: e.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	e.controller = &hostremediation.Reconciler{
		Kind: e.Kind, Client: behind, Live: live, Hosts: &host.Hosts{Client: behind, Live: live}, Clusters: view,
		Nodes: nodes, Gate: &begin.Gate{Clock: e.clock}, Records: written, Recorder: &events.FakeRecorder{}, Clock: e.clock,
		Unwatched: true,
		Installed: func() ([]remediation.Kind, error) {
			return []remediation.Kind{remediation.Metal3, remediation.Own}, nil
		},
	}
	if e.as.controlPlane {
		e.controller.Reader = func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
			return view.GetUncachedClient(ctx, cluster)
		}
	}
	e.seen, e.due, e.tries = -1, time.Time{}, 0
}

// do fails the test if err is not nil.
func (e *environment) do(err error) {
	e.t.Helper()
	must.Do(e.t, err)
}

// host, machine, node and remediation return the object, which must not be changed, or nil if it does not exist.
func (e *environment) host() *bmov1alpha1.BareMetalHost {
	h, _ := e.management.At(hostKind, e.at).(*bmov1alpha1.BareMetalHost)
	return h
}

func (e *environment) machine() *clusterv1.Machine {
	m, _ := e.management.At(machineKind, e.at).(*clusterv1.Machine)
	return m
}

func (e *environment) node() *corev1.Node {
	n, _ := e.work.At(nodeKind, client.ObjectKey{Name: e.nodeName}).(*corev1.Node)
	return n
}

func (e *environment) remediation() client.Object {
	return e.management.At(e.GroupVersionKind, e.at)
}

// records returns the open records of the machine.
func (e *environment) records() []*mendv1.RemediationRecord {
	var all []*mendv1.RemediationRecord
	for _, o := range e.management.Of(recordKind) {
		if r := o.(*mendv1.RemediationRecord); r.Open() && r.Spec.Target.Machine.Name == e.at.Name {
			all = append(all, r)
		}
	}
	return all
}

// namesRecord reports whether the remediation names one of its records.
func (e *environment) namesRecord() bool {
	rem := e.remediation()
	return rem != nil && slices.ContainsFunc(e.records(), func(r *mendv1.RemediationRecord) bool {
		return records.Carried(r, rem.GetNamespace()) == rem.GetAnnotations()[mendv1.RecordAnnotation]
	})
}

func (e *environment) memory() string { return string(memoryOf(e.remediation()).State) }

func strategyOf(rem client.Object) *infrav1.RemediationStrategy {
	if o, is := rem.(*infrav1.Metal3Remediation); is {
		return o.Spec.Strategy
	}
	s := rem.(*mendv1.HostRemediation).Spec.Strategy
	return &infrav1.RemediationStrategy{Type: s.Type, RetryLimit: *s.RetryLimit, TimeoutSeconds: s.TimeoutSeconds}
}

// kind is one of the two kinds of remediations.
type kind struct {
	remediation.Kind
	make func(metav1.ObjectMeta, infrav1.RemediationStrategy) client.Object
}

var kinds = []kind{
	{remediation.Metal3, builders.Metal3Remediation},
	{remediation.Own, builders.HostRemediation},
}

// memoryOf returns the stored state of a remediation.
func memoryOf(rem client.Object) powercycle.Memory {
	var m powercycle.Memory
	if rem != nil {
		_ = json.Unmarshal([]byte(rem.GetAnnotations()[mendv1.PowerCycleAnnotation]), &m) // an invalid annotation has no state
	}
	return m
}
