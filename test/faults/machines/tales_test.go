package machines

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// wait is long enough for everything that retries, and shorter than the timeouts of a check.
const wait = 45 * time.Second

// tale is what happens outside of the program. After each event it has time to come to rest.
type tale struct {
	name   string
	begin  func(*environment)
	events []func(*environment)
}

// tales are played once undisturbed, and then with every write failing and with every crash.
var tales = []tale{
	{"three things at once: a machine recovers, another one fails, and a new check asks an owner",
		func(e *environment) {
			e.unknown = true
			e.machines("recovers", "breaks", "wavers")
			e.machineOf("owned", "owned")
			e.fail("recovers", "owned")
			e.check("check", byTemplate)
		}, []func(*environment){func(e *environment) {
			e.recover("recovers")
			e.fail("breaks")
			e.there.sets("wavers", corev1.ConditionUnknown, 0)
			e.check("owned", ofPool("owned"))
		}}},
	{"the owner replaces a machine",
		func(e *environment) { e.machines("m1", "m2"); e.check("check") },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).ownerActs,
		}},
	{"a machine recovers before its owner acts, and fails again",
		func(e *environment) { e.machines("m1", "m2"); e.check("check") },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.recover("m1") },
			func(e *environment) { e.fail("m1") },
			(*environment).ownerActs,
		}},
	{"a provider succeeds",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).providerTakes,
			func(e *environment) { e.recover("m1") },
			func(e *environment) { e.finalize("m1") },
		}},
	{"a provider fails, and the owner replaces the machine",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).providerTakes,
			func(e *environment) { e.providerGivesUp("m1") },
			func(e *environment) { e.finalize("m1"); e.ownerActs() },
		}},
	{"a template is missing, and is made",
		func(e *environment) {
			e.machines("m1", "m2")
			e.must(e.api.Delete(e.ctx, aTemplate(e.namespace, "reboot")))
			e.check("check", byTemplate)
		}, []func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.must(e.api.Create(e.ctx, aTemplate(e.namespace, "reboot"))) },
			func(e *environment) { e.recover("m1") },
		}},
	{"too many machines fail, and some recover",
		func(e *environment) { e.machines("m1", "m2", "m3", "m4"); e.check("check", upTo("50%")) },
		[]func(*environment){
			func(e *environment) { e.fail("m1", "m2", "m3") },
			func(e *environment) { e.recover("m2") },
			(*environment).ownerActs,
		}},
	{"three machines fail of which one may be remediated at a time, by their owner",
		func(e *environment) { e.machines("m1", "m2", "m3", "m4"); e.check("check", oneAtATime) },
		[]func(*environment){
			func(e *environment) { e.fail("m1", "m2", "m3") },
			(*environment).ownerActs,
			(*environment).ownerActs,
			(*environment).ownerActs,
		}},
	{"three machines fail of which one may be remediated at a time, by a provider",
		func(e *environment) {
			e.machines("m1", "m2", "m3", "m4")
			e.check("check", byTemplate, oneAtATime)
		}, []func(*environment){
			func(e *environment) { e.fail("m1", "m2", "m3") },
			func(e *environment) { e.recoverRemediated("m1", "m2", "m3") },
			func(e *environment) { e.recoverRemediated("m1", "m2", "m3") },
			func(e *environment) { e.recoverRemediated("m1", "m2", "m3") },
		}},
	{"a machine fails again while its request is being deleted",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).providerTakes,
			func(e *environment) { e.recover("m1") },
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.finalize("m1") },
		}},
	{"two checks select the same machine, and the older one is deleted",
		func(e *environment) {
			e.machines("m1", "m2")
			e.check("a-older", byTemplate)
			e.check("b-younger", byTemplate, func(c *clusterv1.MachineHealthCheck) { // what it begins does not depend on who is first
				c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "0"}
			})
		},
		[]func(*environment){
			func(e *environment) { e.fail("m1") }, undisturbed, // a check whose write has failed waits a minute for the other one
			func(e *environment) { e.deleteCheck("a-older") },
			func(e *environment) { e.recover("m1") },
		}},
	{"a person marks a healthy machine, and then an unhealthy one is to be left alone",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.annotate("m1", clusterv1.RemediateMachineAnnotation); e.fail("m2") },
			func(e *environment) { e.annotate("m2", clusterv1.MachineSkipRemediationAnnotation) },
			func(e *environment) { e.unannotate("m1", clusterv1.RemediateMachineAnnotation) },
			func(e *environment) { e.unannotate("m2", clusterv1.MachineSkipRemediationAnnotation) },
		}},
	{"a check is deleted while a request is under way and an owner is asked",
		func(e *environment) {
			e.machines("m1")
			e.machineOf("owned", "m2")
			e.check("check", byTemplate)
			e.check("owned", ofPool("owned"))
		}, []func(*environment){
			func(e *environment) { e.fail("m1", "m2") },
			func(e *environment) { e.deleteCheck("check"); e.deleteCheck("owned") },
		}},
	{"the workload cluster is out of reach for a short time, in which a timeout expires",
		func(e *environment) { e.machines("m1", "m2", "m3"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) {
				e.there.sets("m3", corev1.ConditionUnknown, timeout-20*time.Second)
				e.enqueueAll()
				e.settle(time.Second)
				e.cut()
				e.settle(25 * time.Second)
				e.recover("m1", "m3")
				e.fail("m2")
				e.reconnect()
			},
		}},
	{"the workload cluster is out of reach for long",
		func(e *environment) { e.machines("m1", "m2", "m3"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1"); e.there.sets("m3", corev1.ConditionUnknown, 0) },
			func(e *environment) { e.cut() },
			func(e *environment) { e.settle(2 * timeout); e.recover("m1", "m3"); e.fail("m2") },
			func(e *environment) { e.annotate("m3", clusterv1.RemediateMachineAnnotation) },
			func(e *environment) { e.unannotate("m3", clusterv1.RemediateMachineAnnotation); e.reconnect() },
		}},
	{"a check remediates by requests no more, and is paused",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.edit(byOwner) },
			func(e *environment) { e.edit(paused); e.recover("m1"); e.fail("m2") },
			func(e *environment) { e.edit(unpaused, byTemplate) },
		}},
	{"requests without a mark are adopted, of an unhealthy machine and of a healthy one",
		func(e *environment) {
			e.machines("m1", "m2")
			e.fail("m1")
			for _, name := range []string{"m1", "m2"} {
				req := aRequest(e.namespace, name)
				req.SetAnnotations(map[string]string{
					clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
					clusterv1.TemplateClonedFromGroupKindAnnotation: templateKind.GroupKind().String(),
				})
				m := &clusterv1.Machine{}
				e.must(e.api.Get(e.ctx, client.ObjectKeyFromObject(req), m))
				req.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name,
					UID: m.UID}})
				e.must(e.api.Create(e.ctx, req))
			}
			e.check("check", byTemplate)
		}, []func(*environment){
			func(e *environment) { e.recover("m1") },
		}},
}
