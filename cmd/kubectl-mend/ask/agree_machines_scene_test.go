package ask

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/machines"
	"github.com/kubemend/kubemend/controllers/request"
)

// machineScene is a management cluster with clusters, machines and the checks that watch them.
type machineScene struct {
	unclaimed machinehealthcheck.Unclaimed
	clusters  []*clusterv1.Cluster
	checks    []*clusterv1.MachineHealthCheck
	machines  []*clusterv1.Machine
	nodes     map[string][]corev1.Node // by cluster
	others    []client.Object
	// unseen are the clusters that the manager cannot see, hidden those that whoever asks cannot see either.
	unseen, hidden map[string]bool
}

// world is the scene as it is asked about. Of the kinds that checks may name, one is not installed and one may not be read.
func (s *machineScene) world(t reporter) *snapshot.World {
	t.Helper()
	w := snapshot.New()
	w.Taken = noon
	for _, kind := range []string{"HostRemediation", "OddRemediation"} {
		w.Install(mendv1.GroupVersion.WithKind(kind), "plural-of-"+kind, true)
		w.Install(mendv1.GroupVersion.WithKind(kind+request.TemplateSuffix), "plural-of-templates-of-"+kind, true)
	}
	for _, kind := range []string{"SecretRemediation", "SecretRemediationTemplate"} {
		w.Forbid(mendv1.GroupVersion.WithKind(kind), "secrets", true, "",
			apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil))
	}
	objs := s.others
	for _, c := range s.clusters {
		objs = append(objs, c)
		key := client.ObjectKeyFromObject(c)
		w.SetNodes(key, s.nodes[c.Name])
		if s.hidden[c.Name] {
			w.SetUnseen(key, "there is no way", time.Time{})
		}
	}
	for _, c := range s.checks {
		objs = append(objs, c)
	}
	for _, m := range s.machines {
		objs = append(objs, m)
	}
	if err := w.Add(objs...); err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// elder reports whether another check acts on the machine, by what docs/coexistence.md says: it is older, and selects it.
func (s *machineScene) elder(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	for _, other := range s.checks {
		first := other.CreationTimestamp.Before(&check.CreationTimestamp) ||
			other.CreationTimestamp.Equal(&check.CreationTimestamp) && other.Name < check.Name
		if other.Name != check.Name && first && machines.Judges(other, m) {
			return true
		}
	}
	return false
}

// retried is how soon a pass looks for a template again that it cannot read.
func (s *machineScene) retried(said *look.Check) time.Duration {
	for _, check := range s.checks {
		kind := check.Spec.Remediation.TemplateRef.Kind
		if check.Name == said.Name && kind == "GoneRemediationTemplate" {
			return 30 * time.Second
		}
	}
	return 0
}

// aMachineScene is a cluster c1 with a claimed check of its workers, of which there are none yet.
func aMachineScene(edits ...func(*machineScene)) *machineScene {
	s := &machineScene{
		unclaimed: machinehealthcheck.Observe, nodes: map[string][]corev1.Node{}, unseen: map[string]bool{}, hidden: map[string]bool{},
		clusters: []*clusterv1.Cluster{aCluster("c1")}, checks: []*clusterv1.MachineHealthCheck{aMachineCheck("check-a", "c1")},
		others: []client.Object{template("HostRemediation", "reboot", "HostRemediation"), template("OddRemediation", "reboot", "HostRemediation")},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func aCluster(name string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	say(c, clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue, "Initialized", at(2*time.Hour))
	say(c, clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, "Ready", at(2*time.Hour))
	return c
}

// aMachineCheck is a claimed check of all machines with the label pool=a, whose nodes may not be ready for five minutes.
func aMachineCheck(name, cluster string) *clusterv1.MachineHealthCheck {
	c := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: at(3 * time.Hour), Generation: 2,
		Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
	}}
	c.Spec.ClusterName, c.Spec.Selector.MatchLabels = cluster, map[string]string{"pool": "a"}
	c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](300)},
	}
	return c
}

// aMachine is a worker of the pool a whose node is ready.
func (s *machineScene) aMachine(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: at(time.Hour), Generation: 2,
		Labels:          map[string]string{"pool": "a", clusterv1.ClusterNameLabel: "c1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0", UID: "md-0", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "node-"+name
	s.machines = append(s.machines, m)
	return m
}

// aNode is the node of a machine, with the condition Ready since then.
func (s *machineScene) aNode(m *clusterv1.Machine, status corev1.ConditionStatus, since metav1.Time) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.Name, UID: types.UID("uid-of-node-" + m.Name)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Kubelet", LastTransitionTime: since}}
	s.nodes[m.Spec.ClusterName] = append(s.nodes[m.Spec.ClusterName], node)
}

// say gives an object a condition that it has had since then.
func say(obj conditions.Setter, kind string, status metav1.ConditionStatus, reason string, since metav1.Time) {
	obj.SetConditions(append(obj.GetConditions(), metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: since}))
}

func template(kind, name, makes string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
		"apiVersion": mendv1.GroupVersion.String(), "kind": makes, "spec": map[string]any{},
	}}}}
	u.SetGroupVersionKind(mendv1.GroupVersion.WithKind(kind + request.TemplateSuffix))
	u.SetNamespace("ns")
	u.SetName(name)
	return u
}

// aRequest is a request for a machine that was made from the template reboot, by nobody known.
func aRequest(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(mendv1.GroupVersion.WithKind(kind))
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetCreationTimestamp(at(10 * time.Minute))
	u.SetAnnotations(map[string]string{
		clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
		clusterv1.TemplateClonedFromGroupKindAnnotation: mendv1.GroupVersion.WithKind(kind + request.TemplateSuffix).GroupKind().String(),
	})
	return u
}

// madeBy marks a request.
func madeBy(u *unstructured.Unstructured, check string, uid types.UID) *unstructured.Unstructured {
	annotations := u.GetAnnotations()
	annotations[mendv1.MadeByAnnotation] = check
	u.SetAnnotations(annotations)
	u.SetLabels(map[string]string{mendv1.MadeByUIDLabel: string(uid)})
	return u
}

func leaving(obj client.Object) {
	obj.SetFinalizers([]string{"test/keeps"})
	obj.SetDeletionTimestamp(ptr.To(at(time.Minute)))
}

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
	if odds(t, "a stray request", 4) {
		s.randomRequest(t, "stray")
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
		seen := pick(t, "sight of "+cluster.Name, "both", "both", "both", "both", "the user", "nobody")
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
		s.hidden[cluster.Name] = s.unseen[cluster.Name] && seen == "nobody"
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
	switch pick(t, "claim", "claimed", "claimed", "claimed", "nobody's", "nobody's", "paused") {
	case "nobody's":
		c.Annotations = map[string]string{}
	case "paused":
		c.Annotations[clusterv1.PausedAnnotation] = "by-somebody"
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
			APIVersion: mendv1.GroupVersion.String(), Kind: kind + "Remediation" + request.TemplateSuffix,
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

// randomRequest is a request of a check of the scene, of one of its name before it, of another, or of nobody known.
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
