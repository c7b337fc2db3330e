package page

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// page80and200 is an explanation as it is printed for a narrow terminal and for a wide one.
func page80and200(t *testing.T, e *Explanation, err error) string {
	t.Helper()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out bytes.Buffer
	for _, width := range []int{80, 200} {
		fmt.Fprintf(&out, "==== %d columns\n", width)
		if err := e.Print(&out, text.Layout{Width: width}); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// answered is the answer to a story's question, or how its checks stand.
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

// standing is how all checks of the scene stand.
func standing(t *testing.T, s *scene) *Status {
	t.Helper()
	all, err := Of(t.Context(), s.asker(t), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// status is the same, printed likewise.
func status(t *testing.T, s *scene) string {
	t.Helper()
	return printedAs(t, standing(t, s), text.Layout{Width: 80}, text.Layout{Width: 200, Namespaces: true})
}

func printedAs(t *testing.T, all *Status, layouts ...text.Layout) string {
	t.Helper()
	var out bytes.Buffer
	for _, l := range layouts {
		fmt.Fprintf(&out, "==== %d columns\n", l.Width)
		if err := all.Print(&out, l); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// story is a scene and the question that is asked in it.
type story struct {
	scene *scene
	ask   func(context.Context, *inspect.Asker) (*Explanation, error)
}

func machine(name string) func(context.Context, *inspect.Asker) (*Explanation, error) {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return Machine(ctx, a, client.ObjectKey{Namespace: "default", Name: name})
	}
}

func check(name string) func(context.Context, *inspect.Asker) (*Explanation, error) {
	return func(ctx context.Context, a *inspect.Asker) (*Explanation, error) {
		return MachineHealthCheck(ctx, a, client.ObjectKey{Namespace: "default", Name: name})
	}
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
		"an unseen machine that is remediated": {aScene(unseen, byTemplate, wrote("True", mendv1.RequestedReason, "Metal3Remediation w1 is under way for the machine")), machine("w1")},
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
		"a machine that waits for others": {aScene(silent(6*time.Minute, "w1"), silent(7*time.Minute, "w2"), func(s *scene) { s.check.Annotations[mendv1.MaxInFlightAnnotation] = "1" }), machine("w1")},
		"a machine on its way out": {aScene(silent(6*time.Minute, "w1"), func(s *scene) {
			s.machines["w1"].DeletionTimestamp, s.machines["w1"].Finalizers = ptr.To(at(time.Minute)), []string{"a/b"}
		}), machine("w1")},
		"a template that is not there":     {aScene(silent(6*time.Minute, "w1"), byTemplate), machine("w1")},
		"no manager runs":                  {aScene(silent(6*time.Minute, "w1"), managerGone), machine("w1")},
		"what the user may not read":       {aScene(func(s *scene) { s.lacks["BareMetalHosts in all namespaces"] = "forbidden" }), machine("w1")},
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
				says(r, powercycle.PausedReason, powercycle.Cycle{Pause: "by its annotation " + clusterv1.PausedAnnotation})
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

// reported has the manager say that all machines with a node are healthy.
func reported(s *scene) {
	s.reports = true
	for name, m := range s.machines {
		if m.Status.NodeRef.Name != "" {
			s.said(name, clusterv1.MachineHealthCheckSucceededCondition, "True", clusterv1.MachineHealthCheckSucceededReason, "", time.Hour)
		}
	}
}

// unseen hides the nodes from the user, and has the manager say that all machines are healthy.
func unseen(s *scene) {
	s.unseen = `secrets "c1-kubeconfig" is forbidden`
	reported(s)
}

// wrote has the manager say so of w1.
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

func outOfSight(s *scene) {
	reported(s)
	s.check.Status.ExpectedMachines, s.check.Status.CurrentHealthy = ptr.To(int32(len(s.machines))), ptr.To[int32](0)
	s.check.Status.Conditions = append(s.check.Status.Conditions, metav1.Condition{
		Type: mendv1.WorkloadClusterReachable, Status: metav1.ConditionFalse, Reason: mendv1.UnreachableReason, LastTransitionTime: at(4 * time.Minute),
		Message: "The workload cluster has been out of reach since 2026-01-01T11:56:00Z; machines cannot be judged as far as their nodes are " +
			"concerned, and nothing is started or ended because of them",
	}, metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Message: "Remediation is not allowed, as the manager wrote",
	})
}

// answersProbesAlone is what the manager says of a cluster out of its sight that leaves requests unanswered.
func answersProbesAlone(s *scene) {
	s.check.Status.Conditions[0].Message = "The API server answers probes, and leaves other requests unanswered or answers " +
		"them without end, so it is asked one at a time, after pauses. The workload cluster has been out of reach since 2026-01-01T11:56:00Z; machines are " +
		"unknown as far as their nodes are concerned, and nothing is started or ended because of them"
}

func byTemplate(s *scene) {
	s.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3RemediationTemplate", Name: "reboot",
	}
}
