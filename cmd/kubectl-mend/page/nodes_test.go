package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	hostremediation "github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// also makes other nodes of the management cluster silent.
func also(ago time.Duration, which ...int) func(*nhcv1.NodeHealthCheck, []*corev1.Node) {
	return func(_ *nhcv1.NodeHealthCheck, nodes []*corev1.Node) {
		for _, i := range which {
			nodes[i].Status.Conditions[0] = corev1.NodeCondition{
				Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: at(ago),
			}
		}
	}
}

// stormy adds a cooldown to a check, and the condition of a storm that began a minute ago.
func stormy(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Spec.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
	check.Status.Conditions = append(check.Status.Conditions, metav1.Condition{
		Type: nhcv1.StormActiveCondition, Status: metav1.ConditionTrue, Reason: nhcv1.ThresholdReason, LastTransitionTime: at(time.Minute),
	})
}

// members makes the first three nodes control-plane nodes.
func members(_ *nhcv1.NodeHealthCheck, nodes []*corev1.Node) {
	for _, n := range nodes[:3] {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
}

// laddered sets two escalation steps of a check: reboot for five minutes, then replace.
func laddered(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	first := *check.Spec.RemediationTemplate
	second := first
	second.Kind, second.Name = "ReplaceTemplate", "replace"
	check.Spec.RemediationTemplate = nil
	for i, ref := range []corev1.ObjectReference{first, second} {
		check.Spec.EscalatingRemediations = append(check.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
			RemediationTemplate: ref, Order: i, Timeout: metav1.Duration{Duration: 5 * time.Minute},
		})
	}
}

// replaceable adds the template of the second escalation step.
func replaceable(s *scene) {
	template := unknownKind("remediation.example.com/v1", "ReplaceTemplate", "templates", "replace", emptyTemplate())
	s.others = append(s.others, template)
	s.kinds = append(s.kinds, template.GroupVersionKind(), template.GroupVersionKind().GroupVersion().WithKind("Replace"))
}

// rebooting adds a Reboot of a node that the check has created ago.
func rebooting(node string, ago time.Duration) func(*scene) {
	return func(s *scene) {
		req := unknownKind("remediation.example.com/v1", "Reboot", "templates", node, nil)
		req.SetUID("reboot")
		req.SetCreationTimestamp(at(ago))
		req.SetAnnotations(map[string]string{
			nhcv1.NodeNameAnnotation: node, nhcv1.TemplateNameAnnotation: "reboot", mendv1.MadeByNodeCheckAnnotation: "own-nodes",
		})
		req.SetLabels(map[string]string{nhcv1.PartOfLabel: nhcv1.PartOf, mendv1.MadeByNodeCheckUIDLabel: "own-nodes"})
		req.Object["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": nhcv1.ProcessingCondition, "status": "True", "reason": "Waiting", "message": "The node is to reboot",
			"lastTransitionTime": at(ago).UTC().Format(time.RFC3339),
		}}}
		s.others = append(s.others, req)
	}
}

// ofPausedMachine makes n1 the node of a paused Machine.
func ofPausedMachine(s *scene) {
	m := s.machines["w1"]
	m.Annotations, m.Status.NodeRef.Name = map[string]string{clusterv1.PausedAnnotation: ""}, "n1"
	for _, o := range s.others {
		if n, is := o.(*corev1.Node); is && n.Name == "n1" {
			n.Annotations = map[string]string{clusterv1.MachineAnnotation: "w1", clusterv1.ClusterNamespaceAnnotation: "default"}
		}
	}
	s.check.Annotations[clusterv1.PausedAnnotation] = "the machines of own nodes are watched by a NodeHealthCheck"
}

func TestExplanationsOfNodes(t *testing.T) {
	const due, soon = 6 * time.Minute, 2 * time.Minute
	golden.Stories(t, "nodes", map[string]story{
		"a check whose template is not there":             {aScene(ownNodes(due, noTemplate)), nodeCheck("own-nodes")},
		"a check that is short-circuited":                 {aScene(ownNodes(due, also(due, 1), also(soon, 2))), nodeCheck("own-nodes")},
		"a storm":                                         {aScene(ownNodes(due, also(due, 1), also(soon, 2), stormy)), nodeCheck("own-nodes")},
		"a pending node in a storm":                       {aScene(ownNodes(soon, also(due, 1, 2), stormy)), node("n1")},
		"a pending node of a Machine that is paused":      {aScene(ownNodes(soon), ofPausedMachine), node("n1")},
		"a node of the control plane that goes second":    {aScene(ownNodes(due, members, also(7*time.Minute, 1), few)), node("n1")},
		"a node of the control plane beside a reboot":     {aScene(ownNodes(due, members, also(due, 1), few), rebooting("n2", time.Minute)), node("n1")},
		"a step of a ladder that is under way":            {aScene(ownNodes(due, laddered), replaceable, rebooting("n1", 2*time.Minute)), node("n1")},
		"a step of a ladder whose time is over":           {aScene(ownNodes(due+5*time.Minute, laddered), replaceable, rebooting("n1", 5*time.Minute)), node("n1")},
		"the only template is in progress":                {aScene(ownNodes(due), rebooting("n1", time.Minute)), node("n1")},
		"a node that was rebooted and is still unhealthy": {aScene(ownNodes(soon), rebooting("n1", 10*time.Minute)), node("n1")},
		"a node whose Machine you may not read":           {aScene(ownNodes(due, ofMachineElsewhere)), barredFrom("mgmt", node("n1"))},
	}, answered)
}

// ofMachineElsewhere makes the first node belong to a Machine in namespace mgmt.
func ofMachineElsewhere(_ *nhcv1.NodeHealthCheck, nodes []*corev1.Node) {
	nodes[0].Annotations = map[string]string{clusterv1.MachineAnnotation: "cp", clusterv1.ClusterNamespaceAnnotation: "mgmt"}
}

// barredFrom asks a question as a user who may not read the Machines of a namespace, and may read those of the namespace default.
func barredFrom(namespace string, asked question) question {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		why := apierrors.NewForbidden(schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "machines"}, "", errors.New("you may not"))
		for in, why := range map[string]error{"": why, namespace: why, metav1.NamespaceDefault: nil} {
			a.Snapshot.Forbid(clusterv1.GroupVersion.WithKind("Machine"), in, why)
		}
		return asked(ctx, a)
	}
}

// noTemplate makes the check name a template that does not exist.
func noTemplate(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Spec.RemediationTemplate.Name = "none"
}

// few lets the check remediate as long as one node is healthy.
func few(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Spec.MinHealthy = ptr.To(intstr.FromInt32(1))
}

const (
	deferred = "RemediationDeferred"
	refused  = "CannotBeRemediated"
)

// ofControlPlane makes the first three workers machines of a KubeadmControlPlane, which was asked to replace w1 and has answered with a
// reason. w1 is itself a replacement of a few minutes ago.
func ofControlPlane(reason, message string, edits ...func(*controlplanev1.KubeadmControlPlane, *scene)) func(*scene) {
	return func(s *scene) {
		silent(6*time.Minute, "w1")(s)
		askedOwner("w1", reason, message)(s)
		kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cp"}}
		kcp.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		for _, name := range []string{"w1", "w2", "w3"} {
			ownedBy(name, "KubeadmControlPlane", "cp")(s)
		}
		s.machines["w1"].Annotations = map[string]string{
			controlplanev1.RemediationForAnnotation: `{"machine":"w0","timestamp":"2026-01-01T11:50:00Z","retryCount":2}`,
		}
		for _, edit := range edits {
			edit(kcp, s)
		}
		s.others = append(s.others, kcp)
	}
}

func retryPeriod(seconds int32) func(*controlplanev1.KubeadmControlPlane, *scene) {
	return func(kcp *controlplanev1.KubeadmControlPlane, _ *scene) {
		kcp.Spec.Remediation.RetryPeriodSeconds = &seconds
	}
}

func maxRetry(n int32) func(*controlplanev1.KubeadmControlPlane, *scene) {
	return func(kcp *controlplanev1.KubeadmControlPlane, _ *scene) { kcp.Spec.Remediation.MaxRetry = &n }
}

// Messages of the KubeadmControlPlane controller (Cluster API v1.14.2).
const (
	failedLately  = "KubeadmControlPlane can't remediate this machine because the operation already failed in the latest 15m0s (RetryPeriodSeconds)"
	failedOften   = "KubeadmControlPlane can't remediate this machine because the operation already failed 2 times (MaxRetry)"
	awaitsMachine = "KubeadmControlPlane waiting for control plane Machine provisioning to complete before triggering remediation"
	awaitsEnd     = "KubeadmControlPlane waiting for control plane Machine deletion to complete before triggering remediation"
	onlyOne       = "KubeadmControlPlane can't remediate if current replicas are less or equal to 1"
)

func TestWhatOwnersDoNotReplace(t *testing.T) {
	unread := func(s *scene) {
		s.others = s.others[:len(s.others)-1]
		s.barred = append(s.barred, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
	}
	alone := func(_ *controlplanev1.KubeadmControlPlane, s *scene) {
		for _, name := range []string{"w2", "w3"} {
			ownedBy(name, "MachineSet", "md-0")(s)
		}
	}
	ends := func(_ *controlplanev1.KubeadmControlPlane, s *scene) { goes(&s.machines["w2"].ObjectMeta) }
	joins := func(_ *controlplanev1.KubeadmControlPlane, s *scene) { awaiting("w3")(s) }
	waits, exhausted := ofControlPlane(deferred, failedLately, retryPeriod(900)), ofControlPlane(refused, failedOften, maxRetry(2))
	golden.Stories(t, "owners", map[string]story{
		"a retry that is put off until a moment":       {aScene(waits), machine("w1")},
		"a retry that is due":                          {aScene(ofControlPlane(deferred, failedLately, retryPeriod(560))), machine("w1")},
		"retries that are used up":                     {aScene(exhausted), machine("w1")},
		"a replacement that waits for another to end":  {aScene(ofControlPlane(deferred, awaitsEnd, ends)), machine("w1")},
		"a replacement that waits for another to join": {aScene(ofControlPlane(deferred, awaitsMachine, joins)), machine("w1")},
		"the only machine of a control plane":          {aScene(ofControlPlane(refused, onlyOne, alone)), machine("w1")},
		"what only the owner knows":                    {aScene(ofControlPlane(deferred, "Failed to check etcd cluster health before remediation")), machine("w1")},
		"a control plane that the user may not read":   {aScene(waits, unread), machine("w1")},
		"retries that are used up and no manager runs": {aScene(exhausted, managerGone), machine("w1")},
		"the status where one is put off and one goes on": {aScene(waits, silent(7*time.Minute, "w4"),
			askedOwner("w4", clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, "Waiting for remediation")), nil},
	}, func(t *testing.T, s story) string {
		if s.ask == nil {
			return status(t, s.scene)
		}
		e, err := s.ask(t.Context(), s.scene.asker(t))
		printed := page80and200(t, e, err)
		if strings.Contains(strings.ToLower(printed), "being remediated") {
			t.Errorf("its owner does not replace it:\n%s", printed)
		}
		return printed
	})
}

// Only -o wide prints the evidence of a step.
func TestAWidePageHasTheEvidence(t *testing.T) {
	golden.Stories(t, "wide", map[string]powercycle.State{
		"a host that boots": powercycle.Booting,
	}, func(t *testing.T, state powercycle.State) string {
		e, err := host("rack-w1")(t.Context(), aScene(silent(6*time.Minute, "w1"), powerCycled(state)).asker(t))
		must.Do(t, err)
		var out bytes.Buffer
		must.Do(t, e.Print(&out, text.Layout{Width: 120, Wide: true}))
		return out.String()
	})
}

func TestARemediationThatEndedAtNoKnownTimeIsAFact(t *testing.T) {
	e := &Explanation{Remediations: []explain.Remediation{{HostRemediation: cliv1.HostRemediation{State: string(powercycle.Succeeded)}}}}
	e.remediatedBefore(aScene().asker(t), func(*mendv1.RecordTarget) bool { return false })
	if len(e.Remediations) > 0 || len(e.Facts) != 1 || e.Facts[0].Name != "ended" {
		t.Errorf("there are %v, and the facts are %v", e.Remediations, e.Facts)
	}
}

// A host that cannot be kept powered off is only rebooted. The page must not say that it was proven off.
func TestAStepThatWasNotDoneIsNotSaidToBeDone(t *testing.T) {
	rem := aRemediation("w1", powercycle.Booting)
	for _, kind := range []string{infrav1.PoweredOffCondition, infrav1.WorkloadMovedCondition} {
		cond := conditions.Get(rem, kind)
		cond.Status, cond.Reason = metav1.ConditionFalse, "CannotBeProven"
		conditions.Set(rem, *cond)
	}
	cycle := &explain.Remediation{Conditions: rem.Status.Conditions}
	cycle.State, cycle.StateSince = "Booting", cliv1.Moment(noon.Add(-time.Second))
	rows := (&page{Page: text.Page{Layout: text.Layout{Now: noon}}}).cycle(cycle)
	want := [][]string{
		{"  power off", "-", "-", "CannotBeProven"}, {"  fence, move", "-", "-", "CannotBeProven"}, {"  power on", "11:59:00", "0s"}, {"> Ready", "11:59:59", "1s"},
	}
	must.Equal(t, want, rows)
	cycle.StateSince = cliv1.Moment(noon.Add(5 * time.Second)) // the manager's clock is ahead
	if last := (&page{Page: text.Page{Layout: text.Layout{Now: noon}}}).cycle(cycle)[3]; last[2] != "0s" {
		t.Errorf("a step that begins in a moment: %v", last)
	}
}

// held returns the annotation by which a remediation keeps a host powered off.
func held(by types.UID) string {
	return bmov1alpha1.RebootAnnotationPrefix + "/metal3-remediation-" + string(by)
}

// powerCycled puts workers on hosts, and gives the check a template for power cycles. If state is not empty, w1 has a remediation that has
// been in that state for a minute.
func powerCycled(state powercycle.State, edits ...func(*bmov1alpha1.BareMetalHost, *mendv1.HostRemediation)) func(*scene) {
	return func(s *scene) {
		template := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reboot"}}
		s.others = append(s.others, template)
		s.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
		}
		rem := aRemediation("w1", state)
		for _, m := range s.machines {
			host := s.onHost(m)
			if m.Name != "w1" {
				continue
			}
			if state == powercycle.PoweringOff {
				host.Annotations = map[string]string{held(rem.UID): ""}
			}
			for _, edit := range edits {
				edit(host, rem)
			}
		}
		if state != "" {
			s.others = append(s.others, rem)
		}
	}
}

// onHost puts a machine on its own host, which is powered on.
func (s *scene) onHost(m *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: m.Name}
	between := unknownKind(infrav1.GroupVersion.String(), "Metal3Machine", "default", m.Name, nil)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: "default/rack-" + m.Name})
	between.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}})
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rack-" + m.Name, UID: types.UID("rack-" + m.Name)}}
	host.Spec.Online, host.Status.PoweredOn, host.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "default", Name: m.Name}
	s.others = append(s.others, between, host)
	return host
}

// aRemediation returns a HostRemediation of a worker, in the first of two attempts.
func aRemediation(worker string, state powercycle.State) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: worker, UID: types.UID("rem-" + worker), CreationTimestamp: at(3 * time.Minute), Finalizers: []string{mendv1.HostRemediationFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: worker, UID: types.UID(worker)}},
		Labels:          map[string]string{mendv1.MadeByUIDLabel: "check"},
	}}
	rem.Spec.Strategy = &mendv1.HostRemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600}
	memory := powercycle.Memory{State: state, Since: noon.Add(-time.Minute), StartedUnhealthy: true}
	if state != powercycle.Pending {
		memory.Attempt, memory.Began, memory.Asked, memory.Touched = 1, noon.Add(-2*time.Minute), noon.Add(-time.Minute), true
	}
	for i, kind := range []string{infrav1.PoweredOffCondition, infrav1.WorkloadMovedCondition, infrav1.PoweredOnCondition} {
		if state == powercycle.Booting || state == powercycle.PoweringOn && i < 2 || state == powercycle.MovingWorkload && i == 0 {
			rem.Status.Conditions = append(rem.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: at(time.Minute)})
		}
	}
	rem.Annotations = map[string]string{mendv1.MadeByAnnotation: "workers"}
	remembers(rem, memory)
	says(rem, map[powercycle.State]powercycle.Reason{
		powercycle.Pending: powercycle.WaitingInQueueReason, powercycle.PoweringOff: powercycle.PoweringOffReason,
		powercycle.MovingWorkload: powercycle.WorkloadMovingReason, powercycle.PoweringOn: powercycle.PoweringOnReason,
		powercycle.Booting: powercycle.BootingReason, powercycle.OwnerRequested: powercycle.OwnerRequestedReason,
		powercycle.Succeeded: powercycle.MachineHealthyReason,
	}[state], powercycle.Cycle{Facts: powercycle.Facts{Ahead: []powercycle.Ahead{{Text: "w2 is being remediated (HostRemediation w2)"}}}})
	return rem
}

// remembers stores the memory of a remediation in its annotation.
func remembers(rem *mendv1.HostRemediation, memory powercycle.Memory) {
	worker := rem.OwnerReferences[0].Name
	content, err := hostremediation.Record{Memory: memory, Host: "rack-" + worker, Node: "node-" + worker}.Encode()
	if err != nil {
		panic(err) // every Record can be encoded
	}
	rem.Annotations[mendv1.PowerCycleAnnotation] = content
}

// says sets the condition Processing of a remediation, as the manager does while it waits for a reason.
func says(rem *mendv1.HostRemediation, reason powercycle.Reason, cycle powercycle.Cycle) {
	cycle.After, cycle.Policy = hostremediation.Remembered(rem).Memory, powercycle.Policy{Retries: 1}
	step := powercycle.Step{Do: powercycle.Wait, From: cycle.After.State, Next: cycle.After.State, Reason: reason}
	conditions.Set(rem, metav1.Condition{
		Type: nhcv1.ProcessingCondition, Status: metav1.ConditionTrue, Reason: string(reason), Message: cycle.Message("", step),
		LastTransitionTime: at(time.Minute),
	})
}

// controlPlane makes w1 and w2 control-plane machines, whose hosts are power-cycled one after the other, and adds a remediation of w2.
func controlPlane(s *scene) {
	for _, name := range []string{"w1", "w2"} {
		s.machines[name].Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	s.others = append(s.others, aRemediation("w2", powercycle.PoweringOff))
}

// A cluster without Cluster API has none of its kinds.
func TestNodesAreExplainedWithoutClusterAPI(t *testing.T) {
	var saved bytes.Buffer
	var record struct {
		Kind  string           `json:"kind"`
		Items []map[string]any `json:"items"`
	}
	err := errors.Join(aScene(ownNodes(6*time.Minute)).snapshot(t).Save(&saved), json.Unmarshal(saved.Bytes(), &record))
	record.Items = slices.DeleteFunc(record.Items, func(item map[string]any) bool {
		return strings.HasPrefix(item["apiVersion"].(string), clusterv1.GroupVersion.Group)
	})
	kinds := record.Items[0]["kinds"].(map[string]any)
	maps.DeleteFunc(kinds, func(kind string, _ any) bool { return strings.HasSuffix(kind, "."+clusterv1.GroupVersion.Group) })
	without, wrong := json.Marshal(record)
	loaded, unread := snapshot.Load(bytes.NewReader(without))
	if err := errors.Join(err, wrong, unread); err != nil {
		t.Fatal(err)
	}
	a := inspect.New(t.Context(), loaded, noon)
	s, err := Of(t.Context(), a, "", "")
	e, unexplained := Node(t.Context(), a, "", "", "n1")
	if err := errors.Join(err, unexplained); err != nil || len(s.Checks) != 1 || e.Answer.State != explain.IsUnhealthy {
		t.Errorf("the status: %+v, the node: %+v, %v", s, e, err)
	}
}
