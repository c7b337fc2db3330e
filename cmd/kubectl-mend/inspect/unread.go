package inspect

import (
	"strings"

	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// unreadByYou says in c that it is the user who may not read what is known of the Machines of nodes: the manager reads them wherever they are, and
// it cannot be told what it makes of them.
func unreadByYou(c *look.Check) {
	for i := range c.Targets {
		t := &c.Targets[i]
		for j := range t.Holds {
			if !strings.HasSuffix(t.Holds[j].Text, nodehealthcheck.MachineUnread) {
				continue
			}
			t.Holds[j] = look.Hold{
				Reason: look.NotSeenByYou, Text: "What its Machine says could not be read with your rights, and the manager may read it",
				Person: "Ask as somebody who may read the Machine, its Cluster and its MachineHealthChecks",
			}
			if len(t.Holds) == 1 && !t.InFlight {
				t.Next = look.Step{Text: t.Holds[j].Person, Person: true}
			}
		}
	}
}
