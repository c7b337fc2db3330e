package capacity

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

type (
	edit        = func(*Facts)
	editMachine = func(*clusterv1.Machine)
	editHost    = func(*bmov1alpha1.BareMetalHost)
)

// says sets a condition of a machine.
func says(kind string, status metav1.ConditionStatus, reason, message string, since time.Duration) editMachine {
	return func(m *clusterv1.Machine) {
		m.Status.Conditions = append(slices.DeleteFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind }),
			metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(since)})
	}
}

// worker returns a machine of MachineSet md-0-a with a Ready node.
func worker(name string, age time.Duration, edits ...editMachine) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: ago(age), Finalizers: []string{clusterv1.MachineFinalizer},
		Labels:          map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "md-0"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: machineSetKind, Name: "md-0-a", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName = "c1"
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "DockerMachine", Name: name}
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name}
	provisioned(m)
	m.Status.NodeRef.Name = "node-" + name
	says(clusterv1.MachineNodeReadyCondition, "True", "NodeReady", "", age)(m)
	says(clusterv1.MachineInfrastructureReadyCondition, "True", "Ready", "", age)(m)
	for _, edit := range edits {
		edit(m)
	}
	return m
}

func provisioned(m *clusterv1.Machine) {
	m.Status.Initialization = clusterv1.MachineInitializationStatus{BootstrapDataSecretCreated: ptr.To(true), InfrastructureProvisioned: ptr.To(true)}
}

// given returns the facts of three workers of MachineDeployment md-0, of which w1 has been unhealthy for ten minutes.
func given(edits ...edit) *Facts {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1"}}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	f := &Facts{
		now: noon, cluster: cluster, others: []*clusterv1.Machine{worker("w2", 24*time.Hour), worker("w3", 24*time.Hour)},
		old: worker("w1", 24*time.Hour, says(clusterv1.MachineNodeReadyCondition, "Unknown", "NodeStatusUnknown", "", 15*time.Minute),
			says(clusterv1.MachineHealthCheckSucceededCondition, "False", "UnhealthyNode", "", 12*time.Minute)),
		owner: owner{ref: rule.Ref{Kind: machineDeploymentKind, Name: "md-0"}, maker: rule.Ref{Kind: machineSetKind, Name: "md-0-a"}, known: true, replicas: ptr.To[int32](3)},
	}
	f.Subject = Of(f.old)
	for _, edit := range edits {
		edit(f)
	}
	slices.SortFunc(f.others, byAge)
	return f
}

// old edits w1, made adds machines, ofOwner edits the owner.
func old(edits ...editMachine) edit {
	return func(f *Facts) {
		for _, edit := range edits {
			edit(f.old)
		}
	}
}

func made(machines ...*clusterv1.Machine) edit {
	return func(f *Facts) { f.others = append(f.others, machines...) }
}

func ofOwner(edit func(*owner)) edit { return func(f *Facts) { edit(&f.owner) } }

func replicas(n int32) edit { return ofOwner(func(o *owner) { o.replicas = ptr.To(n) }) }

// controlledBy makes a control plane of a kind the owner, with these conditions.
func controlledBy(kind string, conditions ...metav1.Condition) edit {
	return func(f *Facts) {
		f.Owner, f.Deployment = Owner{Group: controlplanev1.GroupVersion.Group, Kind: kind, Name: "cp"}, ""
		f.owner.ref = rule.Ref{Kind: kind, Name: "cp"}
		f.owner.maker, f.owner.conditions = f.owner.ref, conditions
	}
}

// asksOwner sets that the owner of w1 was asked, and its answer.
func asksOwner(answer, message string, since time.Duration) edit {
	return old(says(clusterv1.MachineOwnerRemediatedCondition, "False", answer, message, since))
}

// deleting sets that w1 has been deleted for nine minutes, and the reason of its condition Deleting.
func deleting(reason string, edits ...editMachine) edit {
	return old(append([]editMachine{deleted(9 * time.Minute), says(clusterv1.MachineDeletingCondition, "True", reason, "as it says", 9*time.Minute)}, edits...)...)
}

func deleted(since time.Duration) editMachine {
	return func(m *clusterv1.Machine) { m.DeletionTimestamp = ptr.To(ago(since)) }
}

// gone sets that w1 was gone five minutes ago.
func gone(f *Facts) { f.old, f.Gone = nil, noon.Add(-5*time.Minute) }

// follows replaces w1 by a new machine w4, four minutes old, without bootstrap data or infrastructure.
func follows(edits ...editMachine) edit {
	return func(f *Facts) {
		gone(f)
		f.others = append(f.others, worker("w4", 4*time.Minute, append([]editMachine{func(m *clusterv1.Machine) {
			m.Status = clusterv1.MachineStatus{}
		}}, edits...)...))
	}
}

func bootstrapped(m *clusterv1.Machine) {
	m.Status.Initialization.BootstrapDataSecretCreated = ptr.To(true)
}

// metal makes w4 a Metal3Machine with bootstrap data. hosts sets the hosts of the namespace; w4 selects those of zone b.
func metal(m *clusterv1.Machine) {
	bootstrapped(m)
	m.Spec.InfrastructureRef.Kind = "Metal3Machine"
	says(clusterv1.MachineInfrastructureReadyCondition, "False", "NotReady", "", 4*time.Minute)(m)
}

func hosts(hosts ...bmov1alpha1.BareMetalHost) edit {
	return func(f *Facts) {
		f.hosts, f.hostsKnown = hosts, true
		f.wants = map[string]spare.Wants{"w4": {Selector: labels.SelectorFromSet(labels.Set{"zone": "b"}), ReusedBy: "md-md-0"}}
	}
}

// aHost returns a host of zone b in a state.
func aHost(name string, state bmov1alpha1.ProvisioningState, edits ...editHost) bmov1alpha1.BareMetalHost {
	h := bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"zone": "b"}}}
	h.Status.Provisioning.State, h.Status.PoweredOn, h.Spec.Online = state, true, true
	for _, edit := range edits {
		edit(&h)
	}
	return h
}

// checked adds checks of all machines with these start-up timeouts in seconds.
func checked(seconds ...int32) edit {
	return func(f *Facts) {
		for _, timeout := range seconds {
			check := clusterv1.MachineHealthCheck{}
			check.Spec.ClusterName, check.Spec.Checks.NodeStartupTimeoutSeconds = "c1", ptr.To(timeout)
			check.Spec.Selector.MatchLabels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
			f.checks = append(f.checks, check)
		}
	}
}

func consumedBy(machine string) editHost {
	return func(h *bmov1alpha1.BareMetalHost) {
		h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: machine}
	}
}

func failing(h *bmov1alpha1.BareMetalHost) { h.Status.ErrorMessage = "no power" }

func keptFor(owner string) editHost {
	return func(h *bmov1alpha1.BareMetalHost) { h.Labels[spare.NodeReuseLabel] = owner }
}

// rows are the expected stories by facts.
type rows map[string]struct {
	edits []edit
	want  string
}

func (table rows) run(t *testing.T) {
	t.Helper()
	table.tell(t, func(f *Facts) string { return told(f.Story()) })
}

func (table rows) tell(t *testing.T, about func(*Facts) string) {
	t.Helper()
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			if got := about(given(tc.edits...)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// told returns the parts of a story that the tables compare. Times are durations: since before noon, until after noon.
func told(s Story) string {
	parts := []string{s.Stage, s.Reason, s.Machine}
	for _, part := range []struct{ name, value string }{
		{"waits", path.Join(s.WaitsFor.Kind, s.WaitsFor.Name)}, {"since", between(s.Since, noon)}, {"until", between(noon, s.Deadline)},
		{"next", s.Next.Reason}, {"todo", s.Todo.Reason}, {"by", by(s.Replacement)},
	} {
		if part.value != "" {
			parts = append(parts, part.name+"="+part.value)
		}
	}
	return strings.Join(parts, " ")
}

// by returns a replacement and how it was found, with a ? if it is a guess.
func by(r Replacement) string {
	text := path.Join(r.Name, r.By)
	if r.Guess() {
		text += "?"
	}
	return text
}

func between(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return to.Sub(from).String()
}
