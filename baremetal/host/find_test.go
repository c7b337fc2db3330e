package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/consistency"
)

func another(m *unstructured.Unstructured) *unstructured.Unstructured {
	m.SetName("m3m-2")
	return m
}

func aHostClaim(consumer string) *bmov1alpha1.HostClaim {
	claim := &bmov1alpha1.HostClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}
	claim.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "ns", Name: consumer}
	return claim
}

func claimed(h *bmov1alpha1.BareMetalHost) {
	h.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "HostClaim", Namespace: "ns", Name: "claim"}
}

// onAnother makes m the machine of the other Metal3Machine.
func onAnother(m *clusterv1.Machine) {
	m.Name, m.UID, m.Spec.InfrastructureRef.Name = "m-2", "other-uid", "m3m-2"
}

func providing(m3m *unstructured.Unstructured, id string) *unstructured.Unstructured {
	m3m.Object["spec"] = map[string]any{"providerID": id}
	return m3m
}

func provided(id string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Spec.ProviderID = id }
}

// listed lists metadata as an uncached client does: the items have no kind.
func listed(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
	err := c.List(ctx, into, opts...)
	if list, is := into.(*metav1.PartialObjectMetadataList); is {
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		}
	}
	return err
}

func TestOf(t *testing.T) {
	type host = bmov1alpha1.BareMetalHost
	const (
		twice   = "Metal3Machines ns/m3m-1 and ns/m3m-2 both name BareMetalHost ns/host-1: either may run on it"
		differs = "Metal3Machine ns/m3m-1 names BareMetalHost ns/host-1 in its annotation metal3.io/BareMetalHost, " +
			"and spec.providerID of the Machine is "
		foreign  = "spec.consumerRef of BareMetalHost ns/host-1 names %s, expected Metal3Machine ns/m3m-1"
		unclaims = "BareMetalHost ns/host-1 has no spec.consumerRef, expected Metal3Machine ns/m3m-1"
	)
	ofAnother, both := fmt.Sprintf(foreign, "Metal3Machine ns/m3m-2"), aMetal3Machine("ns/host-1")
	for name, tc := range map[string]struct {
		m3m     *unstructured.Unstructured // the Metal3Machine, if it is not one that names the host
		id      string                     // the provider ID of its Machine
		host    func(*host)                // changes of the host
		beside  []client.Object
		gone    bool   // no host is found
		missing bool   // the host does not exist
		why     string // why it is not that of the machine
	}{
		"the host that the Metal3Machine names, and that names it": {},
		"the namespace within the annotation is not used":          {m3m: aMetal3Machine("elsewhere/host-1")},
		"W23: a host of another Metal3Machine":                     {host: func(h *host) { h.Spec.ConsumerRef.Name = "m3m-2" }, why: ofAnother},
		"a host of another kind of consumer": {
			host: func(h *host) { h.Spec.ConsumerRef.Kind = "Cluster" }, why: fmt.Sprintf(foreign, "Cluster ns/m3m-1"),
		},
		"a host of a consumer of another group": {
			host: func(h *host) { h.Spec.ConsumerRef.APIVersion = "v1" }, why: fmt.Sprintf(foreign, "Metal3Machine ns/m3m-1"),
		},
		"a host without a consumer":                  {host: func(h *host) { h.Spec.ConsumerRef = nil }, why: unclaims},
		"a host of a HostClaim of the Metal3Machine": {host: claimed, beside: []client.Object{aHostClaim("m3m-1")}},
		"a host of a HostClaim of another one":       {host: claimed, beside: []client.Object{aHostClaim("m3m-2")}, why: ofAnother},
		"a host of a HostClaim that is gone":         {host: claimed, why: unclaims},
		"a host that the provider ID names too":      {id: "metal3://ns/host-1/m3m-1"},
		"one that it alone names":                    {m3m: aMetal3Machine(""), id: "metal3://ns/host-1/m3m-1"},
		"an older provider ID names no host":         {id: "metal3://7c3bd5e0-0000-4000-8000-000000000001"},
		"the annotation names one host, and the provider ID another": {
			id: "metal3://ns/host-2/m3m-1", why: differs + "metal3://ns/host-2/m3m-1",
		},
		"also if the host of the annotation does not exist": {
			id: "metal3://ns/host-2/m3m-1", missing: true, why: differs + "metal3://ns/host-2/m3m-1",
		},
		"the Metal3Machine's own provider ID names another host, and its Machine has none yet": {
			m3m: providing(aMetal3Machine("ns/host-1"), "metal3://ns/host-2/m3m-1"),
			why: "Metal3Machine ns/m3m-1 names BareMetalHost ns/host-1 in its annotation metal3.io/BareMetalHost, " +
				"and spec.providerID of the Metal3Machine is metal3://ns/host-2/m3m-1",
		},
		"the provider ID names another Metal3Machine": {id: "metal3://ns/host-1/m3m-2", why: differs + "metal3://ns/host-1/m3m-2"},
		"a host that two Metal3Machines name":         {beside: []client.Object{another(both.DeepCopy())}, why: twice},
		"or one by its Machine's provider ID alone": {
			beside: []client.Object{another(aMetal3Machine("")), aMachine(onAnother, provided("metal3://ns/host-1/m3m-2"))}, why: twice,
		},
		"or by its own, without a Machine": {
			beside: []client.Object{providing(another(aMetal3Machine("")), "metal3://ns/host-1/m3m-2")}, why: twice,
		},
		"also if its Machine has none yet": {
			beside: []client.Object{providing(another(aMetal3Machine("")), "metal3://ns/host-1/m3m-2"), aMachine(onAnother)}, why: twice,
		},
		"or if its annotation names another host": {
			beside: []client.Object{providing(another(aMetal3Machine("ns/host-2")), "metal3://ns/host-1/m3m-2")}, why: twice,
		},
		"a Metal3Machine that waits for a host beside it": {beside: []client.Object{another(aMetal3Machine("")), aMachine(onAnother)}},
		"a Metal3Machine of another host beside it":       {beside: []client.Object{another(aMetal3Machine("ns/host-2"))}},
		"a host that does not exist":                      {gone: true, missing: true, why: "BareMetalHost ns/host-1 does not exist"},
		"a Metal3Machine that names none": {
			m3m: aMetal3Machine(""), gone: true, why: "Metal3Machine ns/m3m-1 names no host in its annotation metal3.io/BareMetalHost",
		},
		"a Metal3Machine that does not exist": {m3m: another(both.DeepCopy()), gone: true, why: "Metal3Machine ns/m3m-1 does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			want, is := powercycle.HostOurs, ""
			switch {
			case tc.gone:
				want = powercycle.HostGone
			case tc.why != "":
				want = powercycle.HostForeign
			}
			objects := append([]client.Object{cmp.Or(tc.m3m, both.DeepCopy())}, tc.beside...)
			if !tc.missing {
				objects = append(objects, aHost(tc.host))
			}
			found, err := hosts(t, interceptor.Funcs{List: listed}, objects...).Of(t.Context(), aMachine(provided(tc.id)))
			must.Do(t, err)
			if found.Host != nil {
				is = found.Host.Name
			}
			if found.Is != want || (is == "host-1") != (!tc.gone && !tc.missing) || found.Why != tc.why {
				t.Errorf("found %d %q (%q), want %d (%q)", found.Is, is, found.Why, want, tc.why)
			}
		})
	}
	docker := aMachine(func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Kind = "DockerMachine" })
	const why = "the machine's infrastructure is a DockerMachine.infrastructure.cluster.x-k8s.io, " +
		"not a Metal3Machine.infrastructure.cluster.x-k8s.io"
	if found, err := hosts(t, interceptor.Funcs{}).Of(t.Context(), docker); err != nil || found.Is != powercycle.HostGone || found.Why != why {
		t.Errorf("of another provider: %+v, %v", found, err)
	}
}

func TestWhatIsKnownOfAHostBesidesWhoseItIs(t *testing.T) {
	m3m := aMetal3Machine("ns/host-1")
	m3m.SetAnnotations(map[string]string{infrav1.HostAnnotation: "ns/host-1", clusterv1.PausedAnnotation: ""})
	if found, err := hosts(t, interceptor.Funcs{}, m3m, aHost()).Of(t.Context(), aMachine()); err != nil || !found.Paused {
		t.Errorf("the Metal3Machine is paused: %t, %v", found.Paused, err)
	}
	deletedHost := aHost(func(h *bmov1alpha1.BareMetalHost) {
		h.DeletionTimestamp, h.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x"}
	})
	for name, tc := range map[string]struct {
		objects []client.Object
		want    [2]bool // for a remediation that has seen a host before, and one that has not
	}{
		"a host that does not exist":          {[]client.Object{aMetal3Machine("ns/host-1")}, [2]bool{false, false}},
		"one that is being deleted":           {[]client.Object{aMetal3Machine("ns/host-1"), deletedHost}, [2]bool{false, false}},
		"a Metal3Machine that names none":     {[]client.Object{aMetal3Machine("")}, [2]bool{false, true}},
		"a Metal3Machine that does not exist": {nil, [2]bool{true, true}},
	} {
		found, err := hosts(t, interceptor.Funcs{}, tc.objects...).Of(t.Context(), aMachine())
		if got := [2]bool{found.Unnamed("host-1"), found.Unnamed("")}; got != tc.want || err != nil {
			t.Errorf("%s: no host could come back: %v, %v, want %v", name, got, err, tc.want)
		}
	}
}

// The host may change between the decision to fence its node, or to mark it, and the write.
func TestAHostThatIsAnothersByNowIsNotTheMachines(t *testing.T) {
	anew := func(host *bmov1alpha1.BareMetalHost) { host.UID = "anew" }
	taken := func(host *bmov1alpha1.BareMetalHost) { host.Spec.ConsumerRef.Name = "m3m-2" }
	for name, tc := range map[string]struct {
		now []client.Object
		is  powercycle.Host
	}{
		"as it was":                        {[]client.Object{aHost()}, powercycle.HostOurs},
		"another Metal3Machine has it":     {[]client.Object{aHost(taken)}, powercycle.HostForeign},
		"it is gone":                       {nil, powercycle.HostGone},
		"it was registered anew meanwhile": {[]client.Object{aHost(anew)}, powercycle.HostGone},
	} {
		found := &Found{Host: From(aHost()), Is: powercycle.HostOurs}
		if err := hosts(t, interceptor.Funcs{}, tc.now...).Refresh(t.Context(), found); err != nil || found.Is != tc.is {
			t.Errorf("%s: it is %v, %v", name, found.Is, err)
		}
	}
}

func TestAHostIsNeverReadInAnOlderVersionThanBefore(t *testing.T) {
	h := hosts(t, interceptor.Funcs{}, aMetal3Machine("ns/host-1"), aHost())
	h.Live = hosts(t, interceptor.Funcs{}, aHost(func(host *bmov1alpha1.BareMetalHost) { host.ResourceVersion = "99999" })).Live
	must.Do(t, h.Refresh(t.Context(), &Found{Host: From(aHost()), Is: powercycle.HostOurs}))
	if _, err := h.Of(t.Context(), aMachine()); !errors.Is(err, consistency.ErrStale) {
		t.Errorf("the cache has an older version than was read past it: %v", err)
	}
}

func TestWhatCannotBeReadIsAnErrorAndNotGone(t *testing.T) {
	for _, kind := range []string{"Metal3Machine", "BareMetalHost"} {
		if found, err := hosts(t, refusing(kind), aMetal3Machine("ns/host-1"), aHost()).Of(t.Context(), aMachine()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: found %+v, %v, want the error", kind, found, err)
		}
	}
}

// refusing fails reads of objects of a kind with Forbidden.
func refusing(kind string) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
		if gvk, err := c.GroupVersionKindFor(obj); err != nil || gvk.Kind == kind {
			return errors.Join(err, apierrors.NewForbidden(corev1.Resource(kind), key.Name, nil))
		}
		return c.Get(ctx, key, obj, o...)
	}}
}

func TestMachineOf(t *testing.T) {
	elsewhere := func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "m3m-2" }
	other := func(m *clusterv1.Machine) { m.Name, m.UID = "m-2", "other-uid" }
	for name, tc := range map[string]struct {
		change  func(*bmov1alpha1.BareMetalHost)
		objects []client.Object
		fails   interceptor.Funcs
		want    string
	}{
		"whose infrastructure it names":                        {objects: []client.Object{aMachine(other), aMachine(elsewhere)}, want: "m-2"},
		"also if it must not be read":                          {objects: []client.Object{aMachine()}, fails: refusing("Metal3Machine"), want: "m-1"},
		"that of the Metal3Machine of its HostClaim":           {change: claimed, objects: []client.Object{aMachine(), aHostClaim("m3m-1")}, want: "m-1"},
		"none, if its HostClaim is gone":                       {change: claimed, objects: []client.Object{aMachine()}},
		"none, of a host without a consumer":                   {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = nil }, objects: []client.Object{aMachine()}},
		"none, of one that another kind of consumer has":       {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef.Kind = "Cluster" }, objects: []client.Object{aMachine()}},
		"none, if what it names is in another namespace":       {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef.Namespace = "other" }, objects: []client.Object{aMachine()}},
		"none, if no machine is built on what it names either": {objects: []client.Object{aMetal3Machine("ns/host-1"), aMachine(elsewhere)}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = func(*bmov1alpha1.BareMetalHost) {}
			}
			m, err := hosts(t, tc.fails, tc.objects...).MachineOf(t.Context(), aHost(tc.change))
			must.Do(t, err)
			got := ""
			if m != nil {
				got = m.Name
			}
			must.Is(t, tc.want, got, "it is that of")
		})
	}
	refused := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(corev1.Resource("machines"), "", nil)
	}}
	if _, err := hosts(t, refused, aMachine()).MachineOf(t.Context(), aHost()); !apierrors.IsForbidden(err) {
		t.Errorf("a machine that must not be read is %v, want that it is said", err)
	}
}
