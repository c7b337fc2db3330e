package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// metal has one host for all machines.
type metal struct {
	found host.Found
	err   error
}

func (m metal) Of(context.Context, *clusterv1.Machine) (host.Found, error) { return m.found, m.err }

func TestAnOwnerIsAskedOnlyAfterALookAtTheHost(t *testing.T) {
	external := &host.Host{ObjectMeta: metav1.ObjectMeta{Name: "h"}, Power: powercycle.Power{External: true}}
	for name, tc := range map[string]struct {
		metal   metal
		blocked Reason // empty if it starts
	}{
		"an ordinary host":                      {metal{found: host.Found{Is: powercycle.HostOurs, Host: &host.Host{}}}, ""},
		"one that is externally provisioned":    {metal{found: host.Found{Is: powercycle.HostOurs, Host: external}}, HostExternal},
		"one that is another machine's":         {metal{found: host.Found{Is: powercycle.HostForeign, Host: external}}, ""},
		"a paused Metal3Machine":                {metal{found: host.Found{Is: powercycle.HostGone, Paused: true}}, HostPaused},
		"a host that may not be read, as ever":  {metal{err: apierrors.NewForbidden(schema.GroupResource{}, "h", nil)}, ""},
		"a kind that is not installed, as ever": {metal{err: fmt.Errorf("read it: %w", &meta.NoKindMatchError{})}, ""},
		"a host that cannot be read now":        {metal{err: errors.New("no answer")}, PowerCyclesUnread},
	} {
		onHost := func(target *Target) {
			target.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Machine", APIGroup: "infrastructure.cluster.x-k8s.io"}
		}
		w := aCheck(a("m", health.Unhealthy, onHost))
		w.Read.Cycles, w.unread = true, map[schema.GroupKind]time.Time{}
		plan, r := decide(w), &Reconciler{Metal: tc.metal}
		if !plan.Needs.Hosts {
			t.Fatalf("%s: the host is not read", name)
		}
		r.observeHosts(t.Context(), w, plan)
		decision := decide(w).Decisions[0]
		if decision.Starts() != (tc.blocked == "") || tc.blocked != "" && !decision.Blocked(tc.blocked) {
			t.Errorf("%s: it starts %t, blocked by %v", name, decision.Starts(), decision.Blockers)
		}
		w.before.unread, w.Now = w.unread, w.Now.Add(CyclesUnreadFor)
		w.Targets[0].Host, w.CyclesUnread = nil, time.Time{}
		r.observeHosts(t.Context(), w, plan)
		if tc.blocked == PowerCyclesUnread && !decide(w).Decisions[0].Starts() {
			t.Errorf("%s: it does not start after ten minutes", name)
		}
	}
}
