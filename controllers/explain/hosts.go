package explain

import (
	"fmt"
	"strings"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Queue says what a remediation waits for in its queue.
func Queue(ahead []powercycle.Ahead) string {
	texts := make([]string, 0, len(ahead))
	for _, a := range ahead {
		texts = append(texts, inQueue(a))
	}
	return strings.Join(texts, "; ")
}

func inQueue(a powercycle.Ahead) string {
	switch a.Reason {
	case powercycle.KeptOffForAnother:
		return fmt.Sprintf("the host is kept powered off for remediation %s", a.Name)
	case powercycle.AnotherOfMachine:
		return a.Name + " is under way"
	case powercycle.PlaneForbids:
		return a.Objection.String()
	case powercycle.ManagerOnHost:
		return "no other replica is ready elsewhere, or it is about to take over"
	case powercycle.ClaimedByAnother:
		return a.Name + " goes first"
	case powercycle.QueueUnknown:
		return a.Name
	}
	return ""
}
