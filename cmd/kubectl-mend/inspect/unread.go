package inspect

import (
	"strings"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// unreadByYou says in c that it is the user who may not read what is known of the Machines of nodes: the manager reads them wherever they are, and
// it cannot be told what it makes of them.
func unreadByYou(c *explain.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		for j := range t.Blockers {
			if !strings.HasSuffix(t.Blockers[j].Text, nodehealthcheck.MachineUnread) {
				continue
			}
			t.Blockers[j] = explain.Blocker{
				Reason: explain.NotSeenByYou, Text: "What its Machine says could not be read with your rights, and the manager may read it",
				Person: "Ask as somebody who may read the Machine, its Cluster and its MachineHealthChecks",
			}
			if len(t.Blockers) == 1 && !t.InFlight {
				t.Next = explain.Step{Text: t.Blockers[j].Person, Person: true}
			}
		}
	}
}
