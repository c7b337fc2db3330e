package managerlease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Of are the managers that have announced themselves in any namespace, and those that only lead, by namespace. It is Among of the leases that
// reader has, of which only those of these names are asked for, with what the bindings that it has say of each: see Bindings.
func Of(ctx context.Context, reader client.Reader, now time.Time) ([]Manager, error) {
	var all []coordinationv1.Lease
	for _, name := range []string{LeaseName, LeaderLeaseName} {
		list := &coordinationv1.LeaseList{}
		if err := reader.List(ctx, list, client.MatchingFields{"metadata.name": name}); err != nil {
			return nil, fmt.Errorf("list the leases %s: %w", name, err)
		}
		all = append(all, list.Items...)
	}
	return OfKubemend.Bindings(ctx, reader).believe(ctx, reader, Among(all, now)), nil
}

// In is the manager of one namespace, for those who may not list leases in all; nil if there never was one.
func In(ctx context.Context, reader client.Reader, namespace string, now time.Time) (*Manager, error) {
	var all []coordinationv1.Lease
	for _, name := range []string{LeaseName, LeaderLeaseName} {
		lease := coordinationv1.Lease{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &lease)
		switch {
		case err == nil:
			all = append(all, lease)
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("read the lease %s/%s: %w", namespace, name, err)
		}
	}
	if found := OfKubemend.Bindings(ctx, reader).believe(ctx, reader, Among(all, now)); len(found) > 0 {
		return &found[0], nil
	}
	return nil, nil
}

// Among are the managers that the leases are of, one for each namespace, by namespace. Leases of other names are passed over.
//
// A lease that was not renewed within its duration is of a manager that is gone. The lease of the leader is evidence where there is no
// announcement, or none was made for long: a manager of an earlier release announces nothing. Not at once, since a manager that ends stops to
// announce itself before it gives the lease back.
func Among(leases []coordinationv1.Lease, now time.Time) []Manager {
	said := map[string]Manager{}
	for i := range leases {
		if leases[i].Name == LeaseName {
			said[leases[i].Namespace] = of(&leases[i], now)
		}
	}
	for i := range leases {
		if leases[i].Name != LeaderLeaseName {
			continue
		}
		leads := of(&leases[i], now)
		if says, has := said[leads.Namespace]; !has || leads.Alive && !says.Alive && leads.Renewed.After(says.Renewed.Add(lasts)) {
			said[leads.Namespace] = leads
		}
	}
	all := make([]Manager, 0, len(said))
	for _, m := range said {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Manager) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return all
}

// of is the manager that a lease is of. One without a holder was released when it was renewed last.
func of(lease *coordinationv1.Lease, now time.Time) Manager {
	m := Manager{Namespace: lease.Namespace, Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
	if lease.Spec.RenewTime != nil {
		m.Renewed = lease.Spec.RenewTime.Time
	}
	a, err := read(lease)
	if err != nil {
		m.Trouble = err.Error()
	}
	m.Announcement = a
	if m.Holder == "" {
		m.Gone = m.Renewed
		return m
	}
	end := ends(lease)
	if m.Alive = now.Before(end); !m.Alive {
		m.Gone = end
	}
	return m
}

// ends is when the lease ends unless it is renewed before.
func ends(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
}
