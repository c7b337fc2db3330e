package health

import "time"

// agrees reports whether s, Cluster API's copy of what it last saw of the node of t, is what the node says now.
func agrees(s Signal, t Target) bool {
	status, _ := nodeSays(s.Type, t)
	return s.Status == status
}

// nodeSays is the status that Cluster API gives to NodeReady or NodeHealthy of a Machine when it looks at the node as t knows it, and the
// moment since which that has been so at least; zero if no moment is known. (Cluster API, machine_controller_status.go.)
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

// said is the status of a condition of the node of t, and since when it has it; Unknown if there is none.
func said(t Target, kind string) (status string, since time.Time) {
	for i := range t.Signals {
		if s := &t.Signals[i]; s.Source == OnNode && s.Type == kind {
			return s.Status, s.Since
		}
	}
	return "Unknown", time.Time{}
}

// nodeHealth is what NodeHealthy says: False if any of four conditions is bad, else Unknown if any of them is not known.
func nodeHealth(t Target) (status string, since time.Time) {
	status = "True"
	for _, c := range [...]struct{ kind, good string }{{"Ready", "True"}, {"MemoryPressure", "False"}, {"DiskPressure", "False"}, {"PIDPressure", "False"}} {
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
