package capacity

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhichPodsADrainWaitsFor(t *testing.T) {
	skip, drain, complete := clusterv1.MachineDrainRuleDrainBehaviorSkip, clusterv1.MachineDrainRuleDrainBehaviorDrain, clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted
	db, web := aPod("db-0"), aPod("web", labelled(nil))
	blocked := "Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db pods=1"
	for name, tc := range map[string]struct {
		rules []client.Object
		there []client.Object
		want  string
	}{
		"pods that a rule or their label skips are not waited for": {
			[]client.Object{drainRule("a", skip, 0, "db"), drainRule("b", drain, 0, "db")},
			[]client.Object{web, db, aPod("cron", labelled(map[string]string{clusterv1.PodDrainLabel: "Skip"}))}, "Deleting DrainingNode w1 waits=Pod/web pods=1",
		},
		"of two rules the first one counts": {
			[]client.Object{drainRule("b", skip, 0, "db"), drainRule("a", drain, 0, "db")}, []client.Object{db}, blocked,
		},
		"a rule for other machines does not count": {[]client.Object{drainRule("a", skip, 0, "db", func(rule *clusterv1.MachineDrainRule) {
			rule.Spec.Machines = []clusterv1.MachineDrainRuleMachineSelector{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "other"}}}}
		})}, []client.Object{db}, blocked},
		"nor does one for pods of other namespaces": {[]client.Object{drainRule("a", skip, 0, "db", func(rule *clusterv1.MachineDrainRule) {
			rule.Spec.Pods[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "search"}}
		})}, []client.Object{db, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, blocked},
		"a budget does not block a pod that has to complete": {
			[]client.Object{drainRule("a", complete, 0, "db")}, []client.Object{db}, "Deleting DrainingNode w1 waits=Pod/db-0 pods=1 completes=db-0",
		},
		"nor one that is evicted after others": {
			[]client.Object{drainRule("a", drain, 10, "db")}, []client.Object{web, db}, "Deleting DrainingNode w1 waits=Pod/web pods=2 later=db-0",
		},
		"one that has to complete comes before the order of others": {
			[]client.Object{drainRule("a", drain, -1, "web"), drainRule("b", complete, 0, "db")},
			[]client.Object{aPod("web", labelled(map[string]string{"app": "web"})), db}, "Deleting DrainingNode w1 waits=Pod/web pods=2 completes=db-0 later=db-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			there := append([]client.Object{aBudget(0, 0)}, tc.there...)
			anEnvironment(deleting("DrainingNode"), with(tc.rules...), inWorkload(there...)).tells(t, w1, tc.want)
		})
	}
}

// drainRule is a rule for pods of an application.
func drainRule(
	name string, behaviour clusterv1.MachineDrainRuleDrainBehavior, order int32, app string, edits ...func(*clusterv1.MachineDrainRule),
) *clusterv1.MachineDrainRule {
	rule := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	rule.Spec.Drain.Behavior = behaviour
	if behaviour == clusterv1.MachineDrainRuleDrainBehaviorDrain {
		rule.Spec.Drain.Order = &order
	}
	rule.Spec.Pods = []clusterv1.MachineDrainRulePodSelector{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	for _, edit := range edits {
		edit(rule)
	}
	return rule
}

// Without budgets, or without rules, the pods are shown all the same.
func TestPodsAreShownWithoutWhatCannotBeRead(t *testing.T) {
	for _, kind := range []string{"PodDisruptionBudget", "MachineDrainRule"} {
		e := anEnvironment(deleting("DrainingNode"), inWorkload(aPod("web")))
		e.funcs = forbid(kind)
		if f := e.observe(t, w1); len(f.Old.Deletion.Pods) != 1 || !slices.Equal(f.Unread, []string{kind + "s"}) {
			t.Errorf("without %ss: pods %v, unread %v", kind, f.Old.Deletion.Pods, f.Unread)
		}
	}
}

// aPod is one of the application db on the node of w1.
func aPod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "db"}}, Spec: corev1.PodSpec{NodeName: "node-w1"}}
	p.Status.Phase = corev1.PodRunning
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func labelled(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = labels }
}

func readyPod(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// leaving is a pod whose grace period ended then. A finalizer keeps it.
func leaving(ended time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = ptr.To(ago(ended)), []string{"batch.kubernetes.io/job-tracking"}
	}
}

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "log", UID: "log", Controller: ptr.To(true)}}
}

// nodeOfW1 is the node of w1, with that status of its condition Ready.
func nodeOfW1(status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-w1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
}

// aBudget is a PodDisruptionBudget of the application db.
func aBudget(healthy, desired int32, policy ...policyv1.UnhealthyPodEvictionPolicyType) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	b.Status.CurrentHealthy, b.Status.DesiredHealthy = healthy, desired
	if len(policy) > 0 {
		b.Spec.UnhealthyPodEvictionPolicy = &policy[0]
	}
	return b
}

// What a drain waits for, and what a budget forbids, is what Cluster API and the eviction API say.
func TestWhatKeepsAPodOnItsNode(t *testing.T) {
	blocked, waits, empty := "Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db pods=1", "Deleting DrainingNode w1 waits=Pod/db-0 pods=1", "Deleting DrainingNode w1"
	for name, tc := range map[string]struct {
		is   []client.Object
		want string
	}{
		"a pod that is ready is guarded by its budget":                {[]client.Object{aBudget(2, 2), aPod("db-0", readyPod)}, blocked},
		"one that is not ready goes while enough others are":          {[]client.Object{aBudget(2, 2), aPod("db-0")}, waits},
		"but not if too few of them are":                              {[]client.Object{aBudget(1, 2), aPod("db-0")}, blocked},
		"unless its budget always lets pods go that are not ready":    {[]client.Object{aBudget(1, 2, policyv1.AlwaysAllow), aPod("db-0")}, waits},
		"which does not let those go that are":                        {[]client.Object{aBudget(1, 2, policyv1.AlwaysAllow), aPod("db-0", readyPod)}, blocked},
		"a pod that does not run yet is guarded by none":              {[]client.Object{aBudget(0, 2), aPod("db-0", inPhase(corev1.PodPending))}, waits},
		"a complete pod that a finalizer keeps is waited for":         {[]client.Object{aPod("db-0", inPhase(corev1.PodSucceeded), leaving(time.Hour))}, waits},
		"a complete pod is guarded by no budget":                      {[]client.Object{aBudget(0, 2), aPod("db-0", inPhase(corev1.PodFailed))}, waits},
		"so is a complete one of a DaemonSet":                         {[]client.Object{aPod("db-0", ofDaemonSet, inPhase(corev1.PodFailed))}, waits},
		"on a node that answers a pod is waited for until it is gone": {[]client.Object{nodeOfW1("True"), aPod("db-0", leaving(time.Hour))}, waits},
		"on one that is not Ready as well":                            {[]client.Object{nodeOfW1("False"), aPod("db-0", leaving(time.Hour))}, waits},
		"on an unreachable one it is not, past its grace period":      {[]client.Object{nodeOfW1("Unknown"), aPod("db-0", leaving(2*time.Second))}, empty},
		"before that it is":                                           {[]client.Object{nodeOfW1("Unknown"), aPod("db-0", leaving(time.Second))}, waits},
		"a budget holds on an unreachable node too":                   {[]client.Object{nodeOfW1("Unknown"), aBudget(1, 2), aPod("db-0")}, blocked},
	} {
		t.Run(name, func(t *testing.T) {
			anEnvironment(deleting("DrainingNode"), inWorkload(tc.is...)).tells(t, w1, tc.want)
		})
	}
}

// Volumes of pods that a drain leaves on the node stay attached, and nothing waits for them.
func TestWhichVolumesADeletionWaitsFor(t *testing.T) {
	attached := func(name, volume string) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		a.Spec.NodeName, a.Spec.Source.PersistentVolumeName, a.Status.Attached = "node-w1", &volume, true
		return a
	}
	claimed := func(volume, claim string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}
		v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: claim}
		return v
	}
	log := aPod("log", ofDaemonSet, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "log", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "log"}}}}
	})
	for name, tc := range map[string]struct {
		is   []client.Object
		want string
	}{
		"those of a DaemonSet are passed over": {
			[]client.Object{log, attached("csi-1", "pv-log"), attached("csi-2", "pv-db"), claimed("pv-log", "log"), claimed("pv-db", "db")},
			"Deleting WaitingForVolumeDetach w1 waits=VolumeAttachment/csi-2",
		},
		"one whose claim is not known is waited for": {
			[]client.Object{log, attached("csi-1", "pv-log")}, "Deleting WaitingForVolumeDetach w1 waits=VolumeAttachment/csi-1",
		},
		"without a pod that is left each is": {
			[]client.Object{attached("csi-1", "pv-log"), claimed("pv-log", "log")}, "Deleting WaitingForVolumeDetach w1 waits=VolumeAttachment/csi-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			anEnvironment(deleting("WaitingForVolumeDetach"), inWorkload(tc.is...)).tells(t, w1, tc.want)
		})
	}
}
