package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// place is a management cluster with a cluster c1 of five workers on hosts, their check, the manager that acts on it, and alice in front of it.
type place struct {
	t        *testing.T
	objects  []client.Object
	nodes    map[string]corev1.ConditionStatus
	check    *clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	hosts    map[string]*bmov1alpha1.BareMetalHost

	mayNot  []string // "verb resource"
	refuses error    // of the API server, of any change
	bare    bool     // HostRemediations are not installed
	unread  error    // of a list of HostRemediations
	typed   string
	asks    bool
	opts    []string

	client client.Client
}

func aPlace(t *testing.T, edits ...func(*place)) *place {
	t.Helper()
	t.Setenv("COLUMNS", "")
	p := &place{
		t: t, asks: true, nodes: map[string]corev1.ConditionStatus{}, machines: map[string]*clusterv1.Machine{}, hosts: map[string]*bmov1alpha1.BareMetalHost{},
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c1", UID: "c1"}}
	for _, is := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{Type: is, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))})
	}
	p.check = &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "workers", UID: "check", Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
	}}
	p.check.Spec.ClusterName, p.check.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "workers"}
	p.check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
	}
	p.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
	for i := 1; i <= 5; i++ {
		p.worker(fmt.Sprintf("w%d", i))
	}
	announced := lease("kubemend-system", "manager.kubemend.io", map[string]string{mendv1.ManagerAnnotation: `{"version":"v1","unclaimed":"observe"}`})
	p.objects = append(p.objects, cluster, p.check, announced)
	for _, edit := range edits {
		edit(p)
	}
	for _, m := range p.machines {
		p.objects = append(p.objects, m)
	}
	for _, h := range p.hosts {
		p.objects = append(p.objects, h)
	}
	p.client = p.server()
	return p
}

// worker adds a healthy machine on a host of its own.
func (p *place) worker(name string) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: name, UID: types.UID(name), Labels: map[string]string{"pool": "workers", clusterv1.ClusterNameLabel: "c1"},
		CreationTimestamp: metav1.NewTime(noon.Add(-10 * time.Hour)),
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0", UID: "md-0", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "node-"+name
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: name}
	between := &unstructured.Unstructured{}
	between.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
	between.SetNamespace("metal")
	between.SetName(name)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: "metal/host-" + name})
	between.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(name)}})
	p.objects = append(p.objects, between)
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "host-" + name, UID: types.UID("host-" + name)}}
	h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	h.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "metal", Name: name}
	p.machines[name], p.hosts[name], p.nodes["node-"+name] = m, h, corev1.ConditionTrue
}

// server is what writes go to.
func (p *place) server() client.Client {
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	var typed []client.Object
	for _, o := range p.objects {
		typed = append(typed, o.DeepCopyObject().(client.Object))
	}
	inner := fake.NewClientBuilder().WithScheme(snapshot.New().Scheme()).WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
		WithRESTMapper(p.mapper()).WithObjects(typed...).Build()
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch review := o.(type) {
			case *authenticationv1.SelfSubjectReview:
				review.Status.UserInfo.Username = "alice"
				return nil
			case *authorizationv1.SelfSubjectAccessReview:
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = !strings.Contains(strings.Join(p.mayNot, ","), asked.Verb+" "+asked.Resource)
				return nil
			case *eventsv1.Event:
			default:
				if p.refuses != nil {
					return p.refuses
				}
			}
			return c.Create(ctx, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*mendv1.HostRemediationList); is && p.unread != nil {
				return p.unread
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if p.refuses != nil {
				return p.refuses
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
}

// mapper knows the kinds that are installed.
func (p *place) mapper() meta.RESTMapper {
	w := snapshot.New()
	if !p.bare {
		w.Install(mendv1.GroupVersion.WithKind("HostRemediation"), "hostremediations", true)
	}
	w.Install(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), "baremetalhosts", true)
	w.Install(infrav1.GroupVersion.WithKind("Metal3Machine"), "metal3machines", true)
	w.Install(mendv1.GroupVersion.WithKind("HostRemediationTemplate"), "hostremediationtemplates", true)
	return w.RESTMapper()
}

// options is a command line that reads the place as it is.
func (p *place) options(out *bytes.Buffer) *Options {
	p.t.Helper()
	o, _, _ := recorder(p.t, &snapshot.Scope{})
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(p.typed), Out: out, ErrOut: out}
	o.Config.Namespace, o.version = ptr.To("metal"), "v1"
	o.read = func(ctx context.Context, _ snapshot.Scope) (*snapshot.Snapshot, error) {
		w := snapshot.New()
		w.Install(mendv1.GroupVersion.WithKind("HostRemediation"), "hostremediations", true)
		w.Taken, w.Clock = noon, testclock.NewFakePassiveClock(noon)
		var nodes []corev1.Node
		for name, ready := range p.nodes {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
			nodes = append(nodes, n)
		}
		w.SetNodes(client.ObjectKey{Namespace: "metal", Name: "c1"}, nodes)
		for _, o := range p.objects {
			now := o.DeepCopyObject().(client.Object)
			if err := p.client.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
				return nil, err
			}
			if err := w.Add(now); err != nil {
				return nil, err
			}
		}
		requests := &mendv1.HostRemediationList{}
		if err := p.client.List(ctx, requests); err != nil {
			return nil, err
		}
		for i := range requests.Items {
			if err := w.Add(&requests.Items[i]); err != nil {
				return nil, err
			}
		}
		return w, nil
	}
	return o
}

// does runs remediate, or reset, and returns what was printed, with its breaks taken out, and how it ends.
func (p *place) does(verb, what string, edits ...func(*byHand)) (string, int) {
	p.t.Helper()
	var out bytes.Buffer
	o := p.options(&out)
	b := &byHand{IOStreams: o.IOStreams, verb: verb, client: p.client, now: noon, asks: p.asks}
	for _, edit := range edits {
		edit(b)
	}
	named, err := parseOne([]string{what}, remediable...)
	switch {
	case err != nil:
	case verb == "reset":
		err = b.resetNamed(p.t.Context(), named, "metal")
	default:
		err = o.remediateNamed(p.t.Context(), b, named, "")
	}
	code, exit := Done, Exit{}
	if err != nil {
		_, _ = fmt.Fprintln(&out, "error:", err)
		code = Failed
	}
	if errors.As(err, &exit) {
		code = exit.Code
	}
	return unwrapped(out.String()), code
}

func confirmed(b *byHand) { b.yes = true }

// machine is one as it is stored.
func (p *place) machine(name string) *clusterv1.Machine {
	p.t.Helper()
	m := &clusterv1.Machine{}
	if err := p.client.Get(p.t.Context(), client.ObjectKey{Namespace: "metal", Name: name}, m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

// requests are the names of the HostRemediations.
func (p *place) requests() []mendv1.HostRemediation {
	p.t.Helper()
	list := &mendv1.HostRemediationList{}
	if err := p.client.List(p.t.Context(), list); err != nil {
		p.t.Fatal(err)
	}
	return list.Items
}

// told are the reasons and texts of the events.
func (p *place) told() []string {
	p.t.Helper()
	list := &eventsv1.EventList{}
	if err := p.client.List(p.t.Context(), list); err != nil {
		p.t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Regarding.Kind+" "+e.Regarding.Name+": "+e.Reason+": "+e.Note)
	}
	return all
}

// cycling has the check ask for power cycles.
func cycling(p *place) {
	p.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
	}
	p.objects = append(p.objects, &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "reboot"}})
}

// silent makes nodes silent for an hour.
func silentNodes(workers ...string) func(*place) {
	return func(p *place) {
		for _, name := range workers {
			p.nodes["node-"+name] = corev1.ConditionUnknown
		}
	}
}

func TestAMachineIsMarkedForItsCheckByWhoAsks(t *testing.T) {
	p := aPlace(t)
	p.typed = "y\n"
	got, code := p.does("remediate", "machine/w1", func(b *byHand) { b.reason = "NIC drops packets" })
	for _, want := range []string{
		"remediate machine/w1 in metal: the annotation cluster.x-k8s.io/remediate-machine marks Machine w1 unhealthy for MachineHealthCheck metal/workers",
		"kubemend asks its owner, MachineSet md-0, to remediate it", "Proceed? [y/N] machine/w1 in metal marked",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	m := p.machine("w1")
	by, known := explain.AttributionOf(m, mendv1.RequestedAnnotation)
	if _, marked := m.Annotations[clusterv1.RemediateMachineAnnotation]; code != Done || !marked || !known ||
		by != (explain.Attribution{By: "alice", At: noon, Reason: "NIC drops packets"}) {
		t.Errorf("code %d, annotations %v, printed\n%s", code, m.Annotations, got)
	}
	if told := strings.Join(p.told(), "\n"); told != "Machine w1: RemediationRequested: remediation requested by alice: NIC drops packets" {
		t.Errorf("the events are %s", told)
	}
	got, code = p.does("remediate", "machine/w1", confirmed)
	if code != Done || !strings.HasPrefix(got, "nothing to do for machine/w1 in metal: Machine w1 is being remediated already") {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
	got, code = p.does("reset", "machine/w1", confirmed)
	if m = p.machine("w1"); code != Done || len(m.Annotations) != 1 || m.Annotations[mendv1.ResetAnnotation] == "" {
		t.Errorf("after its reset: code %d, annotations %v, printed\n%s", code, m.Annotations, got)
	}
}

func TestANodeStandsForItsMachine(t *testing.T) {
	p := aPlace(t)
	got, code := p.does("remediate", "node/node-w2", confirmed)
	if _, marked := p.machine("w2").Annotations[clusterv1.RemediateMachineAnnotation]; code != Done || !marked || !strings.HasPrefix(got, "remediate node/node-w2: ") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}

func TestAHostIsPowerCycledByARequestOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		what  string
		edits []func(*place)
	}{
		"a host of a check that asks owners":         {"host/host-w1", nil},
		"a machine of a check that asks for cycles":  {"machine/w1", []func(*place){cycling}},
		"a node of a check that asks for cycles":     {"node/node-w1", []func(*place){cycling}},
		"a host of no check":                         {"host/host-w1", []func(*place){func(p *place) { p.machines["w1"].Labels["pool"] = "other" }}},
		"a host of a check that Cluster API acts on": {"host/host-w1", []func(*place){func(p *place) { p.check.Annotations = nil }}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			got, code := p.does("remediate", tc.what, confirmed)
			all := p.requests()
			if code != Done || len(all) != 1 || all[0].Name != "w1-by-hand" || all[0].OwnerReferences[0].UID != "w1" || *all[0].Spec.Strategy.RetryLimit != 1 {
				t.Fatalf("code %d, requests %v, printed\n%s", code, all, got)
			}
			if by, _ := explain.AttributionOf(&all[0], mendv1.RequestedAnnotation); by.By != "alice" || len(p.machine("w1").Annotations) > 0 {
				t.Errorf("it is asked for by %q, and the machine has %v", by.By, p.machine("w1").Annotations)
			}
			if !strings.Contains(got, "HostRemediation w1-by-hand power-cycles its host, in 2 attempts at most") || !strings.Contains(got, "Attempt 1 of 2") {
				t.Errorf("printed\n%s", got)
			}
			if got, code = p.does("remediate", tc.what, confirmed); code != Done || len(p.requests()) != 1 || !strings.HasPrefix(got, "nothing to do for") {
				t.Errorf("again: code %d, printed\n%s", code, got)
			}
		})
	}
}

func TestARequestThatEndedBlocksNoOther(t *testing.T) {
	p := aPlace(t, func(p *place) {
		ended := requestByHand(p.machines["w1"], nil)
		ended.UID, ended.Annotations = "ended", map[string]string{mendv1.PowerCycleAnnotation: `{"state":"Succeeded"}`}
		p.objects = append(p.objects, ended)
	})
	got, code := p.does("remediate", "host/host-w1", confirmed)
	if all := p.requests(); code != Done || len(all) != 2 || all[1].Name != "w1-by-hand-2" {
		t.Errorf("code %d, requests %v, printed\n%s", code, all, got)
	}
}

func TestNothingIsRequestedThatHarmsOrThatNoControllerActsOn(t *testing.T) {
	paused := func(p *place) { p.check.Annotations[clusterv1.PausedAnnotation] = "true" }
	for name, tc := range map[string]struct {
		what  string
		says  string
		edits []func(*place)
	}{
		"a machine that no check selects": {"machine/w1", "make a check that selects it", []func(*place){func(p *place) { p.machines["w1"].Labels["pool"] = "x" }}},
		"a machine that is left alone": {"machine/w1", "The machine has the annotation cluster.x-k8s.io/skip-remediation", []func(*place){func(p *place) {
			p.machines["w1"].Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}}},
		"a host whose machine is left alone": {"host/host-w1", "The machine has the annotation cluster.x-k8s.io/skip-remediation", []func(*place){func(p *place) {
			p.machines["w1"].Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}}},
		"a machine of a check that is paused":    {"machine/w1", "The check has the annotation cluster.x-k8s.io/paused", []func(*place){paused}},
		"a host of a check that is paused":       {"host/host-w1", "The check has the annotation cluster.x-k8s.io/paused", []func(*place){paused}},
		"a machine without an owner":             {"machine/w1", "has no owner that could replace it", []func(*place){func(p *place) { p.machines["w1"].OwnerReferences = nil }}},
		"a healthy machine that is one too many": {"machine/w2", "to mark it unhealthy would be one too many", []func(*place){silentNodes("w1")}},
		"a host whose check is at its limit":     {"host/host-w2", "a power cycle by hand waits for no limit", []func(*place){silentNodes("w1")}},
		"a host whose check has none at once":    {"host/host-w2", "a power cycle by hand waits for no limit", []func(*place){func(p *place) { p.check.Annotations[mendv1.MaxInFlightAnnotation] = "0" }}},
		"a host of no check, of a Cluster that is paused": {"host/host-w1", "Cluster c1 is paused", []func(*place){func(p *place) {
			p.machines["w1"].Labels["pool"] = "other"
			p.objects[len(p.objects)-3].(*clusterv1.Cluster).Spec.Paused = ptr.To(true)
		}}},
		"a host of no check, whose machine is paused": {"host/host-w1", "The machine has the annotation cluster.x-k8s.io/paused", []func(*place){func(p *place) {
			p.machines["w1"].Labels["pool"] = "other"
			p.machines["w1"].Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}}},
		"a host that claims a machine which is on another one": {"host/host-w2", "Machine w1 does not name this host as its own", []func(*place){func(p *place) {
			p.hosts["w2"].Spec.ConsumerRef.Name = "w1"
		}}},
		"a host without a machine":                 {"host/host-w1", "belongs to no Machine", []func(*place){func(p *place) { p.hosts["w1"].Spec.ConsumerRef = nil }}},
		"a machine whose check no manager acts on": {"machine/w1", "the manager", []func(*place){func(p *place) { p.objects = p.objects[:len(p.objects)-1] }}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			p.refuses = errors.New("something was written")
			got, code := p.does("remediate", tc.what, confirmed)
			if code != Refused || !strings.HasPrefix(got, "cannot remediate "+tc.what) || !strings.Contains(got, tc.says) {
				t.Errorf("code %d, printed\n%s", code, got)
			}
		})
	}
}

func TestWhatABlockedMarkWaitsForIsShown(t *testing.T) {
	p := aPlace(t, silentNodes("w1", "w2"))
	got, code := p.does("remediate", "machine/w1", func(b *byHand) { b.dryRun = true })
	if code != Done || !strings.Contains(got, "it waits for what blocks it") || !strings.Contains(got, "TooManyUnhealthy") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}

func TestNothingIsChangedByHandUnlessTheUserMayAndSaysSo(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "cluster.x-k8s.io", Resource: "machines"}, "w1", errors.New("a policy says no"))
	for name, tc := range map[string]struct {
		what  string
		edit  func(*place)
		flags func(*byHand)
		code  int
		says  string
	}{
		"no":                             {"machine/w1", func(p *place) { p.typed = "n\n" }, func(*byHand) {}, Refused, "error: nothing was changed"},
		"no terminal":                    {"machine/w1", func(p *place) { p.asks = false }, func(*byHand) {}, Refused, "there is no terminal to ask at, so say --yes"},
		"a dry run":                      {"machine/w1", func(*place) {}, func(b *byHand) { b.dryRun = true }, Done, "Next: "},
		"a right is missing":             {"machine/w1", func(p *place) { p.mayNot = []string{"patch machines"} }, confirmed, Failed, "alice may not patch machines.cluster.x-k8s.io in namespace metal"},
		"a right is missing for a cycle": {"host/host-w1", func(p *place) { p.mayNot = []string{"create hostremediations"} }, confirmed, Failed, "alice may not create hostremediations.kubemend.io in namespace metal"},
		"a policy refuses":               {"machine/w1", func(p *place) { p.refuses = forbidden }, func(b *byHand) { b.dryRun = true }, Failed, "a policy says no"},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edit)
			got, code := p.does("remediate", tc.what, tc.flags)
			if code != tc.code || !strings.Contains(got, tc.says) || len(p.machine("w1").Annotations) > 0 || len(p.requests())+len(p.told()) > 0 {
				t.Errorf("code %d, want %d; annotations %v; events %v; printed\n%s", code, tc.code, p.machine("w1").Annotations, p.told(), got)
			}
		})
	}
}

func TestAMissingEventIsReportedBefore(t *testing.T) {
	p := aPlace(t, func(p *place) { p.mayNot = []string{"create events"} })
	got, code := p.does("remediate", "machine/w1", confirmed)
	if code != Done || !strings.Contains(got, "alice may not create events.events.k8s.io in namespace metal: the annotation alone records it") || len(p.told()) > 0 {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}
