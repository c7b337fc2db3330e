package capacity

import (
	"fmt"
	"path"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func isTrue(since time.Duration) Condition { return Condition{Status: "True", Since: ago(since)} }

func isFalse(reason, message string, since time.Duration) Condition {
	return Condition{Status: "False", Reason: reason, Message: message, Since: ago(since)}
}

// worker is a machine with a Ready node.
func worker(name string, age time.Duration, edits ...func(*Machine)) Machine {
	m := Machine{
		Name: name, Created: ago(age), Set: "md-0-a", BootstrapProvided: true, InfrastructureProvisioned: true, Infrastructure: isTrue(age),
		Node: "node-" + name, NodeReady: isTrue(age), Infra: Object{Kind: "DockerMachine", Name: name},
		BootstrapConfig: Object{Kind: "KubeadmConfig", Name: name},
	}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

// given are the facts of three workers of MachineDeployment md-0, of which w1 is being replaced since ten minutes.
func given(edit func(*Facts)) Facts {
	f := Facts{
		Now: noon, Began: ago(10 * time.Minute), Old: worker("w1", 24*time.Hour), Initialized: true, Cluster: "c1", Namespace: "default",
		Others: []Machine{worker("w2", 24*time.Hour), worker("w3", 24*time.Hour)},
		Owner:  Owner{Kind: "MachineSet", Name: "md-0-a", Deployment: "md-0", Set: "md-0-a", Known: true, Replicas: 3},
	}
	f.Old.NodeReady = Condition{Status: "Unknown", Reason: "NodeStatusUnknown", Since: ago(15 * time.Minute)}
	f.Old.Unhealthy = true
	edit(&f)
	return f
}

// all are several changes.
func all(edits ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, edit := range edits {
			edit(f)
		}
	}
}

// made are more machines.
func made(machines ...Machine) func(*Facts) {
	return func(f *Facts) { f.Others = append(f.Others, machines...) }
}

// asked has the owner of w1 asked.
func asked(reason, message string, since time.Duration, edits ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		f.Old.Asked = isFalse(reason, message, since)
		all(edits...)(f)
	}
}

// deleting begins the deletion of w1, nine minutes ago, which is as far as a reason says.
func deleting(reason string, edits ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		f.Old.Deleting = ago(9 * time.Minute)
		f.Old.Deletion.Condition = Condition{Status: "True", Reason: reason, Message: "as it says", Since: ago(9 * time.Minute)}
		all(edits...)(f)
	}
}

// gone ends it, five minutes ago.
func gone(edits ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		f.Old = Machine{Name: "w1", Gone: true, GoneAt: ago(5 * time.Minute)}
		all(edits...)(f)
	}
}

// followed is a new machine w4, four minutes old, which has nothing yet.
func followed(edits ...func(*Facts, *Machine)) func(*Facts) {
	return gone(func(f *Facts) {
		m := worker("w4", 4*time.Minute)
		m.BootstrapProvided, m.InfrastructureProvisioned, m.Node, m.NodeReady, m.Infrastructure = false, false, "", Condition{}, Condition{}
		for _, edit := range edits {
			edit(f, &m)
		}
		f.Others = append(f.Others, m)
	})
}

// rollsOut has the MachineDeployment roll out revision md-0-b, which has made machines, while w1 is drained.
func rollsOut(made ...Machine) func(*Facts) {
	return deleting("DrainingNode", func(f *Facts) {
		f.Owner.RollingOut, f.Owner.Set, f.Others = true, "md-0-b", append(f.Others, made...)
	})
}

// unready is a machine of that revision whose node is not Ready.
func unready(name string) Machine {
	m := worker(name, 12*time.Minute)
	m.Set, m.NodeReady = "md-0-b", isFalse("KubeletNotReady", "", time.Minute)
	return m
}

// metal makes it a machine on bare metal that has its bootstrap data.
func metal(_ *Facts, m *Machine) {
	m.BootstrapProvided, m.Metal3, m.Infra.Kind = true, true, "Metal3Machine"
	m.Infrastructure = isFalse("NotReady", "", 4*time.Minute)
}

func hosts(all ...Host) func(*Facts, *Machine) {
	return func(f *Facts, _ *Machine) { f.Hosts, f.HostsKnown = all, true }
}

// rows are what is told of facts; each row has a name.
type rows []struct {
	name string
	edit func(*Facts)
	want string
}

func (all rows) run(t *testing.T) {
	all.tell(t, func(f Facts) string { return told(Decide(f)) })
}

func (all rows) tell(t *testing.T, about func(Facts) string) {
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) {
			if got := about(given(tc.edit)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// told is what of a story the tables compare, in a line. Moments are durations: since before noon, until after it.
func told(s Story) string {
	line := fmt.Sprintf("%s %s %s", s.Stage, s.Reason, s.Machine)
	if s.Overdue {
		line += " overdue"
	}
	for _, is := range []struct{ name, value string }{
		{"waits", path.Join(s.WaitsFor.Kind, s.WaitsFor.Namespace, s.WaitsFor.Name)}, {"since", between(s.Since, noon)}, {"until", between(noon, s.Deadline)},
		{"next", string(s.Next)}, {"todo", string(s.Todo)}, {"by", by(s.Replacement)},
	} {
		if is.value != "" {
			line = fmt.Sprintf("%s %s=%s", line, is.name, is.value)
		}
	}
	return line
}

// by is what replaces a machine, and how that is known; with a ? if it is a guess.
func by(r Replacement) string {
	text := path.Join(r.Name, string(r.By))
	if r.Guess() {
		text += "?"
	}
	return text
}

func between(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return to.Sub(from).String()
}
