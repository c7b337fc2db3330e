package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// announce has the manager say that it runs, and how, while it is the one that acts. Without a namespace to say it in it does not.
func announce(mgr ctrl.Manager, services *crdgate.Reconciler, o *options) error {
	namespace := leaseOf(o).Namespace
	if namespace == "" {
		klog.Background().Info("Not announcing the manager: outside of a cluster --leader-elect-namespace says where to", "lease", managerlease.LeaseName)
		return nil
	}
	identity, err := announcedAs()
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	services.Changed = func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	started := metav1.NewTime(clock.RealClock{}.Now())
	announcer := &managerlease.Announcer{
		Client: client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner), Live: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Namespace: namespace, Identity: identity, Elected: o.leaderElection,
		Says: func() managerlease.Announcement { return announcement(services.Kinds(), started, o) }, Changed: changed,
	}
	if o.leave {
		announcer.Owner = podOf(namespace)
	}
	if err := mgr.Add(announcer); err != nil {
		return fmt.Errorf("set up the announcement of the manager: %w", err)
	}
	return nil
}

// announcedAs is the name of the pod. Outside of a cluster several managers may run on one host.
func announcedAs() (string, error) {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("set up the announcement of the manager: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// announcement is what the manager says of itself.
func announcement(looked []crdgate.Kind, started metav1.Time, o *options) managerlease.Announcement {
	return managerlease.Announcement{
		Version: version, Started: started, Unclaimed: string(o.unclaimed), Namespace: o.namespace, WatchFilter: o.watchFilter,
		Fencing: string(o.fencing), NodeLeaseNamespace: o.nodeLeaseNamespace, Leaving: o.leave, Kinds: kindsOf(looked, o),
	}
}

// kindsOf are all kinds that the manager knows: those that it serves whenever it runs, those that serving has looked at, and those that a
// feature gate has kept from it.
func kindsOf(looked []crdgate.Kind, o *options) []managerlease.Kind {
	var kinds []managerlease.Kind
	if !o.leave {
		kinds = append(kinds, managerlease.Kind{CRD: crdgate.MachineCheckCRD})
	}
	for _, k := range looked {
		kinds = append(kinds, managerlease.Kind{CRD: k.CRD, Reason: k.Reason, Because: k.Because})
	}
	gated := map[featuregate.Feature][]string{hostRemediation: {crdgate.Metal3CRD, crdgate.OwnCRD}, nodeHealthCheck: {crdgate.NodeCheckCRD}}
	for gate, crds := range gated {
		if o.gates.Enabled(gate) || o.leave && gate == hostRemediation {
			continue
		}
		for _, crd := range crds {
			kinds = append(kinds, managerlease.Kind{CRD: crd, Reason: crdgate.OffReason, Because: fmt.Sprintf("the feature gate %s is off", gate)})
		}
	}
	slices.SortStableFunc(kinds, func(a, b managerlease.Kind) int { return cmp.Compare(a.CRD, b.CRD) })
	return kinds
}
