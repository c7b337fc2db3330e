package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// The names of the actors in the commentary.
const (
	kubemend          = "kubemend (check)" // its controller of MachineHealthChecks
	kubemendHost      = "kubemend (host)"  // its controller of HostRemediations
	controllerManager = "kube-controller-manager"
	kubelet           = "kubelet"
	machineSet        = "MachineSet"
	machineController = "Machine controller"
	clusterAPI        = "Cluster API core"
	provider          = "CAPM3 (simulated)"
	operator          = "BMO (simulated)"
	attacher          = "CSI (simulated)"
	demo              = "demo"
)

// writers maps field managers to actors.
var writers = map[string]string{
	"kubemend":                kubemend,
	"kube-controller-manager": controllerManager,
	"capi-core":               clusterAPI,
	"capi-machineset":         machineSet,
	"demo":                    kubelet, // on nodes; the simulated kubelets run in this program
}

// authorOf returns the actor that last wrote the status of a condition, according to the managed fields.
func authorOf(object metav1.Object, condition string) string {
	field := fmt.Sprintf("k:{\"type\":%q}", condition)
	for _, entry := range object.GetManagedFields() {
		var owned struct {
			Status struct {
				Conditions map[string]map[string]any `json:"f:conditions"`
			} `json:"f:status"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if owned.Status.Conditions[field]["f:status"] != nil {
			return cmp.Or(writers[entry.Manager], entry.Manager)
		}
	}
	return "somebody"
}

func saw(by string, seen fact, about, format string, args ...any) []observation {
	return []observation{{by: by, fact: seen, about: about, text: fmt.Sprintf(format, args...)}}
}

// turned reports whether a condition has changed to this status.
func turned(old, updated conditions.Getter, kind string, status metav1.ConditionStatus) bool {
	before, now := conditions.Get(old, kind), conditions.Get(updated, kind)
	return now != nil && now.Status == status && (before == nil || before.Status != status)
}

func machineChanged(old, updated *clusterv1.Machine) []observation {
	switch {
	case updated == nil:
		return saw(machineController, machineGone, old.Name, "Machine %s is gone", old.Name)
	case old == nil:
		return saw(makerOf(updated), machineCreated, updated.Name, "Machine %s is created", updated.Name)
	}
	seen := slices.Concat(healthChanged(old, updated), pendingChanged(old, updated), ownerChanged(old, updated))
	if old.Status.Phase != updated.Status.Phase && updated.Status.Phase == string(clusterv1.MachinePhaseRunning) {
		seen = append(saw(machineController, machineRunning, updated.Name, "Machine %s runs, on Node %s", updated.Name,
			updated.Status.NodeRef.Name), seen...)
	}
	if old.DeletionTimestamp.IsZero() && !updated.DeletionTimestamp.IsZero() {
		by := "somebody"
		const asked = clusterv1.MachineSetMachineRemediationMachineDeletingReason
		if conditions.GetReason(updated, clusterv1.MachineOwnerRemediatedCondition) == asked {
			by = makerOf(updated)
		}
		seen = append(seen, saw(by, machineDeleting, updated.Name, "deletes Machine %s; its host is deprovisioned", updated.Name)...)
	}
	return seen
}

// makerOf returns the kind of the controller that owns a Machine.
func makerOf(machine *clusterv1.Machine) string {
	if owner := metav1.GetControllerOf(machine); owner != nil {
		return owner.Kind
	}
	return "somebody"
}

func healthChanged(old, updated *clusterv1.Machine) []observation {
	by := authorOf(updated, clusterv1.MachineHealthCheckSucceededCondition)
	switch {
	case turned(old, updated, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse):
		why := conditions.GetMessage(updated, clusterv1.MachineHealthCheckSucceededCondition)
		why = strings.ReplaceAll(strings.TrimPrefix(why, "Health check failed:"), "\n  * ", " ")
		return saw(by, machineFailed, updated.Name, "marks Machine %s unhealthy:%s", updated.Name, why)
	case turned(old, updated, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue):
		return saw(by, machineHealthy, updated.Name, "Machine %s is healthy", updated.Name)
	}
	return nil
}

func pendingChanged(old, updated *clusterv1.Machine) []observation {
	const reason = string(machinehealthcheck.WithinTimeout)
	if conditions.GetReason(updated, mendv1.Remediation) != reason || conditions.GetReason(old, mendv1.Remediation) == reason {
		return nil
	}
	_, until, _ := strings.Cut(conditions.GetMessage(updated, mendv1.Remediation), ". ")
	return saw(authorOf(updated, mendv1.Remediation), pendingFact, updated.Name, "Machine %s is pending. %s", updated.Name, until)
}

func ownerChanged(old, updated *clusterv1.Machine) []observation {
	const owner = clusterv1.MachineOwnerRemediatedCondition
	before, now := conditions.Get(old, owner), conditions.Get(updated, owner)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Reason == now.Reason):
		return nil
	case now.Reason != clusterv1.MachineOwnerRemediatedWaitingForRemediationReason:
		// After that reason only the owner changes the condition.
		return saw(makerOf(updated), ownerActs, updated.Name, "remediates Machine %s: %s", updated.Name, now.Message)
	}
	by, name := authorOf(updated, now.Type), "none"
	if o := metav1.GetControllerOf(updated); o != nil {
		name = o.Kind + " " + o.Name
	}
	return saw(by, ownerRequested, updated.Name, "requests owner remediation of Machine %s (owner: %s)", updated.Name, name)
}

func hostChanged(old, updated *unstructured.Unstructured) []observation {
	if old == nil || updated == nil || provisioned(old) || !provisioned(updated) {
		return nil
	}
	host := strings.TrimPrefix(updated.GetAnnotations()[infrav1.HostAnnotation], namespace+"/")
	return saw(provider, shown, updated.GetName(), "Metal3Machine %s has a host, %s, which is powered on", updated.GetName(), host)
}

func provisioned(machine *unstructured.Unstructured) bool {
	done, _, _ := unstructured.NestedBool(machine.Object, "status", "initialization", "provisioned") // absent means false
	return done
}

func bareMetalChanged(old, updated *bmov1alpha1.BareMetalHost) (seen []observation) {
	if old == nil || updated == nil {
		return nil
	}
	if old.Status.PoweredOn != updated.Status.PoweredOn {
		now, power := hostOff, "off"
		if updated.Status.PoweredOn {
			now, power = hostOn, "on"
		}
		seen = saw(operator, now, updated.Name, "BareMetalHost %s is %s", updated.Name, power)
	}
	switch before, now := held(old), held(updated); {
	case !before && now:
		seen = append(seen, saw(kubemendHost, offAsked, updated.Name, "requests BareMetalHost %s to be off, by the annotation %s<UID>",
			updated.Name, infrav1.PowerOffAnnotationPrefix)...)
	case before && !now:
		seen = append(seen, saw(kubemendHost, onAsked, updated.Name, "releases BareMetalHost %s: removes that annotation", updated.Name)...)
	}
	return seen
}

// held reports whether a remediation keeps a host powered off. In the demo only kubemend sets annotations with this prefix.
func held(host *bmov1alpha1.BareMetalHost) bool {
	for key := range host.Annotations {
		if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) {
			return true
		}
	}
	return false
}

func checkChanged(old, updated *clusterv1.MachineHealthCheck) (seen []observation) {
	if updated == nil {
		return nil
	}
	if old == nil {
		old = &clusterv1.MachineHealthCheck{}
	}
	for _, c := range []struct {
		kind   string
		status metav1.ConditionStatus
		fact   fact
		text   string
	}{
		{clusterv1.PausedCondition, metav1.ConditionTrue, coreSkips, fmt.Sprintf("skips MachineHealthCheck %s: Paused=True", updated.Name)},
		{mendv1.WorkloadClusterReachable, metav1.ConditionTrue, shown, "the workload cluster is reachable"},
		{mendv1.WorkloadClusterReachable, metav1.ConditionFalse, shown, conditions.GetMessage(updated, mendv1.WorkloadClusterReachable)},
		{
			mendv1.RemediationTemplateAvailable, metav1.ConditionTrue, templateUsed,
			fmt.Sprintf("found %s %s: unhealthy machines get a request made from it",
				updated.Spec.Remediation.TemplateRef.Kind, updated.Spec.Remediation.TemplateRef.Name),
		},
	} {
		if turned(old, updated, c.kind, c.status) {
			seen = append(seen, saw(authorOf(updated, c.kind), c.fact, updated.Name, "%s", c.text)...)
		}
	}
	healthy, expected := ptr.Deref(updated.Status.CurrentHealthy, 0), ptr.Deref(updated.Status.ExpectedMachines, 0)
	if healthy != ptr.Deref(old.Status.CurrentHealthy, 0) || expected != ptr.Deref(old.Status.ExpectedMachines, 0) {
		count := saw(kubemend, counted, updated.Name, "%d of %d machines are healthy, remediations allowed: %d",
			healthy, expected, ptr.Deref(updated.Status.RemediationsAllowed, 0))
		count[0].number, count[0].of = int(healthy), int(expected)
		seen = append(seen, count...)
	}
	const allowed = clusterv1.MachineHealthCheckRemediationAllowedCondition
	switch limitTurned(old, updated, allowed) {
	case shortCircuited:
		sum := sumOf(conditions.GetMessage(updated, allowed))
		seen = append(seen, saw(authorOf(updated, allowed), shortCircuited, updated.Name, "short-circuit: %s", sum)...)
	case allowedAgain:
		seen = append(seen, saw(authorOf(updated, allowed), allowedAgain, updated.Name,
			"short-circuit over: remediation is allowed again")...)
	}
	return seen
}

// limitTurned returns shortCircuited if a check has just stopped remediating, allowedAgain if it has just resumed, and "" otherwise.
func limitTurned(old, updated conditions.Getter, kind string) fact {
	before, now := conditions.Get(old, kind), conditions.Get(updated, kind)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Message == now.Message):
		return ""
	case now.Status == metav1.ConditionFalse:
		return shortCircuited
	case before == nil || before.Status == metav1.ConditionTrue:
		return ""
	}
	return allowedAgain
}

// sumOf returns the arithmetic in the message of a short-circuit, which follows Cluster API's own sentence, without empty classes.
func sumOf(message string) string {
	if _, sum, found := strings.Cut(message, "). "); found {
		message = sum
	}
	return noMachines.ReplaceAllString(message, "")
}

var noMachines = regexp.MustCompile(`\b0 [a-z ]+, |, 0 [a-z ]+`)

// eventChanged describes a new or repeated RemediationRestricted event. All other events repeat what changes of objects show.
func eventChanged(_, updated *eventsv1.Event) []observation {
	if updated == nil || updated.Reason != mendv1.EventRemediationRestricted || updated.ReportingController != mendv1.FieldOwner {
		return nil
	}
	text := fmt.Sprintf("%s event %s on %s %s", updated.Type, updated.Reason, updated.Regarding.Kind, updated.Regarding.Name)
	if updated.Series != nil {
		text = fmt.Sprintf("%s, %d times by now", text, updated.Series.Count)
	}
	return saw(kubemend, restrictedEvent, updated.Regarding.Name, "%s", text)
}
