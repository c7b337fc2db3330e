package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
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
)

// place is a management cluster with a cluster c1 of five workers on hosts, their check, the manager that acts on it, and alice in front of
// it.
type place struct {
	t        *testing.T
	objects  []client.Object
	nodes    map[string]corev1.ConditionStatus
	check    *clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	hosts    map[string]*bmov1alpha1.BareMetalHost

	wrote   map[right]bool // without the reviews of who asks
	mayNot  string         // the resource that alice may not write
	refuses error          // of the API server, of any change
	bare    bool           // HostRemediations are not installed
	unread  error          // of a list of HostRemediations
	typed   string
	asks    bool

	client client.Client
	// workload is what answers by the kubeconfig of c1, and unreached why nothing does.
	workload  client.Reader
	blind     bool // alice may not read the nodes
	unreached error
}

func aPlace(t *testing.T, edits ...func(*place)) *place {
	t.Helper()
	t.Setenv("COLUMNS", "")
	p := &place{
		t: t, asks: true, wrote: map[right]bool{}, nodes: map[string]corev1.ConditionStatus{}, machines: map[string]*clusterv1.Machine{}, hosts: map[string]*bmov1alpha1.BareMetalHost{},
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
	p.workload = running()
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
	inner := fake.NewClientBuilder().WithScheme(snapshot.Scheme).WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).
		WithRESTMapper(p.mapper()).WithObjects(typed...).Build()
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch review := o.(type) {
			case *authenticationv1.SelfSubjectReview:
				review.Status.UserInfo.Username = "alice"
				return nil
			case *eventsv1.Event:
				if errs := validation.NameIsDNSSubdomain(o.GetName(), false); len(errs) > 0 || o.GetGenerateName() != "" {
					return fmt.Errorf("an event named %q: %v", o.GetName(), errs)
				}
				if err := p.write(right{"create", eventsv1.GroupName, "events"}); err != nil {
					return err
				}
			default:
				if err := cmp.Or(p.refuses, p.write(right{"create", mendv1.GroupVersion.Group, "hostremediations"})); err != nil {
					return err
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
			gvk := o.GetObjectKind().GroupVersionKind()
			if err := cmp.Or(p.refuses, p.write(right{"patch", gvk.Group, strings.ToLower(gvk.Kind) + "s"})); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
}

// write notes a write, and refuses it if alice may not.
func (p *place) write(is right) error {
	if is.resource == p.mayNot {
		return apierrors.NewForbidden(schema.GroupResource{Group: is.group, Resource: is.resource}, "", fmt.Errorf("User \"alice\" cannot %s", is))
	}
	p.wrote[is] = true
	return nil
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
		if !p.bare {
			w.Install(mendv1.GroupVersion.WithKind("HostRemediation"), "hostremediations", true)
		}
		w.Taken, w.Clock = noon, testclock.NewFakePassiveClock(noon)
		var nodes []corev1.Node
		for name, ready := range p.nodes {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
			nodes = append(nodes, n)
		}
		w.SetNodes(client.ObjectKey{Namespace: "metal", Name: "c1"}, nodes)
		if p.blind {
			w.SetUnseen(client.ObjectKey{Namespace: "metal", Name: "c1"}, "forbidden", time.Time{})
		}
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
	out, code := p.prints(verb, what, edits...)
	return strings.ReplaceAll(out, "\n    ", " "), code
}

// prints is the same, with what was printed as it is.
func (p *place) prints(verb, what string, edits ...func(*byHand)) (string, int) {
	p.t.Helper()
	var out bytes.Buffer
	o := p.options(&out)
	b := &byHand{IOStreams: o.IOStreams, verb: verb, client: p.client, now: noon, asks: p.asks}
	b.workload = func(context.Context, client.ObjectKey) (client.Reader, error) { return p.workload, p.unreached }
	for _, edit := range edits {
		edit(b)
	}
	named, err := parseOne([]string{what}, append(remediable, clusterKind, machineCheckKind)...)
	named.namespace = "metal"
	switch {
	case err != nil:
	case named.kind == machineCheckKind:
		err = b.claimNamed(p.t.Context(), named)
	case verb == "confirm":
		err = b.confirmNamed(p.t.Context(), named)
	case verb == "reset":
		err = b.resetNamed(p.t.Context(), named)
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
	return out.String(), code
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

// running is a workload cluster with these pods, which are on node-w1, and a budget for those with the label app: db.
func running(pods ...*corev1.Pod) client.WithWatch {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	b := fake.NewClientBuilder().WithScheme(snapshot.Scheme).WithObjects(budget).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	for _, pod := range pods {
		pod.Namespace, pod.Spec.NodeName = "shop", cmp.Or(pod.Spec.NodeName, "node-w1")
		b.WithObjects(pod)
	}
	return b.Build()
}

// cycling has the check ask for power cycles.
func cycling(p *place) {
	p.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
	}
	p.objects = append(p.objects, &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "reboot"}})
}

// written hides the nodes from alice, and has the manager say that its machines are healthy, and how many more may be unhealthy.
func written(remaining int32) func(*place) {
	return func(p *place) {
		p.blind, p.check.Status.RemediationsAllowed = true, &remaining
		p.check.Status.ExpectedMachines, p.check.Status.CurrentHealthy = ptr.To[int32](5), ptr.To[int32](5)
		for _, machine := range p.machines {
			machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{
				Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionTrue, Reason: "HealthCheckSucceeded",
			})
		}
	}
}

// silent makes nodes silent for an hour.
func silentNodes(workers ...string) func(*place) {
	return func(p *place) {
		for _, name := range workers {
			p.nodes["node-"+name] = corev1.ConditionUnknown
		}
	}
}
