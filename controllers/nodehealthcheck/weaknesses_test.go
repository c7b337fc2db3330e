package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Those that are shown at one go.
func TestWeaknessesThatMedik8sHas(t *testing.T) {
	for name, isNotThere := range map[string]func(*testing.T){
		"W19: how much a reconcile reads does not depend on the number of nodes":    fewReads,
		"W25: nothing is decided before the MachineHealthChecks were read":          unreadConflict,
		"W25: a conflict that cannot be looked for is not none":                     unknownConflict,
		"W29: nothing begins while it is not known whether the cluster is upgraded": unknownUpgrade,
	} {
		t.Run(name, isNotThere)
	}
}

// annotateNode sets annotations of a node.
func (k *fixture) annotateNode(name string, annotations map[string]string) {
	k.t.Helper()
	n := k.node(name)
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
	}
	k.update(n)
}

// medik8s lists the requests of every kind once for every healthy node.
func fewReads(t *testing.T) {
	reads := func(n int) (lists, gets int) {
		objects := []client.Object{template("Reboot", "reboot", false), template("Replace", "replace", false),
			check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace")))}
		for i := range n {
			objects = append(objects, node(fmt.Sprintf("n%d", i), nil))
		}
		k := newFixture(t, objects...)
		k.bad("n0")
		k.settle("nhc")
		k.r.Client = interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				lists++
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				gets++
				return c.Get(ctx, key, obj, opts...)
			},
		})
		k.r.Live = nil // nothing is read past the caches
		k.reconcile("nhc")
		return lists, gets
	}
	lists, gets := reads(3)
	if lists != 4 {
		t.Errorf("a reconcile makes %d lists, want one of the nodes, one of the leases and one for each of the two kinds of requests", lists)
	}
	if moreLists, moreGets := reads(300); moreLists != lists || moreGets != gets {
		t.Errorf("for 3 nodes it makes %d lists and reads %d objects, for 300 it makes %d and reads %d", lists, gets, moreLists, moreGets)
	}
}

// What cannot be asked is not "no": medik8s takes a cluster that it cannot ask for one that is not being upgraded.
func unknownUpgrade(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	knows := k.r.Installed
	k.r.Installed = func(_ context.Context, crd string) (bool, error) {
		if crd == "clusterversions.config.openshift.io" {
			return false, errors.New("the API server is out of order")
		}
		return false, nil
	}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("it may be upgraded")
	c := meta.FindStatusCondition(k.check("nhc").Status.Conditions, nhcv1.RemediationAllowedCondition)
	if c.Reason != nhcv1.UpgradeReason || c.Status != metav1.ConditionFalse {
		t.Errorf("RemediationAllowed says %+v", c)
	}
	k.r.Installed = knows
	k.settle("nhc")
	k.wants("it is not", "Reboot/b")
}

// Before the MachineHealthChecks were read, medik8s leaves every node alone that has the condition Terminating, and is disabled by none.
func unreadConflict(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.installs("machinehealthchecks.machine.openshift.io")
	informer := controllertest.NewFakeInformer()
	k.informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{MachineHealthChecks: informer}
	k.bad("b")
	k.reconciles("nhc")
	k.wants("what was not read is not none")
	if got := k.check("nhc").Status; got.Phase != "" {
		t.Errorf("it says %+v", got)
	}
	informer.Synced()
	k.settle("nhc")
	k.wants("there is none", "Reboot/b")
}

// installs makes kinds of OpenShift known to the controller, by their definitions.
func (k *fixture) installs(crds ...string) {
	k.r.Installed = func(_ context.Context, crd string) (bool, error) { return slices.Contains(crds, crd), nil }
}

func unknownConflict(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.Installed = func(context.Context, string) (bool, error) {
		return false, errors.New("the API server is out of order")
	}
	k.bad("b")
	if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}}); err == nil {
		t.Error("no event says so")
	}
	k.wants("somebody else may act on it")
}
