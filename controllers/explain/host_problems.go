package explain

import (
	"fmt"
	"strconv"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
)

// hostProblems say why a host is not the machine's, does not obey, or does not prove that it is off; the words in braces are the arguments.
var hostProblems = map[host.Reason]string{
	host.NoMachine:           "the machine does not exist",
	host.KindNotServed:       "{found}",
	host.OtherInfrastructure: "the machine's infrastructure is a {found}, not a {wanted}",
	host.NoMetal3Machine:     "Metal3Machine {object} does not exist",
	host.NoHostNamed:         "Metal3Machine {object} names no host in its annotation " + infrav1.HostAnnotation,
	host.NoHost:              "BareMetalHost {object} does not exist",
	host.HostDeleting:        "BareMetalHost {object} is being deleted",
	host.HostReplaced:        "the machine's host was BareMetalHost {object}, and is BareMetalHost {found} now",
	host.NoConsumer:          "BareMetalHost {object} has no spec.consumerRef, expected Metal3Machine {wanted}",
	host.OtherConsumer:       "spec.consumerRef of BareMetalHost {object} names {found}, expected Metal3Machine {wanted}",
	host.ConsumerChanged:     "spec.consumerRef of BareMetalHost {object} has changed",
	host.OtherProviderID: "Metal3Machine {wanted} names BareMetalHost {object} in its annotation " + infrav1.HostAnnotation +
		", and spec.providerID of the Machine is {found}",
	host.TwoMetal3Machines: "Metal3Machines {wanted} and {found} both name BareMetalHost {object}: either may run on it",

	host.HostUnknown:   "there is no host",
	host.Paused:        "the host is paused (annotation " + bmov1alpha1.PausedAnnotation + ": {quoted})",
	host.Detached:      "the host is detached",
	host.Delayed:       "the host is delayed: its operator has too much to do",
	host.NotRegistered: "the host has a {found}, and its power is not read before that is over",
	host.NotProvisioned: fmt.Sprintf("the host is {quoted}, and its power is managed only when it is %q or %q",
		bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned),

	host.NotManageable: "its condition " + bmov1alpha1.ManageableCondition + " is {found}",
	host.HasError:      "{found}",
	host.NotOK:         "its operational status is {quoted}",
}

// HostProblem says what is wrong with a host, as a clause; empty if nothing is.
func HostProblem(p host.Problem) string {
	arguments := strings.NewReplacer("{object}", p.Object, "{found}", p.Found, "{quoted}", strconv.Quote(p.Found), "{wanted}", p.Wanted)
	return arguments.Replace(hostProblems[p.Reason])
}
