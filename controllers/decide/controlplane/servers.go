package controlplane

import "time"

const (
	// renewal is how old a renewal of an identity lease may be, counted from the newest one: an API server renews its own every 10 s.
	// (Kubernetes, pkg/controlplane/apiserver: IdentityLeaseRenewIntervalPeriod.)
	renewal = time.Minute
	// leaseDuration is how long such a lease lasts: an older one is collected as garbage. (The same:
	// IdentityLeaseDurationSeconds.)
	leaseDuration = time.Hour
)

// Servers returns what the identity leases of a cluster's API servers say, by the name of the node that each runs on, from when each was
// renewed last. It may be asked only while the API answers: then an API server renews, and one that does not is known by how far it is
// behind the newest renewal. The clock here, which may differ from the cluster's, shows no more than that none was renewed for as long as a
// lease lasts, which means that no API server renews one (feature gate APIServerIdentity off), and that they say nothing.
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
