package inspect

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodeScene is a cluster with nodes and the checks that watch them.
type nodeScene struct {
	checks []*nhcv1.NodeHealthCheck
	nodes  []*corev1.Node
	others []client.Object
}

var (
	remediators  = schema.GroupVersion{Group: "remediators.medik8s.io", Version: "v1alpha1"}
	requestKinds = []string{"RebootRemediation", "ReplaceRemediation"}
)

func (s *nodeScene) snapshot(t reporter) *snapshot.Snapshot {
	t.Helper()
	w := snapshot.New()
	w.Taken = noon
	objs := s.others
	for _, kind := range requestKinds {
		w.Install(remediators.WithKind(kind), "plural-of-"+kind, true)
		template := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"how": "well"}}},
		}}
		template.SetGroupVersionKind(remediators.WithKind(kind + remediationrequest.TemplateSuffix))
		template.SetNamespace("ns")
		template.SetName("usual")
		objs = append(objs, template)
	}
	for _, c := range s.checks {
		objs = append(objs, c)
	}
	for _, n := range s.nodes {
		objs = append(objs, n)
	}
	if err := w.Add(objs...); err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// aNodeCheck watches all nodes, which may not be ready for five minutes, and has them rebooted as long as one is healthy.
func aNodeCheck(name string) *nhcv1.NodeHealthCheck {
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1}}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		c.Spec.UnhealthyConditions = append(c.Spec.UnhealthyConditions, nhcv1.UnhealthyCondition{
			Type: corev1.NodeReady, Status: status, Duration: metav1.Duration{Duration: 5 * time.Minute},
		})
	}
	c.Spec.MinHealthy = ptr.To(intstr.FromInt32(1))
	c.Spec.RemediationTemplate = ptr.To(templateFrom("RebootRemediation", "usual"))
	return c
}

func templateFrom(kind, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: remediators.String(), Kind: kind + remediationrequest.TemplateSuffix, Namespace: "ns", Name: name}
}

func aRandomNodeScene(t *rapid.T) *nodeScene {
	s := &nodeScene{}
	for i := range rapid.IntRange(1, 2).Draw(t, "checks") {
		s.randomCheck(t, fmt.Sprintf("check-%c", 'a'+i))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
		s.randomNode(t, fmt.Sprintf("n%d", i))
	}
	if odds(t, "a machine's cluster", 2) {
		s.others = append(s.others, aCluster("c1"))
	}
	return s
}

func (s *nodeScene) randomCheck(t *rapid.T, name string) {
	c := aNodeCheck(name)
	if odds(t, "only some", 3) {
		c.Spec.Selector.MatchLabels = map[string]string{"pool": "a"}
	}
	for i := range c.Spec.UnhealthyConditions {
		c.Spec.UnhealthyConditions[i].Duration.Duration = pick(t, "patience", 0, 30*time.Second, 5*time.Minute, 10*time.Minute)
	}
	if limit := pick(t, "limit", "", "", "0", "51%", "3", "max 40%", "max 1", "both"); limit != "" {
		var most string
		if _, err := fmt.Sscanf(limit, "max %s", &most); err == nil {
			c.Spec.MinHealthy, c.Spec.MaxUnhealthy = nil, ptr.To(intstr.Parse(most))
		} else if limit == "both" {
			c.Spec.MaxUnhealthy = ptr.To(intstr.FromInt32(1))
		} else {
			c.Spec.MinHealthy = ptr.To(intstr.Parse(limit))
		}
	}
	switch pick(t, "template", "reboot", "reboot", "ladder", "ladder", "missing", "none") {
	case "ladder":
		c.Spec.RemediationTemplate = nil
		for i, kind := range requestKinds {
			c.Spec.EscalatingRemediations = append(c.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
				RemediationTemplate: templateFrom(kind, "usual"), Order: i, Timeout: metav1.Duration{Duration: pick(t, "timeout", time.Minute, 5*time.Minute)},
			})
		}
	case "missing":
		c.Spec.RemediationTemplate = ptr.To(templateFrom("RebootRemediation", "missing"))
	case "none":
		c.Spec.RemediationTemplate = nil
	}
	if odds(t, "paused", 8) {
		c.Spec.PauseRequests = []string{"upgrade"}
	}
	if odds(t, "healthy delay", 3) {
		c.Spec.HealthyDelay = &metav1.Duration{Duration: pick(t, "delay", -time.Second, 0, time.Minute, 5*time.Minute)}
	}
	s.randomStorm(t, c)
	s.checks = append(s.checks, c)
}

func (s *nodeScene) randomStorm(t *rapid.T, c *nhcv1.NodeHealthCheck) {
	if odds(t, "cooldown", 2) {
		c.Spec.StormCooldownDuration = &metav1.Duration{Duration: pick(t, "cooldown", time.Minute, 10*time.Minute)}
	}
	for _, kind := range []string{nhcv1.StormActiveCondition, nhcv1.StormCooldownActiveCondition} {
		if !odds(t, kind, 2) {
			break // nothing cools down without a storm
		}
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: nhcv1.ThresholdReason, LastTransitionTime: ago(t, kind),
		})
	}
}

func (s *nodeScene) randomNode(t *rapid.T, name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: ago(t, "created"),
		Labels: map[string]string{"pool": pick(t, "pool", "a", "a", "b")}, Annotations: map[string]string{},
	}}
	if odds(t, "control plane", 3) {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	if odds(t, "excluded", 8) {
		n.Labels[nhcv1.ExcludeLabel] = pick(t, "excluded", nhcv1.ExcludeValue, "")
	}
	if odds(t, "confirmed", 6) {
		n.Annotations[nhcv1.ConfirmedHealthyAnnotation] = ""
	}
	// Not without: a reader does not know since when Ready is missing, nor since when a condition counts whose stamp is older than the Node.
	status := pick(t, "ready", corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionUnknown)
	at := ago(t, "ready")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Kubelet", LastTransitionTime: at}}
	if at.Before(&n.CreationTimestamp) {
		n.CreationTimestamp = at
	}
	if odds(t, "of a machine", 3) {
		s.randomMachineOf(t, n)
	}
	if odds(t, "leased", 5) {
		s.randomLease(t, n)
	}
	if odds(t, "requested", 3) {
		s.randomRequest(t, n)
	}
	if !odds(t, "gone", 8) {
		s.nodes = append(s.nodes, n)
	}
}

func (s *nodeScene) randomMachineOf(t *rapid.T, n *corev1.Node) {
	n.Annotations[clusterv1.MachineAnnotation], n.Annotations[clusterv1.ClusterNamespaceAnnotation] = "machine-of-"+n.Name, "ns"
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "machine-of-" + n.Name, UID: types.UID("uid-of-machine-of-" + n.Name),
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}, Annotations: map[string]string{},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", n.Name
	if _, is := n.Labels["node-role.kubernetes.io/control-plane"]; is {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	switch pick(t, "machine", "", "", "deleting", "skipped", "paused", "updating", "owner asked") {
	case "deleting":
		leaving(m)
	case "skipped":
		m.Annotations[clusterv1.MachineSkipRemediationAnnotation] = ""
	case "paused":
		m.Annotations[clusterv1.PausedAnnotation] = ""
	case "updating":
		say(m, clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, "Updating", at(time.Minute))
	case "owner asked":
		say(m, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "Waiting", at(time.Minute))
	}
	s.others = append(s.others, m)
}

func (s *nodeScene) randomLease(t *rapid.T, n *corev1.Node) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nhcv1.DefaultLeaseNamespace, Name: nhcv1.LeasePrefix + n.Name}}
	l.Spec.HolderIdentity = ptr.To(pick(t, "holder", "node-maintenance", nhcv1.LeaseHolderPrefix+s.checks[0].Name))
	l.Spec.LeaseDurationSeconds = ptr.To(pick[int32](t, "lease", 60, 600))
	l.Spec.AcquireTime = &metav1.MicroTime{Time: ago(t, "acquired").Time}
	l.Spec.RenewTime = l.Spec.AcquireTime
	s.others = append(s.others, l)
}

// randomRequest is a request for a node, of a check of the scene, of one of its name before it, or of an unknown maker.
func (s *nodeScene) randomRequest(t *rapid.T, n *corev1.Node) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(remediators.WithKind(pick(t, "kind", requestKinds...)))
	u.SetNamespace("ns")
	u.SetName(n.Name)
	u.SetUID(types.UID("uid-of-request-for-" + n.Name))
	u.SetCreationTimestamp(ago(t, "made"))
	annotations := map[string]string{nhcv1.NodeNameAnnotation: n.Name, nhcv1.TemplateNameAnnotation: "usual"}
	check := pick(t, "maker", s.checks...)
	by := pick(t, "mark", "ours", "ours", "ours", "predecessor", "unknown")
	if by != "unknown" {
		annotations[mendv1.MadeByNodeCheckAnnotation] = check.Name
		u.SetLabels(map[string]string{nhcv1.PartOfLabel: nhcv1.PartOf, mendv1.MadeByNodeCheckUIDLabel: map[string]string{
			"ours": string(check.UID), "predecessor": "another-uid"}[by]})
	}
	if odds(t, "timed out", 5) {
		annotations[nhcv1.TimedOutAnnotation] = ago(t, "timed out").UTC().Format(time.RFC3339)
	}
	u.SetAnnotations(annotations)
	if status := pick(t, "succeeded", "", "", "Unknown", "True", "False"); status != "" {
		u.Object["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": nhcv1.SucceededCondition, "status": status, "lastTransitionTime": ago(t, "succeeded").UTC().Format(time.RFC3339),
		}}}
	}
	if odds(t, "being deleted", 6) {
		leaving(u)
	}
	s.others = append(s.others, u)
	if by == "ours" && odds(t, "listed", 2) {
		check.Status.UnhealthyNodes = append(check.Status.UnhealthyNodes, nhcv1.UnhealthyNode{Name: n.Name, Remediations: []nhcv1.Remediation{{
			Resource: corev1.ObjectReference{APIVersion: remediators.String(), Kind: u.GetKind(), Namespace: "ns", Name: u.GetName(), UID: u.GetUID()},
			Started:  u.GetCreationTimestamp(), TemplateName: "usual",
		}}})
	}
}
