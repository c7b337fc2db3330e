package health

import "time"

// agrees reports whether s, Cluster API's copy of a condition of the Node of t, has the status that the Node has now.
func agrees(s Signal, t Target) bool {
	status, _ := nodeSays(s.Type, t)
	return s.Status == status
}

// nodeSays returns the status that Cluster API would give to the Machine's condition mirror, NodeReady or NodeHealthy, from the Node of t
// (machine_controller_status.go), and since when at least that status holds; zero if unknown.
func nodeSays(mirror string, t Target) (status string, since time.Time) {
	switch {
	case t.Node == NodeGone:
		return "False", time.Time{}
	case t.Node != NodePresent:
		return "", time.Time{}
	case mirror == NodeReady:
		return said(t, "Ready")
	}
	return nodeHealth(t)
}

// said returns the status of a condition of the Node of t, and since when it has it; Unknown if the condition is missing.
func said(t Target, kind string) (status string, since time.Time) {
	for i := range t.Signals {
		if s := &t.Signals[i]; s.Source == OnNode && s.Type == kind {
			return s.Status, s.Since
		}
	}
	return "Unknown", time.Time{}
}

// nodeHealth returns the status of NodeHealthy: False if any of four conditions is bad, else Unknown if any of them is Unknown.
func nodeHealth(t Target) (status string, since time.Time) {
	status = "True"
	for _, c := range [...]struct{ kind, good string }{
		{"Ready", "True"}, {"MemoryPressure", "False"}, {"DiskPressure", "False"}, {"PIDPressure", "False"},
	} {
		is, at := said(t, c.kind)
		switch {
		case is == c.good || is == "Unknown" && status == "False":
		case is != "Unknown" && status != "False":
			status, since = "False", at
		case is == "Unknown" && status == "True":
			status, since = "Unknown", at
		case at.Before(since):
			since = at
		}
	}
	return status, since
}
