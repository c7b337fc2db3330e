package inspect

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// aRandomMachineScene is any.
func aRandomMachineScene(t *rapid.T) *machineScene {
	s := aMachineScene()
	s.unclaimed = pick(t, "unclaimed", machinehealthcheck.Observe, machinehealthcheck.Act, machinehealthcheck.Act, machinehealthcheck.Ignore)
	s.clusters, s.checks = nil, nil
	names := []string{"c1", "c2"}[:rapid.IntRange(1, 2).Draw(t, "clusters")]
	for _, name := range names {
		s.randomCluster(t, name)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "checks") {
		s.randomCheck(t, fmt.Sprintf("check-%c", 'a'+i), names)
	}
	s.sights(t)
	for i := range rapid.IntRange(0, 10).Draw(t, "machines") { // an event names no more
		s.randomMachine(t, fmt.Sprintf("m%d", i), names)
	}
	if odds(t, "an orphaned request", 4) {
		s.randomRequest(t, "orphaned")
	}
	return s
}

func (s *machineScene) randomCluster(t *rapid.T, name string) {
	c := aCluster(name)
	c.Status.Conditions = nil
	for _, kind := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
		if status := pick(t, kind, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionFalse, ""); status != "" {
			say(c, kind, status, "Because", ago(t, kind))
		}
	}
	if odds(t, "paused cluster", 10) {
		c.Spec.Paused = ptr.To(true)
	}
	if odds(t, "cluster being deleted", 20) {
		leaving(c)
	}
	if !odds(t, "missing cluster", 12) {
		s.clusters = append(s.clusters, c)
	}
}

// sights decides who sees which cluster. A manager that does not says so in the checks that it acts on.
func (s *machineScene) sights(t *rapid.T) {
	for _, cluster := range s.clusters {
		seen := pick(t, "sight of "+cluster.Name, "both", "both", "both", "both", "the user", "neither")
		says := false
		for _, check := range s.checks {
			if check.Spec.ClusterName != cluster.Name {
				continue
			}
			acts := s.actsOn(check) && !ptr.Deref(cluster.Spec.Paused, false) && check.DeletionTimestamp.IsZero() && cluster.DeletionTimestamp.IsZero()
			switch since := ago(t, "reach"); {
			case acts && seen != "both":
				says = true
				say(check, mendv1.WorkloadClusterReachable, metav1.ConditionFalse, mendv1.UnreachableReason, since)
			case acts:
				if is := pick(t, "reach", "", mendv1.ReachableReason, mendv1.ReachableAgainReason, mendv1.NotInitializedReason); is != "" {
					status := metav1.ConditionTrue
					if is == mendv1.NotInitializedReason {
						status = metav1.ConditionUnknown
					}
					say(check, mendv1.WorkloadClusterReachable, status, is, since)
				}
			case odds(t, "said when it was acted on", 4):
				say(check, mendv1.WorkloadClusterReachable, metav1.ConditionFalse, mendv1.UnreachableReason, since)
			}
		}
		s.unseen[cluster.Name] = says && seen != "both"
		s.hidden[cluster.Name] = s.unseen[cluster.Name] && seen == "neither"
	}
}

// actsOn reports whether the manager acts on a check, as far as the check itself is concerned.
func (s *machineScene) actsOn(check *clusterv1.MachineHealthCheck) bool {
	by, annotated := check.Annotations[clusterv1.PausedAnnotation]
	return annotated && by == mendv1.Claim || !annotated && s.unclaimed == machinehealthcheck.Act
}

func (s *machineScene) randomCheck(t *rapid.T, name string, clusters []string) {
	c := aMachineCheck(name, pick(t, "cluster", clusters...))
	c.CreationTimestamp = at(time.Duration(rapid.IntRange(1, 2).Draw(t, "age")) * time.Hour)
	switch pick(t, "claim", "claimed", "claimed", "claimed", "unclaimed", "unclaimed", "paused") {
	case "unclaimed":
		c.Annotations = map[string]string{}
	case "paused":
		c.Annotations[clusterv1.PausedAnnotation] = "by-somebody"
	}
	acted := func(other *clusterv1.MachineHealthCheck) bool {
		return other.Spec.ClusterName == c.Spec.ClusterName && s.actsOn(other)
	}
	if s.actsOn(c) && slices.ContainsFunc(s.checks, acted) { // what it says of shared machines is in the memory of the manager alone
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: "by-somebody"}
	}
	if odds(t, "deleted", 20) {
		leaving(c)
	}
	c.Spec.Selector = pick(t, "selector", metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, metav1.LabelSelector{},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpExists}}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: clusterv1.MachineControlPlaneLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}})
	seconds := func(what string) *int32 { return ptr.To(pick[int32](t, what, 0, 30, 60, 300, 600)) }
	if odds(t, "other patience", 2) {
		c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: seconds("unknown for")},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, TimeoutSeconds: seconds("pressed for")},
		}
	}
	if odds(t, "conditions of machines", 2) {
		c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
			{Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, TimeoutSeconds: seconds("node not ready for")},
		}
	}
	if odds(t, "other start-up", 2) {
		c.Spec.Checks.NodeStartupTimeoutSeconds = seconds("start-up")
	}
	s.randomRemediation(t, c)
	s.checks = append(s.checks, c)
}

func (s *machineScene) randomRemediation(t *rapid.T, c *clusterv1.MachineHealthCheck) {
	trigger := &c.Spec.Remediation.TriggerIf
	if limit := pick(t, "at most", "", "", "100%", "100%", "40%", "3", "1", "0", "some", "-1"); limit != "" {
		trigger.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(limit))
	}
	trigger.UnhealthyInRange = pick(t, "range", "", "", "", "", "[1-3]", "[2-9]", "[3-1]", "three")
	if inFlight := pick(t, "in flight", "", "", "1", "2", "50%", "0", "many"); inFlight != "" {
		c.Annotations[mendv1.MaxInFlightAnnotation] = inFlight
	}
	if kind := pick(t, "template", "", "", "", "Host", "Host", "Host", "Odd", "Gone", "Secret"); kind != "" {
		c.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: kind + "Remediation" + remediationrequest.TemplateSuffix,
			Name: pick(t, "template", "reboot", "reboot", "reboot", "missing"),
		}
	}
	if odds(t, "was restricted", 3) {
		say(c, clusterv1.MachineHealthCheckRemediationAllowedCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckTooManyUnhealthyReason, ago(t, "restricted"))
	}
	for _, kind := range []string{mendv1.TargetsExclusive, mendv1.RemediationTemplateAvailable, clusterv1.PausedCondition} {
		if odds(t, kind, 3) {
			say(c, kind, pick(t, kind, metav1.ConditionTrue, metav1.ConditionFalse), "Said", ago(t, kind))
		}
	}
}

func (s *machineScene) randomMachine(t *rapid.T, name string, clusters []string) {
	m := s.aMachine(name)
	m.Spec.ClusterName = pick(t, "cluster", clusters...)
	m.CreationTimestamp = ago(t, "created")
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName, "pool": pick(t, "pool", "a", "a", "a", "b")}
	if odds(t, "control plane", 5) {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	if odds(t, "without owner", 8) {
		m.OwnerReferences = nil
	}
	if odds(t, "being deleted", 8) {
		leaving(m)
	}
	for _, annotation := range []string{clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation, clusterv1.RemediateMachineAnnotation} {
		if odds(t, annotation, 12) {
			m.Annotations = map[string]string{annotation: ""}
		}
	}
	s.randomSayings(t, m)
	switch pick(t, "node", "there", "there", "there", "there", "awaited", "gone") {
	case "there":
		s.aNode(m, pick(t, "ready", corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse), ago(t, "ready"))
		if all := s.nodes[m.Spec.ClusterName]; odds(t, "pressed", 4) {
			all[len(all)-1].Status.Conditions = append(all[len(all)-1].Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, LastTransitionTime: ago(t, "pressed"),
			})
		}
	case "awaited":
		m.Status.NodeRef.Name = ""
	}
	if odds(t, "requested", 3) {
		s.randomRequest(t, name)
	}
}

// randomSayings are what earlier passes, owners and providers may have said of a machine.
func (s *machineScene) randomSayings(t *rapid.T, m *clusterv1.Machine) {
	if odds(t, "infrastructure", 2) {
		say(m, clusterv1.MachineInfrastructureReadyCondition, metav1.ConditionTrue, "Ready", ago(t, "infrastructure"))
	}
	if odds(t, "node unknown to core", 3) {
		say(m, clusterv1.MachineNodeReadyCondition, metav1.ConditionUnknown, pick(t, "why", "NodeUnknown", "ConnectionDown", "InspectionFailed", "InternalError"), ago(t, "core"))
	}
	switch pick(t, "succeeded", "", "", "true", "false", "false", "deleted") {
	case "true":
		say(m, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason, ago(t, "succeeded"))
	case "false":
		say(m, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckUnhealthyNodeReason, ago(t, "succeeded"))
	case "deleted":
		say(m, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, clusterv1.MachineHealthCheckNodeDeletedReason, ago(t, "succeeded"))
		m.Status.Conditions[len(m.Status.Conditions)-1].Message = "Health check failed:\n  * Node node-" + m.Name + " has been deleted"
	}
	switch pick(t, "owner", "", "", "", "asked", "asked", "refuses", "done") {
	case "asked":
		say(m, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason, ago(t, "owner"))
	case "refuses":
		say(m, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "CannotBeRemediated", ago(t, "owner"))
	case "done":
		say(m, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionTrue, "Remediated", ago(t, "owner"))
	}
	if reason := pick(t, "external", "", "", "", clusterv1.MachineExternallyRemediatedWaitingForRemediationReason,
		clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason,
		clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason); reason != "" {
		say(m, clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, reason, ago(t, "external"))
	}
}

// randomRequest is a request of a check of the scene, of one of its name before it, of another, or of an unknown maker.
func (s *machineScene) randomRequest(t *rapid.T, name string) {
	u := aRequest(pick(t, "kind", "HostRemediation", "HostRemediation", "OddRemediation"), name)
	check := pick(t, "maker", s.checks...)
	switch pick(t, "mark", "ours", "ours", "predecessor", "other", "core", "unknown") {
	case "ours":
		madeBy(u, check.Name, check.UID)
	case "predecessor":
		madeBy(u, check.Name, "another-uid")
	case "other":
		madeBy(u, "other", "other-uid")
	case "unknown":
		u.SetAnnotations(nil)
	}
	if odds(t, "being deleted", 6) {
		leaving(u)
	}
	s.others = append(s.others, u)
}
