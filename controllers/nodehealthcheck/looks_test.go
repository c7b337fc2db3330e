package nodehealthcheck

import (
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// looked is a row of the table of explanations of the check nhc.
type looked struct {
	// check changes the check. With five, the nodes are a control plane, m0 to m4; without it they are workers, a to e.
	check   func(*nhcv1.NodeHealthCheckSpec)
	five    bool
	more    []client.Object // further objects
	happens func(*fixture)  // called before the explanation
}

var twoSteps = ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))

func delay(d time.Duration) func(*nhcv1.NodeHealthCheckSpec) {
	return func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: d} }
}

// badB makes b unhealthy, and reconciles until nothing changes.
func badB(k *fixture) {
	k.bad("b")
	k.settle("nhc")
}

// says sets a condition of each request, as its remediator would.
func (k *fixture) says(condition, status, reason, message string) {
	k.t.Helper()
	for _, obj := range k.objects() {
		said := []any{map[string]any{
			"type": condition, "status": status, "reason": reason, "message": message, "lastTransitionTime": k.clock.Now().UTC().Format(time.RFC3339),
		}}
		must.Do(k.t, unstructured.SetNestedSlice(obj.Object, said, "status", "conditions"))
		k.update(obj)
	}
}

// badMembers makes control-plane nodes unhealthy, each a second after the one before.
func badMembers(names ...string) func(*fixture) {
	return func(k *fixture) {
		for _, name := range names {
			k.turn(name, corev1.ConditionUnknown)
			k.after(time.Second)
		}
		k.after(300 * time.Second)
	}
}

// behindB returns the Machine of node b, its Cluster, and a MachineHealthCheck that selects it.
func behindB(change ...func(*clusterv1.Machine, *clusterv1.Cluster)) []client.Object {
	labels := map[string]string{"machine": "b"}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "m-b", Labels: labels}}
	machine.Spec.ClusterName, machine.Status.NodeRef.Name = "home", "b"
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "home"}}
	watching := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "mhc"}}
	watching.Spec.ClusterName, watching.Spec.Selector.MatchLabels = "home", labels
	for _, f := range change {
		f(machine, cluster)
	}
	return []client.Object{machine, cluster, watching}
}

func ofMachineB(k *fixture) {
	k.annotateNode("b", map[string]string{clusterv1.MachineAnnotation: "m-b", clusterv1.ClusterNamespaceAnnotation: "capi"})
}

var looks = map[string]looked{
	"all nodes are healthy": {},
	"a node that is not due yet and that its user has excluded": {happens: func(k *fixture) {
		k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
		k.turn("b", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"a node that is not due yet and that nothing will hold up": {more: behindB()[:2], happens: func(k *fixture) {
		ofMachineB(k)
		k.turn("b", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"a node that is not due yet and that several things will hold up": {
		check: func(s *nhcv1.NodeHealthCheckSpec) { s.PauseRequests = []string{"me"} },
		more: append(behindB(func(m *clusterv1.Machine, c *clusterv1.Cluster) {
			m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: metav1.ConditionTrue, Reason: "RollingOut"}}
		}), named(leaseOf("NMO", 20*time.Minute, 0, 0), "node-b")),
		happens: func(k *fixture) {
			ofMachineB(k)
			k.turn("b", corev1.ConditionUnknown)
			k.after(time.Minute)
		},
	},
	"nodes of the control plane that are not due yet, of which one goes first": {five: true, happens: func(k *fixture) {
		k.turn("m1", corev1.ConditionUnknown)
		k.after(time.Second)
		k.turn("m0", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"one of the control plane that is not due yet, while another one is remediated": {five: true, happens: func(k *fixture) {
		badMembers("m0")(k)
		k.settle("nhc")
		k.turn("m1", corev1.ConditionUnknown)
		k.after(time.Minute)
	}},
	"a node whose remediation begins": {happens: func(k *fixture) { k.bad("b") }},
	"a node that several things hold back": {
		more: []client.Object{named(leaseOf("NMO", 20*time.Minute, 0, 0), "node-b"), func() client.Object {
			overlapping := template("Reboot", "b", false)
			overlapping.SetKind("Reboot")
			return overlapping
		}()},
		happens: func(k *fixture) {
			k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
			k.bad("b")
		},
	},
	"a node whose Machine is left alone in every way": {
		more: behindB(func(m *clusterv1.Machine, c *clusterv1.Cluster) {
			m.Annotations = map[string]string{clusterv1.PausedAnnotation: "", clusterv1.MachineSkipRemediationAnnotation: ""}
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionTrue, Reason: "Updating"}}
			c.Spec.Paused = ptr.To(true)
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: metav1.ConditionTrue, Reason: "RollingOut"}}
		}),
		happens: func(k *fixture) {
			ofMachineB(k)
			k.bad("b")
		},
	},
	"a check that is held up in every way": {
		check: func(s *nhcv1.NodeHealthCheckSpec) {
			s.PauseRequests = []string{"me", "upgrade"}
			s.MinHealthy = ptr.To(intstr.FromString("100%"))
			s.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
		},
		happens: func(k *fixture) {
			k.annotateNode("b", map[string]string{OpenShiftDesiredConfig: "new", OpenShiftCurrentConfig: "old"})
			k.bad("b")
		},
	},
	"a storm that cools down": {
		check: func(s *nhcv1.NodeHealthCheckSpec) {
			s.StormCooldownDuration = &metav1.Duration{Duration: 10 * time.Minute}
		},
		happens: func(k *fixture) {
			for _, name := range []string{"a", "c"} {
				k.turn(name, corev1.ConditionUnknown)
			}
			k.settle("nhc")
			k.turn("b", corev1.ConditionUnknown)
			k.after(300 * time.Second)
			k.settle("nhc")
			k.turn("a", corev1.ConditionTrue)
			k.turn("c", corev1.ConditionTrue)
			k.settle("nhc")
			k.after(time.Minute)
		},
	},
	"a template that is not there": {
		check:   func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Reboot", "missing")) },
		happens: func(k *fixture) { k.bad("b") },
	},
	"a check that names no template": {
		check:   func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = nil },
		happens: func(k *fixture) { k.bad("b") },
	},
	"a selector that cannot be read": {check: func(s *nhcv1.NodeHealthCheckSpec) {
		s.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}
	}},
	"a kind that is not read yet": {happens: func(k *fixture) {
		k.informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
			{Group: remediatorGroup, Version: "v1", Kind: "RebootTemplate"}: controllertest.NewFakeInformer(),
		}
		k.restart()
		k.bad("b")
	}},
	"a step of a ladder that is waited for": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.ProcessingCondition, "True", "Fencing", "The host is being turned off")
		k.after(time.Minute)
	}},
	"a step that has failed and the next one begins": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "False", "NoAnswer", "The host does not answer")
	}},
	"a ladder that came to nothing": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.after(5 * time.Minute)
		k.settle("nhc")
		k.after(5 * time.Minute)
		k.settle("nhc")
	}},
	"a step whose name the request of the former one has": {
		check: ladder(refTo("Reboot", "reboot"), refTo("Reboot", "other")), more: []client.Object{template("Reboot", "other", false)},
		happens: func(k *fixture) {
			badB(k)
			k.after(5 * time.Minute)
			k.settle("nhc")
		},
	},
	"the only template is at work": {happens: badB},
	"the only template has failed": {happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "False", "NoAnswer", "The host does not answer")
	}},
	"a node that is unhealthy once more after its remediation has succeeded": {check: delay(time.Hour), happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.SucceededCondition, "True", "Rebooted", "")
		k.after(time.Second)
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
		k.after(time.Second)
		k.turn("b", corev1.ConditionUnknown)
		k.settle("nhc")
		k.after(300 * time.Second)
	}},
	"a node on its way back": {check: twoSteps, happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionFalse)
		k.after(time.Minute)
	}},
	"a node that is healthy again": {happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionTrue)
	}},
	"a node that is healthy again and waits for the healthy delay": {check: delay(time.Hour), happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
		k.after(time.Minute)
	}},
	"a node that is healthy again and waits for a person": {check: delay(-1), happens: func(k *fixture) {
		badB(k)
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
	}},
	"a node that is gone": {happens: func(k *fixture) {
		badB(k)
		k.remove(k.node("b"))
	}},
	"a node that is gone while its remediator means to delete it": {happens: func(k *fixture) {
		badB(k)
		k.says(nhcv1.NodeDeletionExpectedCondition, "True", "Replacing", "")
		k.remove(k.node("b"))
	}},
	"a request that somebody has just deleted": {happens: func(k *fixture) {
		badB(k)
		k.deleteAll()
		k.after(time.Second)
	}},
	"a request of the last time that is not released": {happens: func(k *fixture) {
		badB(k)
		k.atWork()
		k.turn("b", corev1.ConditionTrue)
		k.settle("nhc")
		k.bad("b")
	}},
	"the orphaned request of a deleted check of the same name": {happens: func(k *fixture) {
		badB(k)
		k.ofMachine()
		k.atWork()
		k.goes("nhc")
		anew := check("nhc")
		anew.UID = "anew"
		k.create(anew)
		k.after(time.Second)
	}},
	"requests that cannot be read": {happens: func(k *fixture) {
		badB(k)
		k.deny("Reboot")
		k.restart()
	}},
	"a node that has left the selection": {check: func(s *nhcv1.NodeHealthCheckSpec) { s.Selector.MatchLabels = map[string]string{"pool": "x"} },
		happens: func(k *fixture) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				k.label(name, map[string]string{"pool": "x"})
			}
			badB(k)
			k.deleteAll()
			k.label("b", map[string]string{"pool": "y"})
		}},
	"a node that is terminating": {happens: func(k *fixture) {
		k.installs("machinehealthchecks.machine.openshift.io")
		k.makes(machineCheck("machine-api-termination-handler", "Terminating"))
		k.bad("b")
		n := k.node("b")
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: corev1.ConditionTrue})
		must.Do(k.t, k.client.Status().Update(k.t.Context(), n))
	}},
	"nodes of the control plane take turns": {five: true, happens: badMembers("m1", "m0")},
	"one of the control plane while another one is remediated and too few are left": {five: true, happens: func(k *fixture) {
		badMembers("m0")(k)
		k.settle("nhc")
		badMembers("m1", "m2")(k)
	}},
	"one of the control plane without which etcd cannot do": {five: true, happens: func(k *fixture) {
		k.installs("clusterversions." + ConfigGroup)
		badMembers("m0")(k)
	}},
	"one of the control plane before orphans were searched for": {five: true, happens: func(k *fixture) {
		k.r.searched.Store(false)
		badMembers("m0")(k)
	}},
}
