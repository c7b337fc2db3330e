package explain

import (
	"fmt"
	"strings"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// The texts of events about MachineHealthChecks that name nothing.
const (
	ReachableAgain = "The workload cluster can be reached again"
)

// MarkedUnhealthy says that the check marked the Machine unhealthy because of these findings. (Cluster API's sentence, and the findings.)
func MarkedUnhealthy(f *machines.Facts, machine string, due []health.Finding) string {
	return marked(f, machine) + "unhealthy by " + f.About.Namespace + "/" + f.About.Name + ": " + strings.Join(details(due), "; ")
}

// MarkedContradicted says so of one whose failure is contradicted, so that a person has to see why.
func MarkedContradicted(f *machines.Facts, machine string, due []health.Finding) string {
	return MarkedUnhealthy(f, machine, due) + ". " + contradicted + ". " + whyContradicted
}

// MarkedHealthy says that the check marked the Machine healthy, which was unhealthy.
func MarkedHealthy(f *machines.Facts, machine string) string {
	return marked(f, machine) + "healthy again by " + f.About.Namespace + "/" + f.About.Name
}

// MarkedSkipped says that the check removed its conditions from a Machine that its user wants left alone.
func MarkedSkipped(f *machines.Facts, machine string) string {
	return fmt.Sprintf("%snot to be judged; %s/%s removed the conditions that it had set", marked(f, machine), f.About.Namespace, f.About.Name)
}

func marked(f *machines.Facts, machine string) string {
	return fmt.Sprintf("Machine %s/%s has been marked as ", f.About.Namespace, machine)
}

// Requested says which remediation the check started, and of which host that depended; nil for none.
func Requested(f *machines.Facts, machine string, spare *machines.Spare) string {
	if f.Template.External {
		return fmt.Sprintf("Requested a %s for %s", f.Template.Kind, machine)
	}
	return "Asked the owner to remediate " + machine + withoutSpare(spare)
}
