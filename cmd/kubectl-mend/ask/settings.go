package ask

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/presence"
)

// Managers are those that have announced themselves, and what is not known of them.
type Managers struct {
	All []presence.Manager `json:"managers"`
	// Unknown is why it cannot be told which there are; empty if it can.
	Unknown string `json:"unknown,omitempty"`
}

// ManagersOf are those that w knows of at now, those that run first.
func ManagersOf(ctx context.Context, w *snapshot.World, now time.Time) Managers {
	all, err := presence.Of(ctx, w.ReadOnly(), now)
	if err != nil {
		return Managers{Unknown: err.Error()}
	}
	slices.SortStableFunc(all, func(a, b presence.Manager) int { return alive(b) - alive(a) })
	return Managers{All: all}
}

func alive(m presence.Manager) int {
	if m.Alive {
		return 1
	}
	return 0
}

// of is the manager that looks at check; nil if there is none. Of one that does not say what it looks at, it is taken that it does.
func (m Managers) of(check *clusterv1.MachineHealthCheck) *presence.Manager {
	for i := range m.All {
		if is := &m.All[i]; is.Alive && (is.Announcement == nil || is.Covers(check) && !is.Announcement.Leaving) {
			return is
		}
	}
	return nil
}

// unclaimed is what the manager of a check does about checks that nobody has claimed. Where that is not known, it is what managers do that were
// told nothing.
func unclaimed(m *presence.Manager) machinehealthcheck.Unclaimed {
	if m == nil || m.Announcement == nil || m.Announcement.Unclaimed == "" {
		return machinehealthcheck.Observe
	}
	return machinehealthcheck.Unclaimed(m.Announcement.Unclaimed)
}

// leaseNamespace is where the manager keeps the leases on nodes.
func (m Managers) leaseNamespace() string {
	for _, is := range m.All {
		if is.Announcement != nil && is.Announcement.NodeLeaseNamespace != "" {
			return is.Announcement.NodeLeaseNamespace
		}
	}
	return nhcv1.DefaultLeaseNamespace
}

// serves reports whether a manager acts on a kind that belongs to no namespace, and if one runs that does not, why not. Where it is not known
// who runs, it is taken that somebody does.
func (m Managers) serves(crd string) (because string, served bool) {
	if m.Unknown != "" {
		return "", true
	}
	for _, is := range m.All {
		if !is.Alive || is.Announcement != nil && is.Announcement.Leaving {
			continue
		}
		kind, known := is.Serves(crd)
		if !known || kind.Reason == "" {
			return "", true
		}
		because = "kubemend does not serve the kind: " + kind.Because
	}
	return because, false
}

// serve says in c, of a kind that belongs to no namespace, if no manager acts on it.
func (m Managers) serve(c *look.Check, crd string) {
	because, served := m.serves(crd)
	switch {
	case served || c.Stance != look.Acting:
		return
	case because == "":
		m.unattended(c)
		return
	}
	c.Stance, c.Because = look.Core, because
	for i := range c.Targets {
		if t := &c.Targets[i]; t.Left == "" && t.Next != (look.Step{}) {
			t.Begins, t.Next = false, look.Step{Text: "Whoever else serves the kind acts on it"}
			t.Holds = slices.Insert(t.Holds, 0, look.Hold{Reason: NotServed, Text: because})
		}
	}
}

// NotServed is the reason of what holds everything back where kubemend does not act on the kind.
const NotServed = "KindNotServed"

// NoManager is the reason of what holds everything back where nobody is there to do it.
const NoManager = "NoManager"

// nobody says why no manager is there.
func (m Managers) nobody() look.Hold {
	why := "No manager of kubemend runs that looks at it"
	for i := range m.All {
		switch is := &m.All[i]; {
		case !is.Alive:
			why = fmt.Sprintf("The manager of kubemend in namespace %s has not run since %s", is.Namespace, is.Gone.UTC().Format(time.RFC3339))
		case is.Announcement != nil && is.Announcement.Leaving:
			why = fmt.Sprintf("The manager of kubemend in namespace %s is leaving, and begins nothing", is.Namespace)
		}
	}
	return look.Hold{Reason: NoManager, Text: why, Person: "Start the manager of kubemend"}
}

// unattended says in c that nobody is there who would act on it.
func (m Managers) unattended(c *look.Check) {
	hold := m.nobody()
	if c.Kind == "MachineHealthCheck" {
		hold.Person += ", or hand the check back to Cluster API core: kubectl mend release mhc/" + c.Name
	}
	c.Stance, c.Because, c.Next = look.Nobody, hold.Text, look.Step{Text: hold.Person, Person: true}
	for i := range c.Targets {
		t := &c.Targets[i]
		if t.Left != "" || t.Next == (look.Step{}) {
			continue
		}
		t.Begins, t.Next = false, c.Next
		t.Holds = slices.Insert(t.Holds, 0, hold)
	}
}
