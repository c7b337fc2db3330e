package inspect

import (
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/explain"
)

// unreadByYou says in c that it is the user who may not read the Machines of nodes: the manager reads them wherever they are, and what it concludes from
// them is not known.
func unreadByYou(c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		for j := range t.Blockers {
			if t.Blockers[j].Cause != string(nodes.MachineUnread) {
				continue
			}
			t.Blockers[j] = explain.MachineNotRead()
			if len(t.Blockers) == 1 && !t.InFlight {
				t.Next = explain.Step{Text: t.Blockers[j].Person, Person: true}
			}
		}
	}
}
