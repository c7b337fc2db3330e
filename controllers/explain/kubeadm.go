package explain

import (
	"fmt"
	"strings"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// ByKubeadm is what the KubeadmControlPlane of a name does next about a machine that it was asked to replace, and has not; zero if there is nothing to add
// to its own words.
func ByKubeadm(name string, f *kubeadm.Facts, a kubeadm.Answer) Step {
	owner := "its owner, KubeadmControlPlane " + name + ", "
	names := strings.Join(a.Others, ", ")
	switch a.Reason {
	case kubeadm.WithinRetryPeriod:
		return Step{Reason: string(a.Reason), NotBefore: a.Until, Text: fmt.Sprintf(
			"%swaits %s between retries (spec.remediation.retryPeriodSeconds), and tries again", owner, f.Rules.RetryPeriod)}
	case kubeadm.RetriesExhausted:
		return Step{Reason: string(a.Reason), NotBefore: a.Until, Manual: true, Text: fmt.Sprintf(
			"%shas used %d of %d retries (spec.remediation.maxRetry): raise that, or replace the machine by hand; by itself it tries again",
			owner, f.Last.Retries, f.Rules.MaxRetry)}
	case kubeadm.RetryDue:
		return Step{Reason: string(a.Reason), Text: owner + "may try again by now, and does at its next reconcile, for which it sets no timer"}
	case kubeadm.OnlyMachine:
		return Step{Reason: string(a.Reason), Manual: true, Text: owner + "does not replace its only machine: repair the machine"}
	case kubeadm.OthersProvisioning:
		return Step{Reason: string(a.Reason), Text: owner + "has put it off until there is a node of Machine " + names}
	case kubeadm.OthersDeleting:
		return Step{Reason: string(a.Reason), Text: owner + "has put it off until the deletion of Machine " + names + " is complete"}
	case kubeadm.OtherReplaced:
		return Step{Reason: string(a.Reason), Text: owner + "replaces one machine at a time: it has not made the one for Machine " + names}
	}
	return Step{}
}
