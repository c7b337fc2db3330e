package controlplane

import "time"

const (
	// renewal is how far the renewal of an API server's identity lease may be behind the newest renewal. An API server renews its lease
	// every 10 s (Kubernetes, pkg/controlplane/apiserver: IdentityLeaseRenewIntervalPeriod).
	renewal = time.Minute
	// leaseDuration is how long such a lease lasts before it is garbage-collected (IdentityLeaseDurationSeconds, in the same package).
	leaseDuration = time.Hour
)

// Servers returns which API servers are alive by their identity leases. Renewed has the renewTime of each lease, by the node of its API
// server. Call it only while the API answers: then at least one API server renews its lease, and a lease that is far behind the newest
// renewal belongs to an API server that is down. The manager's clock may differ from the cluster's, so now is used for one question alone:
// if no lease was renewed for an hour, the feature gate APIServerIdentity is off, and the leases say nothing (nil).
func Servers(renewed map[string]time.Time, now time.Time) map[string]Sign {
	var newest time.Time
	for _, at := range renewed {
		if at.After(newest) {
			newest = at
		}
	}
	if now.Sub(newest) >= leaseDuration {
		return nil
	}
	signs := make(map[string]Sign, len(renewed))
	for node, at := range renewed {
		switch behind := newest.Sub(at); {
		case behind <= renewal:
			signs[node] = Alive
		case behind < leaseDuration:
			signs[node] = Silent
		}
	}
	return signs
}
