package inspect

import (
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// unreadByYou replaces the blockers of nodes whose Machine the user may not read: the manager may, and its decision is not known.
func unreadByYou(c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		for j := range t.Blockers {
			if t.Blockers[j].Cause != string(nodehealthcheck.MachineUnread) {
				continue
			}
			t.Blockers[j] = explain.Blocker{
				Reason: explain.MissingPermission, Cause: explain.MachineUnread, Detail: "its Machine",
				Text: "What its Machine says could not be read with your rights, and the manager may read it",
				Fix:  "Ask as a user who may read the Machine, its Cluster and its MachineHealthChecks",
			}
			if len(t.Blockers) == 1 && !t.InFlight {
				t.Next = explain.Step{Reason: t.Blockers[j].Reason, Text: t.Blockers[j].Fix, Manual: true}
			}
		}
	}
}
