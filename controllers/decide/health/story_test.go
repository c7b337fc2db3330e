package health_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/golden"
)

// policy is the one of the documentation's first example.
var policy = health.Policy{
	NodeStartup: 10 * time.Minute,
	Rules: []health.Rule{
		{Source: health.OnNode, Type: "Ready", Status: "Unknown", For: 5 * time.Minute},
		{Source: health.OnNode, Type: "Ready", Status: "False", For: 5 * time.Minute},
	},
}

// machinesToo is policy with checks of the machines themselves.
var machinesToo = health.Policy{
	NodeStartup: policy.NodeStartup,
	Rules: append(slices.Clone(policy.Rules),
		health.Rule{Source: health.OnMachine, Type: "NodeHealthy", Status: "Unknown", For: time.Minute},
		health.Rule{Source: health.OnMachine, Type: "InfrastructureReady", Status: "False", For: 3 * time.Minute},
	),
}

// workers returns n machines whose nodes have been ready for long.
func workers(n int) (ms []*machine) {
	for i := range n {
		m := &machine{name: fmt.Sprintf("worker-%d", i+1), node: health.NodePresent}
		m.set(health.OnNode, "Ready", "True", "KubeletReady", noon.Add(-time.Hour))
		ms = append(ms, m)
	}
	return ms
}

// newcomers returns n machines that were just made and have no node.
func newcomers(n int) []*machine {
	ms := workers(n)
	for _, m := range ms {
		m.node, m.awaitedSince, m.signals = health.NodeAwaited, noon, nil
	}
	return ms
}

// set reports a condition; as in Kubernetes, only a change of its status moves its time.
func (m *machine) set(source health.Source, kind, status, reason string, now time.Time) {
	s := health.Signal{Source: source, Type: kind, Status: status, Reason: reason, Since: now}
	for i, was := range m.signals {
		if was.Source == source && was.Type == kind {
			if was.Status == status {
				s.Since = was.Since
			}
			m.signals[i] = s
			return
		}
	}
	m.signals = append(m.signals, s)
}

func at(minutes float64, text string, do ...func(*environment)) event {
	return event{noon.Add(time.Duration(minutes * float64(time.Minute))), text, func(w *environment) {
		for _, d := range do {
			d(w)
		}
	}}
}

// each does something to the machines with these names, or to all if none is named.
func each(names []string, do func(*environment, *machine)) func(*environment) {
	return func(w *environment) {
		for _, m := range slices.Clone(w.machines) {
			if len(names) == 0 || slices.Contains(names, m.name) {
				do(w, m)
			}
		}
	}
}

// reports lets nodes say whether they are ready; a node that was awaited has joined then.
func reports(ready string, names ...string) func(*environment) {
	reason := map[string]string{"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}[ready]
	return each(names, func(w *environment, m *machine) {
		m.node = health.NodePresent
		m.set(health.OnNode, "Ready", ready, reason, w.now)
	})
}

func machineReports(kind, status, reason string, names ...string) func(*environment) {
	return each(names, func(w *environment, m *machine) { m.set(health.OnMachine, kind, status, reason, w.now) })
}

func mark(name string) func(*environment) {
	return each([]string{name}, func(_ *environment, m *machine) { m.marked = true })
}

func deleteNode(name string) func(*environment) {
	return each([]string{name}, func(_ *environment, m *machine) { m.node = health.NodeGone })
}

func deleteMachine(name string) func(*environment) {
	return each([]string{name}, func(_ *environment, m *machine) { m.deleting = true })
}

func replace(name, by string) func(*environment) {
	return each([]string{name}, func(w *environment, m *machine) {
		w.machines = slices.DeleteFunc(w.machines, func(other *machine) bool { return other == m })
		w.machines = append(w.machines, &machine{name: by, node: health.NodeAwaited, awaitedSince: w.now})
	})
}

func cutOff(w *environment)    { w.cutOff = true }
func reconnect(w *environment) { w.cutOff, w.reached = false, w.now }

func closeGate(g health.Gate) func(*environment) { return func(w *environment) { w.gate = g } }

// openGate starts the time of those who wait for a node anew, as the opened gate's condition does.
func openGate(w *environment) {
	w.gate = health.Open
	for _, m := range w.machines {
		if m.node == health.NodeAwaited {
			m.awaitedSince = w.now
		}
	}
}

// stories are made anew each time: playing one uses it up.
func stories() map[string]*environment {
	return map[string]*environment{
		"a node falls silent and comes back in time": {
			policy: policy, atMost: "40%", machines: workers(3),
			events: []event{
				at(1, "worker-1 falls silent", reports("Unknown", "worker-1")),
				at(5.9, "worker-1 is back", reports("True", "worker-1")),
			},
		},
		"a node falls silent for good": {
			policy: policy, atMost: "40%", machines: workers(3),
			events: []event{
				at(1, "worker-1 falls silent", reports("Unknown", "worker-1")),
				at(7, "worker-1 is deleted by its owner", deleteMachine("worker-1")),
				at(7.5, "worker-1 loses its node", deleteNode("worker-1")),
				at(8, "worker-1 is gone, worker-4 takes its place", replace("worker-1", "worker-4")),
				at(11, "worker-4 joins", reports("False", "worker-4")),
				at(12, "worker-4 is ready", reports("True", "worker-4")),
			},
		},
		"a node is deleted under its machine": {
			policy: policy, atMost: "40%", machines: workers(3), repair: 3 * time.Minute,
			events: []event{
				at(1, "worker-2 falls silent", reports("Unknown", "worker-2")),
				at(2, "somebody deletes the node of worker-2", deleteNode("worker-2")),
			},
		},
		"NotReady follows Unknown": {
			policy: policy, atMost: "2", machines: workers(4),
			events: []event{
				at(1, "worker-1 and worker-2 fall silent", reports("Unknown", "worker-1", "worker-2")),
				at(4, "worker-1 is heard again, but not ready", reports("False", "worker-1")),
				at(8, "worker-2 is heard again, but not ready", reports("False", "worker-2")),
				at(20, "both are ready", reports("True", "worker-1", "worker-2")),
			},
		},
		"a machine never starts": {
			policy: policy, atMost: "100%", machines: newcomers(2), gate: health.ControlPlaneNotInitialized,
			events: []event{
				at(5, "the control plane is initialized", openGate),
				at(8, "worker-1 joins", reports("False", "worker-1")),
				at(9, "worker-1 is ready", reports("True", "worker-1")),
			},
		},
		"the workload cluster is cut off and comes back": {
			policy: machinesToo, atMost: "100%", machines: workers(4),
			events: []event{
				at(1, "worker-1 falls silent", reports("Unknown", "worker-1")),
				at(2, "the connection is lost", cutOff),
				at(3, "the host of worker-2 dies", machineReports("InfrastructureReady", "False", "HostDead", "worker-2")),
				at(7, "Cluster API says that it has lost all nodes", machineReports("NodeHealthy", "Unknown", health.ConnectionDown)),
				at(9, "worker-3 is marked by hand", mark("worker-3")),
				at(10, "the connection is back", reconnect, machineReports("NodeHealthy", "True", "NodeHealthy")),
				at(12, "the host of worker-2 is back", machineReports("InfrastructureReady", "True", "HostAlive", "worker-2")),
			},
		},
		"a rack goes dark and the short circuit holds": {
			policy: policy, atMost: "40%", machines: workers(5),
			events: []event{
				at(1, "worker-1 falls silent", reports("Unknown", "worker-1")),
				at(1.5, "worker-2 falls silent", reports("Unknown", "worker-2")),
				at(2, "worker-3 falls silent", reports("Unknown", "worker-3")),
				at(30, "the rack has power again", reports("True", "worker-1", "worker-2", "worker-3")),
				at(40, "worker-5 alone falls silent", reports("Unknown", "worker-5")),
			},
		},
		"one after another under an in-flight limit": {
			policy: policy, atMost: "100%", machines: workers(5), inFlight: 1, repair: 4 * time.Minute,
			events: []event{
				at(1, "worker-3 falls silent", reports("Unknown", "worker-3")),
				at(2, "worker-1 and worker-2 fall silent", reports("Unknown", "worker-1", "worker-2")),
			},
		},
		"the infrastructure flaps": {
			policy: policy, atMost: "40%", machines: workers(5),
			events: []event{
				at(1, "worker-1 falls silent", reports("Unknown", "worker-1")),
				at(4, "worker-2 falls silent", reports("Unknown", "worker-2")),
				at(7, "the infrastructure is not ready", closeGate(health.InfrastructureNotReady)),
				at(8, "the infrastructure is ready", openGate),
				at(8.5, "the infrastructure is not ready", closeGate(health.InfrastructureNotReady)),
				at(10, "the infrastructure is ready", openGate),
				at(11, "worker-1 is back", reports("True", "worker-1")),
			},
		},
	}
}

func TestStories(t *testing.T) {
	golden.Stories(t, stories(), func(t *testing.T, w *environment) string { return w.play(t) })
}
