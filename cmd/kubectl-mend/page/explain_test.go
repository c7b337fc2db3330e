package page

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// page80and200 prints an explanation for terminals of 80 and 200 columns.
func page80and200(t *testing.T, e *Explanation, err error) string {
	t.Helper()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out bytes.Buffer
	for _, width := range []int{80, 200} {
		fmt.Fprintf(&out, "==== %d columns\n", width)
		must.Do(t, e.Print(&out, text.Layout{Width: width}))
	}
	return out.String()
}

// answered returns the printed answer to a story's question or, without a question, the status of its checks.
func answered(t *testing.T, s story) string {
	if s.ask == nil {
		return status(t, s.scene)
	}
	e, err := s.ask(t.Context(), s.scene.asker(t))
	if e != nil {
		reasoned(t, e.Document())
	}
	return page80and200(t, e, err)
}

// standing returns the status of all checks of the scene.
func standing(t *testing.T, s *scene) *Status {
	t.Helper()
	all, err := Of(t.Context(), s.asker(t), "", "")
	must.Do(t, err)
	return all
}

// status prints the status of all checks of the scene for terminals of 80 and 200 columns.
func status(t *testing.T, s *scene) string {
	t.Helper()
	return printedAs(t, standing(t, s), text.Layout{Width: 80}, text.Layout{Width: 200, Namespaces: true})
}

func printedAs(t *testing.T, all *Status, layouts ...text.Layout) string {
	t.Helper()
	var out bytes.Buffer
	for _, l := range layouts {
		fmt.Fprintf(&out, "==== %d columns\n", l.Width)
		must.Do(t, all.Print(&out, l))
	}
	return out.String()
}

// story is a scene and a question about it.
type story struct {
	scene *scene
	ask   question
}

type question = func(context.Context, *inspect.Asker) (*Explanation, error)

// asks returns questions about objects of one kind, which are in this namespace.
func asks(namespace string, explained func(context.Context, *inspect.Asker, client.ObjectKey) (*Explanation, error)) func(name string) question {
	return func(name string) question {
		return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
			return explained(ctx, a, client.ObjectKey{Namespace: namespace, Name: name})
		}
	}
}

var (
	machine, check, host = asks("default", Machine), asks("default", MachineHealthCheck), asks("default", Host)
	remediation          = asks("default", func(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
		return Remediation(ctx, a, "HostRemediation", key)
	})
	node = asks("default", func(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
		return Node(ctx, a, key.Namespace, "", key.Name)
	})
	nodeCheck = asks("", func(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
		return NodeHealthCheck(ctx, a, key.Name)
	})
)

// unknownKind returns an object of a kind that has no Go type here.
func unknownKind(group, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(group)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func emptyTemplate() map[string]any {
	return map[string]any{"template": map[string]any{"spec": map[string]any{}}}
}

func annotated(name, annotation string) func(*scene) {
	return func(s *scene) { s.machines[name].Annotations = map[string]string{annotation: ""} }
}

func awaiting(name string) func(*scene) {
	return func(s *scene) {
		s.machines[name].Status.NodeRef.Name = ""
		s.machines[name].Status.Conditions[0].LastTransitionTime = at(3 * time.Minute)
		delete(s.nodes, name)
	}
}

func TestExplanations(t *testing.T) {
	stories := map[string]story{
		"a machine that is healthy":                      {aScene(), machine("w1")},
		"a machine that does not exist":                  {aScene(), machine("w9")},
		"a machine within its timeout":                   {aScene(silent(2*time.Minute, "w1")), machine("w1")},
		"a machine whose remediation begins":             {aScene(silent(6*time.Minute, "w1")), machine("w1")},
		"a machine that its owner is asked to remediate": {aScene(silent(6*time.Minute, "w1"), askedOwner("w1", "WaitingForRemediation", "Waiting for remediation")), machine("w1")},
		"a machine whose owner puts it off":              {aScene(silent(6*time.Minute, "w1"), askedOwner("w1", "RemediationDeferred", "* MachineSet default/md-0 waits for other machines")), machine("w1")},
		"a machine that is marked by hand":               {aScene(annotated("w1", clusterv1.RemediateMachineAnnotation)), machine("w1")},
		"a machine whose node was deleted":               {aScene(func(s *scene) { delete(s.nodes, "w1") }), machine("w1")},
		"a machine whose first node is waited for":       {aScene(awaiting("w1")), machine("w1")},
		"a machine to be skipped":                        {aScene(silent(6*time.Minute, "w1"), annotated("w1", clusterv1.MachineSkipRemediationAnnotation)), machine("w1")},
		"a machine that is paused":                       {aScene(silent(6*time.Minute, "w1"), annotated("w1", clusterv1.PausedAnnotation)), machine("w1")},
		"a machine that no check selects":                {aScene(silent(6*time.Minute, "w1"), func(s *scene) { s.machines["w1"].Labels["pool"] = "gpu" }), machine("w1")},
		"a machine that two checks select": {aScene(silent(6*time.Minute, "w1"), secondCheck, reported,
			askedOwner("w1", "WaitingForRemediation", ""), wrote("True", mendv1.OwnerAskedReason, "Its owner, MachineSet md-0, was asked to remediate it")), machine("w1")},
		"a machine of a check that is not claimed": {aScene(silent(6*time.Minute, "w1"), func(s *scene) { s.check.Annotations = nil }), machine("w1")},
		"a machine of a check that is paused":      {aScene(silent(6*time.Minute, "w1"), func(s *scene) { s.check.Annotations[clusterv1.PausedAnnotation] = "" }), machine("w1")},
		"a machine of a cluster that is paused":    {aScene(silent(6*time.Minute, "w1"), func(s *scene) { s.cluster.Spec.Paused = ptr.To(true) }), machine("w1")},
		"a control plane that is not initialized":  {aScene(awaiting("w1"), func(s *scene) { s.cluster.Status.Conditions[0].Status = metav1.ConditionFalse }), machine("w1")},
		"an infrastructure that is not ready":      {aScene(awaiting("w1"), func(s *scene) { s.cluster.Status.Conditions[1].Status = metav1.ConditionFalse }), machine("w1")},
		"a cluster out of the manager's sight":     {aScene(silent(6*time.Minute, "w1"), outOfSight), machine("w1")},
		"a check that counts what nobody sees": {aScene(annotated("w1", clusterv1.RemediateMachineAnnotation), outOfSight,
			wrote("False", "TooManyUnhealthy", "Too many machines are not healthy: the condition RemediationAllowed of MachineHealthCheck workers has the numbers")), check("workers")},
		"a cluster that answers probes alone": {aScene(silent(6*time.Minute, "w1"), outOfSight, answersProbesAlone), machine("w1")},
		"a cluster out of the user's sight":   {aScene(silent(6*time.Minute, "w1"), askedOwner("w1", "WaitingForRemediation", ""), func(s *scene) { s.unseen = `secrets "c1-kubeconfig" is forbidden` }), machine("w1")},
		"an unseen machine that is healthy":   {aScene(unseen), machine("w1")},
		"an unseen machine that is blocked":   {aScene(unseen, wrote("False", "TooManyUnhealthy", "Too many are unhealthy")), machine("w1")},
		"an unseen machine within its timeout": {aScene(unseen, wrote("False", "WithinTimeout",
			"Its timeout of 5m0s has not expired: Node condition Ready is Unknown (NodeStatusUnknown). This ends at 2026-01-01T12:04:00Z at the latest")), machine("w1")},
		"an unseen machine that is remediated": {aScene(unseen, byTemplate, wrote("True", mendv1.RequestedReason, "Metal3Remediation w1 is in progress for the machine")), machine("w1")},
		"a machine whose timeout is 0": {aScene(silent(6*time.Minute, "w1"), func(s *scene) {
			s.check.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = ptr.To[int32](0)
		}), machine("w1")},
		"an unseen machine of a manager that is gone": {aScene(unseen, managerGone), machine("w1")},
		"an unseen machine of a check that is not claimed": {
			aScene(unseen, silent(6*time.Minute, "w1"), func(s *scene) { s.check.Annotations = nil }), machine("w1"),
		},
		"a cluster that neither the user nor the manager sees": {aScene(silent(6*time.Minute, "w1"), outOfSight, func(s *scene) {
			s.unseen = `secrets "c1-kubeconfig" is forbidden`
		}), machine("w1")},
		"the status of unseen machines":     {aScene(unseen, wrote("False", "TooManyUnhealthy", "Too many are unhealthy")), nil},
		"a machine that is short-circuited": {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")), machine("w1")},
		"a machine outside of the range": {aScene(silent(6*time.Minute, "w1"), func(s *scene) {
			s.check.Spec.Remediation.TriggerIf = clusterv1.MachineHealthCheckRemediationTriggerIf{UnhealthyInRange: "[2-3]"}
		}), machine("w1")},
		"a machine on its way out": {aScene(silent(6*time.Minute, "w1"), func(s *scene) {
			s.machines["w1"].DeletionTimestamp, s.machines["w1"].Finalizers = ptr.To(at(time.Minute)), []string{"a/b"}
		}), machine("w1")},
		"a template that is not there":     {aScene(silent(6*time.Minute, "w1"), byTemplate), machine("w1")},
		"no manager runs":                  {aScene(silent(6*time.Minute, "w1"), managerGone), machine("w1")},
		"what the user may not read":       {aScene(barred(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"))), machine("w1")},
		"a check that is short-circuited":  {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")), check("workers")},
		"a check with an impossible limit": {aScene(silent(6*time.Minute, "w1"), func(s *scene) { s.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo.StrVal = "some" }), check("workers")},
		"a host that is being powered off": {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff)), machine("w1")},
		"a host without a power cycle":     {aScene(powerCycled("")), host("rack-w1")},
		"a host that does not exist":       {aScene(powerCycled("")), host("rack-w9")},
		"a host whose power-on has an error": {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOn,
			func(h *bmov1alpha1.BareMetalHost, r *mendv1.HostRemediation) {
				h.Status.PoweredOn, h.Status.ErrorType, h.Status.ErrorMessage = false, bmov1alpha1.PowerManagementError, "BMC does not answer"
				remembers(r, powercycle.Memory{
					State: powercycle.PoweringOn, Since: noon.Add(-time.Minute), Attempt: 1, Began: noon.Add(-2 * time.Minute), Faulted: true,
				})
				says(r, powercycle.PowerOnFailedReason, powercycle.Cycle{Facts: powercycle.Facts{
					Power: powercycle.Power{Trouble: "power management error: BMC does not answer"},
				}})
			})), remediation("w1")},
		"a host of the control plane that waits for another one": {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.Pending), controlPlane), machine("w1")},
		"a remediation that is paused": {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.Booting,
			func(_ *bmov1alpha1.BareMetalHost, r *mendv1.HostRemediation) {
				r.Annotations[clusterv1.PausedAnnotation] = ""
				remembers(r, powercycle.Memory{
					State: powercycle.Booting, Since: noon.Add(-2 * time.Minute), Attempt: 1, Began: noon.Add(-2 * time.Minute), Paused: noon.Add(-time.Minute),
				})
				facts := powercycle.Facts{Pause: "by its annotation " + clusterv1.PausedAnnotation}
				says(r, powercycle.PausedReason, powercycle.Cycle{Facts: facts})
			})), remediation("w1")},
		"a remediation of a kind that others serve": {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff),
			func(s *scene) {
				s.says.Kinds = []managerlease.Kind{{CRD: "hostremediations.kubemend.io", Reason: "Off", Because: "it is switched off by a flag"}}
			}), remediation("w1")},
		"a remediation that does not exist": {aScene(), remediation("w9")},
		"a node of a machine":               {aScene(silent(2*time.Minute, "w1")), node("node-w1")},
		"a node that does not exist":        {aScene(), node("node-w9")},
		"a node that its cluster does not have": {aScene(), func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
			return Node(ctx, a, "default", "c2", "node-w1")
		}},
		"a node that no namespace has": {aScene(), func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
			return Node(ctx, a, "", "", "node-w9")
		}},
		"a node of the management cluster within its time": {aScene(ownNodes(2 * time.Minute)), node("n1")},
		"a node whose remediation begins":                  {aScene(ownNodes(6 * time.Minute)), node("n1")},
		"a node after a storm":                             {aScene(ownNodes(6*time.Minute, cooling)), node("n1")},
		"a node that somebody else works on":               {aScene(ownNodes(6*time.Minute), leased), node("n1")},
		"a node that no check selects": {aScene(ownNodes(6*time.Minute, func(c *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
			c.Spec.Selector.MatchLabels = map[string]string{"pool": "others"}
		})), node("n1")},
		"a check of nodes that is paused": {aScene(ownNodes(6*time.Minute, func(c *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
			c.Spec.PauseRequests = []string{"upgrade by Ann"}
		})), nodeCheck("own-nodes")},
		"the status where all are healthy":          {aScene(), nil},
		"the status when much is wrong":             {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3"), secondCheck, kindNotServed), nil},
		"the status when a cluster is out of sight": {aScene(outOfSight), nil},
		"the status when no manager runs":           {aScene(func(s *scene) { s.manager.Spec.HolderIdentity = nil }), nil},
	}
	maps.Copy(stories, moreMachines())
	maps.Copy(stories, evidence())
	maps.Copy(stories, moreHosts())
	maps.Copy(stories, moreChecks())
	golden.Stories(t, "stories", stories, answered)
}

// reported adds conditions of the manager by which all machines with a node are healthy.
func reported(s *scene) {
	s.reports = true
	for name, m := range s.machines {
		if m.Status.NodeRef.Name != "" {
			s.said(name, clusterv1.MachineHealthCheckSucceededCondition, "True", clusterv1.MachineHealthCheckSucceededReason, "", time.Hour)
		}
	}
}

// unseen hides the nodes from the user, and adds the conditions of reported.
func unseen(s *scene) {
	s.unseen = `secrets "c1-kubeconfig" is forbidden`
	reported(s)
}

// wrote adds the condition Remediation, which the manager writes, to w1.
func wrote(status metav1.ConditionStatus, reason, message string) func(*scene) {
	return func(s *scene) {
		s.said("w1", mendv1.Remediation, status, reason, message, time.Minute)
		if i := slices.IndexFunc(s.machines["w1"].Status.Conditions, func(cond metav1.Condition) bool {
			return cond.Type == clusterv1.MachineHealthCheckSucceededCondition && reason != "WithinTimeout"
		}); i >= 0 {
			cond := &s.machines["w1"].Status.Conditions[i]
			cond.Status, cond.Reason, cond.LastTransitionTime = metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason, at(time.Minute)
			cond.Message = "Health check failed:\n  * Condition Ready on Node is reporting status Unknown for more than 5m0s"
		}
	}
}

func askedOwner(name, reason, message string) func(*scene) {
	return func(s *scene) {
		s.said(name, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason,
			"Health check failed:\n  * Condition Ready on Node is reporting status Unknown", time.Minute)
		s.said(name, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, reason, message, time.Minute)
	}
}

func kindNotServed(s *scene) {
	s.says.Kinds = []managerlease.Kind{
		{CRD: "machinehealthchecks.cluster.x-k8s.io"},
		{CRD: "metal3remediations.infrastructure.cluster.x-k8s.io", Reason: "Foreign",
			Because: "its CustomResourceDefinition belongs to infrastructure-metal3, whose controller serves it"},
	}
}

func secondCheck(s *scene) {
	other := s.check.DeepCopy()
	other.Name, other.UID, other.CreationTimestamp = "everything", "other", at(48*time.Hour)
	other.Spec.Selector.MatchLabels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	s.others = append(s.others, other)
}

// olderCheckUnclaimed leaves the check of secondCheck to Cluster API core.
func olderCheckUnclaimed(s *scene) { s.others[len(s.others)-1].SetAnnotations(nil) }

func outOfSight(s *scene) {
	reported(s)
	s.check.Status.ExpectedMachines, s.check.Status.CurrentHealthy = ptr.To(int32(len(s.machines))), ptr.To[int32](0)
	s.check.Status.Conditions = append(s.check.Status.Conditions, metav1.Condition{
		Type: mendv1.WorkloadClusterReachable, Status: metav1.ConditionFalse, Reason: mendv1.UnreachableReason, LastTransitionTime: at(4 * time.Minute),
		Message: "The workload cluster has been out of reach since 2026-01-01T11:56:00Z; kubemend cannot judge nodes, so it starts and ends " +
			"no remediation because of a node",
	}, metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Message: "Remediation is not allowed, as the manager wrote",
	})
}

// answersProbesAlone sets the manager's message about an unreachable cluster that answers only probes.
func answersProbesAlone(s *scene) {
	s.check.Status.Conditions[0].Message = "The API server answers probes, but other requests get no answer or an endless one. " +
		"kubemend sends one request at a time, with pauses. The workload cluster has been out of reach since 2026-01-01T11:56:00Z; " +
		"kubemend cannot judge nodes, so it starts and ends no remediation because of a node"
}

func byTemplate(s *scene) {
	s.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3RemediationTemplate", Name: "reboot",
	}
}

// moreMachines has stories about machines with several findings, with messages of their owners, and with unusual checks.
func moreMachines() map[string]story {
	clusterGoes := func(s *scene) { goes(&s.cluster.ObjectMeta) }
	checkGoes := func(s *scene) { goes(&s.check.ObjectMeta) }
	return map[string]story{
		"a machine with two findings, one of which is not due": {aScene(silent(6*time.Minute, "w1"), fullDisk("w1", time.Minute)), machine("w1")},
		"a machine of a control plane that cannot replace it":  {aScene(silent(6*time.Minute, "w1"), ownedBy("w1", "KubeadmControlPlane", "cp"), askedOwner("w1", "CannotBeRemediated", "* KubeadmControlPlane default/cp has 1 replica")), machine("w1")},
		"a machine that its owner deletes":                     {aScene(silent(6*time.Minute, "w1"), askedOwner("w1", "MachineDeleting", "Machine is deleting")), machine("w1")},
		"a machine that no check selects whose node is silent": {aScene(nodeReadySaid("w1"), selectsNothing), machine("w1")},
		"a machine whose check does not look at its node":      {aScene(nodeReadySaid("w1"), looksAtNoNode), machine("w1")},
		"a machine whose owner is paused": {aScene(silent(6*time.Minute, "w1"), askedOwner("w1", "WaitingForRemediation", ""),
			func(s *scene) { s.set.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }), machine("w1")},
		"a machine of an owner of another provider": {aScene(silent(6*time.Minute, "w1"), ownedBy("w1", "K3sControlPlane", "cp"),
			askedOwner("w1", "WaitingForRemediation", "")), machine("w1")},
		"a machine without an owner":                          {aScene(silent(6*time.Minute, "w1"), ownedBy("w1", "", "")), machine("w1")},
		"a machine whose older check is paused":               {aScene(silent(6*time.Minute, "w1"), secondCheck, olderCheckPaused("maintenance")), machine("w1")},
		"a machine on whose older check Cluster API acts":     {aScene(silent(6*time.Minute, "w1"), secondCheck, olderCheckUnclaimed), machine("w1")},
		"a machine of a cluster that does not exist":          {aScene(func(s *scene) { s.check.Spec.ClusterName, s.machines["w1"].Spec.ClusterName = "c9", "c9" }), machine("w1")},
		"a machine of a cluster that is being deleted":        {aScene(silent(6*time.Minute, "w1"), clusterGoes), machine("w1")},
		"a machine of a check that is being deleted":          {aScene(silent(6*time.Minute, "w1"), checkGoes), machine("w1")},
		"a machine whose checks the user may not read":        {aScene(silent(6*time.Minute, "w1"), machineChecksBarred), machine("w1")},
		"a machine that has been given all the time":          {aScene(awaiting("w1"), func(s *scene) { s.check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](0) }), machine("w1")},
		"a node of whose name the management cluster has one": {aScene(silent(2*time.Minute, "w1"), ownNodes(time.Minute), func(s *scene) { s.machines["w1"].Status.NodeRef.Name = "n1" }), node("n1")},
	}
}

// moreHosts has stories about the power of hosts.
func moreHosts() map[string]story {
	retired := func(h *bmov1alpha1.BareMetalHost, _ *mendv1.HostRemediation) {
		h.Annotations = map[string]string{infrav1.UnhealthyAnnotation: "", infrav1.LegacyUnhealthyAnnotation: ""}
	}
	byHand := func(_ *bmov1alpha1.BareMetalHost, r *mendv1.HostRemediation) {
		r.Name, r.Finalizers = "w1-by-hand", nil
		remembers(r, powercycle.Memory{State: powercycle.Succeeded, Since: noon.Add(-4 * time.Minute), Attempt: 1, Touched: true,
			Cause: powercycle.Cause{Step: powercycle.Step{
				Reason: powercycle.MachineHealthyReason, Do: powercycle.Advance, Next: powercycle.Succeeded,
			}}})
		says(r, powercycle.MachineHealthyReason, powercycle.Cycle{})
	}
	free := func(h *bmov1alpha1.BareMetalHost, _ *mendv1.HostRemediation) { h.Spec.ConsumerRef = nil }
	ownerRequested := func(h *bmov1alpha1.BareMetalHost, r *mendv1.HostRemediation) {
		r.Finalizers = nil
		h.Annotations = map[string]string{infrav1.UnhealthyAnnotation: "", infrav1.LegacyUnhealthyAnnotation: ""}
		remembers(r, powercycle.Memory{State: powercycle.OwnerRequested, Since: noon.Add(-time.Minute), Attempt: 2, Began: noon.Add(-20 * time.Minute), Touched: true, StartedUnhealthy: true,
			Marked: true, Cause: powercycle.Cause{Step: powercycle.Step{
				Reason: powercycle.NodeStillUnhealthyReason, Do: powercycle.Advance, From: powercycle.Booting, Next: powercycle.RequestingOwner,
			}}})
		says(r, powercycle.OwnerRequestedReason, powercycle.Cycle{})
	}
	moving := func(h *bmov1alpha1.BareMetalHost, r *mendv1.HostRemediation) {
		facts := powercycle.Facts{Left: []string{"Pod default/database-0"}, LeftCount: 1}
		says(r, powercycle.WorkloadMovingReason, powercycle.Cycle{Facts: facts})
		h.Status.PoweredOn, h.Annotations = false, map[string]string{held("rem-w1"): ""}
	}
	deferred := "Waiting for remediation: power-cycling the host did not help"
	return map[string]story{
		"a host of a healthy machine that is cycled by hand": {aScene(powerCycled(powercycle.PoweringOff, func(_ *bmov1alpha1.BareMetalHost, r *mendv1.HostRemediation) { r.Name = "w1-by-hand" })), machine("w1")},
		"a host whose workload moves":                        {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.MovingWorkload, moving), fenced("w1")), machine("w1")},
		"a host whose owner is to remediate it":              {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.OwnerRequested, ownerRequested), askedOwner("w1", "WaitingForRemediation", deferred)), machine("w1")},
		"a host whose owner puts its remediation off":        {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.OwnerRequested, ownerRequested), ownedBy("w1", "KubeadmControlPlane", "cp"), askedOwner("w1", "RemediationDeferred", "* KubeadmControlPlane default/cp can't remediate while there are control plane Machines deleting")), machine("w1")},
		"a host that is kept off by an unknown remediation and by hand": {aScene(powerCycled("", func(h *bmov1alpha1.BareMetalHost, _ *mendv1.HostRemediation) {
			h.Annotations = map[string]string{held("gone"): "", "reboot.metal3.io/by-hand": "", infrav1.RebootAnnotation: ""}
		})), host("rack-w1")},
		"a machine whose power cycle is over":              {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.Succeeded, byHand)), machine("w1")},
		"a machine that was power-cycled":                  {aScene(powerCycledBefore), machine("w1")},
		"a host that is out of service":                    {aScene(powerCycled("", retired, free), powerCycledBefore), host("rack-w1")},
		"a host of a machine that is out of service":       {aScene(powerCycled("", retired)), host("rack-w1")},
		"a machine of a cluster that does not answer you":  {aScene(silent(6*time.Minute, "w1"), noAnswer), machine("w1")},
		"the status when a cluster does not answer you":    {aScene(noAnswer), nil},
		"a host of no machine that is held off":            {aScene(powerCycled(powercycle.PoweringOff, free)), host("rack-w1")},
		"a check of which a host is power-cycled":          {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff)), check("workers")},
		"the status while a host is power-cycled":          {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff)), nil},
		"a check that a policy claimed":                    {aScene(claimedByPolicy), check("workers")},
		"a check whose remediations the user may not read": {aScene(silent(6*time.Minute, "w1"), askedOwner("w1", "WaitingForRemediation", ""), barred(mendv1.GroupVersion.WithKind("HostRemediation"))), check("workers")},
	}
}

// moreChecks has stories about checks.
func moreChecks() map[string]story {
	tooMany := []func(*scene){silent(6*time.Minute, "w1", "w2", "w3")}
	leftOver := func(s *scene) {
		s.check.Annotations["kubemend.io/max-in-flight"] = "1"
		metav1.SetMetaDataLabel(&s.cluster.ObjectMeta, "kubemend.io/machine-health-checks", "act")
	}
	badLimit := func(s *scene) { s.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo.StrVal = "some" }
	smallLimit := func(s *scene) { s.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo.StrVal = "10%" }
	barredNodes := barred(nhcv1.GroupVersion.WithKind("NodeHealthCheck"))
	return map[string]story{
		"a check of which two are pending":                            {aScene(silent(time.Minute, "w1"), silent(2*time.Minute, "w2")), check("workers")},
		"a check that is short-circuited by the unhealthy":            {aScene(tooMany...), check("workers")},
		"a machine within its time whose check waits for spare hosts": {aScene(silent(2*time.Minute, "w1"), waitsForSpare(0)), machine("w1")},
		"a check of a cluster out of the user's sight that says what blocks it": {
			aScene(tooManySaid, func(s *scene) { s.unseen = `secrets "c1-kubeconfig" is forbidden` }), check("workers"),
		},
		"a machine that waits for a spare host":                      {aScene(silent(6*time.Minute, "w1", "w2"), waitsForSpare(0)), machine("w1")},
		"a machine that waits for a spare host of which one is free": {aScene(silent(6*time.Minute, "w1"), waitsForSpare(1), hostless("w2")), machine("w1")},
		"a machine on a host that is externally provisioned": {aScene(silent(6*time.Minute, "w1"), hosted(func(h *bmov1alpha1.BareMetalHost) {
			h.Status.Provisioning.State = bmov1alpha1.StateExternallyProvisioned
		})), machine("w1")},
		"a check of which one machine has a spare host":      {aScene(silent(6*time.Minute, "w1", "w2"), waitsForSpare(1)), check("workers")},
		"a check that selects nothing":                       {aScene(selectsNothing), check("workers")},
		"a check whose limit allows none":                    {aScene(smallLimit), check("workers")},
		"a check of which a rule is never met":               {aScene(neverMet), check("workers")},
		"a check of which a field was dropped":               {aScene(fieldDropped), check("workers")},
		"the status of a check of which a rule is never met": {aScene(neverMet), nil},
		"a machine that the other of two checks remediates": {aScene(silent(6*time.Minute, "w1"), secondCheck, byTemplate, requestedForW1, reported,
			wrote("True", mendv1.RequestedReason, "Metal3Remediation w1 is in progress for the machine")), machine("w1")},
		"the status of checks that do nothing": {aScene(secondCheck, selectsNothing), nil},
		"a healthy machine and no manager":     {aScene(managerGone), machine("w1")},
		"a check that cannot be explained":     {aScene(barred(clusterv1.GroupVersion.WithKind("Machine"))), check("workers")},
		"the status of machines that no check selects": {aScene(silent(time.Minute, "w1"), func(s *scene) {
			s.machines["w1"].Labels["pool"], s.machines["w2"].Labels["pool"] = "gpu", "gpu"
			s.others = append(s.others, aHost("h1", "a", bmov1alpha1.StateAvailable, func(h *bmov1alpha1.BareMetalHost) {
				h.Annotations = map[string]string{infrav1.UnhealthyAnnotation: ""}
			}))
		}), nil},
		"the status of a check that does not look at nodes": {aScene(nodeReadySaid("w1"), looksAtNoNode), nil},
		"the status with an annotation that is gone":        {aScene(silent(6*time.Minute, "w1"), leftOver), nil},
		"the status with an impossible limit":               {aScene(silent(6*time.Minute, "w1"), badLimit), nil},
		"the status of what is not claimed, or is paused":   {aScene(silent(6*time.Minute, "w1"), secondCheck, olderCheckPaused("maintenance"), func(s *scene) { s.check.Annotations = nil }), nil},
		"the status when the user sees no checks":           {aScene(ownNodes(time.Minute), machineChecksBarred, barredNodes), nil},
		"the status when there is no cluster":               {aScene(func(s *scene) { s.check.Spec.ClusterName = "c9" }), nil},
	}
}

// hosted puts w1 on a host, and edits the host.
func hosted(edit func(*bmov1alpha1.BareMetalHost)) func(*scene) {
	return func(s *scene) {
		s.onHost(s.machines["w1"])
		for _, obj := range s.others {
			if h, host := obj.(*bmov1alpha1.BareMetalHost); host {
				edit(h)
			}
		}
	}
}

// neverMet sets a status in a rule of the check that no condition can have.
func neverMet(s *scene) { s.check.Spec.Checks.UnhealthyNodeConditions[1].Status = "false" }

// fieldDropped adds the manager's condition that the API server dropped a field of the check.
func fieldDropped(s *scene) {
	s.check.Status.Conditions = append(s.check.Status.Conditions, metav1.Condition{
		Type: mendv1.Effective, Status: metav1.ConditionFalse, Reason: mendv1.FieldDroppedReason, LastTransitionTime: at(time.Hour),
		Message: "The field \"unhealthyNodeConditions\", which was applied in spec, does not exist in cluster.x-k8s.io/v1beta2: the API server has dropped it",
	})
}

// requestedForW1 adds a template to the check, and a request for w1 from that template.
func requestedForW1(s *scene) {
	template := unknownKind("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate", "default", "reboot", emptyTemplate())
	req := unknownKind("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Remediation", "default", "w1", nil)
	req.SetUID("request")
	req.SetLabels(map[string]string{mendv1.MadeByUIDLabel: "check"})
	req.SetAnnotations(map[string]string{mendv1.MadeByAnnotation: "workers"})
	req.SetCreationTimestamp(at(time.Minute))
	req.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "w1", UID: "w1"}})
	s.others = append(s.others, template, req)
}

// selectsNothing sets a selector of the check that no machine matches.
func selectsNothing(s *scene) {
	s.check.Spec.Selector.MatchLabels = map[string]string{"nodepool": "nodepool-0"}
}

// nodeReadySaid makes a worker's node silent, and adds Cluster API's condition about that.
func nodeReadySaid(name string) func(*scene) {
	return func(s *scene) {
		silent(time.Minute, name)(s)
		s.said(name, clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown, "NodeReadyUnknown", "", time.Minute)
	}
}

// managerGone ends the lease of the manager.
func managerGone(s *scene) { s.manager.Spec.RenewTime.Time = noon.Add(-time.Hour) }

// looksAtNoNode removes the rules about nodes from the check.
func looksAtNoNode(s *scene) { s.check.Spec.Checks.UnhealthyNodeConditions = nil }

// noAnswer makes the workload cluster not answer the user.
func noAnswer(s *scene) { s.unseen = "no answer came in time" }

// powerCycledBefore adds the record of a power cycle that healed w1.
func powerCycledBefore(s *scene) {
	begun, ended := at(40*time.Minute), at(39*time.Minute)
	r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1-x7k2p"}}
	r.Spec.Target.Machine, r.Spec.Target.Host = &mendv1.RecordRef{Kind: "Machine", Name: "w1"}, &mendv1.RecordRef{Kind: "BareMetalHost", Name: "rack-w1"}
	r.Status = mendv1.RemediationRecordStatus{Begun: &begun, Ended: &ended, Outcome: mendv1.RecordHealed,
		Requests: []mendv1.RecordRef{{Kind: "HostRemediation", Name: "w1"}}}
	s.others = append(s.others, r)
}

// fullDisk adds DiskPressure to a worker's node, and a rule of the check with a timeout of two minutes for it.
func fullDisk(name string, ago time.Duration) func(*scene) {
	return func(s *scene) {
		s.check.Spec.Checks.UnhealthyNodeConditions = append(s.check.Spec.Checks.UnhealthyNodeConditions,
			clusterv1.UnhealthyNodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](120)})
		s.nodes[name].Status.Conditions = append(s.nodes[name].Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: "KubeletHasDiskPressure", LastTransitionTime: at(ago)})
	}
}

// ownedBy sets the owner of a worker, or removes it if kind is empty.
func ownedBy(worker, kind, name string) func(*scene) {
	return func(s *scene) {
		owners := &s.machines[worker].OwnerReferences
		if (*owners)[0].Kind, (*owners)[0].Name = kind, name; kind == "" {
			*owners = nil
		}
	}
}

// olderCheckPaused sets the paused annotation of the older of two checks, or removes it if value is empty.
func olderCheckPaused(value string) func(*scene) {
	return func(s *scene) {
		for _, o := range s.others {
			if older, is := o.(*clusterv1.MachineHealthCheck); is && value == "" {
				older.Annotations = nil
			} else if is {
				older.Annotations[clusterv1.PausedAnnotation] = value
			}
		}
	}
}

// goes marks an object as being deleted, with a finalizer.
func goes(o *metav1.ObjectMeta) {
	o.DeletionTimestamp, o.Finalizers = ptr.To(at(time.Minute)), []string{"a/b"}
}

var machineChecksBarred = barred(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))

// fenced adds the out-of-service taint of a remediation to a worker's node.
func fenced(name string) func(*scene) {
	return func(s *scene) {
		n := s.nodes[name]
		n.Spec.Taints = []corev1.Taint{{Key: infrav1.OutOfServiceTaintKey, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
		n.Annotations = map[string]string{fence.FencedByAnnotation: "rem-" + name}
	}
}

// claimedByPolicy adds the annotation of a check that a policy has claimed.
func claimedByPolicy(s *scene) {
	s.check.Annotations[mendv1.ClaimedByAnnotation] = mendv1.ClaimedByPolicy
}

// ownNodes adds five nodes of the management cluster, the first of them silent, and a NodeHealthCheck with a template.
func ownNodes(ago time.Duration, edits ...func(*nhcv1.NodeHealthCheck, []*corev1.Node)) func(*scene) {
	return func(s *scene) {
		check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "own-nodes", UID: "own-nodes"}}
		check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 5 * time.Minute}},
		}
		check.Spec.RemediationTemplate = &corev1.ObjectReference{
			APIVersion: "remediation.example.com/v1", Kind: "RebootTemplate", Namespace: "templates", Name: "reboot",
		}
		template := unknownKind("remediation.example.com/v1", "RebootTemplate", "templates", "reboot", emptyTemplate())
		var nodes []*corev1.Node
		for i := 1; i <= 5; i++ {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"pool": "own"}}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: at(time.Hour)}}
			nodes = append(nodes, n)
			s.others = append(s.others, n)
		}
		nodes[0].Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: at(ago),
		}
		for _, edit := range edits {
			edit(check, nodes)
		}
		s.others = append(s.others, check, template)
		s.kinds = append(s.kinds, template.GroupVersionKind(), template.GroupVersionKind().GroupVersion().WithKind("Reboot"))
	}
}

// cooling adds the conditions of a storm that cools down to a check.
func cooling(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Spec.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
	for _, kind := range []string{nhcv1.StormActiveCondition, nhcv1.StormCooldownActiveCondition} {
		check.Status.Conditions = append(check.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: nhcv1.ThresholdReason, LastTransitionTime: at(4 * time.Minute),
		})
	}
}

// leased adds a lease by which another controller works on node n1.
func leased(s *scene) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: "node-n1"}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("node-maintenance"), ptr.To[int32](3600)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-10 * time.Minute)}
	s.others = append(s.others, lease)
}
